"""Each `loadmanager admin …` command: the requests that it sends, and the output that it makes.

The first sentence of a command's docstring is its help text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from loadmanager.cli.admin_client import AdminClient
from loadmanager.cli.tables import Cell, table
from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.bundles.ranges import BundleRange, bundle_name, split_bundle_name
from loadmanager.core.errors import BadInputError, LoadManagerError, OperationalError
from loadmanager.core.strategies.plan_document import plan_lines

V2 = "/admin/v2"
RESOURCES = (
    ("cpu", "cpu %"),
    ("memory", "mem %"),
    ("directMemory", "direct %"),
    ("bandwidthIn", "in %"),
    ("bandwidthOut", "out %"),
)


@dataclass(frozen=True, slots=True)
class Output:
    """What a command prints, and the exit status."""

    data: Any
    """Printed with --json."""
    text: str
    """Printed without --json."""
    status: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    """Broker → why it did not answer: what it would have said is left out."""


def _json(data: Any) -> Output:
    return Output(data, json.dumps(data, indent=2))


def _bundles(count: int) -> str:
    return f"{count} bundle" if count == 1 else f"{count} bundles"


def _done(text: str, **data: Any) -> Output:
    return Output({"done": text, **data}, text)


def _nothing(text: str, **data: Any) -> Output:
    """Nothing was done."""
    return Output(data, text, status=1)


def ask_each(
    admin: AdminClient, brokers: Sequence[str], ask: Callable[[AdminClient, str], Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Broker → answer, and broker → why it did not answer."""
    answers: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for broker in brokers:
        try:
            answers[broker] = ask(admin.at(broker), broker)
        except OperationalError as error:
            missing[broker] = str(error)
    return answers, missing


def namespace_path(text: str) -> str:
    """The path of a namespace in the admin API."""
    return f"{V2}/namespaces/{NamespaceName.parse(text)}"


def topic_path(text: str) -> str:
    """Domain, namespace and encoded name of a topic, as a path contains them."""
    topic = TopicName.parse(text)
    return f"{topic.domain}/{topic.namespace}/{quote(topic.local, safe='')}"


def cluster_of(admin: AdminClient) -> str:
    """The cluster of the broker; the metadata store may record other clusters, too."""
    return str(admin.get(f"{V2}/brokers/configuration/runtime")["clusterName"])


def _query(**values: Any) -> str:
    given = {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != ""
    }
    texts = {name: "true" if value is True else str(value) for name, value in given.items()}
    return "?" + urlencode(texts, safe=":/") if texts else ""


# Brokers


def brokers_list(admin: AdminClient, _args: argparse.Namespace) -> Output:
    """List the live brokers, and mark the leader."""
    brokers, leader = admin.get(f"{V2}/brokers"), _leader(admin)
    data = [{"broker": broker, "leader": broker == leader} for broker in brokers]
    return Output(
        data,
        table(
            ("broker", "role"),
            [(broker, "leader" if broker == leader else "") for broker in brokers],
        ),
    )


def _leader(admin: AdminClient) -> str | None:
    try:
        return str(admin.get(f"{V2}/brokers/leaderBroker")["brokerId"])
    except OperationalError:
        return None  # 404: no broker leads now


def brokers_leader(admin: AdminClient, _args: argparse.Namespace) -> Output:
    """Show the leader."""
    leader = admin.get(f"{V2}/brokers/leaderBroker")
    return Output(leader, f"{leader['brokerId']}  {leader['serviceUrl']}")


def brokers_health(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Check all brokers, or the named one; exit status 1 if a broker is not healthy."""
    brokers = [args.broker] if args.broker else admin.get(f"{V2}/brokers")
    health = {broker: _health(admin.at(broker)) for broker in brokers}
    healthy = bool(health) and all(state == "ok" for state in health.values())
    return Output(health, table(("broker", "health"), list(health.items())), 0 if healthy else 1)


def _health(admin: AdminClient) -> str:
    try:
        return str(admin.get(f"{V2}/brokers/health"))
    except LoadManagerError as error:
        return str(error).splitlines()[0]


def brokers_report(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Show the load reports of all brokers, or of the named one."""
    brokers = [args.broker] if args.broker else admin.get(f"{V2}/brokers")
    reports, missing = ask_each(admin, brokers, _report)
    headers = (
        "broker",
        *(title for _, title in RESOURCES),
        "msg in/s",
        "msg out/s",
        "bundles",
        "topics",
    )
    rows = [_report_row(broker, report) for broker, report in reports.items()]
    return Output(reports, table(headers, rows), missing=missing)


def _report(admin: AdminClient, _broker: str) -> dict[str, Any]:
    return dict(admin.get(f"{V2}/broker-stats/load-report"))


def _report_row(broker: str, report: dict[str, Any]) -> tuple[Cell, ...]:
    rates = (float(report.get("msgRateIn", 0)), float(report.get("msgRateOut", 0)))
    return (
        broker,
        *(_percent(report.get(name)) for name, _ in RESOURCES),
        *rates,
        report.get("numBundles"),
        report.get("numTopics"),
    )


def _percent(usage: dict[str, float] | None) -> float | None:
    return 100.0 * usage["usage"] / usage["limit"] if usage and usage.get("limit", 0) > 0 else None


def drain(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Unload every bundle of a broker to the brokers with the fewest bundles."""
    brokers = admin.get(f"{V2}/brokers")
    if args.broker not in brokers:
        raise BadInputError(f"{args.broker} is not active; the brokers are {', '.join(brokers)}")
    cluster = cluster_of(admin)
    owned = {
        broker: len(_owned(admin.at(broker), cluster, broker))
        for broker in brokers
        if broker != args.broker
    }
    if not owned:
        raise OperationalError(f"{args.broker} is the only broker: no other can take its bundles")
    moves: list[dict[str, str]] = []
    for bundle in sorted(_owned(admin.at(args.broker), cluster, args.broker)):
        destination = min(owned, key=lambda broker: (owned[broker], broker))
        _unload(admin, bundle, destination)
        owned[destination] += 1
        moves.append({"bundle": bundle, "to": destination})
    if args.stop:
        admin.at(args.broker).send("POST", f"{V2}/brokers/shutdown")
    summary = f"{_bundles(len(moves))} moved off {args.broker}; " + (
        "it stops now" if args.stop else "the leader may give it bundles again"
    )
    return Output(
        {"moves": moves, "stopped": args.stop},
        "\n".join([*(f"{move['bundle']} -> {move['to']}" for move in moves), summary]),
    )


# Namespaces


def namespaces_list(admin: AdminClient, args: argparse.Namespace) -> Output:
    """List the namespaces of a tenant, or of all tenants."""
    names = _namespaces(admin, args.tenant)
    return Output(names, "\n".join(names))


def _namespaces(admin: AdminClient, tenant: str | None = None) -> list[str]:
    tenants = [tenant] if tenant else admin.get(f"{V2}/tenants")
    return [
        str(namespace)
        for name in tenants
        for namespace in admin.get(f"{V2}/namespaces/{quote(name, safe='')}")
    ]


def namespaces_create(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Create a namespace."""
    bundles: dict[str, Any] | None = None
    if args.boundaries:
        boundaries = args.boundaries.split(",")
        bundles = {"boundaries": boundaries, "numBundles": len(boundaries) - 1}
    elif args.bundles is not None:
        bundles = {"numBundles": args.bundles}
    path, tenant = namespace_path(args.namespace), NamespaceName.parse(args.namespace).tenant
    if args.create_tenant and tenant not in admin.get(f"{V2}/tenants"):
        admin.send(
            "PUT",
            f"{V2}/tenants/{tenant}",
            {"adminRoles": [], "allowedClusters": admin.get(f"{V2}/clusters")},
        )
    admin.send("PUT", path, {"bundles": bundles} if bundles else None)
    count = admin.get(f"{path}/bundles")["numBundles"]
    return _done(
        f"{args.namespace} created with {_bundles(count)}", namespace=args.namespace, bundles=count
    )


def namespaces_delete(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Delete a namespace."""
    admin.send("DELETE", namespace_path(args.namespace) + _query(force=args.force))
    return _done(f"{args.namespace} deleted")


def namespaces_bundles(admin: AdminClient, args: argparse.Namespace) -> Output:
    """List the bundles of a namespace as ranges."""
    bundles = admin.get(f"{namespace_path(args.namespace)}/bundles")
    return Output(bundles, "\n".join(_ranges(bundles)))


def _ranges(bundles: dict[str, Any]) -> list[str]:
    bounds = bundles["boundaries"]
    return [f"{low}_{high}" for low, high in zip(bounds, bounds[1:], strict=False)]


def _bundles_of(admin: AdminClient, namespace: str) -> list[str]:
    bundles = admin.get(f"{namespace_path(namespace)}/bundles")
    return [f"{namespace}/{bundle_range}" for bundle_range in _ranges(bundles)]


def namespaces_policies(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Show the policies of a namespace."""
    return _json(admin.get(namespace_path(args.namespace)))


def namespaces_unload(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Unload all bundles of a namespace."""
    owners = _owners(admin)
    owned = [bundle for bundle in _bundles_of(admin, args.namespace) if bundle in owners]
    admin.send("PUT", f"{namespace_path(args.namespace)}/unload")
    if not owned:
        text = f"{args.namespace}: no bundle has an owner: nothing to unload"
        return _nothing(text, unloaded=owned)
    return _done(
        f"{args.namespace}: {_bundles(len(owned))} unloaded; the next lookups place them",
        unloaded=owned,
    )


# Bundles


def bundles_list(admin: AdminClient, args: argparse.Namespace) -> Output:
    """List the bundles of all brokers: owner, and traffic of the last load report."""
    brokers, cluster = admin.get(f"{V2}/brokers"), cluster_of(admin)
    told, missing = ask_each(
        admin, brokers, lambda at, broker: (_owned(at, cluster, broker), _report(at, broker))
    )
    owners = {bundle: broker for broker, (owned, _) in told.items() for bundle in owned}
    stats: dict[str, dict[str, Any]] = {}
    for _, report in told.values():
        stats.update(report.get("lastStats") or {})
    data = [
        {"bundle": bundle, "owner": owners.get(bundle), **_traffic(stats.get(bundle, {}))}
        for namespace in args.namespace or _namespaces(admin)
        for bundle in _bundles_of(admin, namespace)
    ]
    headers = ("bundle", "owner", "topics", "msg in/s", "msg out/s", "kib in/s", "kib out/s")
    return Output(data, table(headers, [tuple(row.values()) for row in data]), missing=missing)


_TRAFFIC = (
    ("msgRateIn", "msgRateIn", 1),
    ("msgRateOut", "msgRateOut", 1),
    ("kibPerSecondIn", "msgThroughputIn", 1024),
    ("kibPerSecondOut", "msgThroughputOut", 1024),
)
"""Name in the output, name in the load report, unit."""


def _traffic(stats: dict[str, Any]) -> dict[str, Cell]:
    """Topics and rates of a bundle; None where the load report says nothing."""
    rates = {
        name: float(stats[field]) / unit if field in stats else None
        for name, field, unit in _TRAFFIC
    }
    return {"topics": stats.get("topics"), **rates}


def _owners(admin: AdminClient) -> dict[str, str]:
    """Bundle → broker that owns it."""
    cluster = cluster_of(admin)
    return {
        bundle: broker
        for broker in admin.get(f"{V2}/brokers")
        for bundle in _owned(admin.at(broker), cluster, broker)
    }


def _owned(at: AdminClient, cluster: str, broker: str) -> list[str]:
    """The bundles of a broker, of which `at` is the client."""
    return list(at.get(f"{V2}/brokers/{quote(cluster, safe='')}/{broker}/ownedNamespaces"))


def bundles_unload(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Unload a bundle."""
    namespace, bundle_range = split_bundle_name(args.bundle)
    owner = _owners(admin).get(bundle_name(namespace, str(BundleRange.parse(bundle_range))))
    _unload(admin, args.bundle, args.to)
    if owner is not None:
        end = f" to {args.to}" if args.to else "; the next lookup places it"
        return _done(f"{args.bundle} unloaded from {owner}{end}", unloaded=True)
    end = f"; the next lookup places it on {args.to}" if args.to else ""
    text = f"{args.bundle} has no owner: nothing to unload{end}"
    return _done(text, unloaded=False) if args.to else _nothing(text, unloaded=False)


def _unload(admin: AdminClient, bundle: str, destination: str | None) -> None:
    namespace, bundle_range = split_bundle_name(bundle)
    admin.send(
        "PUT",
        f"{namespace_path(namespace)}/{quote(bundle_range, safe='')}/unload"
        + _query(destinationBroker=destination),
    )


def bundles_split(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Split a bundle, or the LARGEST or HOT bundle of the broker at --url."""
    namespace, bundle_range = split_bundle_name(args.bundle)
    base = namespace_path(namespace)
    before = admin.get(f"{base}/bundles")["boundaries"]
    query = _query(unload=args.unload, splitAlgorithmName=args.algorithm)
    admin.send(
        "PUT",
        f"{base}/{quote(bundle_range, safe='')}/split{query}",
        [_position(text) for text in args.at] or None,
    )
    new = [bound for bound in admin.get(f"{base}/bundles")["boundaries"] if bound not in before]
    return _done(f"{args.bundle} split at {', '.join(new)}", boundaries=new)


def _position(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise BadInputError(f"--at {text}: a hash such as 0x20000000 is expected") from None


# Topics


def topics_list(admin: AdminClient, args: argparse.Namespace) -> Output:
    """List the topics of a namespace."""
    names = admin.get(f"{namespace_path(args.namespace)}/topics?mode=ALL")
    return Output(names, "\n".join(names))


def topics_lookup(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Show the broker that serves a topic; a bundle without an owner is placed first."""
    path = f"/lookup/v2/topic/{topic_path(args.topic)}"
    lookup = {
        "topic": str(TopicName.parse(args.topic)),
        "bundle": admin.get(f"{path}/bundle"),
        **admin.get(path),
    }
    row = [lookup[name] for name in ("topic", "bundle", "brokerUrl", "httpUrl")]
    return Output(lookup, table(("topic", "bundle", "broker", "http"), [row]))


def topics_partitions(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Show the number of partitions of a topic, or create a partitioned topic."""
    path = f"{V2}/{topic_path(args.topic)}/partitions"
    if args.create is not None:
        admin.send("PUT", path, args.create)
    count = admin.get(path)["partitions"]
    return Output({"partitions": count}, str(count))


def topics_stats(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Show a topic's traffic, subscriptions and producers."""
    stats = admin.get(f"{V2}/{topic_path(args.topic)}/stats")
    figures = [
        f"{name:32}{value}" for name, value in stats.items() if not isinstance(value, dict | list)
    ]
    subscriptions = [
        (
            name,
            found["type"],
            found["msgBacklog"],
            found["unackedMessages"],
            float(found["msgRateOut"]),
            len(found["consumers"]),
        )
        for name, found in stats["subscriptions"].items()
    ]
    producers = [
        (found["producerName"], found["address"], found["accessMode"], float(found["msgRateIn"]))
        for found in stats["publishers"]
    ]
    parts = ["\n".join(figures)]
    if subscriptions:
        headers = ("subscription", "type", "backlog", "unacked", "msg out/s", "consumers")
        parts.append(table(headers, subscriptions))
    if producers:
        parts.append(table(("producer", "address", "access", "msg in/s"), producers))
    return Output(stats, "\n\n".join(parts))


# The leader's decisions


def decisions(admin: AdminClient, args: argparse.Namespace) -> Output:
    """Show the leader's last decisions with their reasons, newest first."""
    latest = admin.get(f"{V2}/loadmanager/decisions" + _query(limit=args.limit))
    return Output(latest, "\n".join(map(_line, latest)) or "no decision in this term yet")


def _line(decision: dict[str, Any]) -> str:
    fields = "  ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in decision.items()
        if name != "ts"
    )
    if "ts" not in decision:
        return fields
    return f"{datetime.fromtimestamp(decision['ts'] / 1000, UTC):%Y-%m-%d %H:%M:%SZ}  {fields}"


def dry_run(admin: AdminClient, _args: argparse.Namespace) -> Output:
    """Show what a shedding cycle would do now."""
    plan = admin.get(f"{V2}/loadmanager/dry-run")
    head = f"strategy {plan['strategy']}: {len(plan['unloads'])} bundles would move"
    return Output(plan, "\n".join([head, *plan_lines(plan)]))
