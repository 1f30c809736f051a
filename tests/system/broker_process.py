"""A broker as `loadmanager broker` starts it, which reveals its state to tests.

`python -m system.broker_process FILE broker …`: on SIGUSR1 it writes a JSON object with the names
of its tasks and the routes of its admin API to FILE; on SIGUSR2 it gets a bug, by which it fails at
whatever its present clients ask next. Nothing else of the broker changes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from loadmanager.broker.protocol.connection import Connection
from loadmanager.cli import main

BUG: Any = "no handler"


def _inside() -> dict[str, Any]:
    gc.unfreeze()  # what lived when the broker had started is left out of collections
    applications = [found for found in gc.get_objects() if isinstance(found, web.Application)]
    gc.freeze()
    routes = {
        (route.method, route.resource.canonical)
        for application in applications
        for route in application.router.routes()
        if route.resource is not None
    }
    return {
        "tasks": sorted(task.get_name() for task in asyncio.all_tasks()),
        "routes": sorted(routes),
    }


def _plant_bug(*_: object) -> None:
    gc.unfreeze()
    for connection in [found for found in gc.get_objects() if isinstance(found, Connection)]:
        connection._handlers = dict.fromkeys(connection._handlers, BUG)
    gc.freeze()


def _run(file: Path, arguments: list[str]) -> int:
    def answer(*_: object) -> None:
        half = file.with_suffix(".half")
        half.write_text(json.dumps(_inside()))
        half.rename(file)

    signal.signal(signal.SIGUSR1, answer)
    signal.signal(signal.SIGUSR2, _plant_bug)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1]), sys.argv[2:]))
