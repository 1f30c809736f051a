"""The budget of a daemon's moves: exact."""

from __future__ import annotations

import pytest

from loadmanager.engine.strategies.budget import (
    Budget,
    BudgetLimits,
    limits_of,
)
from loadmanager.engine.strategies.plan import Unload
from loadmanager.kit.units import HOUR_MS


def move(bundle: str, source: str = "a:1", destination: str = "b:1", **more: str) -> Unload:
    """A move."""
    return Unload(bundle, source, destination, "Overloaded", **more)  # type: ignore[arg-type]


def test_so_many_in_an_hour() -> None:
    """Then one more for each that is an hour old."""
    budget, limits = Budget(), BudgetLimits(per_hour=2, per_broker=9)
    allowed, refused = budget.allow([move("x"), move("y"), move("z")], 0, limits)
    for _ in allowed:
        budget.began("a:1", "b:1", 0)
    assert [one.bundle for one in allowed] == ["x", "y"]
    assert [(skip.what, skip.reason) for skip in refused] == [
        ("z", "HourlyBudget: 2 moves an hour")
    ]
    assert budget.allow([move("z")], HOUR_MS - 1, limits)[0] == ()
    assert budget.allow([move("z")], HOUR_MS, limits)[0] == (move("z"),)


def test_so_many_at_a_broker() -> None:
    """From it and to it; others go on."""
    budget, limits = Budget(), BudgetLimits(per_hour=9, per_broker=1)
    moves = [move("x"), move("y", "c:1", "b:1"), move("z", "c:1", "d:1")]
    allowed, refused = budget.allow(moves, 0, limits)
    assert [one.bundle for one in allowed] == ["x", "z"]
    assert refused[0].reason == "BrokerBudget: 1 moves an hour at b:1"


def test_a_swap_is_whole() -> None:
    """Both moves, or none."""
    swap = [move("x", swap="y"), move("y", "b:1", "a:1", swap="y")]
    assert Budget().allow(swap, 0, BudgetLimits(1, 9))[0] == ()
    assert len(Budget().allow(swap, 0, BudgetLimits(2, 2))[0]) == 2


def test_moves_that_were_made_before() -> None:
    """They count for the rest of their hour; one from the future as made now."""
    limits = BudgetLimits(per_hour=2, per_broker=9)
    before = Budget()
    for _ in range(2):
        before.began("a:1", "b:1", 1000)
    assert before.moves() == [(1000, "a:1", "b:1")] * 2
    budget = Budget()
    budget.recall(before.moves(), 2000)
    assert budget.allow([move("z")], HOUR_MS, limits)[0] == ()
    assert budget.allow([move("z")], HOUR_MS + 1000, limits)[0] == (move("z"),)
    set_back = Budget()
    set_back.recall(before.moves(), 0)
    assert set_back.allow([move("z")], HOUR_MS - 1, limits)[0] == ()
    assert set_back.allow([move("z")], HOUR_MS, limits)[0] == (move("z"),)


def test_moves_that_are_known_from_two_sides() -> None:
    """Each counts once, and two of the same time and brokers twice."""
    budget = Budget()
    for source in ("a:1", "a:1", "c:1"):
        budget.began(source, "b:1", 1000)
    budget.recall([(1000, "a:1", "b:1"), (900, "d:1", "b:1")], 2000)
    assert [source for _, source, _ in budget.moves()] == ["d:1", "a:1", "a:1", "c:1"]


def test_a_move_that_was_not_made() -> None:
    """The newest one between its brokers gives its place back; another one does not."""
    budget = Budget()
    for now_ms in (1, 2):
        budget.began("a:1", None, now_ms)
    budget.began("c:1", "b:1", 3)
    budget.not_made("a:1", None)
    budget.not_made("a:1", "b:1")
    assert budget.moves() == [(1, "a:1", ""), (3, "c:1", "b:1")]


def test_moves_that_have_not_begun() -> None:
    """Those that wait take room, as long as they wait; only those that began count for an hour."""
    budget, limits = Budget(), BudgetLimits(per_hour=2, per_broker=2)
    waiting = [("a:1", "b:1")]
    allowed, refused = budget.allow([move("x"), move("y")], 0, limits, waiting)
    assert ([one.bundle for one in allowed], len(refused)) == (["x"], 1)
    assert len(budget.allow([move("x"), move("y")], 0, limits)[0]) == 2
    budget.began("c:1", None, 0)
    assert budget.moves() == [(0, "c:1", "")]
    budget.began("c:1", None, HOUR_MS)
    assert budget.moves() == [(HOUR_MS, "c:1", "")]


@pytest.mark.parametrize(
    ("brokers", "bundles", "per_hour", "per_broker"),
    [(3, 20, 60, 20), (3, 600, 60, 60), (60, 20_000, 1000, 333), (300, 200_000, 5000, 666)],
)
def test_limits_fit_the_size_of_the_cluster(
    brokers: int, bundles: int, per_hour: int, per_broker: int
) -> None:
    """Where the operator does not say."""
    fitting = limits_of(-1, -1, brokers=brokers, bundles=bundles)
    assert (fitting.per_hour, fitting.per_broker) == (per_hour, per_broker)
    assert limits_of(0, 7, brokers=brokers, bundles=bundles) == BudgetLimits(0, 7)
