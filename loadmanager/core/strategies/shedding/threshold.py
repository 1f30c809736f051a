"""ThresholdShedder: shed from brokers whose average usage is some points above the mean (Pulsar
`impl.ThresholdShedder`).

Deviation: Pulsar advances each broker's average a second time within a cycle when the
lower-boundary pass runs; here a cycle advances it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from loadmanager.core.load.reports import LocalBrokerData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import Weights, max_weighted_usage, max_weighted_usage_within_limit
from loadmanager.core.strategies.decision import Skip, Unload
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import Shed, sheddable, take_largest
from loadmanager.core.strategies.strategy import Shedder

MIB = 1024 * 1024
MARGIN = 0.05
"""A broker is brought this far below average + threshold."""
LOWER_BOUNDARY_MARGIN = 0.5


def shed(
    snapshot: ClusterSnapshot, settings: StrategySettings, memory: Mapping[str, float]
) -> Shed:
    """One cycle; its memory: brokerId → exponential average of its usage."""
    averages = _advance(snapshot, settings, memory)
    average = sum(averages.values()) / len(averages) if averages else 0.0
    if average == 0:
        return Shed((), (Skip("cluster", "NoLoad"),), averages)
    unloads: list[Unload] = []
    skipped: list[Skip] = []
    threshold = settings.threshold_percent / 100
    for broker in snapshot.brokers:
        usage = averages[broker]
        if usage < average + threshold:
            skipped.append(
                Skip(
                    broker,
                    f"NotOverloaded: usage {usage:.4f} is below average {average:.4f} + threshold "
                    f"{threshold:g}",
                )
            )
            continue
        goal = snapshot.reports[broker].throughput * (usage - average - threshold + MARGIN)
        unloads += _shed_broker(
            snapshot,
            broker,
            goal,
            settings,
            skipped,
            why={"usage": usage, "average": average, "threshold": threshold},
        )
    if not unloads and settings.lower_boundary_shedding:
        unloads += _lower_boundary(snapshot, averages, average, settings, skipped)
    return Shed(tuple(unloads), tuple(skipped), averages)


def _advance(
    snapshot: ClusterSnapshot, settings: StrategySettings, before: Mapping[str, float]
) -> dict[str, float]:
    """Each live broker's exponential average; the first sample stands for itself."""
    weights = weights_of(settings)
    after = {}
    for broker in snapshot.brokers:
        usage, known = _usage(snapshot.reports[broker], weights), before.get(broker)
        after[broker] = (
            usage
            if known is None
            else known * settings.history_weight + (1 - settings.history_weight) * usage
        )
    return after


def _usage(report: LocalBrokerData, weights: Weights) -> float:
    usage = max_weighted_usage(report, weights)
    return usage if usage <= 1.0 else max_weighted_usage_within_limit(report, weights)


def weights_of(settings: StrategySettings) -> Weights:
    """The weights that the settings give to each resource."""
    return Weights(
        settings.cpu_weight,
        settings.direct_memory_weight,
        settings.bandwidth_in_weight,
        settings.bandwidth_out_weight,
    )


def _shed_broker(
    snapshot: ClusterSnapshot,
    broker: str,
    goal: float,
    settings: StrategySettings,
    skipped: list[Skip],
    *,
    why: dict[str, float | str],
) -> list[Unload]:
    report = snapshot.reports[broker]
    minimum = settings.min_throughput_mib * MIB
    if goal < minimum:
        skipped.append(
            Skip(
                broker,
                f"BelowMinimumThroughput: {goal:.0f} bytes/s to move, less than {minimum:.0f}",
            )
        )
        return []
    if len(report.bundles) <= 1:
        skipped.append(
            Skip(
                broker,
                "SoleBundle: it serves one bundle only"
                if report.bundles
                else "NoBundles: it serves no bundle",
            )
        )
        return []
    chosen = take_largest(sheddable(snapshot, broker, snapshot.by_throughput(broker)), goal)
    if not chosen:
        skipped.append(
            Skip(broker, "NoBundles: all of its bundles were moved recently or are excluded")
        )
    return [
        Unload(bundle, broker, None, "Overloaded", {**why, "goalBytesPerSecond": goal})
        for bundle in chosen
    ]


def _lower_boundary(
    snapshot: ClusterSnapshot,
    averages: Mapping[str, float],
    average: float,
    settings: StrategySettings,
    skipped: list[Skip],
) -> list[Unload]:
    """No broker is far above, but one is far below: the most used broker gives a little."""
    threshold = settings.threshold_percent / 100
    floor = average - threshold
    best, best_usage = None, floor
    for broker in snapshot.brokers:
        if averages[broker] > best_usage and len(snapshot.reports[broker].bundles) > 1:
            best, best_usage = broker, averages[broker]
    if best is None or not any(usage < floor for usage in averages.values()):
        return []
    goal = snapshot.reports[best].throughput * threshold * LOWER_BOUNDARY_MARGIN
    why: dict[str, float | str] = {
        "usage": best_usage,
        "average": average,
        "threshold": threshold,
        "pass": "lowerBoundary",
    }
    return _shed_broker(snapshot, best, goal, settings, skipped, why=why)


SHEDDER = Shedder(name="ThresholdShedder", shed=shed, memory=dict, extensible=False)
