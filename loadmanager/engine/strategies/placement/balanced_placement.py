"""BalancedPlacement: the broker where a bundle adds least to BalancedShedder's objective.

What is on its way to a broker counts, so that a burst of lookups is spread; so does the work of the
bundle's clients, which connect again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadmanager.engine.load.reports import BundleData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.balanced import objective
from loadmanager.engine.strategies.strategy import PlacementRule

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
    costs = columns.costs(settings.weights)
    bundle = snapshot.data_of(snapshot.placing).short_term_data.throughput * SURGE
    coming = snapshot.under_way.sums(columns)[2]
    before, after = objective(costs.usage(coming)), objective(costs.usage(coming + bundle))
    added = costs.size * (after - before)
    best = int(among.of(added).argmin())
    return among[best : best + 1], memory


def _largest_first(bundles: Mapping[str, BundleData]) -> Sequence[str]:
    return sorted(bundles, key=lambda name: (-bundles[name].short_term_data.throughput, name))


PLACEMENT = PlacementRule(name="BalancedPlacement", candidates=candidates, order=_largest_first)
