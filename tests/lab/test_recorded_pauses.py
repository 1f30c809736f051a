"""How long clients waited for the moves of a recorded day is what leaders recorded."""

from __future__ import annotations

from typing import Any

import pytest

from loadmanager.engine.history.records import Decision
from loadmanager.lab.recorded_pauses import pauses_by_minute, waited_s

MINUTE_MS = 60_000


def a_move(name: str, minute: int, **figures: Any) -> Decision:
    """One that has ended, with ten clients and 200 ms without an owner unless said otherwise."""
    figures = {"clients_closed": 10, "pause_ms": 200.0, "state": "done", **figures}
    return Decision(
        ts=minute * MINUTE_MS,
        broker="b0",
        epoch=1,
        cycle=1,
        strategy="s",
        action="move",
        move=name,
        bundle=f"t/n/{name}",
        **figures,
    )


@pytest.mark.parametrize(
    ("figures", "seconds"),
    [
        ({}, 2.0),
        ({"clients_waited_mean_ms": 500.0}, 5.0),
        ({"clients_closed": 0, "pause_ms": None}, 0.0),
        ({"clients_closed": None}, None),
        ({"pause_ms": None}, None),
    ],
)
def test_what_the_clients_of_a_move_waited(figures: dict[str, Any], seconds: float | None) -> None:
    """Until they were back where that was seen, else until there was an owner."""
    assert waited_s(a_move("m", 0, **figures)) == seconds


def test_moves_by_minute() -> None:
    """A move that two segments have counts once; what failed moved nobody."""
    moves = [
        a_move("a", 3),
        a_move("a", 3),
        a_move("b", 3),
        a_move("c", 5),
        a_move("d", 6, state="failed"),
        a_move("e", 7, pause_ms=None),
    ]
    assert pauses_by_minute(moves, MINUTE_MS) == {2: 4.0, 4: 2.0}
    assert pauses_by_minute(moves[-2:], 0) is None
    assert pauses_by_minute([], 0) is None
