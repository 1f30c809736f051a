"""LeastResourceUsageWithWeight: brokers well below the average usage, else any (Pulsar
`impl.LeastResourceUsageWithWeight` and the extensible one).

The modular rule keeps an average of each broker's usage; the extensible rule takes the average that
brokers report.

Deviation: Pulsar advances an average with every placement for which its broker is a candidate; here
all advance once for all placements of a request, and the averages of brokers that went are
forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_weighted_usage
from loadmanager.core.strategies.filters import pending_usage
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.threshold import weights_of
from loadmanager.core.strategies.strategy import PlacementRule

Averages = Mapping[str, float]
"""brokerId → exponential average of its usage: what the modular rule remembers."""


def candidates(
    snapshot: ClusterSnapshot,
    brokers: Sequence[str],
    settings: StrategySettings,
    averages: Averages,
) -> tuple[list[str], Averages]:
    """The brokers at least the difference below the average, in the order given; all of them when
    there is none.
    """
    if snapshot.extensible:
        usage = {
            broker: snapshot.load_data[broker].weighted_max_ema
            for broker in brokers
            if broker in snapshot.load_data
        }
    else:
        usage = {broker: averages[broker] for broker in brokers if broker in averages}
    if not usage:
        return list(brokers), averages
    coming = pending_usage(snapshot, usage)
    usage = {broker: value + coming.get(broker, 0.0) for broker, value in usage.items()}
    average = sum(usage.values()) / len(usage)
    difference = settings.usage_difference_percent / 100
    best = [
        broker for broker in brokers if broker in usage and usage[broker] + difference <= average
    ]
    return best or list(brokers), averages


def advance(snapshot: ClusterSnapshot, settings: StrategySettings, before: Averages) -> Averages:
    """Each broker's average advanced by its report.

    A broker without bundles or without messages begins anew.
    """
    weights = weights_of(settings)
    after = {}
    for broker, report in snapshot.reports.items():
        idle = not report.bundles or (report.msg_rate_in == 0 and report.msg_rate_out == 0)
        usage, known = max_weighted_usage(report, weights), None if idle else before.get(broker)
        after[broker] = (
            usage
            if known is None
            else known * settings.history_weight + (1 - settings.history_weight) * usage
        )
    return after


PLACEMENT = PlacementRule(
    name="LeastResourceUsageWithWeight", candidates=candidates, memory=dict, advance=advance
)
