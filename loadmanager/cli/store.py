"""`loadmanager store`: a metadata store alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadmanager.cli.options import FILE, Command, host_and_port, log_format
from loadmanager.kit.errors import ConfigError, OperationalError

if TYPE_CHECKING:
    from loadmanager.kit.system.ending import Ending
    from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore

STOP_S = 30.0
EXAMPLES = """examples:
  loadmanager store
      members find each other at zk://127.0.0.1:2181/NAME-OF-THE-SERVICE
  loadmanager store --listen 127.0.0.1:2182 --data-dir /var/lib/store

It speaks ZooKeeper's protocol, keeps all that it has answered in DIR/store, and is the one of
`loadmanager standalone`. It has no replicas: production has an ensemble of ZooKeeper. Whoever
reaches its port may read and change everything. Ctrl-C stops it; exit status 1: it could not serve,
or its disk fails.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@click.option(
    "--listen",
    default="127.0.0.1:2181",
    metavar="HOST:PORT",
    callback=host_and_port,
    help="where it is reached",
)
@click.option(
    "--data-dir", type=FILE, default=Path("data"), metavar="DIR", help="folder of what it stores"
)
@log_format
def command(listen: tuple[str, int], data_dir: Path, log_format: str | None) -> int:
    """Run a metadata store alone, for sharded services on this machine."""
    from loadmanager.kit.logs import configure
    from loadmanager.kit.system.ending import Ending
    from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore
    from loadmanager.kit.zookeeper.local import EMBEDDED_FOLDER

    host, port = listen
    if not port:
        raise ConfigError("--listen: port 0 is none that members know")
    configure(json=None if log_format is None else log_format == "json")
    store = EmbeddedStore(port=port, data_dir=data_dir.resolve() / EMBEDDED_FOLDER, host=host)
    with Ending(lambda: STOP_S) as ending:
        return asyncio.run(_run(store, ending))


async def _run(store: EmbeddedStore, ending: Ending) -> int:
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    ending.listen(task.cancel)
    try:
        async with store:
            await store.ended()
            raise OperationalError(f"{store.name} {store.how_it_ended()}")
    except asyncio.CancelledError:
        if not ending.signalled:
            raise
        return 0
