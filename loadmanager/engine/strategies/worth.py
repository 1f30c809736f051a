"""Whether a move is worth what it costs, where the owner of a bundle says that."""

from __future__ import annotations

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.kit.reason import Reason

SECONDS_PER_POINT = 10.0
"""A move may take so many seconds for each point (percent) of usage that it takes away."""


def not_worth_it(
    snapshot: ClusterSnapshot, bundle: str, source: str, destination: str | None
) -> Reason | None:
    """Why a bundle stays that is expensive to move, if it takes too little load with it. That is
    its part of the traffic of its broker, and so of that broker's usage.
    """
    cost_s = snapshot.wishes.cost(bundle, destination)
    if not cost_s:
        return None
    points = _points(snapshot, bundle, source)
    if cost_s <= points * SECONDS_PER_POINT:
        return None
    return Reason(
        "NotWorthIt",
        f"a move of it takes {cost_s:g} s, as its owner says, and {points:.2g} points of usage "
        f"from {source}: {SECONDS_PER_POINT:g} s a point are worth it",
    )


def _points(snapshot: ClusterSnapshot, bundle: str, source: str) -> float:
    data, top = snapshot.load_data.get(source), snapshot.top_bundles.get(source)
    if data is None or top is None:
        return 0.0
    whole = data.msg_throughput_in + data.msg_throughput_out
    for published in top.top_bundles_load_data:
        if published.bundle_name == bundle and whole > 0:
            part = min(1.0, published.stats.throughput / whole)
            return 100 * data.weighted_max_ema * part
    return 0.0
