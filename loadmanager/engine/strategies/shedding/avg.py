"""AvgShedder: pair the most with the least loaded broker, the second most with the second least,
and so on; move bundles between the two of a pair (PIP-364).

A pair acts when it differs by the low threshold for many cycles, or by the high threshold for a
few. The destinations are part of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.never_sheds import NeverSheds, all_idle, not_exceeded
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.selection import movable
from loadmanager.engine.strategies.strategy import Shed, Shedder, Tries
from loadmanager.kit.conf import conf


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgSettings:
    """AvgShedder."""

    low: float = conf(
        "loadBalancerAvgShedderLowThreshold",
        15.0,
        "AvgShedder: the low threshold, a difference of scores in points",
        minimum=0,
        dynamic=True,
    )
    high: float = conf(
        "loadBalancerAvgShedderHighThreshold",
        40.0,
        "AvgShedder: the high threshold, a difference of scores in points",
        minimum=0,
        dynamic=True,
    )
    low_hits: int = conf(
        "loadBalancerAvgShedderHitCountLowThreshold",
        8,
        "AvgShedder: acts after this many cycles above the low threshold",
        minimum=0,
        dynamic=True,
    )
    high_hits: int = conf(
        "loadBalancerAvgShedderHitCountHighThreshold",
        2,
        "AvgShedder: acts after this many cycles above the high threshold",
        minimum=0,
        dynamic=True,
    )

    def contradictions(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The low threshold must not be above the high one."""
        low, high = "loadBalancerAvgShedderLowThreshold", "loadBalancerAvgShedderHighThreshold"
        if self.low > self.high:
            yield (low, high), f"{low} = {self.low:g} is above {high} = {self.high:g}"


@dataclass(frozen=True, slots=True)
class AvgMemory:
    """brokerId → cycles in a row above a threshold."""

    hits_high: Mapping[str, int] = field(default_factory=dict)
    hits_low: Mapping[str, int] = field(default_factory=dict)


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: AvgMemory) -> Shed:
    own, columns = settings.of(AvgSettings), snapshot.columns
    usage = columns.usage(settings.weights) * 100
    ascending = usage.argsort(kind="stable")  # the brokers are in order of name
    order = [columns.names[row] for row in ascending.tolist()]
    scores = usage[ascending].tolist()
    high, low = dict(memory.hits_high), dict(memory.hits_low)
    pairs: list[tuple[int, int]] = []
    for least in range((len(order) + 1) // 2):
        most = len(order) - 1 - least
        difference, pair = scores[most] - scores[least], (order[least], order[most])
        _count(pair, low, hit=difference >= own.low)
        _count(pair, high, hit=difference >= max(own.low, own.high))
        # With an odd number, the middle broker is a pair with itself.
        if difference >= own.low and least != most:
            pairs.append((least, most))
    if not pairs:
        balanced = Skip("cluster", "Balanced", "no pair of brokers differs enough")
        return Shed((), (balanced,), AvgMemory())
    unloads: list[Unload] = []
    skipped: list[Skip] = []
    for at_least, at_most in pairs:
        least, most = order[at_least], order[at_most]
        hits_high = max(high.get(least, 0), high.get(most, 0))
        hits_low = max(low.get(least, 0), low.get(most, 0))
        if hits_high < own.high_hits and hits_low < own.low_hits:
            text = f"{hits_low} cycles above low, {hits_high} above high"
            skipped.append(Skip(most, "HitCount", text))
            continue
        _count((least, most), low, hit=False)
        _count((least, most), high, hit=False)
        why: dict[str, float | str] = {
            "score": scores[at_most],
            "destinationScore": scores[at_least],
        }
        unloads += _between(snapshot, settings, least, most, why=why, skipped=skipped)
    return Shed(tuple(unloads), tuple(skipped), AvgMemory(high, low))


def _count(pair: tuple[str, str], hits: dict[str, int], *, hit: bool) -> None:
    for broker in pair:
        if hit:
            hits[broker] = hits.get(broker, 0) + 1
        else:
            hits.pop(broker, None)


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
        goal, reason, loads = rate, "MsgRate", snapshot.by_rate(most)
    elif throughput > settings.unload_throughput_min:
        goal, reason, loads = throughput, "Throughput", snapshot.by_throughput(most)
    else:
        skipped.append(
            Skip(
                most,
                "BelowMinimum",
                f"{rate:.0f} messages/s and {throughput:.0f} bytes/s to move",
            )
        )
        return []
    why = {**why, "goal": goal}
    unloads: list[Unload] = []
    may_shed, descending, at = movable(snapshot, most), -loads.loads, 0
    while True:
        # Bundles that exceed the rest of the goal are passed over.
        at = max(at, int(descending.searchsorted(-goal)))
        if at == len(descending) or descending[at] >= 0:
            break
        bundle, load = loads[at], -float(descending[at])
        if may_shed(bundle):
            unloads.append(Unload(bundle, most, least, reason, why))
            goal -= load
        at += 1
    if not unloads:
        skipped.append(Skip(most, "NoBundles", "none that may leave is small enough"))
    return unloads


def never_sheds(settings: StrategySettings) -> Iterator[NeverSheds]:
    yield from all_idle(settings)
    yield from not_exceeded("loadBalancerAvgShedderLowThreshold", settings.of(AvgSettings).low)


SHEDDER = Shedder(
    name="AvgShedder",
    shed=shed,
    memory=AvgMemory,
    stored=AvgMemory,
    settings=AvgSettings,
    extensible=False,
    never_sheds=never_sheds,
    for_followers=True,
    goes_with="AvgShedder",
    names_destinations=True,
    tries=(
        Tries("loadBalancerAvgShedderLowThreshold", (8, 15), 4, 30),
        Tries("loadBalancerAvgShedderHitCountLowThreshold", (3, 8), 1, 12, whole=True),
        Tries("maxUnloadPercentage", (0.2, 0.3), 0.1, 0.5),
    ),
    fewer_moves="A longer loadBalancerSheddingGracePeriodMinutes or higher thresholds save "
    "such moves.",
)
