"""ThresholdShedder: shed from brokers whose average usage is some points above the mean (Pulsar
`impl.ThresholdShedder`).

Deviation: Pulsar advances each broker's average a second time within a cycle when the
lower-boundary pass runs; here a cycle advances it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loadmanager.engine.load.columns import plain_sum
from loadmanager.engine.load.smoothed import of_brokers, smoothed
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.never_sheds import NeverSheds, all_idle, not_exceeded
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.selection import shed_largest
from loadmanager.engine.strategies.strategy import Shed, Shedder, Tries
from loadmanager.kit.conf import conf
from loadmanager.kit.units import MIB

SMOOTHED = "smoothed usage"
MARGIN = 0.05
"""A broker is brought this far below average + threshold."""
LOWER_BOUNDARY_MARGIN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSettings:
    """ThresholdShedder."""

    threshold_percent: float = conf(
        "loadBalancerBrokerThresholdShedderPercentage",
        10.0,
        "ThresholdShedder: a broker this many points above the average is overloaded",
        minimum=0,
        dynamic=True,
    )
    lower_boundary_shedding: bool = conf(
        "lowerBoundarySheddingEnabled",
        False,
        "ThresholdShedder: also fill brokers that are far below the average",
    )
    min_throughput_mib: float = conf(
        "loadBalancerBundleUnloadMinThroughputThreshold",
        10.0,
        "ThresholdShedder: less than this many MiB/s to move is not worth a move",
        minimum=0,
        dynamic=True,
    )


def shed(
    snapshot: ClusterSnapshot, settings: StrategySettings, memory: Mapping[str, float]
) -> Shed:
    """One cycle; the memory is each broker's exponential average of its usage."""
    own, columns = settings.of(ThresholdSettings), snapshot.columns
    averages = smoothed(memory, columns, columns.usage(settings.weights), settings.history_weight)
    usages = averages.in_order
    average = plain_sum(usages) / len(usages) if averages else 0.0
    if average == 0:
        return Shed((), (Skip("cluster", "NoLoad"),), averages)
    unloads: list[Unload] = []
    skipped: list[Skip] = []
    threshold = own.threshold_percent / 100
    limit = f"the mean of {average:.1%} + {own.threshold_percent:g}%"
    for broker, usage in zip(columns.names, usages.tolist(), strict=True):
        if usage < average + threshold:
            skipped.append(
                Skip(broker, "NotOverloaded", f"{SMOOTHED} {usage:.1%} is below {limit}")
            )
            continue
        goal = snapshot.reports[broker].throughput * (usage - average - threshold + MARGIN)
        why: dict[str, float | str] = {"usage": usage, "average": average, "threshold": threshold}
        unloads += _shed_broker(snapshot, own, broker, goal, skipped, why=why)
    if not unloads and own.lower_boundary_shedding:
        unloads = _lower_boundary(snapshot, own, averages, average, skipped)
    return Shed(tuple(unloads), tuple(skipped), averages)


def _shed_broker(
    snapshot: ClusterSnapshot,
    own: ThresholdSettings,
    broker: str,
    goal: float,
    skipped: list[Skip],
    *,
    why: Mapping[str, float | str],
) -> list[Unload]:
    minimum = own.min_throughput_mib * MIB
    if goal < minimum:
        skipped.append(
            Skip(
                broker,
                "BelowMinimumThroughput",
                f"{goal / MIB:.3g} MiB/s to move, less than {own.min_throughput_mib:g} "
                "(loadBalancerBundleUnloadMinThroughputThreshold)",
            )
        )
        return []
    unloads, skips = shed_largest(snapshot, broker, goal, why)
    skipped += skips
    return unloads


def _lower_boundary(
    snapshot: ClusterSnapshot,
    own: ThresholdSettings,
    averages: Mapping[str, float],
    average: float,
    skipped: list[Skip],
) -> list[Unload]:
    """If a broker is far below the average, and none far above, the most used one sheds a part."""
    threshold = own.threshold_percent / 100
    floor = average - threshold
    most, usage = None, floor
    for broker in snapshot.brokers:
        if averages[broker] > usage and len(snapshot.reports[broker].bundles) > 1:
            most, usage = broker, averages[broker]
    if most is None or min(averages.values()) >= floor:
        return []
    goal = snapshot.reports[most].throughput * threshold * LOWER_BOUNDARY_MARGIN
    why: dict[str, float | str] = {
        "usage": usage,
        "average": average,
        "threshold": threshold,
        "pass": "lowerBoundary",
    }
    return _shed_broker(snapshot, own, most, goal, skipped, why=why)


def never_sheds(settings: StrategySettings) -> Iterator[NeverSheds]:
    yield from all_idle(settings)
    yield from not_exceeded(
        "loadBalancerBrokerThresholdShedderPercentage",
        settings.of(ThresholdSettings).threshold_percent,
    )


SHEDDER = Shedder(
    name="ThresholdShedder",
    shed=shed,
    memory=dict,
    stored=dict[str, float],
    settings=ThresholdSettings,
    keep=of_brokers,
    extensible=False,
    never_sheds=never_sheds,
    tries=(
        Tries("loadBalancerBrokerThresholdShedderPercentage", (5, 10), 3, 25),
        Tries("loadBalancerHistoryResourcePercentage", (0.5, 0.9), 0.3, 0.95),
    ),
    more_even="A lower loadBalancerBrokerThresholdShedderPercentage acts sooner, "
    "lowerBoundarySheddingEnabled fills idle brokers. Try both",
)
