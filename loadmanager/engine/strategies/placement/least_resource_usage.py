"""LeastResourceUsageWithWeight: brokers well below the average usage, else any (Pulsar
`impl.LeastResourceUsageWithWeight` and the extensible one).

The modular rule keeps an average of each broker's usage; the extensible rule takes the average that
brokers report.

Deviations: Pulsar advances an average with every placement for which its broker is a candidate;
here all averages advance once a request, and those of brokers that went are forgotten. Pulsar does
not see placements under way, so that a burst of lookups piles up on one broker; here they count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from loadmanager.engine.load.columns import plain_sum, some
from loadmanager.engine.load.smoothed import Smoothed, ordered, smoothed
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import PlacementRule
from loadmanager.kit.conf import conf

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
) -> tuple[Sequence[str], Averages]:
    """The brokers that are below the average by the configured difference, in the order given;
    all brokers if that leaves no broker.
    """
    if snapshot.extensible:
        return _of_reported_averages(snapshot, brokers, settings), averages
    columns = snapshot.columns
    brokers = columns.all_of(brokers)
    usage, among = brokers.of(ordered(averages, columns)), brokers
    total = plain_sum(usage)
    if math.isnan(total):  # an average is not known
        measured = ~np.isnan(usage)
        usage, among = usage[measured], brokers.where(measured)
        total = plain_sum(usage)
    if not among:
        return brokers, averages
    coming = snapshot.under_way
    if coming.bundles and (each := _per_byte(total, columns.throughput_of(among))):
        usage = usage + among.of(coming.sums(columns)[2]) * each
        total = plain_sum(usage)
    best = among.where(usage + _difference(settings) <= total / len(usage))
    return best or brokers, averages


def _of_reported_averages(
    snapshot: ClusterSnapshot, brokers: Sequence[str], settings: StrategySettings
) -> Sequence[str]:
    """The extensible rule."""
    load, pending = snapshot.load_data, snapshot.under_way
    among = [broker for broker in brokers if broker in load]
    if not among:
        return brokers
    usage = np.array([load[broker].weighted_max_ema for broker in among])
    coming = np.array([pending.throughput(broker) for broker in among])
    if some(coming):
        throughput = [
            load[broker].msg_throughput_in + load[broker].msg_throughput_out for broker in among
        ]
        usage = usage + coming * _per_byte(plain_sum(usage), plain_sum(np.array(throughput)))
    low = usage + _difference(settings) <= plain_sum(usage) / len(usage)
    return list(compress(among, low.tolist())) or brokers


def advance(snapshot: ClusterSnapshot, settings: StrategySettings, before: Averages) -> Averages:
    """Each broker's average with the sample of its report.

    The average of a broker without bundles or messages starts again at the sample.
    """
    columns, usage = snapshot.columns, snapshot.columns.usage(settings.weights)
    if columns.all_idle:
        return before if ordered(before, columns) is usage else Smoothed(columns.row_of, usage)
    return smoothed(before, columns, usage, settings.history_weight, columns.idle)


def _difference(settings: StrategySettings) -> float:
    return settings.of(LeastResourceUsageSettings).usage_difference_percent / 100


def _per_byte(usage: float, throughput: float) -> float:
    """The usage that a byte/s of placements under way will add: as much as the cluster's bytes/s
    now. Less than 1 byte/s says nothing of what a byte costs: 0.
    """
    return usage / throughput if throughput >= 1 else 0.0


PLACEMENT = PlacementRule(
    name="LeastResourceUsageWithWeight",
    candidates=candidates,
    memory=dict,
    stored=dict[str, float],
    settings=LeastResourceUsageSettings,
    advance=advance,
)
