"""The circuit breaker: when it opens, and when it does not."""

from __future__ import annotations

import pytest

from loadmanager.engine.moves.breaker import Breaker, BreakerRules, Expectation, spread

RULES = BreakerRules(failures=2, rate_drop_percent=30, open_ms=1000, steady_ms=300)
LIVE = frozenset({"a", "b"})


def expect(**changes: float) -> Expectation:
    """A move that should halve the spread."""
    values: dict[str, float] = {
        "check_ms": 100,
        "publish_rate": 1000,
        "spread_before": 100,
        "spread_predicted": 50,
        **changes,
    }
    return Expectation(move="m", **values)  # type: ignore[arg-type]


def test_failures_in_a_row() -> None:
    """One that succeeds begins the count again; it closes by itself, or when it is closed."""
    breaker = Breaker()
    assert not breaker.ended("m", "no", 0, RULES)
    assert not breaker.ended("m", None, 0, RULES)
    assert not breaker.ended("m", "no", 0, RULES)
    assert breaker.ended("m", "no answer", 0, RULES)
    assert "2 moves failed in a row, no answer" in str(breaker.reason(999))
    assert breaker.reason(1000) is None
    assert breaker.ended("m", "x", 1000, BreakerRules(1, 30, 1000, 300))
    assert breaker.close()
    assert breaker.reason(1000) is None
    assert not breaker.close()


@pytest.mark.parametrize(
    ("publish_rate", "loads", "opens"),
    [
        (1000, {"a": 550, "b": 450}, False),
        (700, {"a": 550, "b": 450}, False),
        (699, {"a": 550, "b": 450}, True),
        (1000, {"a": 610, "b": 390}, False),
        (1000, {"a": 611, "b": 389}, True),
    ],
)
def test_what_came_of_a_move(publish_rate: float, loads: dict[str, float], *, opens: bool) -> None:
    """A third less traffic, or a wider spread; neither is looked at before the time."""
    breaker = Breaker()
    breaker.expect(expect())
    assert not breaker.look(LIVE, 0, {"a": 0, "b": 9e9}, 99, RULES)
    assert breaker.look(LIVE, publish_rate, loads, 100, RULES) is opens
    assert not breaker.look(LIVE, 0, loads, 5000, RULES)  # looked at once


def test_a_spread_may_grow_when_nothing_was_promised() -> None:
    """An operator moved a bundle for a reason of his own."""
    breaker = Breaker()
    breaker.expect(expect(spread_before=10, spread_predicted=100))
    assert not breaker.look(LIVE, 1000, {"a": 900, "b": 100}, 100, RULES)


def test_a_broker_that_disappears() -> None:
    """One that joins is welcome."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, {}, 0, RULES)
    assert not breaker.look(LIVE | {"c"}, 0, {}, 0, RULES)
    assert breaker.look(LIVE, 0, {}, 0, RULES)
    assert "c disappeared" in str(breaker.reason(0))
    assert breaker.opened == 1


def test_it_closes_when_no_other_broker_leaves() -> None:
    """And never later than after the whole time."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, {}, 0, RULES)
    assert breaker.look(frozenset("a"), 0, {}, 100, RULES)
    assert not breaker.look(LIVE, 0, {}, 150, RULES)
    assert "moves go on at 00:00:01 UTC" in str(breaker.reason(399))
    assert breaker.look(frozenset("a"), 0, {}, 200, RULES)
    assert breaker.reason(499)
    assert breaker.reason(500) is None
    hasty = BreakerRules(failures=1, rate_drop_percent=30, open_ms=100, steady_ms=300)
    assert breaker.look(frozenset(), 0, {}, 1000, hasty)
    assert breaker.reason(1100) is None


def test_a_broker_that_leaves_shortens_nothing() -> None:
    """It is open for longer already because moves failed."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, {}, 0, RULES)
    assert breaker.ended("m", "x", 0, BreakerRules(1, 30, 1000, 300))
    assert not breaker.look(frozenset("a"), 0, {}, 100, RULES)
    assert "moves failed" in str(breaker.reason(999))


def test_a_broker_may_leave_that_was_expected_to() -> None:
    """As long as it is: one that is back is a broker like the others."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, {}, 0, RULES, may_leave={"a"})
    assert not breaker.look(frozenset("b"), 0, {}, 1, RULES, may_leave={"a"})
    assert not breaker.look(LIVE, 0, {}, 2, RULES)
    assert breaker.look(frozenset("b"), 0, {}, 3, RULES)


def test_the_spread_is_the_standard_deviation() -> None:
    """Of no broker it is 0."""
    assert spread({}) == 0
    assert spread({"a": 1, "b": 3}) == 1


@pytest.mark.parametrize(
    ("until_ms", "now_ms", "open_until_ms"),
    [(900, 0, 900), (900, 900, None), (5_000_000, 100, 1100)],
)
def test_one_that_was_open_before(until_ms: int, now_ms: int, open_until_ms: int | None) -> None:
    """It stays open, but no longer than the rules say, if the clock was set meanwhile."""
    breaker = Breaker()
    assert breaker.recall("it failed", until_ms, now_ms, RULES) is (open_until_ms is not None)
    if open_until_ms is None:
        assert breaker.reason(now_ms) is None
    else:
        assert "it failed" in str(breaker.reason(open_until_ms - 1))
        assert breaker.reason(open_until_ms) is None


def test_one_that_is_open_for_longer_already() -> None:
    """What is recalled does not shorten that, and does not change the reason."""
    breaker = Breaker()
    assert breaker.open("nobody knows", 0, RULES)
    assert breaker.recall("it failed", 500, 0, RULES)
    assert "nobody knows" in str(breaker.reason(999))
    assert breaker.recall("it failed", 5_000_000, 100, RULES)
    assert "it failed" in str(breaker.reason(1099))


def test_a_move_that_was_not_made() -> None:
    """Nothing is expected of it."""
    breaker = Breaker()
    breaker.expect(Expectation("x", 10, 1000.0, 0.0, 0.0))
    breaker.not_made("x")
    assert not breaker.look(LIVE, 0.0, {}, 20, RULES)
