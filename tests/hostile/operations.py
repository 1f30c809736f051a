"""Random requests over all operations of the OpenAPI document, to a broker in this process."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from dataclasses import dataclass, field

from broker.admin.serving import Served, serving
from clusters.running import until
from hostile.requests import SKIPPED, Asked, Stranger, send_requests
from hostile.roles import EVERYBODY, PROVEN, ROLES, secured
from hostile.test_routes import declared
from structlog.testing import capture_logs

QUIET_S = 60.0
STRANGER = Stranger(
    ROLES["without permissions"].credentials,
    re.compile(
        "|".join(
            re.sub(r"\\{\w+\\}", "[^/]*", re.escape(f"{method} {path}"))
            for (method, path), who in declared().items()
            if who in (EVERYBODY, PROVEN)
        )
    ),
)


@dataclass
class Found:
    """How it went."""

    asked: Asked
    operations: int
    """Operations of the document that can be asked for."""
    problems: list[str] = field(default_factory=list)


async def ask_at_random(
    seed: int, count: int, seconds: float = math.inf, *, as_stranger: bool = False
) -> Found:
    """Send so many requests, but none after `seconds`; then look at the broker. `as_stranger`: with
    a token that permits nothing; else the broker asks for none.
    """
    async with secured() if as_stranger else serving(1) as served:
        paths = served.contract.document["paths"]
        routes = [
            (method.upper(), path)
            for path, methods in sorted(paths.items())
            for method in sorted(methods)
            if not path.startswith(SKIPPED)
        ]
        queries = {
            parameter["name"]
            for methods in paths.values()
            for operation in methods.values()
            for parameter in operation["parameters"]
            if parameter["in"] == "query"
        }
        port = int(served.url().rpartition(":")[2])
        over = threading.Event()  # without it, the thread would outlive a cancelled test
        with capture_logs() as logs:
            try:
                asked = await asyncio.to_thread(
                    send_requests,
                    [port],
                    routes,
                    count,
                    seed,
                    [],
                    queries=queries,
                    seconds=seconds,
                    stop=over.is_set,
                    stranger=STRANGER if as_stranger else None,
                )
            finally:
                over.set()
            problems = await _left(served)
        errors = [line for line in logs if line["log_level"] in ("error", "critical")]
        problems += [f"logged: {line}" for line in errors]
        problems += [f"{times} × {what}" for what, times in asked.problems.items()]
        return Found(asked, len(routes), problems)


async def _left(served: Served) -> list[str]:
    """What is wrong with the broker afterwards."""
    answer = await served.ask("GET", "/admin/v2/brokers/version")
    problems = [] if answer.status == 200 else [f"the broker answers {answer}"]
    server = served.servers[0]
    try:
        await until(lambda: server._connections._crowd.count <= 1, QUIET_S)  # this one's own
    except TimeoutError:
        problems.append(f"{server._connections._crowd.count} connections are left")
    return problems
