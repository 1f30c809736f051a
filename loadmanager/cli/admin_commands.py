"""What each `loadmanager admin …` command asks, and how it shows the answer."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from loadmanager.cli.asking import Asking
from loadmanager.cli.tables import Cell, table
from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.bundles.ranges import split_bundle_name
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
class Shown:
    """An answer: for machines, for people, and the exit status."""

    data: Any
    text: str
    status: int = 0


def _json(data: Any) -> Shown:
    return Shown(data, json.dumps(data, indent=2))


def _done(text: str, **data: Any) -> Shown:
    return Shown({"done": text, **data}, text)


def namespace_path(text: str) -> str:
    """The admin path of a namespace."""
    return f"{V2}/namespaces/{NamespaceName.parse(text)}"


def topic_path(text: str) -> str:
    """Domain, namespace and encoded name of a topic."""
    topic = TopicName.parse(text)
    return f"{topic.domain}/{topic.namespace}/{quote(topic.local, safe='')}"


def cluster_of(ask: Asking) -> str:
    """The cluster of the broker that is asked; a metadata store may record others."""
    return str(ask.get(f"{V2}/brokers/configuration/runtime")["clusterName"])


def _query(**values: Any) -> str:
    given = {name: value for name, value in values.items() if value not in (None, False, "")}
    texts = {name: "true" if value is True else str(value) for name, value in given.items()}
    return "?" + urlencode(texts, safe=":/") if texts else ""


# Brokers


def brokers_list(ask: Asking, _args: argparse.Namespace) -> Shown:
    """Live brokers, and which one leads."""
    brokers, leader = ask.get(f"{V2}/brokers"), _leader(ask)
    data = [{"broker": broker, "leader": broker == leader} for broker in brokers]
    return Shown(
        data,
        table(
            ("broker", "role"),
            [(broker, "leader" if broker == leader else "") for broker in brokers],
        ),
    )


def _leader(ask: Asking) -> str | None:
    try:
        return str(ask.get(f"{V2}/brokers/leaderBroker")["brokerId"])
    except OperationalError:
        return None  # 404: there is none right now


def brokers_leader(ask: Asking, _args: argparse.Namespace) -> Shown:
    """The leader."""
    leader = ask.get(f"{V2}/brokers/leaderBroker")
    return Shown(leader, f"{leader['brokerId']}  {leader['serviceUrl']}")


def brokers_health(ask: Asking, args: argparse.Namespace) -> Shown:
    """Health of all brokers, or of one; exit status 1 unless all are well."""
    brokers = [args.broker] if args.broker else ask.get(f"{V2}/brokers")
    found = {broker: _health(ask.at(broker)) for broker in brokers}
    well = bool(found) and all(state == "ok" for state in found.values())
    return Shown(found, table(("broker", "health"), list(found.items())), 0 if well else 1)


def _health(ask: Asking) -> str:
    try:
        return str(ask.get(f"{V2}/brokers/health"))
    except LoadManagerError as error:
        return str(error).splitlines()[0]


def brokers_report(ask: Asking, args: argparse.Namespace) -> Shown:
    """Load reports of all brokers, or of one."""
    brokers = [args.broker] if args.broker else ask.get(f"{V2}/brokers")
    reports = {broker: ask.at(broker).get(f"{V2}/broker-stats/load-report") for broker in brokers}
    headers = (
        "broker",
        *(title for _, title in RESOURCES),
        "msg in/s",
        "msg out/s",
        "bundles",
        "topics",
    )
    return Shown(
        reports, table(headers, [_report_row(broker, report) for broker, report in reports.items()])
    )


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


def drain(ask: Asking, args: argparse.Namespace) -> Shown:
    """Move every bundle of a broker to the others, those with fewest first; with --stop, stop it
    then.
    """
    brokers = ask.get(f"{V2}/brokers")
    if args.broker not in brokers:
        raise BadInputError(f"{args.broker} is not active; the brokers are {', '.join(brokers)}")
    owned = {broker: len(_owned(ask, broker)) for broker in brokers if broker != args.broker}
    if not owned:
        raise OperationalError(f"{args.broker} is the only broker: nobody could take its bundles")
    moves: list[dict[str, str]] = []
    for bundle in sorted(_owned(ask, args.broker)):
        destination = min(owned, key=lambda broker: (owned[broker], broker))
        _unload(ask, bundle, destination)
        owned[destination] += 1
        moves.append({"bundle": bundle, "to": destination})
    if args.stop:
        ask.at(args.broker).ask("POST", f"{V2}/brokers/shutdown")
    said = f"{len(moves)} bundles moved off {args.broker}" + (
        "; it stops now" if args.stop else "; it may be given bundles again"
    )
    return Shown(
        {"moves": moves, "stopped": args.stop},
        "\n".join([*(f"{move['bundle']} -> {move['to']}" for move in moves), said]),
    )


# Namespaces


def namespaces_list(ask: Asking, args: argparse.Namespace) -> Shown:
    """Namespaces of a tenant, or of all."""
    names = _namespaces(ask, args.tenant)
    return Shown(names, "\n".join(names))


def _namespaces(ask: Asking, tenant: str | None = None) -> list[str]:
    tenants = [tenant] if tenant else ask.get(f"{V2}/tenants")
    return [
        str(name) for one in tenants for name in ask.get(f"{V2}/namespaces/{quote(one, safe='')}")
    ]


def namespaces_create(ask: Asking, args: argparse.Namespace) -> Shown:
    """Create a namespace; its tenant, too, with --tenant."""
    cut: dict[str, Any] | None = None
    if args.boundaries:
        cut = {"boundaries": args.boundaries.split(","), "numBundles": args.boundaries.count(",")}
    elif args.bundles is not None:
        cut = {"numBundles": args.bundles}
    path, tenant = namespace_path(args.namespace), NamespaceName.parse(args.namespace).tenant
    if args.create_tenant and tenant not in ask.get(f"{V2}/tenants"):
        ask.ask(
            "PUT",
            f"{V2}/tenants/{tenant}",
            {"adminRoles": [], "allowedClusters": ask.get(f"{V2}/clusters")},
        )
    ask.ask("PUT", path, {"bundles": cut} if cut else None)
    count = ask.get(f"{path}/bundles")["numBundles"]
    return _done(
        f"{args.namespace} created with {count} bundles", namespace=args.namespace, bundles=count
    )


def namespaces_delete(ask: Asking, args: argparse.Namespace) -> Shown:
    """Delete a namespace."""
    ask.ask("DELETE", namespace_path(args.namespace) + _query(force=args.force))
    return _done(f"{args.namespace} deleted")


def namespaces_bundles(ask: Asking, args: argparse.Namespace) -> Shown:
    """Boundaries of a namespace."""
    cut = ask.get(f"{namespace_path(args.namespace)}/bundles")
    bounds = cut["boundaries"]
    return Shown(
        cut, "\n".join(f"{low}_{high}" for low, high in zip(bounds, bounds[1:], strict=False))
    )


def namespaces_policies(ask: Asking, args: argparse.Namespace) -> Shown:
    """Policies of a namespace."""
    return _json(ask.get(namespace_path(args.namespace)))


def namespaces_unload(ask: Asking, args: argparse.Namespace) -> Shown:
    """Unload all bundles of a namespace."""
    ask.ask("PUT", f"{namespace_path(args.namespace)}/unload")
    return _done(f"{args.namespace} unloaded; the next lookups place its bundles")


# Bundles


def bundles_list(ask: Asking, args: argparse.Namespace) -> Shown:
    """Every bundle with its owner and its traffic as last reported, over all brokers."""
    owners: dict[str, str] = {}
    stats: dict[str, dict[str, Any]] = {}
    for broker in ask.get(f"{V2}/brokers"):
        owners.update(dict.fromkeys(_owned(ask, broker), broker))
        stats.update(ask.at(broker).get(f"{V2}/broker-stats/load-report").get("lastStats") or {})
    data = []
    for namespace in args.namespace or _namespaces(ask):
        bounds = ask.get(f"{namespace_path(namespace)}/bundles")["boundaries"]
        names = [f"{namespace}/{low}_{high}" for low, high in zip(bounds, bounds[1:], strict=False)]
        data += [
            {"bundle": name, "owner": owners.get(name), **_traffic(stats.get(name))}
            for name in names
        ]
    headers = ("bundle", "owner", "topics", "msg in/s", "msg out/s", "kib in/s", "kib out/s")
    return Shown(data, table(headers, [tuple(row.values()) for row in data]))


def _traffic(stats: dict[str, Any] | None) -> dict[str, Cell]:
    known = stats or {}
    rates = {
        name: float(known[name]) if name in known else None for name in ("msgRateIn", "msgRateOut")
    }
    bytes_ = {
        name: float(known[key]) / 1024 if key in known else None for name, key in _THROUGHPUTS
    }
    return {"topics": known.get("topics"), **rates, **bytes_}


_THROUGHPUTS = (("kibPerSecondIn", "msgThroughputIn"), ("kibPerSecondOut", "msgThroughputOut"))


def _owned(ask: Asking, broker: str) -> list[str]:
    cluster = cluster_of(ask)
    return list(
        ask.at(broker).get(f"{V2}/brokers/{quote(cluster, safe='')}/{broker}/ownedNamespaces")
    )


def bundles_unload(ask: Asking, args: argparse.Namespace) -> Shown:
    """Unload one bundle, to a broker if one is named."""
    _unload(ask, args.bundle, args.to)
    return _done(
        f"{args.bundle} unloaded" + (f" to {args.to}" if args.to else "; the next lookup places it")
    )


def _unload(ask: Asking, bundle: str, destination: str | None) -> None:
    namespace, bundle_range = split_bundle_name(bundle)
    ask.ask(
        "PUT",
        f"{namespace_path(namespace)}/{quote(bundle_range, safe='')}/unload"
        + _query(destinationBroker=destination),
    )


def bundles_split(ask: Asking, args: argparse.Namespace) -> Shown:
    """Split one bundle, or the LARGEST or HOT one of the broker asked."""
    namespace, bundle_range = split_bundle_name(args.bundle)
    base = namespace_path(namespace)
    before = ask.get(f"{base}/bundles")["boundaries"]
    query = _query(unload=args.unload, splitAlgorithmName=args.algorithm)
    ask.ask(
        "PUT",
        f"{base}/{quote(bundle_range, safe='')}/split{query}",
        [_position(text) for text in args.at] or None,
    )
    new = [bound for bound in ask.get(f"{base}/bundles")["boundaries"] if bound not in before]
    said = (
        f"{args.bundle} split at {', '.join(new)}"
        if new
        else f"{args.bundle} not split: there was no useful place to cut it"
    )
    return _done(said, boundaries=new)


def _position(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise BadInputError(f"--at {text}: a hash such as 0x20000000 is expected") from None


# Topics


def topics_list(ask: Asking, args: argparse.Namespace) -> Shown:
    """Topics of a namespace."""
    names = ask.get(f"{namespace_path(args.namespace)}/topics?mode=ALL")
    return Shown(names, "\n".join(names))


def topics_lookup(ask: Asking, args: argparse.Namespace) -> Shown:
    """Who serves a topic; places it if nobody does."""
    path = f"/lookup/v2/topic/{topic_path(args.topic)}"
    found = {
        "topic": str(TopicName.parse(args.topic)),
        "bundle": ask.get(f"{path}/bundle"),
        **ask.get(path),
    }
    return Shown(
        found,
        table(
            ("topic", "bundle", "broker", "http"),
            [[found[key] for key in ("topic", "bundle", "brokerUrl", "httpUrl")]],
        ),
    )


def topics_partitions(ask: Asking, args: argparse.Namespace) -> Shown:
    """Number of partitions, or create a topic with that many."""
    path = f"{V2}/{topic_path(args.topic)}/partitions"
    if args.create is not None:
        ask.ask("PUT", path, args.create)
    count = ask.get(path)["partitions"]
    return Shown({"partitions": count}, str(count))


def topics_stats(ask: Asking, args: argparse.Namespace) -> Shown:
    """Traffic of an open topic."""
    stats = ask.get(f"{V2}/{topic_path(args.topic)}/stats")
    return Shown(stats, "\n".join(f"{name:18} {value}" for name, value in stats.items()))


# The leader's decisions


def decisions(ask: Asking, args: argparse.Namespace) -> Shown:
    """The leader's last decisions with their reasons, newest first."""
    found = ask.get(f"{V2}/loadmanager/decisions" + _query(limit=args.limit))
    return Shown(
        found, "\n".join(_dated_line(item) for item in found) or "no decision in this term yet"
    )


def _dated_line(item: dict[str, Any]) -> str:
    rest = {name: value for name, value in item.items() if name != "ts"}
    if "ts" not in item:
        return _one_line(rest)
    return f"{datetime.fromtimestamp(item['ts'] / 1000, UTC):%Y-%m-%d %H:%M:%SZ}  {_one_line(rest)}"


def dry_run(ask: Asking, _args: argparse.Namespace) -> Shown:
    """What a shedding cycle would do right now."""
    plan = ask.get(f"{V2}/loadmanager/dry-run")
    head = f"strategy {plan['strategy']}: {len(plan['unloads'])} bundles would move"
    return Shown(plan, "\n".join([head, *plan_lines(plan)]))


def _one_line(item: dict[str, Any]) -> str:
    return "  ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in item.items()
    )
