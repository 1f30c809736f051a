"""`loadmanager demo`: a cluster under a skewed load, and what to look at while it is balanced."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from loadmanager.cli.options import FILE, Command, Decorator
from loadmanager.kit.errors import OperationalError

EXAMPLES = """examples:
  loadmanager demo
      then open http://127.0.0.1:8080/ui
  loadmanager demo --pulsar-port 16650 --http-port 18080 --zookeeper-port 12181

Three brokers and a metadata store start on this machine. Stock Pulsar clients publish to 16
topics, which are all in one bundle at first: one broker carries everything. Within a minute the
bundle splits, its parts move, and the load is even. Every 90 s other topics become the busy ones.
Ctrl-C ends the demo and removes what it wrote.
"""


def _port(name: str, default: int, text: str) -> Decorator:
    return click.option(name, default=default, metavar="PORT", help=text)


@click.command(cls=Command, epilog=EXAMPLES)
@_port("--pulsar-port", 6650, "binary protocol: three ports from this one on")
@_port("--http-port", 8080, "admin API and page: three ports from this one on")
@_port("--zookeeper-port", 2181, "metadata store, by ZooKeeper's protocol")
@click.option("--seconds", type=float, metavar="S", help="end after so long; default: at Ctrl-C")
@click.option(
    "--log", type=FILE, metavar="FILE", help="keep the log of the brokers there; default: nowhere"
)
def command(
    pulsar_port: int, http_port: int, zookeeper_port: int, seconds: float | None, log: Path | None
) -> int:
    """Show a cluster that balances a skewed load, and say what to look at."""
    from loadmanager.cli.demo.running import Demo

    if importlib.util.find_spec("pulsar") is None:
        raise OperationalError(
            "the demo needs the stock Pulsar client: pip install pulsar-client (`make demo` "
            "installs it)"
        )
    return Demo(pulsar_port, http_port, zookeeper_port, seconds=seconds, log=log).run()
