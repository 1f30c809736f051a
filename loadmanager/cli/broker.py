"""`loadmanager broker`: one broker in the foreground, for systemd or Docker."""

from __future__ import annotations

import argparse

from loadmanager import settings
from loadmanager.cli.options import add_command, add_config, add_log_format
from loadmanager.wiring.broker import BrokerOptions, run_broker
from loadmanager.wiring.plugins import register_plugins

EXAMPLES = """examples:
  loadmanager broker --config /etc/loadmanager/broker.conf
  loadmanager broker --set metadataStoreUrl=zk:zk1:2181,zk2:2181/pulsar --set clusterName=east

SIGTERM releases the bundles, closes the connections and ends the broker within
brokerShutdownTimeoutMs; a second signal ends it at once.
Exit status: 0 stopped, 1 failed, 2 the settings are wrong.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    parser = add_command(subparsers, "broker", "run one broker in the foreground", EXAMPLES)
    add_config(parser, "broker.conf; without it, all defaults")
    add_log_format(parser)
    parser.add_argument(
        "--stop-with-parent",
        action="store_true",
        help="stop when the process that started this one ends",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the broker until a signal or an operator stops it."""
    register_plugins()
    loaded = settings.load(args.config, settings.parse_overrides(args.set))
    return run_broker(
        loaded, BrokerOptions(log_format=args.log_format, stop_with_parent=args.stop_with_parent)
    )
