"""BalancedPlacement: the broker where a bundle adds least to BalancedShedder's objective.

What is on its way to a broker counts, so that a burst of lookups is spread; so does the work of the
bundle's clients, which connect again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loadmanager.core.load.reports import BundleData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.balanced import objective
from loadmanager.core.strategies.strategy import PlacementRule

SURGE = 1.5
"""A bundle's work while its clients connect, as a multiple of its usual work."""


def candidates(
    snapshot: ClusterSnapshot,
    brokers: Sequence[str],
    settings: StrategySettings,
    memory: None,
) -> tuple[Sequence[str], None]:
    """The one broker that is best, the first by name of equal ones."""
    columns = snapshot.columns
    among = columns.all_of(brokers)
    if snapshot.placing is None or not among:
        return brokers, memory
    rows = among.rows
    usages, limits = columns.usages(settings.weights), columns.limits
    limits = np.where(limits > 0, limits, 1.0)
    total = columns.throughputs.sum()
    amounts = (usages * limits).sum(axis=1, keepdims=True)
    per_byte = (amounts / total if total >= 1 else amounts * 0) / limits
    coming = snapshot.under_way.sums(columns)[2]
    now = (usages + per_byte * coming)[:, rows]
    bundle = snapshot.data_of(snapshot.placing).short_term_data.throughput * SURGE
    after = now + per_byte[:, rows] * bundle
    size = (limits / limits.mean(axis=1, keepdims=True))[:, rows].mean(axis=0)
    added = size * (objective(after.max(axis=0)) - objective(now.max(axis=0)))
    return among[int(added.argmin()) : int(added.argmin()) + 1], memory


def _largest_first(bundles: Mapping[str, BundleData]) -> Sequence[str]:
    return sorted(bundles, key=lambda name: (-bundles[name].short_term_data.throughput, name))


PLACEMENT = PlacementRule(name="BalancedPlacement", candidates=candidates, order=_largest_first)
