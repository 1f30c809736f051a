"""LeastLongTermMessageRate: the broker with the lowest long-term message rate, overloaded ones last
(Pulsar `impl.LeastLongTermMessageRate`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadmanager.core.load.reports import TimeAverageBrokerData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_weighted_usage
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.strategy import PlacementRule


def candidates(
    snapshot: ClusterSnapshot, brokers: Sequence[str], settings: StrategySettings, _memory: None
) -> tuple[list[str], None]:
    """The brokers with the minimum score, in the order given; all if all are overloaded."""
    scores = {broker: _score(snapshot, broker, settings) for broker in brokers}
    least = min(scores.values(), default=0.0)
    return [broker for broker in brokers if scores[broker] == least], None


def _score(snapshot: ClusterSnapshot, broker: str, settings: StrategySettings) -> float:
    """Messages/s, a long-term average: of the broker's bundles and of those on their way to it.

    Infinite above the overload threshold.
    """
    usage = max_weighted_usage(snapshot.reports[broker], settings.weights)
    if usage > settings.overloaded_percent / 100:
        return math.inf
    average = snapshot.time_averages.get(broker) or TimeAverageBrokerData()
    pending = sum(data.long_term_data.rate for data in snapshot.pending.get(broker, {}).values())
    return pending + average.long_term_msg_rate_in + average.long_term_msg_rate_out


PLACEMENT = PlacementRule(name="LeastLongTermMessageRate", candidates=candidates)
