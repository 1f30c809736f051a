"""The circuit breaker: when it opens, and when it does not."""

from __future__ import annotations

import pytest

from loadmanager.engine.moves.breaker import (
    Breaker,
    BreakerRules,
    Expectation,
    LoadSeen,
    spread,
)

RULES = BreakerRules(failures=2, rate_drop_percent=30, open_ms=1000, steady_ms=300)


def loads(**rates: float) -> dict[str, LoadSeen]:
    """Brokers with so many messages/s, half of them published there."""
    return {name: LoadSeen(rate, rate / 2) for name, rate in rates.items()}


LIVE = loads(a=0, b=0)
ALONE = loads(a=0)
BEFORE = loads(a=600, b=400, c=500, d=500)
AFTER = loads(a=550, b=450, c=500, d=500)


def expect(move: str = "m", source: str = "a", destination: str = "b") -> Expectation:
    """A move of 50 messages/s that halves the difference of a and b."""
    return Expectation(move, source, destination, LoadSeen(50, 25), 100, BEFORE)


def judged(breaker: Breaker, now: dict[str, LoadSeen]) -> bool:
    """Whether it opens when the move is looked at."""
    assert not breaker.look(BEFORE, 99, RULES)
    return breaker.look(now, 100, RULES)


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
    ("now", "opens"),
    [
        (AFTER, False),
        (AFTER | loads(a=400, b=300), False),  # 70 % of what the two brokers got
        (AFTER | loads(a=399, b=300), True),
        (AFTER | loads(a=610, b=390), False),
        (AFTER | loads(a=611, b=389), True),  # wider by more than a tenth
        (AFTER | loads(a=651, b=349), False),  # by more than this move could do
    ],
)
def test_what_came_of_a_move(now: dict[str, LoadSeen], *, opens: bool) -> None:
    """Its two brokers get a third less, or differ by more; it is looked at once, at its time."""
    breaker = Breaker()
    breaker.expect(expect())
    assert judged(breaker, now) is opens
    assert not breaker.look(loads(a=0, b=9e9, c=0, d=0), 5000, RULES)
    if opens:
        assert "after move m a and b" in str(breaker.reason(101))


def test_others_do_not_accuse_a_move() -> None:
    """A broker that joins, one that was to leave, and clients of the others."""
    for now in (
        AFTER | loads(e=0),
        loads(a=550, b=450, c=1000),
        AFTER | loads(c=5000, d=10),
        AFTER | loads(a=1100, b=900, c=1000, d=1000),
    ):
        breaker = Breaker()
        breaker.expect(expect())
        assert not breaker.look(BEFORE, 99, RULES)
        assert not breaker.look(now, 100, RULES, may_leave={"d"})


def test_a_broker_of_the_move_that_leaves_says_nothing_of_it() -> None:
    """What the move did cannot be told any more."""
    breaker = Breaker()
    breaker.expect(expect())
    assert not breaker.look(BEFORE, 99, RULES)
    assert not breaker.look(loads(a=900, c=900, d=900), 100, RULES, may_leave={"b"})


def test_the_other_moves_count() -> None:
    """What they bring to the two brokers, or take away, is no surprise."""
    now = loads(a=550, b=450 + 250, c=250, d=500)
    breaker = Breaker()
    breaker.expect(expect())
    breaker.expect(Expectation("n", "c", "b", LoadSeen(250, 125), 5000, BEFORE))
    assert not judged(breaker, now)
    breaker = Breaker()
    breaker.expect(expect())
    breaker.expect(Expectation("n", "c", "b", LoadSeen(100, 50), 5000, BEFORE))
    breaker.not_made("n")
    assert judged(breaker, AFTER | loads(a=389, b=611))


def test_moves_that_began_together_are_judged_together() -> None:
    """All are compared with the figures before the first one."""
    before = loads(a=1000, b=100, c=100)
    half = {"b": 350, "c": 350, "a": 500}
    breaker = Breaker()
    for number, destination in enumerate(["b", "b", "c", "c"]):
        move = Expectation(str(number), "a", destination, LoadSeen(125, 62.5), 100, before)
        breaker.expect(move)
    assert not breaker.look(before, 50, RULES)
    assert not breaker.look(loads(**half), 100, RULES)


def test_clients_that_go_away_stop_moves_for_a_while() -> None:
    """Nobody is blamed, and it is not for long."""
    breaker = Breaker()
    breaker.expect(expect())
    assert judged(breaker, loads(a=300, b=200, c=250, d=250))
    assert "the cluster gets 500 messages/s, 1000 before" in str(breaker.reason(101))
    assert "need not be the cause" in str(breaker.reason(101))
    assert str(breaker.reason(101)).startswith("TrafficDip: ")
    assert breaker.opened == 0  # nobody is paged
    assert breaker.reason(400) is None


@pytest.mark.parametrize(
    ("its", "opens"),
    [
        (LoadSeen(50, 25), False),
        (LoadSeen(35, 17.5), False),  # 70 % of it
        (LoadSeen(34, 17), True),
        (LoadSeen(0, 0), True),
        (None, True),
    ],
)
def test_other_clients_of_the_two_brokers(its: LoadSeen | None, *, opens: bool) -> None:
    """A tenant of the source stops by itself: the move is not to blame while its own bundle goes on
    as before.
    """
    breaker = Breaker()
    breaker.expect(expect())
    assert not breaker.look(BEFORE, 99, RULES)
    stopped = AFTER | loads(a=300, b=300)
    seen = {("m", "b"): its}
    assert breaker.look(stopped, 100, RULES, of_bundle=lambda *of: seen[of]) is opens


def test_a_bundle_whose_clients_only_read() -> None:
    """All of its messages count, then."""
    for rate, opens in ((50.0, False), (10.0, True)):
        breaker, now = Breaker(), LoadSeen(rate, 0)
        breaker.expect(Expectation("m", "a", "b", LoadSeen(50, 0), 100, BEFORE))
        assert not breaker.look(BEFORE, 99, RULES)
        stopped = AFTER | loads(a=300, b=300)
        assert breaker.look(stopped, 100, RULES, of_bundle=lambda *_, its=now: its) is opens


def test_a_difference_may_grow_when_nothing_else_was_promised() -> None:
    """An operator moved a bundle for a reason of his own."""
    breaker = Breaker()
    breaker.expect(Expectation("m", "b", "a", LoadSeen(50, 25), 100, BEFORE))
    assert not judged(breaker, AFTER | loads(a=660, b=340))


def test_a_broker_that_disappears() -> None:
    """One that joins is welcome."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, RULES)
    assert not breaker.look(LIVE | loads(c=0), 0, RULES)
    assert breaker.look(LIVE, 0, RULES)
    assert "BrokersLeft: c disappeared" in str(breaker.reason(0))
    assert breaker.opened == 0  # an ordinary restart is no alarm


def test_it_closes_when_no_other_broker_leaves() -> None:
    """And never later than after the whole time."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, RULES)
    assert breaker.look(loads(a=0), 100, RULES)
    assert not breaker.look(LIVE, 150, RULES)
    assert "moves go on at 00:00:01 UTC" in str(breaker.reason(399))
    assert breaker.look(loads(a=0), 200, RULES)
    assert breaker.reason(499)
    assert breaker.reason(500) is None
    hasty = BreakerRules(failures=1, rate_drop_percent=30, open_ms=100, steady_ms=300)
    assert breaker.look({}, 1000, hasty)
    assert breaker.reason(1100) is None


def test_a_broker_that_leaves_shortens_nothing() -> None:
    """It is open for longer already because moves failed."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, RULES)
    assert breaker.ended("m", "x", 0, BreakerRules(1, 30, 1000, 300))
    assert not breaker.look(loads(a=0), 100, RULES)
    assert "a move failed" in str(breaker.reason(999))


def test_a_failure_explained_by_a_broker_that_left() -> None:
    """Whichever was seen first, and whether its end was announced; but each failure has to be."""
    hasty, pair = BreakerRules(1, 30, 1000, 300), {"a", "b"}
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, hasty)
    assert breaker.ended("m", "refused", 0, hasty, brokers=pair)
    assert not breaker.look(LIVE, 100, hasty)
    assert "a move failed" in str(breaker.reason(100))
    assert breaker.look(ALONE, 200, hasty, may_leave={"b"})
    assert "BrokersLeft: b disappeared" in str(breaker.reason(499))
    assert breaker.reason(500) is None
    assert not breaker.ended("n", "refused", 500, hasty, brokers=pair)
    assert not breaker.look(LIVE, 600, hasty)
    assert breaker.ended("n", "refused", 600, hasty, brokers=pair)  # it is back
    two = Breaker()
    assert not two.look(LIVE, 0, RULES)
    assert not two.ended("m", "refused", 0, RULES, brokers=pair)
    assert two.ended("n", "refused", 0, RULES, brokers={"a", "c"})
    assert not two.look(ALONE, 100, RULES)
    assert "2 moves failed" in str(two.reason(999))
    assert not two.look(LIVE, 1001, RULES)
    assert not two.look(ALONE, 1002, RULES, may_leave={"b"})  # it has closed since


@pytest.mark.parametrize(("after_ms", "explained"), [(60, True), (61, False)])
def test_a_broker_that_leaves_later_explains_no_failure(after_ms: int, *, explained: bool) -> None:
    """It closes no earlier for that: the move had failed while the broker was there."""
    rules = BreakerRules(2, 30, 1000, 300, near_ms=60)
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, rules)
    assert not breaker.ended("m", "refused", 0, rules, brokers={"a", "b"})
    assert breaker.ended("n", "refused", 20, rules, brokers={"a", "b"})
    assert breaker.look(ALONE, after_ms, rules) is explained
    assert (breaker.reason(999) is None) is explained
    assert ("BrokersLeft" in str(breaker.reason(200))) is explained


def test_a_failure_while_moves_wait_for_brokers() -> None:
    """A move of two others was under way when one left. It counts once all is steady, and so does
    one that an operator orders meanwhile.
    """
    hasty, pair = BreakerRules(1, 30, 1000, 300), {"a", "c"}
    breaker = Breaker()
    assert not breaker.look(LIVE | loads(c=0), 0, hasty)
    assert breaker.look(loads(a=0, c=0), 100, hasty)
    assert not breaker.ended("m", "not ordered again", 399, hasty, brokers=pair, began_ms=100)
    assert "BrokersLeft: b disappeared" in str(breaker.reason(399))
    assert breaker.ended("n", "refused", 399, hasty, brokers=pair, began_ms=101)
    assert "a move failed, refused" in str(breaker.reason(399))
    late = Breaker()
    assert not late.look(LIVE | loads(c=0), 0, hasty)
    assert late.look(loads(a=0, c=0), 100, hasty)
    assert late.ended("m", "refused", 400, hasty, brokers=pair, began_ms=100)


def test_a_broker_may_leave_that_was_expected_to() -> None:
    """As long as it is: one that is back is a broker like the others."""
    breaker = Breaker()
    assert not breaker.look(LIVE, 0, RULES, may_leave={"a"})
    assert not breaker.look(loads(b=0), 1, RULES, may_leave={"a"})
    assert not breaker.look(LIVE, 2, RULES)
    assert breaker.look(loads(b=0), 3, RULES)


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
    breaker.expect(expect())
    breaker.not_made("m")
    assert not judged(breaker, loads(a=1, b=1, c=500, d=500))
