"""The strategies' input from the cycle: reports, the bundle to place, and the bundles that wait."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from clusters.views import without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import (
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import EVERY_BUNDLE, Wishes
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Placement, Plan, Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import PlacementRule, Shed, Shedder
from loadmanager.kit.errors import ConfigError
from loadmanager.kit.reason import Reason

A, B, C = (f"t/{name}/0x00000000_0xffffffff" for name in "abc")
SETTINGS = StrategySettings(shedder="Watching", placement="Watching")
SEEN: list[tuple[str | None, list[str], list[str]]] = []
"""Of each call: `placing`, `to_place`, and the bundles of `pending`."""


def watch(snapshot: ClusterSnapshot) -> None:
    """Record the arguments of a call."""
    pending = sorted(bundle for bundles in snapshot.pending.values() for bundle in bundles)
    SEEN.append((snapshot.placing, sorted(snapshot.to_place), pending))


def shed(snapshot: ClusterSnapshot, _settings: StrategySettings, memory: int) -> Shed:
    """No move."""
    watch(snapshot)
    return Shed((), (), memory)


def candidates(
    snapshot: ClusterSnapshot, brokers: Sequence[str], _settings: StrategySettings, memory: int
) -> tuple[list[str], int]:
    """Any broker."""
    watch(snapshot)
    return list(brokers), memory


def count(_broker: str, _report: object, _settings: StrategySettings, memory: int) -> int:
    """Count a report."""
    return memory + 1


def largest_first(loads: Mapping[str, BundleData]) -> list[str]:
    """By message rate."""
    return sorted(loads, key=lambda bundle: (-loads[bundle].short_term_data.rate, bundle))


SHEDDER = Shedder(name="Watching", shed=shed, memory=int, observe=count)
PLACEMENT = PlacementRule(
    name="Watching", candidates=candidates, memory=int, observe=count, order=largest_first
)


@pytest.fixture(autouse=True)
def watching() -> Iterator[None]:
    """The strategies are registered, as those of an installed package are."""
    SEEN.clear()
    registry.register(SHEDDER)
    registry.register(PLACEMENT)
    yield
    del registry.SHEDDERS["Watching"], registry.PLACEMENTS["Watching"]


def two_brokers(**rates: float) -> ClusterView:
    """Brokers left and right are there; a third one with bundles of these messages/s went."""
    view = ClusterView()
    stats = {
        f"t/{name}/0x00000000_0xffffffff": NamespaceBundleStats(msg_rate_in=rate)
        for name, rate in rates.items()
    }
    view.observe("gone", LocalBrokerData(bundles=list(stats), last_stats=stats), 1)
    view.gone("gone", 1)
    for broker in ("left", "right"):
        view.observe(broker, LocalBrokerData(), 1)
    return view


def place(bundles: Sequence[str], view: ClusterView) -> list[str]:
    """Place bundles; returns them in the order in which the rule was called."""
    snapshot = without_policies(view, SETTINGS, 1)
    cycle.place(snapshot, bundles, SETTINGS, Memories(), random.Random(0))
    return [placing for placing, _, _ in SEEN if placing is not None]


def test_both_strategies_see_every_report() -> None:
    """Shedder and placement rule have memories of their own, although they have one name."""
    memories: Any = Memories()
    for broker in ("left", "right", "left"):
        memories = cycle.observe(broker, LocalBrokerData(), SETTINGS, memories)
    memories = memories.remember(SHEDDER, memories.of(SHEDDER) + 10)
    assert (memories.of(SHEDDER), memories.of(PLACEMENT)) == (13, 3)
    other = StrategySettings()
    assert cycle.observe("left", LocalBrokerData(), other, memories) == memories


def test_a_shedder_sees_what_waits() -> None:
    """The bundles that a broker left behind are about to be placed, by the next lookups."""
    cycle.shed(without_policies(two_brokers(a=1, b=2), SETTINGS, 1), SETTINGS, Memories())
    assert SEEN == [(None, [A, B], [])]


def test_a_placement_knows_its_bundle_and_those_that_wait() -> None:
    """A lookup places one bundle; the rule is told of the others that the broker left behind."""
    assert place([B], two_brokers(a=1, b=2)) == [B]
    assert SEEN == [(B, [A, B], [])]


def test_the_rule_orders_a_request() -> None:
    """Only requested bundles are placed; those that the rule placed before are pending."""
    assert place([A, B], two_brokers(a=1, b=2, c=3)) == [B, A]
    assert SEEN == [(B, [A, B, C], []), (A, [A, B, C], [B])]


def test_another_strategy_cannot_take_a_name() -> None:
    """Registering the same strategy again changes nothing."""
    registry.register(SHEDDER)
    with pytest.raises(ConfigError, match="another strategy with the name Watching"):
        registry.register(Shedder(name="Watching", shed=shed))
    with pytest.raises(ConfigError, match="another strategy with the name RoundRobin"):
        registry.register(PlacementRule(name="RoundRobin", candidates=candidates))


def brokers(**cpu: float) -> ClusterSnapshot:
    """Brokers by name, with their CPU in percent."""
    return ClusterSnapshot(
        now_ms=0,
        reports={
            name: LocalBrokerData(cpu=ResourceUsage(usage=percent, limit=100))
            for name, percent in cpu.items()
        },
    )


def test_a_bundle_on_its_way_stays_on_its_way() -> None:
    """The rule is not called; a broker that is gone does not count."""
    snapshot = replace(
        brokers(left=1, right=1),
        pending={
            "right": {A: BundleData()},
            "gone": {B: BundleData()},
            "left": {C: BundleData()},
        },
    )
    placements, _ = cycle.place(snapshot, [A, C], SETTINGS, Memories(), random.Random(0))
    assert placements == [
        Placement(
            A, "right", ("right",), {"left": Reason("UnderWay", "it is on its way to right")}
        ),
        Placement(C, "left", ("left",), {"right": Reason("UnderWay", "it is on its way to left")}),
    ]
    assert SEEN == []


def test_a_bundle_that_could_not_be_opened_where_it_was_going_goes_elsewhere() -> None:
    """Another bundle that it refuses is no reason."""
    snapshot = replace(
        brokers(left=1, right=1),
        pending={"right": {A: BundleData(), C: BundleData()}},
        wishes=Wishes(refusals={"right": frozenset({A, EVERY_BUNDLE})}),
    )
    placements, _ = cycle.place(snapshot, [A, C], SETTINGS, Memories(), random.Random(0))
    assert [placement.broker for placement in placements] == ["left", "right"]


def test_nothing_is_shed_when_shedding_is_off() -> None:
    """The shedder is not called."""
    settings = replace(SETTINGS, shedding_enabled=False)
    plan, _ = cycle.shed(brokers(left=1, right=1), settings, Memories())
    text = "the balancer is switched off (loadBalancerSheddingEnabled is false)"
    assert plan == Plan("Watching", skipped=(Skip("cluster", "SheddingDisabled", text),))
    assert SEEN == []


def test_a_move_without_a_possible_destination_is_dropped() -> None:
    """The only broker is the one that the bundle leaves."""
    plan = Plan("x", unloads=(Unload(A, "left", None, "x"),), skipped=(Skip(B, "y"),))
    done, _ = cycle.destinations(brokers(left=1), plan, SETTINGS, Memories(), random.Random(0))
    assert done.unloads == ()
    assert done.skipped == (Skip(B, "y"), Skip(A, "NoDestination", "no broker qualifies"))


@pytest.mark.parametrize(
    ("cpu", "candidates"),
    [
        ({"a": 10, "b": 85, "c": 10}, ("b",)),
        ({"a": 10, "b": 86, "c": 10}, ("b",)),
        ({"a": 10, "c": 10}, ("a", "c")),
        ({"a": 90, "c": 10}, ("a", "c")),
    ],
)
def test_a_rule_follows_the_planned_destination(
    cpu: dict[str, float], candidates: tuple[str, ...]
) -> None:
    """A plan is followed once, also to a broker that is overloaded by now. Without the destination,
    any broker may be chosen.
    """
    settings = StrategySettings(shedder="AvgShedder", placement="AvgShedder")
    before = Memories(planned={A: "b", B: "a"})
    (placement,), after = cycle.place(brokers(**cpu), [A], settings, before, random.Random(0))
    assert tuple(placement.candidates) == candidates
    assert after.planned == ({B: "a"} if "b" in cpu else before.planned)
    other = StrategySettings(placement="LeastLongTermMessageRate")
    _, kept = cycle.place(brokers(**cpu), [A], other, before, random.Random(0))
    assert kept.planned == before.planned
