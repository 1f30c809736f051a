"""The parts of a decision's document that concern one bundle or broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_weighted_usage
from loadmanager.core.strategies.settings import StrategySettings

Document = dict[str, Any]
CLUSTER = "cluster"
"""The name in a skip that concerns the whole cluster."""
LINES_MAX = 200
"""Moves, placements, splits and skips each that a listed decision shows at most."""
REJECTED_MAX = 50
BROKERS_MAX = 20
"""Brokers whose load is kept beside a cycle, besides those that the plan names."""
_LISTS = ("unloads", "placements", "splits", "skipped")


def concerning(
    decision: Mapping[str, Any], bundle: str | None, brokers: Iterable[str] = ()
) -> Document | None:
    """The parts of a decision that concern a bundle or one of the brokers; None if none does.

    Without a bundle and brokers: all of it. What is left out is counted.
    """
    wanted = frozenset(brokers)
    document = dict(decision)
    if bundle is not None or wanted:
        if any(name in decision for name in _LISTS):
            for name in _LISTS:
                document[name] = [
                    part for part in decision.get(name, ()) if _concerns(part, bundle, wanted)
                ]
            if not any(document[name] for name in _LISTS):
                return None
        elif not _concerns(decision, bundle, wanted):
            return None
    for name in _LISTS:
        if name in decision:
            document[name] = document[name][:LINES_MAX]
            document[f"{name}Count"] = len(decision[name])
    if len(document.get("rejected", ())) > REJECTED_MAX:
        document["rejectedCount"] = len(decision["rejected"])
        document["rejected"] = _clipped(decision["rejected"], wanted)
    return document


def names(decision: Mapping[str, Any], bundle: str) -> bool:
    """True if a decision, or a part of it, names a bundle."""
    parts = [decision, *(part for name in _LISTS for part in decision.get(name, ()))]
    return any(
        bundle in (part.get("bundle"), part.get("what"), *part.get("parts", ())) for part in parts
    )


def _clipped(rejected: Mapping[str, str], wanted: frozenset[str]) -> dict[str, str]:
    first = {broker: rejected[broker] for broker in wanted & rejected.keys()}
    return {**first, **dict(islice(rejected.items(), REJECTED_MAX))}


def _concerns(part: Mapping[str, Any], bundle: str | None, brokers: frozenset[str]) -> bool:
    """A bundle is concerned by what names it; a broker by what names it as an end of a move or as
    a candidate; both by what names the whole cluster.
    """
    what = part.get("what")
    if what == CLUSTER:
        return True
    if bundle is not None and (
        bundle in (part.get("bundle"), what) or bundle in part.get("parts", ())
    ):
        return True
    if part.get("bundle") is not None and bundle is not None:
        return False
    named = {what, *(part.get(name) for name in ("broker", "source", "destination"))}
    return bool(brokers & named) or not brokers.isdisjoint(part.get("candidates", ()))


def inputs_document(
    snapshot: ClusterSnapshot, settings: StrategySettings, named: Iterable[str]
) -> Document:
    """The loads that a cycle decided from, as a document: of the most used brokers, and of those
    that are named.
    """
    usages = broker_usages(snapshot, settings)
    first = sorted(usages, key=lambda broker: (-usages[broker], broker))[:BROKERS_MAX]
    shown = sorted({*first, *(broker for broker in named if broker in usages)})
    average = sum(usages.values()) / len(usages) if usages else None
    return {
        "brokers": len(usages),
        "averageUsage": average,
        "loads": {broker: _load(snapshot, broker, usages[broker]) for broker in shown},
    }


def broker_usages(snapshot: ClusterSnapshot, settings: StrategySettings) -> dict[str, float]:
    """brokerId → its most used resource after weighting, of all brokers with a report."""
    if snapshot.extensible:
        return {name: float(data.max_resource_usage) for name, data in snapshot.load_data.items()}
    weights = settings.weights
    return {name: max_weighted_usage(report, weights) for name, report in snapshot.reports.items()}


def _load(snapshot: ClusterSnapshot, broker: str, usage: float) -> Document:
    data = snapshot.load_data.get(broker)
    if data is not None and snapshot.extensible:
        rate, throughput = (
            data.msg_rate_in + data.msg_rate_out,
            data.msg_throughput_in + data.msg_throughput_out,
        )
        bundles, at_ms = data.bundle_count, data.updated_at
    else:
        report = snapshot.reports[broker]
        rate, throughput = report.rate, report.throughput
        bundles, at_ms = len(report.bundles), report.last_update
    return {
        "usage": usage,
        "rate": rate,
        "throughput": throughput,
        "bundles": int(bundles),
        "reportAgeMs": max(0, snapshot.now_ms - int(at_ms)) if at_ms else None,
    }
