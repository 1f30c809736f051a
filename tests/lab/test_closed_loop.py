"""Synthetic days and the closed loop: the same seed, the same day; nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab.closed_loop import run
from loadmanager.lab.days import DayEvent, DayOfLoad, DaySize, Kind, make_day, traffic
from loadmanager.lab.measures import WARM_UP_MINUTES, Minute, measure

SMALL = DaySize(brokers=4, bundles=40, minutes=60)
BALANCED = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
IDLE = StrategySettings(shedding_enabled=False)


def figures(minutes: list[Minute]) -> bytes:
    """All figures of a day, exactly."""
    return msgspec.json.encode(
        [(minute.usage.tolist(), minute.moves, minute.placed) for minute in minutes]
    )


def strategies() -> list[StrategySettings]:
    """Each shedder, with the placement rule that it needs."""
    rules = {rule.follows: rule.name for rule in registry.PLACEMENTS.values() if rule.follows}
    default = StrategySettings().placement
    return [
        StrategySettings(shedder=name, placement=rules.get(name, default))
        for name in sorted(registry.SHEDDERS)
    ]


@pytest.mark.parametrize("strategy", strategies(), ids=lambda strategy: strategy.shedder)
def test_same_seed_same_minutes(strategy: StrategySettings) -> None:
    """A day is the same again; another seed makes another day."""
    day = make_day(3, SMALL)
    assert figures(run(day, strategy)) == figures(run(day, strategy))
    assert figures(run(make_day(4, SMALL), strategy)) != figures(run(day, strategy))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.booleans())
def test_all_work_is_done(seed: int, unequal: bool) -> None:
    """Whatever moves, the brokers together do the work of all bundles, and of reconnecting."""
    shape = replace(SMALL, unequal=unequal, minutes=40)
    day = make_day(seed, shape)
    cores = np.array([day.cores[name] for name in sorted(day.brokers)])
    quiet = replace(day, events=())
    bundles = traffic(quiet)
    for number, minute in enumerate(run(quiet, BALANCED)):
        work = (bundles.minute(number) * day.cost).sum()
        done = (minute.usage * cores * 100).sum()
        assert work * 0.999 <= done <= work * 1.5


def test_what_a_dead_broker_left_is_placed_at_once() -> None:
    """Its bundles are placed in the minute in which it dies; a newcomer has none of them."""
    day = make_day(1, SMALL)
    dies = day.brokers[0]
    events = (DayEvent(30, Kind.DIES, dies), DayEvent(40, Kind.JOINS, dies))
    minutes = run(replace(day, events=events), IDLE)
    assert minutes[30].placed == 10
    assert [len(minutes[number].usage) for number in (29, 30, 39, 40)] == [4, 3, 3, 4]
    assert minutes[40].usage[0] == 0
    assert not any(minute.moves for minute in minutes)


def test_a_newcomer_is_filled() -> None:
    """Without a burst: at most so much a minute, and within a bounded time."""
    shape = DaySize(brokers=8, bundles=320, minutes=60)
    day: DayOfLoad = replace(
        make_day(3, shape), events=(DayEvent(30, Kind.JOINS, "broker-0008:8080"),)
    )
    minutes = run(day, BALANCED)
    newcomer = np.array([minute.usage[-1] for minute in minutes[30:]])
    others = np.array([minute.usage[:-1].mean() for minute in minutes[30:]])
    assert newcomer[0] == 0
    assert (np.diff(newcomer) < 0.25).all()
    assert (newcomer[15:] > 0.75 * others[15:]).all()


def a_minute(usage: list[float], *, moves: int = 0, events: tuple[DayEvent, ...] = ()) -> Minute:
    """A minute with this usage."""
    return Minute(np.array(usage), moves, 5.0 * moves, moves // 2, 0.5 * moves, 0, events)


def test_measures() -> None:
    """Each figure, computed by hand."""
    event = (DayEvent(30, Kind.DIES, "b"),)
    calm, hot = a_minute([0.5, 0.5]), a_minute([0.9, 0.5], moves=2)
    minutes = [calm] * 30 + [a_minute([0.9, 0.5], moves=2, events=event), hot, hot] + [calm] * 27
    measures = measure(minutes)
    count = len(minutes) - WARM_UP_MINUTES
    assert measures.spread == pytest.approx(20 * 3 / count)
    assert measures.gap == pytest.approx(20 * 3 / count)
    assert (measures.hot_minutes, measures.moves, measures.again) == (3, 6, 3)
    assert (measures.moved_bytes, measures.pause_s) == (30.0, 3.0)
    assert measures.settle_minutes == 3
