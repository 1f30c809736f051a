"""A shedder and a placement rule with settings and memory of their own, a split algorithm, a merge
rule and a load metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadmanager import Shard
from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.load.reports import BundleData, NamespaceBundleStats
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.selection import sheddable
from loadmanager.engine.strategies.splitting.algorithms import FlowLimits, HashedTopic
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder
from loadmanager.kit.conf import conf

LOADMANAGER_CONTRACT = 1
"""The version of the contract of plug-ins that this is written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusiestSettings:
    """BusiestShedder."""

    cycles: int = conf(
        "busiestShedderCycles",
        2,
        "So many cycles in a row a broker must be the busiest",
        minimum=1,
        maximum=8,
        dynamic=True,
    )
    margin_percent: float = conf(
        "busiestShedderMarginPercent",
        20.0,
        "A broker is too busy with so much more bytes/s than the mean",
        minimum=5,
        maximum=100,
        dynamic=True,
    )


@dataclass(frozen=True, slots=True)
class BusiestMemory:
    """The broker that was the busiest, and for how many cycles; the reports since the last move."""

    broker: str = ""
    cycles: int = 0
    reports: int = 0


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: BusiestMemory) -> Shed:
    """Move a bundle away from the broker that has been the busiest for long enough: the largest one
    that does not make another broker the busiest.
    """
    own = settings.of(BusiestSettings)
    loads = {broker: snapshot.reports[broker].throughput for broker in snapshot.brokers}
    busiest = min(loads, key=lambda broker: (-loads[broker], broker))
    mean = sum(loads.values()) / len(loads)
    above = loads[busiest] - mean
    if above <= mean * own.margin_percent / 100:
        text = f"{busiest} has {above:.0f} bytes/s more than the mean"
        return Shed(
            (), (Skip("cluster", "EvenEnough", text),), replace(memory, broker="", cycles=0)
        )
    cycles = memory.cycles + 1 if memory.broker == busiest else 1
    waiting = replace(memory, broker=busiest, cycles=cycles)
    if cycles < own.cycles:
        text = f"the busiest for {cycles} of {own.cycles} cycles"
        return Shed((), (Skip(busiest, "Patience", text),), waiting)
    fitting = (
        bundle
        for bundle, load in sheddable(snapshot, busiest, snapshot.by_throughput(busiest))
        if 0 < load <= above
    )
    bundle = next(fitting, None)
    if bundle is None:
        return Shed((), (Skip(busiest, "NoBundle", "none is small enough"),), waiting)
    why = {
        "cycles": float(cycles),
        "toPlace": float(len(snapshot.to_place)),
        "reports": float(memory.reports),
    }
    return Shed((Unload(bundle, busiest, None, "Busiest", why),), (), BusiestMemory())


def observe(
    _broker: str, _report: object, _settings: StrategySettings, memory: BusiestMemory
) -> BusiestMemory:
    """Count the reports."""
    return replace(memory, reports=memory.reports + 1)


def candidates(
    snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, calls: int
) -> tuple[list[str], int]:
    """The brokers with the fewest bundles, from the second call on: the first one goes anywhere.

    Idle bundles go to the last broker.
    """
    if (
        snapshot.placing is not None
        and snapshot.to_place[snapshot.placing].short_term_data.throughput == 0
    ):
        return [brokers[-1]], calls
    counts = {broker: len(snapshot.reports[broker].bundles) for broker in brokers}
    least = min(counts.values(), default=0)
    return [broker for broker in brokers if calls == 0 or counts[broker] == least], calls + 1


def order(loads: Mapping[str, BundleData]) -> list[str]:
    """Largest first."""
    return sorted(loads, key=lambda bundle: (-loads[bundle].short_term_data.throughput, bundle))


SHEDDER = Shedder(
    name="BusiestShedder",
    shed=shed,
    observe=observe,
    memory=BusiestMemory,
    settings=BusiestSettings,
    extensible=False,
    fewer_moves="A higher busiestShedderCycles saves such moves.",
)
PLACEMENT = PlacementRule(name="FewestBundles", candidates=candidates, memory=int, order=order)


def hottest_alone(
    span: BundleRange, topics: Mapping[str, HashedTopic], limits: FlowLimits
) -> Sequence[int]:
    """Split so that the topic with most messages has a bundle of its own."""
    if not topics:
        return ()
    hottest = max(topics.values(), key=lambda topic: (topic.rate, -topic.hash)).hash
    return [place for place in (hottest, hottest + 1) if span.lower < place < span.upper]


def few_clients(
    left: NamespaceBundleStats,
    right: NamespaceBundleStats,
    splits: SplitSettings,
    merges: MergeSettings,
) -> bool:
    """Two neighbours are idle while few clients are connected to both together."""
    clients = sum(each.producer_count + each.consumer_count for each in (left, right))
    return clients <= merges.fraction * splits.sessions_max


def users(shard: Shard[Any]) -> float:
    """How many are inside a shard now."""
    return float(shard.users)
