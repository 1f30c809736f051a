"""Why a broker that is nearly empty gets nothing: a new one, or one that was restarted.

Some of Pulsar's strategies never fill such a broker by their rules. Their decisions stay as they
are; the log of decisions says why.
"""

from __future__ import annotations

from collections.abc import Mapping

from loadmanager.engine.bundles.ranges import bundles_text
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.plan import Plan, Skip
from loadmanager.kit.reason import Reason

SHARE_MIN = 0.25
"""A broker with less than this part of its share of the bundles is nearly empty."""
BUNDLES_MIN = 2
"""Shares smaller than this say nothing."""


def left_out(snapshot: ClusterSnapshot, plan: Plan) -> tuple[Skip, ...]:
    """The nearly empty brokers that a cycle's plan, with its destinations, sends nothing."""
    counts = _bundles(snapshot)
    share = sum(counts.values()) / max(len(counts), 1)
    if share < BUNDLES_MIN:
        return ()
    coming = {unload.destination for unload in plan.unloads}
    coming.update(broker for broker in snapshot.under_way if snapshot.under_way[broker])
    why, head = _why(plan), f"an even share would be {share:.0f}, and it gets none"
    return tuple(
        Skip(
            broker,
            "Newcomer",
            f"it has {bundles_text(count)}; {head}: {_barred(snapshot, broker) or why}",
        )
        for broker, count in sorted(counts.items())
        if count < SHARE_MIN * share and broker not in coming
    )


def _barred(snapshot: ClusterSnapshot, broker: str) -> Reason | None:
    if broker in snapshot.unusable:
        return snapshot.unusable[broker]
    if broker in snapshot.wishes.cordons:
        return filters.CORDONED
    return filters.REFUSES if snapshot.wishes.refuses(broker, None) else None


def _bundles(snapshot: ClusterSnapshot) -> Mapping[str, int]:
    """The number of bundles of each live broker."""
    if snapshot.extensible:
        return {broker: int(data.bundle_count) for broker, data in snapshot.load_data.items()}
    return {broker: len(report.bundles) for broker, report in snapshot.reports.items()}


def _why(plan: Plan) -> str:
    """The strategy's reason: about the cluster, else about the first thing that stays."""
    if plan.unloads:
        return f"{plan.strategy} moves {bundles_text(len(plan.unloads))}, none of them there"
    reasons = [skip.reason for skip in plan.skipped if skip.what == "cluster"]
    reasons += [skip.reason for skip in plan.skipped]
    return f"{plan.strategy} moves nothing: {reasons[0] if reasons else 'it gives no reason'}"
