"""A broker where bundles lose their traffic takes nothing, and no other one is taken for it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from clusters.views import a_report, without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.plans.goals import Even, Filled
from loadmanager.engine.plans.planner import GoalPlan, Pieces, planning
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory
from loadmanager.engine.strategies.shedding.lost_traffic import (
    AGAIN_MS,
    Came,
    after,
    losing_brokers,
)
from loadmanager.kit.units import MINUTE_MS

SETTINGS = StrategySettings(
    shedder="BalancedShedder", placement="BalancedPlacement", distribute_evenly=False
)
BYTES_OF_A_BROKER = 100e6
BUNDLES, BROKERS = 60, 5
HOLE = "b0:8080"
Served = Callable[[int, str, str], float]
"""Minute, broker and bundle → the part of the bundle's traffic that is served."""


class Loop:
    """Five brokers at half of their CPU; a cycle each minute moves bundles at once."""

    def __init__(self, served: Served) -> None:
        self.served = served
        names = [f"t/n{at % 7}/0x{at:08x}_0x{at + 1:08x}" for at in range(BUNDLES)]
        self.owner = {name: f"b{at % BROKERS}:8080" for at, name in enumerate(names)}
        rng = random.Random(7)
        self.bytes_s = {
            name: rng.uniform(0.7, 1.3) * 0.5 * BYTES_OF_A_BROKER * BROKERS / BUNDLES
            for name in names
        }
        self.view, self.memories, self.rng = ClusterView(), Memories(), rng
        self.minute = 0
        self.said: list[set[str]] = []
        """Of each minute, the brokers of which it was said that traffic is lost there."""
        self.strained: list[set[str]] = []
        """The same of those that serve no more."""

    def minutes(self, count: int) -> None:
        for _ in range(count):
            self.minute += 1
            now_ms = self.minute * MINUTE_MS
            self._report(now_ms)
            snapshot = without_policies(self.view, SETTINGS, now_ms)
            plan, self.memories = cycle.shed(snapshot, SETTINGS, self.memories)
            for code, said in (("TrafficLost", self.said), ("ServesNoMore", self.strained)):
                said.append({it.what for it in plan.skipped if it.code == code})
            for unload in plan.unloads:
                assert unload.destination is not None
                assert unload.destination not in self.said[-1] | self.strained[-1]
                self.owner[unload.bundle] = unload.destination
                self.view.moved(unload.bundle, unload.source, now_ms)

    def at(self, broker: str) -> int:
        """How many bundles a broker has."""
        return list(self.owner.values()).count(broker)

    def _report(self, now_ms: int) -> None:
        for broker in (f"b{number}:8080" for number in range(BROKERS)):
            stats = {
                name: NamespaceBundleStats(
                    msg_throughput_in=self.bytes_s[name]
                    * self.served(self.minute, broker, name)
                    * self.rng.uniform(0.95, 1.05)
                )
                for name, owner in self.owner.items()
                if owner == broker
            }
            bytes_s = sum(each.msg_throughput_in for each in stats.values())
            cpu = 100 * (0.05 + bytes_s / BYTES_OF_A_BROKER) + self.rng.uniform(-1, 1)
            report = a_report(stats, cpu=cpu, msg_throughput_in=bytes_s, last_update=now_ms)
            self.view.observe(broker, report, now_ms)


def finished(pieces: Pieces[GoalPlan]) -> GoalPlan:
    """The plan that is made in pieces."""
    while True:
        try:
            next(pieces)
        except StopIteration as made:
            plan: GoalPlan = made.value
            return plan


@pytest.mark.parametrize("left", [0.0, 0.03, 0.2])
def test_a_broker_that_does_not_serve_gets_hardly_more_bundles(left: float) -> None:
    """It is told at once, and gets nothing: neither from the shedder nor from the placement. Once
    its little traffic is the usual one, a few bundles come, lose theirs, and it is told again.
    """
    loop = Loop(lambda minute, broker, _: left if broker == HOLE and minute > 30 else 1.0)
    loop.minutes(30)
    had = loop.at(HOLE)
    loop.minutes(60)
    assert loop.at(HOLE) <= had + 8
    assert loop.said.count({HOLE}) >= 45
    assert not any(loop.said[:30])
    assert loop.said[31] == {HOLE}
    snapshot = without_policies(loop.view, SETTINGS, loop.minute * MINUTE_MS)
    for number in range(20):
        name = f"t/new/0x{number:08x}_0x{number + 1:08x}"
        (placed,), _ = cycle.place(snapshot, [name], SETTINGS, loop.memories, loop.rng)
        assert placed.broker != HOLE


def test_a_newcomer_that_does_not_serve_is_not_filled() -> None:
    """What came to it says so: it never had anything of its own."""
    loop = Loop(lambda _, broker, __: 0.02 if broker == HOLE else 1.0)
    for name, owner in loop.owner.items():
        if owner == HOLE:
            loop.owner[name] = "b1:8080"
    loop.minutes(60)
    assert {HOLE} in loop.said
    assert loop.at(HOLE) <= BUNDLES / BROKERS


def test_it_takes_bundles_again_once_it_serves() -> None:
    """Its usual traffic is back, and what came long ago no longer counts."""
    loop = Loop(lambda minute, broker, _: 0.02 if broker == HOLE and 30 < minute < 50 else 1.0)
    loop.minutes(60)
    assert loop.said[40] == {HOLE}
    assert not loop.said[-1]
    came = {"x": Came(HOLE, 1.0, 0), "y": Came("b1:8080", 1.0, 0)}
    assert after(came, [], [HOLE], AGAIN_MS - 1).keys() == {"x"}
    assert not after(came, [], [HOLE], AGAIN_MS)


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(
            lambda minute, _, name: 0.1 if minute > 30 and "/n3/" in name else 1.0, id="a namespace"
        ),
        pytest.param(lambda minute, _, __: 0.45 if minute > 30 else 1.0, id="everybody"),
        pytest.param(
            lambda minute, _, name: 15.0 if 30 < minute < 40 and name.endswith("01") else 1.0,
            id="a burst of some bundles",
        ),
    ],
)
def test_clients_that_go_away_accuse_no_broker(served: Served) -> None:
    """Of one namespace, of all, and those of a burst."""
    loop = Loop(served)
    loop.minutes(70)
    assert not any(loop.said)
    assert not any(loop.strained)


def test_bundles_without_traffic_are_spread() -> None:
    """By the placement, though they add nothing to what a broker uses."""
    loop = Loop(lambda *_: 1.0)
    loop.minutes(5)
    snapshot = without_policies(loop.view, SETTINGS, loop.minute * MINUTE_MS)
    counts = dict.fromkeys(snapshot.columns.names, 0)
    for number in range(200):
        name = f"t/idle/0x{number:08x}_0x{number + 1:08x}"
        snapshot = without_policies(loop.view, SETTINGS, loop.minute * MINUTE_MS)
        (placed,), _ = cycle.place(snapshot, [name], SETTINGS, loop.memories, loop.rng)
        assert placed.broker is not None
        loop.view.placed(name, placed.broker, loop.minute * MINUTE_MS)
        counts[placed.broker] += 1
    assert max(counts.values()) <= 2 * 200 / BROKERS, counts


def test_in_a_cluster_that_does_nothing_nothing_moves() -> None:
    """The noise of sensors is a large part of 8 %."""
    loop = Loop(lambda *_: 0.06)
    loop.minutes(10)
    before = dict(loop.owner)
    loop.minutes(120)
    moved = sum(owner != before[name] for name, owner in loop.owner.items())
    assert moved <= 6


def test_what_was_moved_is_remembered_within_bounds() -> None:
    """The last ones."""
    moves = [(f"t/n/{number}", "b1:8080", 1.0) for number in range(1_000)]
    remembered = after({}, moves, [], 0)
    assert list(remembered) == [name for name, *_ in moves[-300:]]


def test_no_plan_brings_anything_there() -> None:
    """A patient one, which is about later, does."""
    loop = Loop(lambda minute, broker, _: 0.0 if broker == HOLE and minute > 30 else 1.0)
    loop.minutes(31)
    snapshot = without_policies(loop.view, SETTINGS, loop.minute * MINUTE_MS)
    made, patient = (
        finished(planning(snapshot, SETTINGS, Even(0.1), patient=patient))
        for patient in (False, True)
    )
    assert [*made.losing] == [*patient.losing] == [HOLE]
    assert HOLE not in {move.destination for move in made.moves}
    assert HOLE in {move.destination for move in patient.moves}


def test_a_plan_goes_by_what_came_before() -> None:
    """To a newcomer that never had anything: what plans brought there has no traffic."""
    loop = Loop(lambda _, broker, __: 0.02 if broker == HOLE else 1.0)
    bytes_s = dict(loop.bytes_s)
    loop.minutes(1)
    snapshot = without_policies(loop.view, SETTINGS, 10 * MINUTE_MS)
    came = {name: Came(owner, bytes_s[name], 0) for name, owner in loop.owner.items()}
    made = finished(planning(snapshot, SETTINGS, Filled(HOLE), came=came))
    assert ([*made.losing], made.moves) == ([HOLE], ())
    assert finished(planning(snapshot, SETTINGS, Filled(HOLE))).moves


def test_it_is_no_reason_to_call_brokers_even() -> None:
    """Its clients may rest as well: it counts as far off, and nothing helps."""
    loop = Loop(lambda minute, broker, _: 0.0 if broker == HOLE and minute > 30 else 1.0)
    loop.minutes(31)
    snapshot = without_policies(loop.view, SETTINGS, loop.minute * MINUTE_MS)
    made = finished(planning(snapshot, SETTINGS, Even(7)))
    assert [*made.losing] == [HOLE]
    assert (made.reached, made.ends.code) == (False, "NothingHelps")


def test_an_evening_after_a_broker_came_accuses_nobody() -> None:
    """Nothing moved elsewhere: what came is compared with what all have of their usual traffic."""
    loop = Loop(lambda minute, _, __: 0.5 if minute > 30 else 1.0)
    bytes_s = dict(loop.bytes_s)
    loop.minutes(35)
    now_ms = loop.minute * MINUTE_MS
    came = {
        name: Came(HOLE, bytes_s[name], now_ms - 10 * MINUTE_MS)
        for name, owner in loop.owner.items()
        if owner == HOLE
    }
    snapshot = without_policies(loop.view, SETTINGS, now_ms)
    assert len(came) >= 3
    assert losing_brokers(snapshot, came, ()) == ()


def test_it_is_given_bundles_before_others_are_full() -> None:
    """Bundles of a broker that died go there once each other one would be above all that it has."""
    loop = Loop(lambda minute, broker, _: 0.0 if broker == HOLE and minute > 30 else 1.0)
    loop.minutes(31)
    snapshot = without_policies(loop.view, SETTINGS, loop.minute * MINUTE_MS)
    memory: BalancedMemory = loop.memories.of(SHEDDER)
    assert memory.losing == (HOLE,)
    names = [f"t/new/0x{number:08x}_0x{number + 1:08x}" for number in range(3_000)]
    placed, _ = cycle.place(snapshot, names, SETTINGS, loop.memories, loop.rng)
    brokers = [each.broker for each in placed]
    assert HOLE not in brokers[:1_000]
    assert HOLE in brokers
