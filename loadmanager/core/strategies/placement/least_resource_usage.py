"""LeastResourceUsageWithWeight: brokers well below the average usage, else any (Pulsar
`impl.LeastResourceUsageWithWeight` and the extensible one).

The modular rule keeps an average of each broker's usage; the extensible rule takes the average that
brokers report.

Deviations: Pulsar advances an average with every placement for which its broker is a candidate;
here all averages advance once a request, and those of brokers that went are forgotten. Pulsar does
not see placements under way, so that a burst of lookups piles up on one broker; here they count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadmanager.core.conf import conf
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import exponential_average, max_weighted_usage
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.strategy import PlacementRule

Averages = Mapping[str, float]
"""brokerId → exponential average of its usage: the modular rule's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastResourceUsageSettings:
    """LeastResourceUsageWithWeight."""

    usage_difference_percent: float = conf(
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        10.0,
        "LeastResourceUsageWithWeight: a broker this many points below the average is a candidate",
        minimum=0,
        dynamic=True,
    )


def candidates(
    snapshot: ClusterSnapshot,
    brokers: Sequence[str],
    settings: StrategySettings,
    averages: Averages,
) -> tuple[list[str], Averages]:
    """The brokers that are below the average by the configured difference, in the order given;
    all brokers if that leaves no broker.
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
    coming = _pending_usage(snapshot, usage)
    usage = {broker: value + coming.get(broker, 0.0) for broker, value in usage.items()}
    average = sum(usage.values()) / len(usage)
    difference = settings.of(LeastResourceUsageSettings).usage_difference_percent / 100
    best = [
        broker for broker in brokers if broker in usage and usage[broker] + difference <= average
    ]
    return best or list(brokers), averages


def advance(snapshot: ClusterSnapshot, settings: StrategySettings, before: Averages) -> Averages:
    """Each broker's average with the sample of its report.

    The average of a broker without bundles or messages starts again at the sample.
    """
    weights = settings.weights
    after = {}
    for broker, report in snapshot.reports.items():
        idle = not report.bundles or (report.msg_rate_in == 0 and report.msg_rate_out == 0)
        after[broker] = exponential_average(
            None if idle else before.get(broker),
            max_weighted_usage(report, weights),
            settings.history_weight,
        )
    return after


def _pending_usage(snapshot: ClusterSnapshot, usage: Mapping[str, float]) -> dict[str, float]:
    """What placements under way will add to each broker's usage, a fraction: their throughput at
    the cluster's usage per byte/s.
    """
    if not any(snapshot.pending.values()):
        return {}
    reports = [snapshot.reports.get(broker) or snapshot.load_data.get(broker) for broker in usage]
    throughput = sum(
        report.msg_throughput_in + report.msg_throughput_out
        for report in reports
        if report is not None
    )
    if throughput <= 0:
        return {}
    per_byte = sum(usage.values()) / throughput
    return {
        broker: per_byte
        * sum(data.short_term_data.throughput for data in snapshot.pending.get(broker, {}).values())
        for broker in usage
    }


PLACEMENT = PlacementRule(
    name="LeastResourceUsageWithWeight",
    candidates=candidates,
    memory=dict,
    settings=LeastResourceUsageSettings,
    advance=advance,
)
