"""`loadmanager initialize-cluster-metadata`: what a new cluster needs before its first client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from loadmanager.broker import settings
from loadmanager.broker.initialize import initialize_cluster
from loadmanager.cli.options import Command, config
from loadmanager.kit.logs import configure
from loadmanager.kit.names import NamespaceName

EXAMPLES = """examples:
  loadmanager initialize-cluster-metadata --config /etc/loadmanager/broker.conf
  loadmanager initialize-cluster-metadata --config broker.conf public/default acme/orders

It needs the metadata store, and no broker. What is there already stays as it is.
Exit status: 0 everything is there, 1 the store does not answer, 2 the settings are wrong.
"""
NAMESPACE = "public/default"


@click.command(cls=Command, epilog=EXAMPLES)
@config("the broker.conf of the brokers; without it, all defaults")
@click.argument("namespaces", nargs=-1, metavar="[TENANT/NAMESPACE]...")
def command(config: Path | None, overrides: dict[str, str], namespaces: tuple[str, ...]) -> int:
    """Make the first namespaces of a new cluster.

    That is public/default unless others are named, with their tenants, and the cluster's record,
    in the metadata store that the broker.conf names.
    """
    names = [str(NamespaceName.parse(name)) for name in namespaces or (NAMESPACE,)]
    loaded = settings.KEYS.load(config, overrides)
    configure("warning")
    made = asyncio.run(initialize_cluster(loaded, dict.fromkeys(names)))
    for name in names:
        print(f"{name} {'made' if name in made else 'is there already'}")
    return 0
