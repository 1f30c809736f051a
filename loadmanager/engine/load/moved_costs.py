"""What single bundles cost more, or less, than others of their namespace, learned from their moves.

A move is an experiment: its source and its destination change by one bundle. If both change by
more than was expected, the bundle is dearer than others of its namespace. How much of a surprise is
due to it is weighed as a Kalman filter does: by how much bundles differ here, which the surprises
tell, and by the usual error of the broker's usage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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


def no_attribution(moved: Moved, differs: float, lost: NDArray[np.bool_]) -> Attribution:
    """Nothing is explained by bundles that moved."""
    none = np.zeros(len(lost))
    return Attribution(moved, differs, none, none, lost, none)


def attribute(
    moved: Moved,
    differs: float,
    row_of: Mapping[str, int],
    adds: Callable[[str, int], float],
    surprises: Surprises,
) -> Attribution:
    """Learn from some brokers' reports; `adds`: the usage that a bundle is expected to add to the
    broker of a row.
    """
    surprise, tells = surprises.shown, surprises.tells
    lost, sides = np.zeros(len(surprise), np.bool_), []
    for bundle, move in moved.items():
        for broker, reports, sign in (
            (move.source, move.left, -1),
            (move.destination, move.came, 1),
        ):
            row = row_of.get(broker)
            if row is None or not 0 < reports <= WATCHED:
                continue
            lost[row] |= sign < 0
            if tells[row] and reports > SETTLES and (expected := adds(bundle, row)) > USED_LEAST:
                sides.append((bundle, row, sign, expected))
    if not sides:
        return no_attribution(moved, differs, lost)
    rows = [row for _, row, _, _ in sides]
    squares = np.bincount(rows, [each**2 for *_, each in sides], len(surprise))
    gone = np.bincount(rows, [each**2 * (sign < 0) for _, _, sign, each in sides], len(surprise))
    noise = np.clip(surprises.error, ERROR_LEAST, ERROR_MOST) ** 2
    part = differs**2 * squares / (differs**2 * squares + noise)
    after, by_sources = dict(moved), np.zeros(len(surprise))
    for bundle, row, sign, expected in sides:
        due = sign * part[row] * surprise[row] * expected**2 / squares[row]
        step = min(max(1 + due / expected, 1 / STEP_MAX), STEP_MAX)
        times = min(max(after[bundle].times * step, 1 / TIMES_MAX), TIMES_MAX)
        if sign < 0 and (to := row_of.get(moved[bundle].destination)) is not None:
            by_sources[to] += (step - 1) * adds(bundle, to)
        after[bundle] = after[bundle]._replace(times=round(float(times), 4))
    at = np.flatnonzero(squares)
    shown = np.clip((surprise[at] ** 2 - noise[at]) / squares[at], 0, DIFFERS_MAX**2)
    weight = squares[at] / (squares[at] + noise[at])
    square = differs**2 + DIFFERS_GAIN * float((weight * (shown - differs**2)).sum())
    differs = min(max(square, DIFFERS_MIN**2), DIFFERS_MAX**2) ** 0.5
    of_left = np.divide(part * gone, squares, out=np.zeros_like(part), where=squares > 0)
    return Attribution(after, round(differs, 6), part, of_left, lost, by_sources)


def sane(moved: Moved) -> Moved:
    """Those that may be true: a store may hold anything."""
    return {
        bundle: move
        for bundle, move in list(moved.items())[-MOVED_MAX:]
        if 1 / TIMES_MAX <= move.times <= TIMES_MAX
        and 0 <= min(move.left, move.came) <= max(move.left, move.came) <= WATCHED + 1
    }
