"""`loadmanager broker`: one broker in the foreground, for systemd or Docker."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from loadmanager.broker import settings
from loadmanager.broker.process import BrokerOptions, run_broker
from loadmanager.cli.options import Command, config, log_format

EXAMPLES = """examples:
  loadmanager broker --config /etc/loadmanager/broker.conf
  loadmanager broker --set metadataStoreUrl=zk:zk1:2181,zk2:2181/pulsar --set clusterName=east

SIGTERM releases the bundles, closes the connections and ends the broker within
brokerShutdownTimeoutMs; a second signal, after a second, ends it at once. SIGHUP
to a broker with --config, and without a terminal, has it read the file again:
dynamic keys act at once, others after a restart.
Exit status: 0 stopped, 1 failed, 2 the settings are wrong.
"""


@click.command(cls=Command, epilog=EXAMPLES)
@config("broker.conf; without it, all defaults")
@log_format
@click.option(
    "--stop-with-parent",
    is_flag=True,
    help="stop when the process that started this one ends",
)
def command(
    config: Path | None, overrides: dict[str, str], log_format: str | None, stop_with_parent: bool
) -> int:
    """Run one broker in the foreground."""
    load = partial(settings.KEYS.load, config, overrides)
    options = BrokerOptions(
        log_format=log_format,
        stop_with_parent=stop_with_parent,
        reload=None if config is None else load,
    )
    return run_broker(load(), options)
