"""What single bundles cost more, or less, than others of their namespace, learned from their moves.

A move is an experiment: its source and its destination change by one bundle. If both change by
more than was expected, the bundle is dearer than others of its namespace. How much of a surprise is
due to it is weighed as a Kalman filter does: by how much bundles differ here, which the surprises
tell, and by the usual error of the broker's usage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array

MOVED_MAX = 300
"""Of so many bundles it is remembered, those that moved last."""
SETTLES, WATCHED = 2, 6
"""The first reports after a move show clients that come back, and sensors that are late; the ones
up to this number tell what the bundle costs.
"""
TIMES_MAX = 20.0
"""A bundle costs at most so many times what others of its namespace do, or this part of it."""
USED_LEAST = 1e-6
"""A bundle that is expected to use less tells nothing."""
STEP_MAX = 2.0
"""One report changes it by at most so many times."""
ALIKE = 1.05
"""Bundles whose costs differ by less are forgotten."""
DIFFERS, DIFFERS_MIN, DIFFERS_MAX = 0.15, 0.1, 2.0
"""By how much bundles of a namespace differ: at first, and bounds."""
DIFFERS_GAIN = 0.05
LATE, LATE_DOUBT, LESS_MAX = 0.15, 0.03, 2.0
"""Sensors are late if bundles added less than was expected by this part of it on the mean, beside
so many reports that said nothing; one says so much at most.
"""
LATE_MAX = 1e6
LATE_REPORTS = 20.0
"""From so many reports on, new brokers that show more tell of late sensors: one bundle may be dear.
"""
LATE_REMEMBERS, LATE_KEEPS, LATE_WAITS = 1 - 1 / 120, 0.8, 50.0
"""How much is remembered of that with each cycle. While sensors are late, what bundles cost more or
less than others is taken to this power in each; and hardly anything of a surprise is due to the
broker itself: what moved counts so many times.
"""
ERROR_LEAST, ERROR_MOST = 0.02, 0.06
"""What sensors err by; what a broker's error is more is due to such bundles."""


class MovedBundle(NamedTuple):
    """A bundle that moved."""

    source: str
    destination: str
    left: int = 0
    """Reports of the source since the bundle left it."""
    came: int = 0
    """Reports of the destination since it came."""
    times: float = 1.0
    """What it costs, as a multiple of others of its namespace."""

    @property
    def says_nothing(self) -> bool:
        """Whether nothing more is learned of it, and it costs what others do."""
        reports = min(self.left, self.came)
        return reports > WATCHED and 1 / ALIKE < self.times < ALIKE


Moved = Mapping[str, MovedBundle]


def ordered(moved: Moved, moves: Iterable[tuple[str, str, str]]) -> Moved:
    """After some moves were ordered: (bundle, source, destination)."""
    after = {bundle: move for bundle, move in moved.items() if not move.says_nothing}
    for bundle, source, destination in moves:
        before = after.pop(bundle, None)
        after[bundle] = MovedBundle(source, destination, times=before.times if before else 1.0)
    return dict(list(after.items())[-MOVED_MAX:])


def reported(moved: Moved, has: Mapping[str, Collection[str]]) -> Moved:
    """After some brokers reported: `has` is broker → its bundles."""
    after = {}
    for bundle, move in moved.items():
        left, came = move.left, move.came
        if move.source in has:
            left = _counted(left, there=bundle not in has[move.source])
        if move.destination in has:
            came = _counted(came, there=bundle in has[move.destination])
        after[bundle] = move._replace(left=left, came=came)
    return after


def _counted(reports: int, *, there: bool) -> int:
    """One report more; the last one, if the bundle has gone on, or has come back, meanwhile."""
    if there:
        return min(reports + 1, WATCHED + 1)
    return WATCHED + 1 if reports else 0


def first_reports(before: Moved, after: Moved) -> Iterator[tuple[str, str, int]]:
    """Bundle, broker, and 1 or -1: the broker has just reported for the first time that it has a
    bundle that came, or no longer has one that left.
    """
    for bundle, move in after.items():
        was = before[bundle]
        if move.left == 1 and was.left == 0:
            yield bundle, move.source, -1
        if move.came == 1 and was.came == 0:
            yield bundle, move.destination, 1


@dataclass(frozen=True, slots=True)
class Surprises:
    """What brokers show more than the model expects: `[broker]`."""

    shown: Array
    error: Array
    """The usual one of each."""
    tells: NDArray[np.bool_]
    """Whether the broker has just reported, and its sensor counts."""
    noise: Array | float = 0.0
    """What its sensor jumps by, whatever moves: a standard deviation."""


class Late(NamedTuple):
    """Whether sensors are minutes late, told from bundles that moved: the mean one is as dear as
    was expected, unless its new broker does not show it yet, and its old one still does; or its new
    broker shows more: what clients caught up with is over, and late sensors still have it.

    A report of a broker counts as much as its sensor could tell of the bundle.
    """

    left: float = 0.0
    """By what part old brokers missed less than was expected, added up."""
    of_left: float = 0.0
    """Their reports."""
    came: float = 0.0
    """By what part new brokers got less than was expected, added up."""
    of_came: float = 0.0
    """Their reports."""
    reports: float = 0.0
    """How many these were, each counted once."""

    @property
    def is_so(self) -> bool:
        """Whether it is so much less at both, or more at the new ones, that it is no chance."""
        least_left, least_came = (LATE * (it + LATE_DOUBT) for it in (self.of_left, self.of_came))
        more = self.reports > LATE_REPORTS and self.came < -least_came
        return more or (self.left > least_left and self.came > least_came)


@dataclass(frozen=True, slots=True)
class Attribution:
    """What bundles that moved explain of the brokers' surprises."""

    moved: Moved
    differs: float
    """By how much bundles of a namespace differ."""
    part: Array
    """The part of each broker's surprise that is due to them: `[broker]`."""
    of_left: Array
    """The part of it that is due to bundles that left: `[broker]`."""
    lost: NDArray[np.bool_]
    """Brokers that lost bundles a moment ago: `[broker]`."""
    by_sources: Array
    """What bundles add to each broker beyond what was expected of them, by their sources:
    `[broker]`.
    """
    late: Late


class _Side(NamedTuple):
    """One of the two brokers of a bundle that moved, which has just reported."""

    bundle: str
    row: int
    sign: int
    """1 where it came, -1 where it left."""
    expected: float
    """The usage that was expected of it."""
    tells: bool
    """Whether the report may tell what it costs; else it is too early."""


def no_attribution(moved: Moved, differs: float, late: Late, brokers: int) -> Attribution:
    """Nothing is explained by bundles that moved."""
    none = np.zeros(brokers)
    return Attribution(moved, differs, none, none, np.zeros(brokers, np.bool_), none, late)


def attribute(
    before: Attribution,
    row_of: Mapping[str, int],
    adds: Callable[[str, int], float],
    surprises: Surprises,
) -> Attribution:
    """Learn from some brokers' reports; `adds`: the usage that a bundle is expected to add to the
    broker of a row. Where sensors are late, nothing is learned, and what was is forgotten.
    """
    moved, differs, count = before.moved, before.differs, len(surprises.shown)
    lost = np.zeros(count, np.bool_)
    sides = list(_sides(moved, row_of, adds, surprises, lost))
    late = _late(before, sides, surprises)
    telling = [side for side in sides if side.tells and not late.is_so]
    squares = _squares(telling, count)
    all_of_it = LATE_WAITS * _squares(sides, count) if late.is_so else squares
    error = np.clip(surprises.error, ERROR_LEAST, ERROR_MOST)
    noise = np.maximum(error, surprises.noise) ** 2
    by_sources = np.zeros(count)
    if telling:
        part = _part(differs, squares, noise)
        due = np.divide(part * surprises.shown, squares, out=np.zeros(count), where=squares > 0)
        moved, by_sources = _learned(moved, telling, due, row_of, adds)
        differs = _differ(differs, squares, noise, surprises.shown)
    elif late.is_so:
        moved = {
            bundle: move._replace(times=round(move.times**LATE_KEEPS, 4))
            for bundle, move in moved.items()
        }
    gone = _squares([side for side in telling if side.sign < 0], count)
    part = _part(differs, all_of_it, noise)
    of_left = np.divide(part * gone, all_of_it, out=np.zeros(count), where=all_of_it > 0)
    return Attribution(moved, differs, part, of_left, lost, by_sources, late)


def _sides(
    moved: Moved,
    row_of: Mapping[str, int],
    adds: Callable[[str, int], float],
    surprises: Surprises,
    lost: NDArray[np.bool_],
) -> Iterator[_Side]:
    """Those that have reported; marks brokers that `lost` bundles."""
    for bundle, move in moved.items():
        for broker, reports, sign in (
            (move.source, move.left, -1),
            (move.destination, move.came, 1),
        ):
            row = row_of.get(broker)
            if row is None or not 0 < reports <= WATCHED:
                continue
            lost[row] |= sign < 0
            if surprises.tells[row] and (expected := adds(bundle, row)) > USED_LEAST:
                yield _Side(bundle, row, sign, expected, reports > SETTLES)


def _late(before: Attribution, sides: Iterable[_Side], surprises: Surprises) -> Late:
    sums = [LATE_REMEMBERS * each for each in before.late]
    for side in sides:
        if side.tells:
            usual = side.expected / before.moved[side.bundle].times
            part = -side.sign * float(surprises.shown[side.row]) / usual
            weight = min(usual, ERROR_MOST) ** 2
            at = 0 if side.sign < 0 else 2
            sums[at] += weight * min(max(part, -LESS_MAX), LESS_MAX)
            sums[at + 1] += weight
            sums[4] += side.sign > 0
    return Late(*(round(each, 6) for each in sums))


def _squares(sides: Sequence[_Side], count: int) -> Array:
    """What was expected of bundles, squared and added up for each broker: `[broker]`."""
    squares = np.zeros(count)
    np.add.at(squares, [side.row for side in sides], [side.expected**2 for side in sides])
    return squares


def _part(differs: float, squares: Array, noise: Array) -> Array:
    """The part of a surprise that is due to bundles: `[broker]`."""
    part: Array = differs**2 * squares / (differs**2 * squares + noise)
    return part


def _learned(
    moved: Moved,
    sides: Iterable[_Side],
    due: Array,
    row_of: Mapping[str, int],
    adds: Callable[[str, int], float],
) -> tuple[Moved, Array]:
    """The bundles with what is `due` to each, as a multiple of what was expected, squared; and what
    this adds to their new brokers by their old ones.
    """
    after, by_sources = dict(moved), np.zeros(len(due))
    for bundle, row, sign, expected, _ in sides:
        step = min(max(1 + sign * due[row] * expected, 1 / STEP_MAX), STEP_MAX)
        times = min(max(after[bundle].times * step, 1 / TIMES_MAX), TIMES_MAX)
        if sign < 0 and (to := row_of.get(moved[bundle].destination)) is not None:
            by_sources[to] += (step - 1) * adds(bundle, to)
        after[bundle] = after[bundle]._replace(times=round(float(times), 4))
    return after, by_sources


def _differ(before: float, squares: Array, noise: Array, surprise: Array) -> float:
    """By how much bundles of a namespace differ, after these surprises."""
    at = np.flatnonzero(squares)
    shown = np.clip((surprise[at] ** 2 - noise[at]) / squares[at], 0, DIFFERS_MAX**2)
    weight = squares[at] / (squares[at] + noise[at])
    square = before**2 + DIFFERS_GAIN * float((weight * (shown - before**2)).sum())
    return round(float(min(max(square, DIFFERS_MIN**2), DIFFERS_MAX**2) ** 0.5), 6)


def sane_late(late: Late) -> Late:
    """What was stored, or nothing if it cannot be true: a store may hold anything."""
    return late if max(map(abs, late)) <= LATE_MAX else Late()


def sane(moved: Moved) -> Moved:
    """Those that may be true: a store may hold anything."""
    return {
        bundle: move
        for bundle, move in list(moved.items())[-MOVED_MAX:]
        if 1 / TIMES_MAX <= move.times <= TIMES_MAX
        and 0 <= min(move.left, move.came) <= max(move.left, move.came) <= WATCHED + 1
    }
