"""A shedder and a placement rule with settings and memory of their own, a split algorithm and a
merge rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.load.reports import BundleData, NamespaceBundleStats
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.selection import sheddable
from loadmanager.engine.strategies.splitting.algorithms import FlowLimits, HashedTopic
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder, Tries
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
        dynamic=True,
    )


@dataclass(frozen=True, slots=True)
class BusiestMemory:
    """The broker that was the busiest, and for how many cycles; the reports since the last move."""

    broker: str = ""
    cycles: int = 0
    reports: int = 0


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: BusiestMemory) -> Shed:
    """Move the largest bundle away from the broker that has been the busiest for long enough."""
    busiest = min(
        snapshot.brokers, key=lambda broker: (-snapshot.reports[broker].throughput, broker)
    )
    cycles = memory.cycles + 1 if memory.broker == busiest else 1
    needed = settings.of(BusiestSettings).cycles
    if cycles < needed:
        return Shed(
            (),
            (Skip(busiest, "Patience", f"the busiest for {cycles} of {needed} cycles"),),
            replace(memory, broker=busiest, cycles=cycles),
        )
    largest = list(sheddable(snapshot, busiest, snapshot.by_throughput(busiest)))[:1]
    unloads = tuple(
        Unload(
            bundle,
            busiest,
            None,
            "Busiest",
            {
                "cycles": float(cycles),
                "toPlace": float(len(snapshot.to_place)),
                "reports": float(memory.reports),
            },
        )
        for bundle, _ in largest
    )
    return Shed(unloads, (), BusiestMemory())


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
    tries=(Tries("busiestShedderCycles", (1, 3), 1, 5, whole=True),),
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
