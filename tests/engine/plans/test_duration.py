"""How long the moves of a plan take."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from loadmanager.engine.plans.duration import Pace, TimeTaken, begins_s, done_ms, duration

PACE = Pace(batch=5, at_once=2, per_minute=-1, move_s=4.0, look_s=10.0, end_s=40.0)


@pytest.mark.parametrize(
    ("moves", "looks", "seconds"),
    [(1, 0, 4 + 40), (5, 0, 12 + 40), (6, 1, 12 + 4 + 10 + 40), (10, 1, 24 + 10 + 40)],
)
def test_batches_follow_each_other(moves: int, looks: int, seconds: float) -> None:
    """Two moves of a batch at once, a look between two batches, and those by which it ends."""
    assert duration(moves, PACE) == TimeTaken(moves, looks, seconds)


def test_the_rate_of_moves_counts_where_it_is_what_takes_longest() -> None:
    """A daemon begins six moves a minute."""
    slow = replace(PACE, per_minute=6, look_s=0.0, move_s=1.0, end_s=0.0)
    assert duration(6, slow).seconds == 3 + 1
    assert duration(61, slow).seconds == 10 * 60 + 1
    assert duration(0, replace(PACE, per_minute=0)).seconds == PACE.end_s
    assert duration(1, replace(PACE, per_minute=0)).seconds == math.inf


@pytest.mark.parametrize(
    ("moves", "begun_s", "first_s", "last_s"),
    [
        (1, [], 0, 0),
        (4, [], 0, 60),
        (1, [50, 40], 0, 0),
        (1, [50, 40, 10], 10, 10),
        (3, [50, 40, 10], 10, 50),
        (4, [50, 40, 10], 10, 70),
        (3, [20], 0, 40),
        (1, [50, 40, 30, 10], 20, 20),
    ],
)
def test_moves_of_the_last_minute_use_up_the_rate(
    moves: int, begun_s: list[float], first_s: float, last_s: float
) -> None:
    """Three may begin in any minute."""
    assert begins_s(moves, 3, begun_s) == (first_s, last_s)


def test_only_open_hours_count() -> None:
    """What does not fit into the first ones goes on in the next."""
    hours = [(10_000, 20_000), (50_000, 60_000)]
    assert done_ms(10, hours) == 20_000
    assert done_ms(12.5, hours) == 52_500
    assert done_ms(20, hours) == 60_000
    assert done_ms(21, hours) is None
    assert done_ms(math.inf, hours) is None
    assert done_ms(0, []) is None
