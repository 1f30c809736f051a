"""LeastLongTermMessageRate: the broker with the lowest long-term message rate, overloaded ones last
(Pulsar `impl.LeastLongTermMessageRate`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadmanager.engine.load.broker_sums import long_totals
from loadmanager.engine.load.columns import BrokerRows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import PlacementRule


def candidates(
    snapshot: ClusterSnapshot, brokers: Sequence[str], settings: StrategySettings, _memory: None
) -> tuple[BrokerRows, None]:
    """The brokers with the minimum score, in the order given; all if all are overloaded.

    The score is in messages/s, a long-term average: of the broker's bundles and of those on their
    way to it. It is infinite above the overload threshold.
    """
    columns = snapshot.columns
    brokers = columns.all_of(brokers)
    if not brokers:
        return brokers, None
    scores = snapshot.under_way.sums(columns)[1] + long_totals(snapshot.time_averages, columns)
    overloaded = columns.overloaded(settings.weights, settings.overloaded_percent)
    if len(overloaded):
        scores[overloaded] = math.inf
    scores = brokers.of(scores)
    return brokers.where(scores == scores[scores.argmin()]), None


PLACEMENT = PlacementRule(name="LeastLongTermMessageRate", candidates=candidates)
