"""AvgShedder: pair the most with the least loaded broker, the second most with the second least, …;
move between the two of a pair (PIP-364).

A pair acts when it differs by the low threshold for many cycles, or by the high threshold for a
few. The destinations are part of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_weighted_usage
from loadmanager.core.strategies.decision import Skip, Unload
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import Shed, sheddable
from loadmanager.core.strategies.shedding.threshold import weights_of
from loadmanager.core.strategies.strategy import Shedder


@dataclass(frozen=True, slots=True)
class AvgMemory:
    """What AvgShedder remembers: brokerId → cycles above a threshold."""

    hits_high: Mapping[str, int] = field(default_factory=dict)
    hits_low: Mapping[str, int] = field(default_factory=dict)


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: AvgMemory) -> Shed:
    """One cycle."""
    weights = weights_of(settings)
    scores = {
        broker: max_weighted_usage(snapshot.reports[broker], weights) * 100
        for broker in snapshot.brokers
    }
    order = sorted(scores, key=lambda broker: (scores[broker], broker))
    high, low = dict(memory.hits_high), dict(memory.hits_low)
    pairs: list[tuple[str, str]] = []
    for at in range((len(order) + 1) // 2):
        least, most = order[at], order[-1 - at]
        if (
            _count(scores[most] - scores[least], (least, most), settings, high, low)
            and least != most
        ):
            pairs.append((least, most))
    if not pairs:
        return Shed(
            (), (Skip("cluster", "Balanced: no pair of brokers differs enough"),), AvgMemory()
        )
    unloads: list[Unload] = []
    skipped: list[Skip] = []
    for least, most in pairs:
        hits_high, hits_low = (
            max(high.get(least, 0), high.get(most, 0)),
            max(low.get(least, 0), low.get(most, 0)),
        )
        if hits_high < settings.avg_high_hits and hits_low < settings.avg_low_hits:
            skipped.append(
                Skip(most, f"HitCount: {hits_low} cycles above low, {hits_high} above high")
            )
            continue
        for counts in (high, low):
            counts.pop(least, None)
            counts.pop(most, None)
        why: dict[str, float | str] = {"score": scores[most], "destinationScore": scores[least]}
        unloads += _between(snapshot, settings, least, most, why=why, skipped=skipped)
    return Shed(tuple(unloads), tuple(skipped), AvgMemory(high, low))


def _count(
    difference: float,
    pair: tuple[str, str],
    settings: StrategySettings,
    high: dict[str, int],
    low: dict[str, int],
) -> bool:
    """Count a hit for both brokers of a pair, or clear their counts; whether the pair differs at
    all. The middle broker is its own pair, and balanced.
    """
    for broker in pair:
        if difference < settings.avg_low:
            high.pop(broker, None)
            low.pop(broker, None)
        else:
            low[broker] = low.get(broker, 0) + 1
            if difference < settings.avg_high:
                high.pop(broker, None)
            else:
                high[broker] = high.get(broker, 0) + 1
    return difference >= settings.avg_low


def _between(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    least: str,
    most: str,
    *,
    why: dict[str, float | str],
    skipped: list[Skip],
) -> list[Unload]:
    """Bundles from the most to the least loaded of a pair, by message rate if that differs enough,
    else by throughput.
    """
    source, target = snapshot.reports[most], snapshot.reports[least]
    rate = (source.rate - target.rate) * settings.unload_fraction_max
    throughput = (source.throughput - target.throughput) * settings.unload_fraction_max
    if rate > settings.unload_rate_min:
        need, reason, candidates = (
            rate,
            "MsgRate",
            sheddable(snapshot, most, snapshot.by_rate(most)),
        )
    elif throughput > settings.unload_throughput_min:
        need, reason, candidates = (
            throughput,
            "Throughput",
            sheddable(snapshot, most, snapshot.by_throughput(most)),
        )
    else:
        skipped.append(
            Skip(most, f"BelowMinimum: {rate:.0f} messages/s and {throughput:.0f} bytes/s to move")
        )
        return []
    why = {**why, "goal": need}
    chosen: list[Unload] = []
    for bundle, load in candidates:
        if 0 < load <= need:
            chosen.append(Unload(bundle, most, least, reason, why))
            need -= load
    if not chosen:
        skipped.append(Skip(most, "NoBundles: none is small enough to move"))
    return chosen


SHEDDER = Shedder(name="AvgShedder", shed=shed, memory=AvgMemory, extensible=False)
