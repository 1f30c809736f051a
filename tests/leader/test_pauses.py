"""How long a client is expected to wait for a move."""

from __future__ import annotations

from typing import Any

import pytest

from loadmanager.engine.moves.move import Author, Move, MoveState, Outcome
from loadmanager.engine.moves.queue import MoveQueue
from loadmanager.leader.pauses import (
    CANARY,
    MOVES_LAST,
    PAUSE_S,
    CanaryPause,
    ClientPauses,
    ExpectedPause,
    waited_ms,
)


def a_move(
    waited: float, state: MoveState = MoveState.DONE, reason: str = "test", **outcome: Any
) -> Move:
    """A move of a bundle with two clients, which waited so many ms."""
    fields = {"clients_closed": 2, "pause_ms": 5.0, "clients_waited_mean_ms": waited, **outcome}
    return Move(
        id="1-m1",
        bundle="a/b/0x00000000_0xffffffff",
        source="b1:8080",
        destination="b2:8080",
        reason=reason,
        why={},
        author=Author.CYCLE,
        swap=None,
        state=state,
        created_at=1,
        started_at=2,
        ended_at=3,
        outcome=Outcome("moved", **fields),
    )


def pauses(*newest_first: Move) -> ClientPauses:
    """Those of a term whose moves ended."""
    queue = MoveQueue()
    queue.ended.extend(newest_first)
    return ClientPauses(queue, lambda: [CanaryPause(7, 3.0)])


def test_one_crash_does_not_spoil_it() -> None:
    """It is the median: clients whose broker was killed waited a hundred times as long."""
    usual = [a_move(200) for _ in range(5)]
    assert pauses(a_move(20_000), a_move(21_000), *usual).expected() == ExpectedPause(0.2, "moves")


def test_it_follows_the_last_moves() -> None:
    """Those before say nothing of now."""
    last, before = [a_move(100)] * MOVES_LAST, [a_move(900)] * 5 * MOVES_LAST
    assert pauses(*last, *before).expected().seconds == 0.1


@pytest.mark.parametrize(
    "other",
    [
        a_move(9_000, clients_back_at="b3:8080"),
        a_move(9_000, unanswered_since=2),
        a_move(9_000, state=MoveState.FAILED),
        a_move(9_000, clients_closed=0),
        a_move(9_000, reason=CANARY),
    ],
)
def test_what_is_no_pause_of_a_move_does_not_count(other: Move) -> None:
    """Clients that waited for another broker in the end, because one died; moves that failed, or
    had no clients. Without others, the canary says it.
    """
    assert pauses(other, a_move(200)).expected().seconds == 0.2
    assert pauses(other).expected() == ExpectedPause(3.0, "canary", 7)


def test_clients_of_a_broker_that_died_are_no_cost_of_a_move() -> None:
    """For limits of goals, the expected pause counts then."""
    assert waited_ms(a_move(9_000, clients_back_at="b3:8080")) is None
    assert waited_ms(a_move(300)) == 300


def test_what_was_measured_before_the_term_counts_until_more_is_measured() -> None:
    """And is stored for the next one."""
    queue = MoveQueue()
    before = ClientPauses(queue, before_s=0.25)
    assert before.expected() == ExpectedPause(0.25, "moves")
    assert before.of_moves_s() == 0.25
    queue.ended.append(a_move(100))
    assert before.expected() == ExpectedPause(0.1, "moves")
    assert before.of_moves_s() == 0.1
    assert pauses().of_moves_s() is None  # a canary stores its own


def test_a_second_is_assumed_where_nothing_was_measured() -> None:
    """So no limit is passed."""
    assert ClientPauses(MoveQueue()).expected() == ExpectedPause(PAUSE_S)
