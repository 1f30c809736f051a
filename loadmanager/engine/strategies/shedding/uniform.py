"""UniformLoadShedder: even out message rates, else throughputs, between the two extreme brokers
(Pulsar `impl.UniformLoadShedder`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.selection import sheddable
from loadmanager.engine.strategies.strategy import Shed, Shedder, Tries
from loadmanager.kit.conf import conf

SLACK = 1000
"""A bundle may exceed the rest of the goal by this much, in messages/s or in bytes/s."""
NOTHING, LEAST_MAX = -1.0, 2147483647
"""Pulsar's searches for the maximum and the minimum start with these values."""
GOAL_MAX = 2147483647
"""Pulsar keeps the goal, and what it takes from it, in 32 bits."""
ZERO = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformSettings:
    """UniformLoadShedder."""

    rate_difference_percent: float = conf(
        "loadBalancerMsgRateDifferenceShedderThreshold",
        50.0,
        "UniformLoadShedder: message rates may differ by this many percent (0: any)",
        minimum=0,
        dynamic=True,
    )
    throughput_difference_ratio: float = conf(
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        4.0,
        "UniformLoadShedder: throughputs may differ by this factor (0: any)",
        minimum=0,
        dynamic=True,
    )
    bundles_max: int = conf(
        "maxUnloadBundleNumPerShedding",
        -1,
        "UniformLoadShedder: most bundles to move in a cycle (-1: any number)",
        minimum=-1,
        dynamic=True,
    )


@dataclass(frozen=True, slots=True)
class _Extremes:
    most: str
    least: str
    high: float
    low: float


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, _memory: None) -> Shed:
    """One cycle, one source; rates go before throughputs."""
    if not snapshot.reports:
        return Shed((), (Skip("cluster", "NoBrokers"),), None)
    own = settings.of(UniformSettings)
    columns = snapshot.columns
    rate = _extremes(columns.names, columns.rates)
    throughput = _extremes(columns.names, columns.throughputs)
    difference, ratio = (rate.high - rate.low) * 100 / rate.low, throughput.high / throughput.low
    if rate.most and 0 < own.rate_difference_percent < difference:
        return _shed_most(
            snapshot,
            settings,
            rate,
            minimum=settings.unload_rate_min,
            loads=snapshot.by_rate(rate.most),
            reason="MsgRate",
            why={"maxRate": rate.high, "minRate": rate.low, "differencePercent": difference},
        )
    if throughput.most and 0 < own.throughput_difference_ratio < ratio:
        return _shed_most(
            snapshot,
            settings,
            throughput,
            minimum=settings.unload_throughput_min,
            loads=snapshot.by_throughput(throughput.most),
            reason="Throughput",
            why={
                "maxThroughput": throughput.high,
                "minThroughput": throughput.low,
                "ratio": ratio,
            },
        )
    text = f"rates differ by {difference:.1f} %, throughputs by a factor of {ratio:.2f}"
    return Shed((), (Skip("cluster", "Balanced", text),), None)


def _extremes(brokers: Sequence[str], values: Array) -> _Extremes:
    """The brokers with the highest and the lowest value; the first of equals."""
    at_most, at_least = int(values.argmax()), int(values.argmin())
    high, low = float(values[at_most]), float(values[at_least])
    most, high = (brokers[at_most], high) if high > NOTHING else ("", NOTHING)
    least, low = (brokers[at_least], low) if low < LEAST_MAX else ("", float(LEAST_MAX))
    return _Extremes(most, least, high, 1.0 if abs(low) <= ZERO else low)


def _shed_most(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    extremes: _Extremes,
    *,
    minimum: int,
    loads: Iterable[tuple[str, float]],
    reason: str,
    why: dict[str, float | str],
) -> Shed:
    source = extremes.most
    goal = min(int((extremes.high - extremes.low) * settings.unload_fraction_max), GOAL_MAX)
    if len(snapshot.reports[source].bundles) <= 1:
        return Shed((), (Skip(source, "SoleBundle", "it serves one bundle at most"),), None)
    if goal < minimum:
        text = f"{goal} to move, less than {minimum}"
        return Shed((), (Skip(source, "BelowMinimum", text),), None)
    why = {**why, "goal": float(goal), "leastLoaded": extremes.least}
    unloads: list[Unload] = []
    limit = settings.of(UniformSettings).bundles_max
    for bundle, load in sheddable(snapshot, source, loads):
        if load <= 0 or (limit != -1 and len(unloads) >= limit):
            break
        if load <= goal + SLACK:
            unloads.append(Unload(bundle, source, None, reason, why))
            goal -= min(int(load), GOAL_MAX)
    none_fits = Skip(source, "NoBundles", "none that may leave is small enough")
    return Shed(tuple(unloads), () if unloads else (none_fits,), None)


SHEDDER = Shedder(
    name="UniformLoadShedder",
    shed=shed,
    settings=UniformSettings,
    extensible=False,
    tries=(
        Tries("loadBalancerMsgRateDifferenceShedderThreshold", (20, 50), 10, 100),
        Tries("maxUnloadPercentage", (0.2, 0.4), 0.1, 0.5),
    ),
)
