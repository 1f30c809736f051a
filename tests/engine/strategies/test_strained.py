"""A broker that passes less than its sensors say: it looks idle, and is not filled for it."""

from __future__ import annotations

import pytest
from clusters.views import without_policies
from engine.strategies.test_lost_traffic import (
    BROKERS,
    BUNDLES,
    BYTES_OF_A_BROKER,
    HOLE,
    SETTINGS,
    Loop,
    finished,
)

from loadmanager.engine.plans.goals import Filled
from loadmanager.engine.plans.planner import planning
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory
from loadmanager.engine.strategies.shedding.lost_traffic import AGAIN_MS
from loadmanager.kit.units import MINUTE_MS

MEAN = 0.5 * BYTES_OF_A_BROKER
"""What each of five brokers carries if all carry the same."""


class NarrowLoop(Loop):
    """One of the brokers passes only so much from a minute on."""

    def __init__(self, passes: float, since: int = 0) -> None:
        super().__init__(self._part)
        self.passes, self.since = passes, since

    def asked(self, broker: str = HOLE) -> float:
        """Bytes/s that the clients of a broker send."""
        return sum(self.bytes_s[name] for name, owner in self.owner.items() if owner == broker)

    def _part(self, minute: int, broker: str, _name: str) -> float:
        if broker != HOLE or minute <= self.since:
            return 1.0
        return min(1.0, self.passes / self.asked())

    def unserved(self, minutes: int) -> float:
        """What it does not serve in the next minutes, in minutes of what all are asked for."""
        lost = 0.0
        for _ in range(minutes):
            self.minutes(1)
            lost += max(self.asked() - self.passes, 0.0) / (MEAN * BROKERS)
        return lost


def test_what_it_does_not_serve_goes_away_again() -> None:
    """It serves three quarters of a mean, so that others look busier: bundles come, and all that it
    has lose their traffic. Then it takes nothing for two hours, and is left with what it can serve.
    """
    loop = NarrowLoop(0.75 * MEAN)
    still = max(loop.asked() / loop.passes, 1.0)
    lost = loop.unserved(30)
    assert any(HOLE in said for said in loop.strained)
    assert loop.asked() <= 1.2 * loop.passes
    assert lost + loop.unserved(90) <= 120 * (still - 1) * loop.passes / (MEAN * BROKERS)
    assert all(HOLE in said for said in loop.strained[30:])
    memory: BalancedMemory = loop.memories.of(SHEDDER)
    assert HOLE in memory.losing
    assert memory.strained.keys() == {HOLE}


def test_nothing_is_placed_there_and_no_plan_fills_it() -> None:
    """While it counts as strained."""
    loop = NarrowLoop(0.75 * MEAN)
    loop.minutes(40)
    snapshot = without_policies(loop.view, SETTINGS, loop.minute * MINUTE_MS)
    names = [f"t/new/0x{number:08x}_0x{number + 1:08x}" for number in range(20)]
    placed, _ = cycle.place(snapshot, names, SETTINGS, loop.memories, loop.rng)
    assert HOLE not in {each.broker for each in placed}
    memory: BalancedMemory = loop.memories.of(SHEDDER)
    made = finished(planning(snapshot, SETTINGS, Filled(HOLE), strained=memory.strained))
    assert ([*made.losing], made.moves) == ([HOLE], ())
    assert finished(planning(snapshot, SETTINGS, Filled(HOLE))).moves


def test_it_is_tried_again_two_hours_later() -> None:
    """Once it passes all, it keeps what comes."""
    loop = NarrowLoop(0.75 * MEAN)
    loop.minutes(40)
    loop.passes = 10 * MEAN
    last = max(at for at, said in enumerate(loop.strained) if HOLE in said and at < 40)
    loop.minutes(AGAIN_MS // MINUTE_MS + 60)
    assert not any(HOLE in said for said in loop.strained[last + AGAIN_MS // MINUTE_MS + 2 :])
    assert loop.asked() >= 0.8 * MEAN


@pytest.mark.parametrize("part", [1.0, 3.0])
def test_a_broker_thatpasses_enough_is_never_strained(part: float) -> None:
    """Nor is one whose bundles have a little more than it passes, as long as nothing came."""
    loop = NarrowLoop(part * 1.3 * MEAN)
    loop.minutes(120)
    assert not any(loop.strained)
    assert len(loop.owner) == BUNDLES
