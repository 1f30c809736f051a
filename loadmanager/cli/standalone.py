"""`loadmanager standalone`: ZooKeeper and several brokers on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadmanager import settings
from loadmanager.cli.options import add_command, add_config, add_log_format
from loadmanager.core.errors import ConfigError
from loadmanager.wiring.plugins import register_plugins

EXAMPLES = """examples:
  loadmanager standalone
      three brokers: pulsar://localhost:6650 to 6652, http://localhost:8080 to 8082
  loadmanager standalone --brokers 1 --set loadBalancerSheddingIntervalMinutes=0.2
  loadmanager standalone --config broker.conf --data-dir /var/lib/loadmanager

Brokers and ZooKeeper are started again when they die; a broker that an operator stops is not.
Ctrl-C stops everything cleanly; a second Ctrl-C stops at once.
"""
BROKERS_MAX = 64
OWN_OPTIONS = {
    "brokerServicePort": "--pulsar-port",
    "webServicePort": "--http-port",
    "metadataStoreUrl": "--zookeeper-port",
}
"""Key that standalone sets for each broker → the option that decides it."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    parser = add_command(
        subparsers, "standalone", "run ZooKeeper and several brokers on this machine", EXAMPLES
    )
    parser.add_argument(
        "--brokers", type=int, default=3, metavar="N", help="how many broker processes (default 3)"
    )
    parser.add_argument(
        "--pulsar-port",
        type=int,
        default=6650,
        metavar="PORT",
        help="binary protocol: broker i listens on PORT + i, from 0 (default 6650)",
    )
    parser.add_argument(
        "--http-port",
        type=int,
        default=8080,
        metavar="PORT",
        help="admin API: broker i listens on PORT + i, from 0 (default 8080)",
    )
    parser.add_argument(
        "--zookeeper-port",
        type=int,
        default=2181,
        metavar="PORT",
        help="embedded ZooKeeper (default 2181)",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="folder of ZooKeeper's data and of the history (default data)",
    )
    add_config(parser, "broker.conf of all brokers")
    add_log_format(parser)
    parser.add_argument(
        "--no-restart", action="store_true", help="restart nothing; end when all brokers are dead"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the cluster until it is told to stop."""
    from loadmanager.wiring.standalone import StandaloneOptions, run_standalone

    if not 1 <= args.brokers <= BROKERS_MAX:
        raise ConfigError(f"--brokers {args.brokers}: 1 to {BROKERS_MAX} is allowed")
    register_plugins()
    overrides = settings.parse_overrides(args.set)
    for key, option in OWN_OPTIONS.items():
        if key in overrides:
            raise ConfigError(f"--set {key}: standalone decides it for each broker; use {option}")
    options = StandaloneOptions(
        brokers=args.brokers,
        pulsar_port=args.pulsar_port,
        http_port=args.http_port,
        zookeeper_port=args.zookeeper_port,
        data_dir=args.data_dir.resolve(),
        config=args.config,
        overrides=overrides,
        log_format=args.log_format,
        restart=not args.no_restart,
    )
    return run_standalone(options)
