"""UniformLoadShedder: even out message rates, else throughputs, between the two extreme brokers
(Pulsar `impl.UniformLoadShedder`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from loadmanager.core.load.reports import LocalBrokerData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.decision import Skip, Unload
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import Shed, sheddable
from loadmanager.core.strategies.strategy import Shedder

SLACK = 1000
"""A bundle may exceed what is left to move by this much: messages/s or bytes/s alike."""
LEAST_MAX = 2147483647
"""What Pulsar starts its search for the minimum with."""
ZERO = 1e-6


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
    rate, throughput = (
        _extremes(snapshot, lambda report: report.rate),
        _extremes(snapshot, lambda report: report.throughput),
    )
    difference, ratio = (rate.high - rate.low) * 100 / rate.low, throughput.high / throughput.low
    if 0 < settings.rate_difference_percent < difference:
        why: dict[str, float | str] = {
            "maxRate": rate.high,
            "minRate": rate.low,
            "differencePercent": difference,
        }
        minimum, measure = settings.unload_rate_min, "MsgRate"
        return _shed_most(
            snapshot,
            settings,
            rate,
            minimum=minimum,
            loads=snapshot.by_rate(rate.most),
            reason=measure,
            why=why,
        )
    if 0 < settings.throughput_difference_ratio < ratio:
        why = {"maxThroughput": throughput.high, "minThroughput": throughput.low, "ratio": ratio}
        minimum, measure = settings.unload_throughput_min, "Throughput"
        return _shed_most(
            snapshot,
            settings,
            throughput,
            minimum=minimum,
            loads=snapshot.by_throughput(throughput.most),
            reason=measure,
            why=why,
        )
    return Shed(
        (),
        (
            Skip(
                "cluster",
                f"Balanced: rates differ by {difference:.1f} %, throughputs by a factor "
                f"of {ratio:.2f}",
            ),
        ),
        None,
    )


def _extremes(snapshot: ClusterSnapshot, value: Callable[[LocalBrokerData], float]) -> _Extremes:
    """The brokers with the highest and the lowest value; the first of equals."""
    most = least = ""
    high, low = -1.0, float(LEAST_MAX)
    for broker in snapshot.brokers:
        found = value(snapshot.reports[broker])
        if found > high:
            most, high = broker, found
        if found < low:
            least, low = broker, found
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
    need = int((extremes.high - extremes.low) * settings.unload_fraction_max)
    if len(snapshot.reports[source].bundles) <= 1:
        return Shed((), (Skip(source, "SoleBundle: it serves one bundle at most"),), None)
    if need < minimum:
        return Shed((), (Skip(source, f"BelowMinimum: {need} to move, less than {minimum}"),), None)
    why = {**why, "goal": float(need), "leastLoaded": extremes.least}
    chosen: list[Unload] = []
    limit = settings.uniform_bundles_max
    for bundle, load in sheddable(snapshot, source, loads):
        if load <= 0 or (limit != -1 and len(chosen) >= limit):
            break
        if load <= need + SLACK:
            chosen.append(Unload(bundle, source, None, reason, why))
            need -= int(load)
    skipped = () if chosen else (Skip(source, "NoBundles: none is small enough to move"),)
    return Shed(tuple(chosen), skipped, None)


SHEDDER = Shedder(name="UniformLoadShedder", shed=shed, extensible=False)
