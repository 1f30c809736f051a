"""`loadmanager admin`: operate a running cluster over the brokers' HTTP API."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

from loadmanager.cli import admin_commands as commands
from loadmanager.cli import admin_policies as policies
from loadmanager.cli import contexts
from loadmanager.cli.admin_client import AdminClient
from loadmanager.cli.options import add_command

URL = "http://localhost:8080"
TIMEOUT_S = 60.0
EXAMPLES = """examples:
  loadmanager admin use staging --url http://10.0.0.5:8080
  loadmanager admin brokers list
  loadmanager admin namespaces create acme/orders --bundles 16 --create-tenant
  loadmanager admin bundles list acme/orders
  loadmanager admin bundles unload acme/orders/0x00000000_0x10000000 --to 127.0.0.1:8082
  loadmanager admin topics lookup persistent://acme/orders/new --json
  loadmanager admin limits set acme/orders publishRate --messages 1000
  loadmanager admin limits why persistent://acme/orders/new
  loadmanager admin isolation set gold --namespaces 'gold/.*' --primary 'big-.*'
  loadmanager admin drain 127.0.0.1:8081 --stop

--url may name any broker: it redirects a request to the broker that can answer it.
Exit status: 0 done; 1 failed, there was nothing to do, or a broker did not answer; 2 refused as
wrong.
"""

Subparsers = Any
Command = Callable[[AdminClient, argparse.Namespace], commands.Output]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    common = _common()
    # Not `common`: `set_defaults` would change the shared options.
    parser = add_command(
        subparsers,
        "admin",
        "look at a running cluster and change it",
        EXAMPLES,
        parents=(_common(),),
    )
    parser.set_defaults(run=run, url=None, json=False, timeout=TIMEOUT_S)
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")

    def group(name: str, text: str) -> Callable[[str, Command], argparse.ArgumentParser]:
        parser = subjects.add_parser(name, help=text, description=text, parents=[common])
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        return lambda action, command: _leaf(actions, action, command, common)

    _brokers(group("brokers", "live brokers: list, leader, health, report"))
    _namespaces(group("namespaces", "list, create, delete, bundles, policies, unload"))
    _bundles(group("bundles", "list with owners, unload, split"))
    _topics(group("topics", "list, lookup, partitions, stats"))
    _limits(group("limits", "list, why, show, set, remove: rate limits"))
    _isolation(group("isolation", "list, set, delete: which brokers serve which namespaces"))
    _leaf(subjects, "use", contexts.use, common).add_argument("name", nargs="?", metavar="NAME")
    decisions = _leaf(subjects, "decisions", commands.decisions, common)
    decisions.add_argument(
        "--limit", type=int, default=20, metavar="N", help="at most N decisions (default 20)"
    )
    _leaf(subjects, "dry-run", commands.dry_run, common)
    drain = _leaf(subjects, "drain", commands.drain, common)
    drain.add_argument("broker", metavar="BROKER", help="host:port, as `brokers list` shows it")
    drain.add_argument(
        "--stop", action="store_true", help="stop the broker when its bundles are elsewhere"
    )


def _common() -> argparse.ArgumentParser:
    """Options that may stand before or after the subject, or after the action.

    They have no default: the default of an action's parser would override the option before the
    subject.
    """
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        "--url", help=f"HTTP address of any broker (default: as `admin use` says, else {URL})"
    )
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help=f"seconds to wait for an answer (default {TIMEOUT_S:g})",
    )
    return common


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text}: more than 0 seconds are expected")


def _leaf(
    actions: Subparsers, name: str, command: Command, common: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    text = inspect.getdoc(command) or ""
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text.splitlines()[0], description=text, parents=[common]
    )
    parser.set_defaults(admin_command=command)
    return parser


Leaf = Callable[[str, Command], argparse.ArgumentParser]


def _brokers(leaf: Leaf) -> None:
    leaf("list", commands.brokers_list)
    leaf("leader", commands.brokers_leader)
    leaf("health", commands.brokers_health).add_argument("broker", nargs="?", metavar="BROKER")
    leaf("report", commands.brokers_report).add_argument("broker", nargs="?", metavar="BROKER")


def _namespaces(leaf: Leaf) -> None:
    leaf("list", commands.namespaces_list).add_argument("tenant", nargs="?", metavar="TENANT")
    create = leaf("create", commands.namespaces_create)
    delete = leaf("delete", commands.namespaces_delete)
    rest = (
        leaf("bundles", commands.namespaces_bundles),
        leaf("policies", commands.namespaces_policies),
        leaf("unload", commands.namespaces_unload),
    )
    for parser in (create, delete, *rest):
        parser.add_argument("namespace", metavar="TENANT/NAMESPACE")
    bundles = create.add_mutually_exclusive_group()
    bundles.add_argument("--bundles", type=int, metavar="N", help="N bundles of equal size")
    bundles.add_argument(
        "--boundaries",
        metavar="B,B,...",
        help="boundaries of the bundles, such as 0x00000000,0x80000000,0xffffffff",
    )
    create.add_argument(
        "--create-tenant", action="store_true", help="create the tenant first if it does not exist"
    )
    delete.add_argument("--force", action="store_true", help="delete its topics, too")


def _bundles(leaf: Leaf) -> None:
    leaf("list", commands.bundles_list).add_argument(
        "namespace", nargs="*", metavar="TENANT/NAMESPACE"
    )
    unload = leaf("unload", commands.bundles_unload)
    unload.add_argument("bundle", metavar="TENANT/NAMESPACE/RANGE")
    unload.add_argument(
        "--to", metavar="BROKER", help="host:port of the broker that owns the bundle next"
    )
    split = leaf("split", commands.bundles_split)
    split.add_argument(
        "bundle", metavar="TENANT/NAMESPACE/RANGE", help="a range, or LARGEST or HOT"
    )
    split.add_argument(
        "--algorithm",
        metavar="NAME",
        help="split algorithm, such as range_equally_divide or topic_count_equally_divide",
    )
    split.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="HASH",
        help="new boundary, for specified_positions_divide; may be repeated",
    )
    split.add_argument(
        "--unload", action="store_true", help="unload the new bundles; the next lookups place them"
    )


def _topics(leaf: Leaf) -> None:
    leaf("list", commands.topics_list).add_argument("namespace", metavar="TENANT/NAMESPACE")
    leaf("lookup", commands.topics_lookup).add_argument("topic", metavar="TOPIC")
    partitions = leaf("partitions", commands.topics_partitions)
    partitions.add_argument("topic", metavar="TOPIC")
    partitions.add_argument(
        "--create", type=int, metavar="N", help="create the topic with N partitions"
    )
    leaf("stats", commands.topics_stats).add_argument("topic", metavar="TOPIC")


def _limits(leaf: Leaf) -> None:
    leaf("list", policies.limits_list).add_argument("broker", nargs="?", metavar="BROKER")
    leaf("why", policies.limits_why).add_argument("topic", metavar="TOPIC")
    set_ = leaf("set", policies.limits_set)
    remove = leaf("remove", policies.limits_remove)
    for parser in (leaf("show", policies.limits_show), set_, remove):
        parser.add_argument("of", metavar="TENANT/NAMESPACE|TOPIC")
    for parser in (set_, remove):
        parser.add_argument("limit", choices=policies.FIELDS)
    set_.add_argument(
        "--messages",
        type=int,
        metavar="N",
        help="messages (subscribeRate: SUBSCRIBE requests) per period; -1: unlimited",
    )
    set_.add_argument("--bytes", type=int, metavar="N", help="bytes per period; -1: unlimited")
    set_.add_argument(
        "--period",
        type=int,
        metavar="S",
        help="period in seconds (default 1, subscribeRate 30; publishRate has no other)",
    )


def _isolation(leaf: Leaf) -> None:
    leaf("list", policies.isolation_list)
    set_ = leaf("set", policies.isolation_set)
    for parser in (set_, leaf("delete", policies.isolation_delete)):
        parser.add_argument("policy", metavar="POLICY")
    set_.add_argument(
        "--namespaces",
        nargs="+",
        required=True,
        metavar="REGEX",
        help="namespaces of the policy, such as 'acme/.*'",
    )
    set_.add_argument(
        "--primary",
        nargs="+",
        required=True,
        metavar="REGEX",
        help="brokers that serve the namespaces, by host or host:port",
    )
    set_.add_argument(
        "--secondary",
        nargs="*",
        default=[],
        metavar="REGEX",
        help="brokers that serve them, too, while too few primaries are live",
    )
    set_.add_argument(
        "--min-primaries",
        type=int,
        default=1,
        metavar="N",
        help="fewer live primaries than N are too few (default 1)",
    )
    set_.add_argument(
        "--unload",
        choices=("all_matching", "changed", "none"),
        default="changed",
        help="which namespaces to unload now (default changed)",
    )


def run(args: argparse.Namespace) -> int:
    """Send the command's requests, and print its output."""
    command: Command = args.admin_command
    args.given_url = args.url
    url = args.url or contexts.load().url or URL
    output = command(AdminClient(url, timeout_s=args.timeout), args)
    print(json.dumps(output.data, indent=2) if args.json else output.text)
    for broker, reason in output.missing.items():
        print(f"loadmanager admin: {broker} is left out: {reason}", file=sys.stderr)
    return output.status or (1 if output.missing else 0)
