"""What the cycle tells strategies: every report, what is placed now, and what waits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from loadmanager.core.errors import ConfigError
from loadmanager.core.load.cluster_view import ClusterView
from loadmanager.core.load.reports import BundleData, LocalBrokerData, NamespaceBundleStats
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies import cycle, registry
from loadmanager.core.strategies.memories import Memories
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.strategy import PlacementRule, Shed, Shedder

A, B, C = (f"t/{name}/0x00000000_0xffffffff" for name in "abc")
SETTINGS = StrategySettings(shedder="Watching", placement="Watching")
SEEN: list[tuple[str | None, list[str], list[str]]] = []
"""Of each call: `placing`, `to_place`, and the bundles of `pending`."""


def watch(snapshot: ClusterSnapshot) -> None:
    """Remember what a strategy was told."""
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
    """How many reports there were."""
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


def a_view(**rates: float) -> ClusterView:
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


def a_snapshot(view: ClusterView) -> ClusterSnapshot:
    """The present one, without policies."""
    return view.snapshot(
        1, SETTINGS, isolation_policies={}, anti_affinity_groups={}, failure_domains={}
    )


def place(bundles: Sequence[str], view: ClusterView) -> list[str]:
    """Place bundles; returns them in the order in which the rule was called."""
    cycle.place(a_snapshot(view), bundles, SETTINGS, Memories(), random.Random(0))
    return [placing for placing, _, _ in SEEN if placing is not None]


def test_both_strategies_see_every_report() -> None:
    """Each in a memory of its own, although they have one name."""
    memories: Any = Memories()
    for broker in ("left", "right", "left"):
        memories = cycle.observe(broker, LocalBrokerData(), SETTINGS, memories)
    memories = memories.remember(SHEDDER, memories.of(SHEDDER) + 10)
    assert (memories.of(SHEDDER), memories.of(PLACEMENT)) == (13, 3)
    other = StrategySettings()
    assert cycle.observe("left", LocalBrokerData(), other, memories) == memories


def test_a_shedder_sees_what_waits() -> None:
    """The bundles that a broker left behind are about to be placed, by the next lookups."""
    cycle.shed(a_snapshot(a_view(a=1, b=2)), SETTINGS, Memories())
    assert SEEN == [(None, [A, B], [])]


def test_a_placement_knows_its_bundle_and_those_that_wait() -> None:
    """A lookup places one bundle; the rule is told of the others that the broker left behind."""
    assert place([B], a_view(a=1, b=2)) == [B]
    assert SEEN == [(B, [A, B], [])]


def test_the_rule_orders_a_request() -> None:
    """Only requested bundles are placed; those that the rule placed before are pending."""
    assert place([A, B], a_view(a=1, b=2, c=3)) == [B, A]
    assert SEEN == [(B, [A, B, C], []), (A, [A, B, C], [B])]


def test_another_strategy_cannot_take_a_name() -> None:
    """Registering the same strategy again changes nothing."""
    registry.register(SHEDDER)
    with pytest.raises(ConfigError, match="another strategy with the name Watching"):
        registry.register(Shedder(name="Watching", shed=shed))
    with pytest.raises(ConfigError, match="another strategy with the name RoundRobin"):
        registry.register(PlacementRule(name="RoundRobin", candidates=candidates))
