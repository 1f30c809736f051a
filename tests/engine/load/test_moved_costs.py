"""What bundles cost is learned from their moves."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from loadmanager.engine.load import moved_costs
from loadmanager.engine.load.moved_costs import (
    DIFFERS,
    MOVED_MAX,
    SETTLES,
    TIMES_MAX,
    WATCHED,
    Attribution,
    Late,
    MovedBundle,
    Surprises,
    attribute,
    no_attribution,
    ordered,
    reported,
)
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab.closed_loop import ClosedLoop
from loadmanager.lab.hard_days import hard_day

ROWS = {"a": 0, "b": 1, "c": 2}
EXPECTED = 0.05
"""What each bundle is expected to use, as a part of a broker."""
EACH = np.ones(3, np.bool_)


def nothing(moved: Mapping[str, MovedBundle], differs: float = 1.0) -> Attribution:
    """Nothing is explained as yet."""
    return no_attribution(moved, differs, Late(), len(EACH))


def _adds(uses: float, _bundle: str, _row: int) -> float:
    return uses


def learned(true: float, noise: float, *, full: bool = False) -> tuple[float, float]:
    """What one bundle is taken to cost that really uses `true`, and by how much bundles differ."""
    rng = random.Random(1)
    came = nothing(ordered({}, [("x", "a", "b")]), DIFFERS)
    for _ in range(WATCHED + 3):
        moved = reported(came.moved, {"a": {"y"}, "b": {"x", "z"}, "c": {"w"}})
        uses = EXPECTED * moved["x"].times
        more = [uses - true, true - uses, 0.0]
        shown = np.array([each + rng.gauss(0, noise) for each in more])
        shown = np.maximum(shown, 0) if full else shown
        surprises = Surprises(shown, np.full(3, 0.03), EACH)
        came = replace(came, moved=moved)
        came = attribute(came, ROWS, partial(_adds, uses), surprises)
    return came.moved["x"].times, came.differs


@pytest.mark.parametrize("times", [1.0, 3.0, 8.0])
def test_a_move_tells_what_its_bundle_costs(times: float) -> None:
    """Both brokers change by more, or less, than was expected."""
    found, differs = learned(times * EXPECTED, noise=0.01)
    assert found == pytest.approx(times, rel=0.35, abs=0.25)
    assert differs == pytest.approx(DIFFERS, abs=0.05) if times == 1 else differs > DIFFERS


def test_a_cheap_bundle_is_told_slowly() -> None:
    """What it could be cheaper by is not much more than what sensors err by."""
    found, _ = learned(0.3 * EXPECTED, noise=0.0)
    assert 0.3 < found < 0.8


def test_noise_is_no_cost() -> None:
    """A small bundle between brokers whose sensors err by more than it uses."""
    found, _ = learned(EXPECTED, noise=0.06)
    assert found == pytest.approx(1, abs=0.35)


def test_a_full_destination_tells_that_a_bundle_is_dear() -> None:
    """Its sensor shows less than is used, but never too much."""
    found, _ = learned(5 * EXPECTED, noise=0.0, full=True)
    assert 1.5 < found <= 5.1


def test_only_reports_after_the_move_tell() -> None:
    """Those of the source that still has it, and the first ones after it, say nothing."""
    moved = ordered({}, [("x", "a", "b")])
    some = np.array([0.5, -0.5, 0.0])
    surprises = Surprises(some, abs(some), EACH)
    for has in ({"a": {"x"}, "b": set[str]()}, {"c": {"x"}}):
        moved = dict(reported(moved, has))
        came = attribute(nothing(moved), ROWS, partial(_adds, 0.1), surprises)
        assert came.moved == moved
        assert not came.part.any()
        assert not came.lost.any()
    for _ in range(SETTLES):
        moved = dict(reported(moved, {"a": set(), "b": {"x"}}))
        came = attribute(nothing(moved), ROWS, partial(_adds, 0.1), surprises)
        assert came.moved == moved
        assert came.lost.tolist() == [True, False, False]
        assert not came.part.any()


def test_the_first_reports_after_a_move_are_told() -> None:
    """Once for the source, which no longer has the bundle, and once for the destination."""
    before = ordered({}, [("x", "a", "b")])
    both = {"a": {"x"}, "b": set[str]()}
    waits = reported(before, both)
    left = reported(waits, {"a": set(), "b": set()})
    there = reported(left, {"a": set(), "b": {"x"}})
    later = reported(there, {"a": set(), "b": {"x"}})
    pairs = ((before, waits), (waits, left), (left, there), (there, later))
    first = [list(moved_costs.first_reports(*pair)) for pair in pairs]
    assert first == [[], [("x", "a", -1)], [("x", "b", 1)], []]


def test_a_source_tells_what_its_bundle_adds_elsewhere() -> None:
    """It missed less than was expected of the bundle: so does the destination get less."""
    moved = ordered({}, [("x", "a", "b")])
    for _ in range(SETTLES + 1):
        moved = reported(moved, {"a": set(), "b": {"x"}})
    surprises = Surprises(np.array([0.04, 0.0, 0.0]), np.full(3, 0.03), EACH)
    came = attribute(nothing(moved), ROWS, partial(_adds, EXPECTED), surprises)
    assert -EXPECTED < came.by_sources[1] < -EXPECTED / 4
    assert came.by_sources[[0, 2]].tolist() == [0, 0]


def test_bundles_that_no_sensor_shows_say_that_sensors_are_late() -> None:
    """Then nothing is learned, and what was is forgotten; in the end they count again."""
    moves = [(f"x{number}", "a", "b") for number in range(9)]
    moved = dict(ordered({"y": MovedBundle("b", "c", 7, 7, 4.0)}, moves))
    came = nothing(moved)
    for report in range(WATCHED):
        here = {"a": set[str](), "b": {name for name, *_ in moves}}
        came = replace(came, moved=reported(came.moved, here))
        late = Surprises(np.array([0.9, -0.9, 0.0]), np.full(3, 0.03), EACH)
        came = attribute(came, ROWS, partial(_adds, 0.1), late)
        assert came.late.is_so == (report >= SETTLES)
    assert {came.moved[name].times for name, *_ in moves} == {1.0}
    assert came.moved["y"].times < 2
    assert came.part[:2] == pytest.approx(1, abs=0.1)  # no broker is blamed
    for _ in range(600):
        came = attribute(came, ROWS, partial(_adds, 0.1), replace(late, tells=~EACH))
    assert not came.late.is_so


def test_many_bundles_that_are_dearer_where_they_came_say_so_too() -> None:
    """Their clients caught up there, and sensors still have it: none of them is learned as dear."""
    came = nothing(ordered({}, [(f"x{number}", "a", "b") for number in range(30)]))
    for report in range(WATCHED):
        came = replace(came, moved=reported(came.moved, {"a": set(), "b": set(came.moved)}))
        more = Surprises(np.array([0.0, 0.3, 0.0]), np.full(3, 0.03), EACH)
        came = attribute(came, ROWS, partial(_adds, 0.01), more)
        assert came.late.is_so == (report >= SETTLES)
    assert {it.times for it in came.moved.values()} == {1.0}


def test_one_broker_that_shows_nothing_accuses_no_others() -> None:
    """All that came to a sensor that stands still: those that they left show it."""
    came = nothing(ordered({}, [(f"x{number}", "a", "b") for number in range(9)]))
    for _ in range(WATCHED):
        came = replace(came, moved=reported(came.moved, {"a": set(), "b": set(came.moved)}))
        stands = Surprises(np.array([0.0, -0.9, 0.0]), np.full(3, 0.03), EACH)
        came = attribute(came, ROWS, partial(_adds, 0.1), stands)
        assert not came.late.is_so


@pytest.mark.parametrize("uses", [0.02, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("times", [0.5, 2.0, 8.0])
def test_a_bundle_that_costs_less_or_more_accuses_no_sensor(uses: float, times: float) -> None:
    """One alone may well be half as dear."""
    came = nothing(ordered({}, [("x", "a", "b")]), DIFFERS)
    for _ in range(WATCHED):
        came = replace(came, moved=reported(came.moved, {"a": set(), "b": {"x"}}))
        expected = uses * came.moved["x"].times
        more = times * uses - expected
        surprises = Surprises(np.array([-more, more, 0.0]), np.full(3, 0.03), EACH)
        came = attribute(came, ROWS, partial(_adds, expected), surprises)
        assert not came.late.is_so
    assert (came.moved["x"].times < 1) == (times < 1)


def test_what_is_remembered_is_bounded() -> None:
    """The bundles that moved last; those that cost what others do are forgotten."""
    moves = [(f"x{number}", "a", "b") for number in range(MOVED_MAX + 50)]
    moved = ordered({}, moves)
    assert list(moved) == [name for name, *_ in moves[50:]]
    over = WATCHED + 1
    done = {
        "dear": MovedBundle("a", "b", over, over, 3.0),
        "alike": MovedBundle("a", "b", over, over, 1.01),
    }
    moved = ordered(done, [("x", "a", "b"), ("dear", "b", "c")])
    assert moved == {"x": MovedBundle("a", "b"), "dear": MovedBundle("b", "c", times=3.0)}
    broken = {"x": MovedBundle("a", "b", times=10 * TIMES_MAX), "y": MovedBundle("a", "b", -1)}
    assert moved_costs.sane(broken) == {}


def test_dear_bundles_are_told_in_a_closed_loop() -> None:
    """Where each bundle has a cost of its own, moves tell which ones are dear."""
    settings = StrategySettings(
        shedder="BalancedShedder", placement="BalancedPlacement", distribute_evenly=False
    )
    agree = []
    for seed in range(60, 80):
        day = hard_day(seed)
        loop = ClosedLoop(day, settings)
        for minute in range(60):
            loop.minute(minute)
        moved = loop.memories.of(registry.SHEDDERS["BalancedShedder"]).model.moved
        true = dict(zip(day.bundles, day.cost.tolist(), strict=True))
        names = [name for name, move in moved.items() if move.times != 1]
        if len(names) > 10:
            times = np.log([moved[name].times for name in names])
            agree.append(np.corrcoef(times, np.log([true[name] for name in names]))[0, 1])
    assert len(agree) > 10
    assert np.mean(agree) > 0.15  # 0.22 ± 0.03 in the worlds from 40 to 120
