"""How long an order to reach a goal takes, by what was measured in this term, and whether that fits
into its hours.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from loadmanager.engine.moves.move import MoveState
from loadmanager.engine.plans.duration import Pace, begins_s, done_ms, duration
from loadmanager.engine.plans.goals import PlanLimits
from loadmanager.engine.plans.order import GoalOrder, Progress
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import moment
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.goals import DurationShown
from loadmanager.leader.goal_ends import FRESH_MAX_S
from loadmanager.leader.moves import Moves
from loadmanager.leader.windows import next_open_ms, open_hours

AT_ONCE, LOOKS, AT_ONCE_MAX = 5, 20, 100
"""Moves between two looks: so many, or this part of the plan if that is more, but not above that.
"""
MEASURED_MAX = 20
"""So many of the last moves, and looks, count."""
MOVE_S = 2.0
"""What a move is assumed to take where none was made in this term."""
END_MAX_S = 2 * FRESH_MAX_S
"""All brokers have to report after the last moves, and once more; but for those that have nothing
new to say.
"""
HOURS_MAX = 60
"""Windows of an order that are looked at, one after the other."""
ROUNDED_MS = 1_000
SECONDS_BELOW_S, MINUTES_BELOW_S = 90, 10_800
"""So long a time is told in seconds, and in minutes."""


def batch_of(order: GoalOrder) -> int:
    """Moves of an order between two looks."""
    return min(max(AT_ONCE, math.ceil(order.promise.moves / LOOKS)), AT_ONCE_MAX)


def until_ms(limits: PlanLimits, begins_ms: int) -> int:
    """When an order ends that begins then: as it says, or a day after its first window opens."""
    if limits.until_ms is not None:
        return limits.until_ms
    return next_open_ms(limits.windows, begins_ms) + DAY_MS


@dataclass(frozen=True, slots=True)
class KnownWait:
    """What keeps moves of an order from being made, and until when (ms since the epoch)."""

    text: str
    first_ms: int
    """Before that, none is made; 0: some may be."""
    last_ms: int
    """Before that, not all are made."""


def to_no_purpose(order: GoalOrder, why: Reason, waits: Iterable[KnownWait]) -> Reason:
    """Why an order waits; and that it is of no use, where the wait is longer than its time."""
    ends_ms = order.limits.until_ms
    late = next((it for it in waits if ends_ms is not None and it.first_ms >= ends_ms), None)
    if late is None:
        return why
    named = "that is" if late.text in why.text else f"{late.text}, which is"
    end = f"{named} after its end at {moment(ends_ms or 0)}"
    return replace(why, text=f"{why.text}; {end}: it moves nothing more unless that changes")


@dataclass(frozen=True, slots=True)
class GoalPace:
    """What moves, and looks at fresh reports, took in one term."""

    moves: Moves
    looks_s: deque[float] = field(default_factory=lambda: deque(maxlen=MEASURED_MAX))
    """From the end of a batch until brokers had reported; the newest last."""
    ends_s: deque[float] = field(default_factory=lambda: deque(maxlen=MEASURED_MAX))
    """From the end of the last batch of an order until it was reached; the newest last."""

    def looked(self, waited_s: float) -> None:
        """The brokers of a batch have reported after so long. Nobody waits for longer than
        `FRESH_MAX_S`: what an order waits for beside is not counted.
        """
        self.looks_s.append(min(waited_s, FRESH_MAX_S))

    def ended(self, waited_s: float) -> None:
        """An order counts as reached so long after its last moves."""
        self.ends_s.append(min(waited_s, END_MAX_S))

    def look_s(self, progress: Progress) -> float | None:
        """What a wait for fresh reports took in this term, or else under the leader before; None:
        none was measured.
        """
        return round(statistics.median(self.looks_s), 1) if self.looks_s else progress.look_s

    def shown(
        self,
        order: GoalOrder,
        progress: Progress,
        under_way: int = 0,
        waits: Sequence[KnownWait] = (),
    ) -> DurationShown | None:
        """What is left of an order takes so long, with its moves that wait or are under way; None:
        it has ended, it is a drain, or as many moves as were promised are made.
        """
        left = max(order.promise.moves - progress.arrived, under_way)
        if order.state == "ended" or order.drain or left <= 0:
            return None
        pace, moves_s = self._pace(order, progress)
        takes = duration(left, pace)
        now_ms = self.moves.term.clock.now_ms()
        begins_ms = max(order.limits.from_ms, now_ms)
        try:
            ends_ms = until_ms(order.limits, begins_ms)
            waits = [*waits, *self.used_up(left - self.moves.queue.running())]
            first_ms = max((begins_ms, *(each.first_ms for each in waits)))
            last_ms = max((first_ms, *(each.last_ms for each in waits)))
            done = _done(order, takes.seconds, first_ms, ends_ms)
            if last_ms > first_ms and done is not None:
                after_last = _done(order, duration(1, pace).seconds, last_ms, ends_ms)
                done = None if after_last is None else max(done, after_last)
        except BadInputError:  # another machine knew the zone
            return None
        shown = DurationShown(
            text="",
            seconds=None if math.isinf(takes.seconds) else round(takes.seconds, 1),
            moves=left,
            looks=takes.looks,
            done_ms=done,
            until_ms=ends_ms,
            move_seconds=round(pace.move_s, 3),
            moves_measured=len(moves_s),
            look_seconds=round(pace.look_s, 1),
            looks_measured=len(self.looks_s),
            end_seconds=round(pace.end_s, 1),
            ends_measured=len(self.ends_s),
        )
        waited = done is not None and done > now_ms + 1000 * takes.seconds + ROUNDED_MS
        shown.text = _text(order, shown, pace, waits, waited=waited)
        return shown

    def used_up(self, moves: int) -> Iterator[KnownWait]:
        """The wait for so many moves where others of the last minute have used up the pace."""
        most, clock = self.moves.settings.value.per_minute_max, self.moves.term.clock
        begun_s = self.moves.queue.begun_s(clock.monotonic_s())
        if most <= 0 or moves <= 0:
            return
        first_s, last_s = begins_s(moves, most, begun_s)
        if last_s <= begins_s(moves, most)[1]:
            return
        now_ms = clock.now_ms()
        first_ms, last_ms = (now_ms + math.ceil(1000 * each) for each in (first_s, last_s))
        count = "1 move has" if len(begun_s) == 1 else f"{len(begun_s)} moves have"
        text = f"{count} begun in the last minute, and loadManagerMovesPerMinuteMax is {most}: "
        if first_s > 0:
            yield KnownWait(f"{text}the next may begin at {moment(first_ms)}", first_ms, last_ms)
        else:
            yield KnownWait(f"{text}the last may begin at {moment(last_ms)}", 0, last_ms)

    def _pace(self, order: GoalOrder, progress: Progress) -> tuple[Pace, list[float]]:
        """The pace of now, and the durations of moves that it is of."""
        settings = self.moves.settings.value
        made = (
            (move.ended_at - move.started_at) / 1000
            for move in list(self.moves.queue.ended)  # the newest first
            if move.state is MoveState.DONE and move.started_at and move.ended_at
        )
        moves_s = list(itertools.islice(made, MEASURED_MAX))
        at_once = min(settings.at_once_max, settings.per_source_max, settings.per_destination_max)
        pace = Pace(
            batch=batch_of(order),
            at_once=at_once,
            per_minute=settings.per_minute_max,
            move_s=statistics.median(moves_s) if moves_s else MOVE_S,
            look_s=FRESH_MAX_S if (look_s := self.look_s(progress)) is None else look_s,
            end_s=statistics.median(self.ends_s) if self.ends_s else END_MAX_S,
        )
        return pace, moves_s


def _done(order: GoalOrder, seconds: float, begins_ms: int, ends_ms: int) -> int | None:
    """When so much work is done within the hours of an order; None: not in them."""
    hours = open_hours(order.limits.windows, begins_ms, ends_ms)
    return done_ms(seconds, itertools.islice(hours, HOURS_MAX))


def _text(
    order: GoalOrder,
    shown: DurationShown,
    pace: Pace,
    waits: Sequence[KnownWait],
    *,
    waited: bool,
) -> str:
    """For people; and where the figures come from. `waited`: whether waits come in addition."""
    if shown.seconds is None:
        return "it makes no move: loadManagerMovesPerMinuteMax is 0"
    what = "what is left takes" if order.progress.ordered else "it takes"
    least = "at least" if order.limits.client_seconds is not None else "about"
    text = f"{what} {least} {_about(shown.seconds)}"
    if shown.done_ms is None:
        where = " of its windows" if order.limits.windows else ""
        text = f"it may not be done by {moment(shown.until_ms)}: {text}{where}"
    else:
        text += " beside its waits; it is done" if waited else ","
        text += f" {'at' if waited else 'until'} {moment(shown.done_ms)}"
        text += " if nothing else keeps it waiting"
    text += "".join(f"; {each.text}" for each in waits)
    move = _source(shown.moves_measured, "as moves took here", "as is assumed: none was made")
    count = "1 move" if shown.moves == 1 else f"{shown.moves} moves"
    end = _source(shown.ends_measured, "as such looks took here", "at most: none is measured")
    return (
        f"{text} ({count}, {min(pace.batch, shown.moves)} between two looks, "
        f"{pace.at_once} at once; a move {pace.move_s:.3g} s, {move}{_looks(order, shown)}; "
        f"the looks by which it ends {pace.end_s:.3g} s, {end})"
    )


def _looks(order: GoalOrder, shown: DurationShown) -> str:
    """The waits between its moves, and where that figure comes from."""
    if not shown.looks:
        return ""
    look = _source(shown.looks_measured, "as such waits took here", "at most: none is measured")
    if not shown.looks_measured and order.progress.look_s is not None:
        look = "as under the leader before"
    count = "1 wait" if shown.looks == 1 else f"{shown.looks} waits"
    return f"; {count} for fresh reports of {shown.look_seconds:.3g} s, {look}"


def _source(measured: int, here: str, nowhere: str) -> str:
    return f"{here}, the median of {measured}" if measured else f"{nowhere} yet in this term"


def _about(seconds: float) -> str:
    if seconds < SECONDS_BELOW_S:
        return f"{math.ceil(seconds)} s"
    if seconds < MINUTES_BELOW_S:
        return f"{math.ceil(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
