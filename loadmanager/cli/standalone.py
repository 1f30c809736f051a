"""`loadmanager standalone`: a metadata store and several brokers on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loadmanager.cli.options import FILE, Command, Decorator, config, log_format
from loadmanager.kit.errors import ConfigError

EXAMPLES = """examples:
  loadmanager standalone
      three brokers: pulsar://localhost:6650 to 6652, http://localhost:8080 to 8082
  loadmanager standalone --brokers 1 --set loadBalancerSheddingIntervalMinutes=0.2
  loadmanager standalone --config broker.conf --data-dir /var/lib/loadmanager

Their metadata are in a small store within this process, which speaks ZooKeeper's protocol and keeps
them in DIR/store. It is for one machine: a production cluster has an ensemble of ZooKeeper in its
metadataStoreUrl. With --zookeeper java, a real ZooKeeper runs here instead, in DIR/zookeeper: pip
install 'loadmanager[java]' (490 MB to download). A cluster stays on the one that it began with.

What dies is started again; a broker that an operator stops is not. Ctrl-C stops everything cleanly;
a second one, after a second, stops at once.
"""
BROKERS_MAX = 64
OWN_OPTIONS = {
    "brokerServicePort": "--pulsar-port",
    "webServicePort": "--http-port",
    "metadataStoreUrl": "--zookeeper-port",
}
"""Key that standalone sets for each broker → the option that decides it."""


def _port(name: str, default: int, text: str) -> Decorator:
    return click.option(name, default=default, metavar="PORT", help=text)


@click.command(cls=Command, epilog=EXAMPLES)
@click.option("--brokers", default=3, metavar="N", help="how many broker processes")
@_port("--pulsar-port", 6650, "binary protocol: broker i listens on PORT + i, from 0")
@_port("--http-port", 8080, "admin API: broker i listens on PORT + i, from 0")
@_port("--zookeeper-port", 2181, "metadata store, by ZooKeeper's protocol")
@click.option(
    "--zookeeper",
    type=click.Choice(("embedded", "java")),
    help="kind of the metadata store; default: that of DIR, embedded for a new one",
)
@click.option(
    "--data-dir",
    type=FILE,
    default=Path("data"),
    metavar="DIR",
    help="folder of metadata, topics and history",
)
@config("broker.conf of all brokers")
@log_format
@click.option("--no-restart", is_flag=True, help="restart nothing; end when all brokers are dead")
def command(
    overrides: dict[str, str], data_dir: Path, no_restart: bool, brokers: int, **options: Any
) -> int:
    """Run a metadata store and several brokers on this machine."""
    from loadmanager.broker.standalone import StandaloneOptions, run_standalone

    if not 1 <= brokers <= BROKERS_MAX:
        raise ConfigError(f"--brokers {brokers}: 1 to {BROKERS_MAX} is allowed")
    for key, option in OWN_OPTIONS.items():
        if key in overrides:
            raise ConfigError(f"--set {key}: standalone decides it for each broker; use {option}")
    return run_standalone(
        StandaloneOptions(
            brokers=brokers,
            data_dir=data_dir.resolve(),
            overrides=overrides,
            restart=not no_restart,
            **options,
        )
    )
