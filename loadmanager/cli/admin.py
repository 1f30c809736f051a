"""`loadmanager admin`: what operators do, over a broker's HTTP API."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from loadmanager.cli import admin_commands as do
from loadmanager.cli import admin_policies as policies
from loadmanager.cli.asking import Asking

URL = "http://localhost:8080"
TIMEOUT_S = 60.0
EXAMPLES = """examples:
  loadmanager admin brokers list
  loadmanager admin namespaces create acme/orders --bundles 16 --create-tenant
  loadmanager admin bundles list acme/orders
  loadmanager admin bundles unload acme/orders/0x00000000_0x10000000 --to localhost:8082
  loadmanager admin topics lookup persistent://acme/orders/new --json
  loadmanager admin limits set acme/orders publishRate --messages 1000
  loadmanager admin limits why persistent://acme/orders/new
  loadmanager admin isolation set gold --namespaces 'gold/.*' --primary 'big-.*'
  loadmanager admin drain localhost:8081 --stop

Any broker can be asked; it sends the question on to the broker that is responsible.
Exit status: 0 done, 1 failed, 2 refused as wrong.
"""

Subparsers = Any
Command = Callable[[Asking, argparse.Namespace], do.Shown]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    common = _common()
    parser = subparsers.add_parser(
        "admin",
        help="look at a running cluster and change it",
        epilog=EXAMPLES,
        parents=[_common()],  # its own: `set_defaults` writes into the shared actions
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, url=URL, json=False, timeout=TIMEOUT_S)
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")

    def group(name: str, text: str) -> Callable[[str, Command], argparse.ArgumentParser]:
        actions = subjects.add_parser(name, help=text).add_subparsers(
            dest="action", required=True, metavar="ACTION"
        )
        return lambda action, command: _leaf(actions, action, command, common)

    _brokers(group("brokers", "live brokers: list, leader, health, report"))
    _namespaces(group("namespaces", "list, create, delete, bundles, policies, unload"))
    _bundles(group("bundles", "list with owners, unload, split"))
    _topics(group("topics", "list, lookup, partitions, stats"))
    _limits(group("limits", "list, why, show, set, remove: rate limits"))
    _isolation(group("isolation", "list, set, delete: which brokers serve which namespaces"))
    shown = _leaf(subjects, "decisions", do.decisions, common)
    shown.add_argument(
        "--limit", type=int, default=20, metavar="N", help="how many, newest first (default 20)"
    )
    _leaf(subjects, "dry-run", do.dry_run, common)
    drained = _leaf(subjects, "drain", do.drain, common)
    drained.add_argument("broker", metavar="BROKER", help="host:port, as `brokers list` shows it")
    drained.add_argument(
        "--stop", action="store_true", help="stop the broker when its bundles are elsewhere"
    )


def _common() -> argparse.ArgumentParser:
    """Options that stand before the subject or after the action.

    They have no default of their own: it would undo what stands before.
    """
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--url", help=f"HTTP address of any broker (default {URL})")
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help=f"how long to wait for an answer, in seconds (default {TIMEOUT_S:g})",
    )
    return common


def _leaf(
    actions: Subparsers, name: str, command: Command, common: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    text = (command.__doc__ or "").strip()
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text, parents=[common]
    )
    parser.set_defaults(command_of_admin=command)
    return parser


Leaf = Callable[[str, Command], argparse.ArgumentParser]


def _brokers(leaf: Leaf) -> None:
    leaf("list", do.brokers_list)
    leaf("leader", do.brokers_leader)
    leaf("health", do.brokers_health).add_argument("broker", nargs="?", metavar="BROKER")
    leaf("report", do.brokers_report).add_argument("broker", nargs="?", metavar="BROKER")


def _namespaces(leaf: Leaf) -> None:
    leaf("list", do.namespaces_list).add_argument("tenant", nargs="?", metavar="TENANT")
    create = leaf("create", do.namespaces_create)
    delete = leaf("delete", do.namespaces_delete)
    rest = (
        leaf("bundles", do.namespaces_bundles),
        leaf("policies", do.namespaces_policies),
        leaf("unload", do.namespaces_unload),
    )
    for parser in (create, delete, *rest):
        parser.add_argument("namespace", metavar="TENANT/NAMESPACE")
    cut = create.add_mutually_exclusive_group()
    cut.add_argument("--bundles", type=int, metavar="N", help="cut into N equal bundles")
    cut.add_argument(
        "--boundaries",
        metavar="B,B,...",
        help="cut at these, such as 0x00000000,0x80000000,0xffffffff",
    )
    create.add_argument(
        "--create-tenant", action="store_true", help="create the tenant first if it does not exist"
    )
    delete.add_argument("--force", action="store_true", help="with its topics")


def _bundles(leaf: Leaf) -> None:
    leaf("list", do.bundles_list).add_argument("namespace", nargs="*", metavar="TENANT/NAMESPACE")
    unload = leaf("unload", do.bundles_unload)
    unload.add_argument("bundle", metavar="TENANT/NAMESPACE/RANGE")
    unload.add_argument(
        "--to", metavar="BROKER", help="host:port of the broker that shall own it next"
    )
    split = leaf("split", do.bundles_split)
    split.add_argument(
        "bundle", metavar="TENANT/NAMESPACE/RANGE", help="a range, or LARGEST or HOT"
    )
    split.add_argument(
        "--algorithm",
        metavar="NAME",
        help="such as range_equally_divide or topic_count_equally_divide",
    )
    split.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="HASH",
        help="cut here (specified_positions_divide); may be repeated",
    )
    split.add_argument(
        "--unload", action="store_true", help="unload the new bundles, so that they are placed anew"
    )


def _topics(leaf: Leaf) -> None:
    leaf("list", do.topics_list).add_argument("namespace", metavar="TENANT/NAMESPACE")
    leaf("lookup", do.topics_lookup).add_argument("topic", metavar="TOPIC")
    partitions = leaf("partitions", do.topics_partitions)
    partitions.add_argument("topic", metavar="TOPIC")
    partitions.add_argument(
        "--create", type=int, metavar="N", help="create the topic with N partitions"
    )
    leaf("stats", do.topics_stats).add_argument("topic", metavar="TOPIC")


def _limits(leaf: Leaf) -> None:
    leaf("list", policies.limits_list).add_argument("broker", nargs="?", metavar="BROKER")
    leaf("why", policies.limits_why).add_argument("topic", metavar="TOPIC")
    chosen = leaf("set", policies.limits_set)
    removed = leaf("remove", policies.limits_remove)
    for parser in (leaf("show", policies.limits_show), chosen, removed):
        parser.add_argument("of", metavar="TENANT/NAMESPACE|TOPIC")
    for parser in (chosen, removed):
        parser.add_argument("limit", choices=policies.FIELDS)
    chosen.add_argument(
        "--messages",
        type=int,
        metavar="N",
        help="messages per second (SUBSCRIBE requests for subscribeRate); -1: unlimited",
    )
    chosen.add_argument("--bytes", type=int, metavar="N", help="bytes per second; -1: unlimited")
    chosen.add_argument(
        "--period", type=int, metavar="S", help="per so many seconds instead of one"
    )


def _isolation(leaf: Leaf) -> None:
    leaf("list", policies.isolation_list)
    chosen = leaf("set", policies.isolation_set)
    for parser in (chosen, leaf("delete", policies.isolation_delete)):
        parser.add_argument("policy", metavar="POLICY")
    chosen.add_argument(
        "--namespaces",
        nargs="+",
        required=True,
        metavar="REGEX",
        help="namespaces, such as 'acme/.*'",
    )
    chosen.add_argument(
        "--primary",
        nargs="+",
        required=True,
        metavar="REGEX",
        help="brokers that serve them, by host or host:port",
    )
    chosen.add_argument(
        "--secondary", nargs="*", default=[], metavar="REGEX", help="brokers that help out"
    )
    chosen.add_argument(
        "--min-primaries",
        type=int,
        default=1,
        metavar="N",
        help="secondaries help out while fewer primaries live (default 1)",
    )
    chosen.add_argument(
        "--unload",
        choices=("all_matching", "changed", "none"),
        default="changed",
        help="which namespaces move now (default changed)",
    )


def run(args: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    command: Command = args.command_of_admin
    shown = command(Asking(args.url, timeout_s=args.timeout), args)
    print(json.dumps(shown.data, indent=2) if args.json else shown.text)
    return shown.status
