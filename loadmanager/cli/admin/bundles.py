"""`loadmanager admin bundles …`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from loadmanager.broker.admin.documents import BundlesData
from loadmanager.cli.admin.archives import listed_at, now_ms
from loadmanager.cli.admin.asking import (
    OWN,
    ask_each,
    brokers_of,
    bundles_of,
    cluster_of,
    namespace_path,
    namespaces_of,
    owned,
    owners,
    query,
    unload_bundle,
)
from loadmanager.cli.admin.brokers import report_of
from loadmanager.cli.admin.bundle_show import bundles_show
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done
from loadmanager.cli.admin.moves import (
    bundles_merge,
    bundles_move,
    bundles_pin,
    bundles_pins,
    bundles_unpin,
    pin_text,
)
from loadmanager.cli.admin.names_then import nothing_then
from loadmanager.cli.admin.past_owners import bundles_at, doubt_text
from loadmanager.cli.admin.shapes import BundleStatsShown
from loadmanager.cli.admin.times import at_option, clock, span, time_of_day
from loadmanager.cli.terminal import Cell, table
from loadmanager.engine.bundles.ranges import BundleRange, bundle_name, split_bundle_name
from loadmanager.kit.errors import BadInputError, LoadManagerError

POSITIONS = "specified_positions_divide"
"""The split algorithm for --at; its module would import numpy."""
HEARD_S = 5.0
"""A broker hears within this time of the boundaries that another one wrote."""
POLL_S = 0.05

UNKNOWN = "?"
"""Stands for the owner of a bundle while a broker that may be it does not answer."""

BROKERS_MAX = 10_000
OLD_MS_MIN = 60_000
"""No report is late before."""

RATES = ("msgRateIn", "msgRateOut", "kibPerSecondIn", "kibPerSecondOut")
YOUNG_NAMED = 3
BUNDLE_HEADERS = ("bundle", "owner", "topics", "msg in/s", "msg out/s", "kib in/s", "kib out/s")

group = AdminGroup("bundles", help="List with owners, show, move, pin, unload, split, merge.")
group.command("show")(bundles_show)
group.command("move")(bundles_move)
group.command("merge")(bundles_merge)
group.command("pin")(bundles_pin)
group.command("pins")(bundles_pins)
group.command("unpin")(bundles_unpin)


@group.command("list")
@click.argument("namespaces", nargs=-1, metavar="[TENANT/NAMESPACE]...")
@at_option
def bundles_list(admin: AdminClient, namespaces: tuple[str, ...], at: int | None) -> Output:
    """List the bundles of all brokers: owner, and traffic of the last load report; or the owners of
    a time, and what they recorded of the traffic around it.
    """
    if at is not None:
        return owners_then(admin, namespaces, at)
    brokers, cluster = brokers_of(admin), cluster_of(admin)
    reports, missing = ask_each(
        admin, brokers, lambda at, broker: (owned(at, cluster, broker), report_of(at, broker)[0])
    )
    owner_of = {bundle: broker for broker, (names, _) in reports.items() for bundle in names}
    stats: dict[str, BundleStatsShown] = {}
    for _, report in reports.values():
        stats.update(report.get("lastStats") or {})
    data: list[dict[str, Cell]] = [
        {"bundle": bundle, "owner": owner_of.get(bundle), **_traffic(stats.get(bundle, {}))}
        for namespace in namespaces or namespaces_of(admin)
        for bundle in bundles_of(admin, namespace)
    ]
    young = _came_lately(admin)
    for row in data:
        came_ms = young.get((str(row["bundle"]), str(row["owner"])))
        if came_ms is not None and not (row["msgRateIn"] or row["msgRateOut"]):
            row.update(dict.fromkeys(RATES))
    nobody = UNKNOWN if missing else None
    rows = [tuple({**row, "owner": row["owner"] or nobody}.values()) for row in data]
    shown = table(BUNDLE_HEADERS, rows) if rows else "no bundle"
    came = {(str(row["bundle"]), str(row["owner"])): row for row in data}.keys() & young.keys()
    lines = [*_young_lines({it: young[it] for it in came}), *_old_traffic(admin, reports)]
    return Output(data, (shown, lines), missing=missing)


def _came_lately(admin: AdminClient) -> dict[tuple[str, str], int]:
    """Bundle and owner → when it came, of those whose figures are not of a whole period of
    statistics yet, as far as archives tell.
    """
    from loadmanager.cli.admin.archives import events_of  # these take time
    from loadmanager.cli.admin.standing import STEPS_MAX
    from loadmanager.cli.admin.status import measured_after_ms
    from loadmanager.engine.history.records import OwnershipStep
    from loadmanager.leader.owners_then import owner_change

    since_ms = now_ms() - round(measured_after_ms(admin))
    try:
        steps = events_of(admin, (OwnershipStep.kind,), since_ms=since_ms, limit=STEPS_MAX).events
    except LoadManagerError:  # no archive
        return {}
    changes = [change for it in reversed(steps) if (change := owner_change(it)) is not None]
    return {(it.bundle, it.broker): it.ts for it in changes if it.owns and it.ts >= since_ms}


def _young_lines(young: Mapping[tuple[str, str], int]) -> list[str]:
    """A line for some bundles of which the owner has not measured a whole period yet."""
    if not young:
        return []
    names = sorted(bundle for bundle, _ in young)
    more = f" and {len(names) - YOUNG_NAMED} more" if len(names) > YOUNG_NAMED else ""
    last = time_of_day(max(young.values()))
    return [
        f"not measured whole yet: {', '.join(names[:YOUNG_NAMED])}{more}; the last came at {last}"
    ]


def _old_traffic(admin: AdminClient, brokers: Collection[str]) -> list[str]:
    """From when the traffic of these brokers is, where their reports are late."""
    from loadmanager.cli.admin.status import late_after_ms  # it takes time
    from loadmanager.leader.documents.cluster import ClusterShown

    try:
        cluster = admin.get(f"{OWN}/cluster{query(limit=BROKERS_MAX)}", ClusterShown)
    except LoadManagerError:  # no leader knows
        return []
    ages = {
        it.broker: it.report_age_ms
        for it in cluster.brokers
        if it.broker in brokers and it.report_age_ms is not None
    }
    if max(ages.values(), default=0) < OLD_MS_MIN:
        return []
    return old_traffic(ages, cluster.at, late_after_ms(admin))


def old_traffic(ages_ms: Mapping[str, int], now_ms: int, late_ms: float) -> list[str]:
    """A line for each broker whose report is older than one may be."""
    return [
        f"traffic of {broker}: as of {clock(now_ms - age_ms)}, {span(age_ms)} ago"
        for broker, age_ms in sorted(ages_ms.items())
        if age_ms > late_ms
    ]


def owners_then(admin: AdminClient, namespaces: tuple[str, ...], at_ms: int) -> Output:
    bundles, past = bundles_at(admin, at_ms)
    bundles = [it for it in bundles if not namespaces or _namespace(it.bundle) in namespaces]
    named = {_namespace(it.bundle) for it in bundles}
    past.notes += [nothing_then(admin, it, at_ms) for it in namespaces if it not in named]
    data: list[dict[str, Any]] = [
        {
            "bundle": it.bundle,
            **it.owner_fields,
            "at": it.at,
            **it.figures,
            **({"doubt": doubt} if (doubt := doubt_text(it)) else {}),
        }
        for it in bundles
    ]
    rows = [
        (
            it.bundle,
            it.owner_text,
            int(row["topics"]) if "topics" in row else None,
            *(row.get(name) for name in ("msg_rate_in", "msg_rate_out")),
            *(_per(row.get(f"msg_throughput_{way}"), 1024) for way in ("in", "out")),
            doubt_text(it),
        )
        for it, row in zip(bundles, data, strict=True)
    ]
    return listed_at(data, (*BUNDLE_HEADERS, ""), rows, past)


def _namespace(bundle: str) -> str:
    return bundle.rpartition("/")[0]


def _traffic(stats: BundleStatsShown) -> dict[str, Cell]:
    """Topics and rates of a bundle; None where the load report says nothing."""
    return {
        "topics": stats.get("topics"),
        "msgRateIn": _per(stats.get("msgRateIn"), 1),
        "msgRateOut": _per(stats.get("msgRateOut"), 1),
        "kibPerSecondIn": _per(stats.get("msgThroughputIn"), 1024),
        "kibPerSecondOut": _per(stats.get("msgThroughputOut"), 1024),
    }


def _per(rate: float | None, unit: int) -> float | None:
    return None if rate is None else rate / unit


@group.command("unload")
@click.argument("bundle", metavar="TENANT/NAMESPACE/RANGE")
@click.option("--to", metavar="BROKER", help="host:port of the broker that owns the bundle next")
def bundles_unload(admin: AdminClient, bundle: str, to: str | None) -> Output:
    """Unload a bundle; a pin goes to BROKER with it, and brings it back without --to."""
    namespace, bundle_range = split_bundle_name(bundle)
    brokers, missing = owners(admin)
    name = bundle_name(namespace, str(BundleRange.parse(bundle_range)))
    owner = brokers.get(name)
    if owner is not None and owner == to:
        text = f"{bundle} is at {owner} already: nothing to unload"
        return Output({"unloaded": False}, text, status=1, missing=missing)
    unload_bundle(admin, bundle, to)
    if owner is not None:
        end = f" to {to}" if to else "; the next lookup places it"
        return done(f"{bundle} unloaded from {owner}{end}{pin_text(admin, name)}", unloaded=True)
    end = f"; the next lookup places it on {to}" if to else ""
    text = f"{bundle} has no owner: nothing to unload{end}"
    if missing:
        text = f"{bundle} is not served by any broker that answers{end}"
    return Output({"unloaded": False}, text, status=0 if to else 1, missing=missing)


@group.command("split")
@click.argument("bundle", metavar="TENANT/NAMESPACE/RANGE|LARGEST|HOT")
@click.option(
    "--algorithm",
    metavar="NAME",
    help="split algorithm, such as range_equally_divide or topic_count_equally_divide",
)
@click.option(
    "--at",
    "positions",
    multiple=True,
    metavar="HASH",
    help="new boundary, within the bundle; may be repeated; means specified_positions_divide",
)
@click.option("--unload", is_flag=True, help="unload the new bundles; the next lookups place them")
def bundles_split(
    admin: AdminClient,
    bundle: str,
    algorithm: str | None,
    positions: tuple[str, ...],
    unload: bool,
) -> Output:
    """Split a bundle, or that with most topics (LARGEST) or traffic (HOT) of the namespace."""
    namespace, bundle_range = split_bundle_name(bundle)
    hashes = [_position(text) for text in positions]
    if hashes:
        if algorithm not in (None, POSITIONS):
            raise click.UsageError(f"--at is for --algorithm {POSITIONS}")
        algorithm = POSITIONS
        _require_inside(bundle_range, hashes)
    base = namespace_path(namespace)
    before = admin.get(f"{base}/bundles", BundlesData).boundaries
    how = query(unload=unload, splitAlgorithmName=algorithm)
    admin.send(
        "PUT",
        f"{base}/{quote(bundle_range, safe='')}/split{how}",
        hashes or None,
    )
    new = added_boundaries(lambda: admin.get(f"{base}/bundles", BundlesData).boundaries, before)
    low = max((bound for bound in before if bound < new[0]), default="") if new else ""
    if low and low != before[-1]:
        bundle = f"{namespace}/{low}_{before[before.index(low) + 1]}"
    text = f"{bundle} split at {', '.join(new)}" if new else f"{bundle} is split"
    return done(text, bundle=bundle, boundaries=new)


def added_boundaries(read: Callable[[], Sequence[str]], before: Sequence[str]) -> list[str]:
    """The boundaries that a split added; empty if the broker does not hear of them in time."""
    until_s = time.monotonic() + HEARD_S
    while True:
        new = [bound for bound in read() if bound not in before]
        if new or time.monotonic() > until_s:
            return new
        time.sleep(POLL_S)


def _require_inside(bundle_range: str, hashes: list[int]) -> None:
    """Raise `BadInputError` for positions at which the bundle cannot be split: brokers pass over
    them without a word, as Pulsar's do.
    """
    if bundle_range in ("LARGEST", "HOT"):
        raise BadInputError(f"--at needs the bundle that it lies in, not {bundle_range}")
    span = BundleRange.parse(bundle_range)
    for position in hashes:
        if not span.lower < position < span.upper:
            raise BadInputError(
                f"--at 0x{position:08x} does not lie between the boundaries of the bundle, {span}"
            )


def _position(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise BadInputError(f"--at {text}: a hash such as 0x20000000 is expected") from None
