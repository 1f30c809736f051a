"""`loadmanager broker`: one broker in the foreground, as systemd or docker start it."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadmanager import settings
from loadmanager.wiring.broker import BrokerOptions, run_broker
from loadmanager.wiring.plugins import register_plugins

EXAMPLES = """examples:
  loadmanager broker --config /etc/loadmanager/broker.conf
  loadmanager broker --set metadataStoreUrl=zk:zk1:2181,zk2:2181/pulsar --set clusterName=east

SIGTERM stops gracefully (bundles released, connections closed) within
brokerShutdownTimeoutMs; a second signal stops at once.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "broker",
        help="run one broker in the foreground",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="broker.conf, in Pulsar's syntax and key names"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key; may be repeated",
    )
    parser.add_argument(
        "--log-format",
        choices=("console", "json"),
        help="default: console on a terminal, JSON otherwise",
    )
    parser.add_argument(
        "--stop-with-parent",
        action="store_true",
        help="stop when the process that started this one ends",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the broker until it is told to stop."""
    register_plugins()
    loaded = settings.load(args.config, settings.parse_overrides(args.set))
    return run_broker(
        loaded, BrokerOptions(log_format=args.log_format, stop_with_parent=args.stop_with_parent)
    )
