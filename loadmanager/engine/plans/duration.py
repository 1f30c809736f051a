"""How long the moves of a plan take: batches of moves, and the looks at fresh reports between."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MINUTE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How quickly moves are made here."""

    batch: int
    """Moves between two looks."""
    at_once: int
    """Moves of a batch that are under way together."""
    per_minute: int
    """Moves that begin in any minute at most; below 0: any number."""
    move_s: float
    look_s: float
    """From the end of a batch until the next one begins."""
    end_s: float
    """From the end of the last batch until the order ends: looks by which it counts as reached."""


@dataclass(frozen=True, slots=True)
class TimeTaken:
    """What some moves take."""

    moves: int
    looks: int
    """Between batches."""
    seconds: float


def duration(moves: int, pace: Pace) -> TimeTaken:
    """What so many moves take, from the first one until the goal counts as reached. If none may
    begin in a minute, it is infinite.
    """
    whole, rest = divmod(moves, pace.batch)
    rounds = whole * math.ceil(pace.batch / pace.at_once) + math.ceil(rest / pace.at_once)
    moving_s = rounds * pace.move_s
    looks = max(0, whole + (rest > 0) - 1)
    seconds = moving_s + looks * pace.look_s + pace.end_s
    if moves and pace.per_minute == 0:
        seconds = math.inf
    elif moves and pace.per_minute > 0:
        _, rate_s = begins_s(moves, pace.per_minute)
        seconds = max(seconds, rate_s + pace.move_s + pace.end_s)
    return TimeTaken(moves, looks, seconds)


def begins_s(moves: int, per_minute: int, begun_s: Sequence[float] = ()) -> tuple[float, float]:
    """In how many seconds the first and the last of some moves may begin, if at most so many begin
    in any minute. `begun_s`: how long ago others began, the first that began first.
    """
    times = [-ago_s for ago_s in begun_s]
    for _ in range(moves):
        earliest = times[-per_minute] + MINUTE_S if len(times) >= per_minute else 0.0
        times.append(max(0.0, earliest))
    return times[len(begun_s)], times[-1]


def done_ms(seconds: float, hours: Iterable[tuple[int, int]]) -> int | None:
    """When so much time is over that counts within these hours alone (when each opens and closes,
    ms since the epoch); None: not in them.
    """
    left_ms = seconds * 1000
    for opens_ms, closes_ms in hours:
        if left_ms <= closes_ms - opens_ms:
            return opens_ms + round(left_ms)
        left_ms -= closes_ms - opens_ms
    return None
