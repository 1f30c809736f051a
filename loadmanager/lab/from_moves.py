"""What moves teach of costs. Each is an experiment: its source and its destination change by one
bundle at a known minute, whatever they use beside their traffic and however fast they are.

The usage of both is compared shortly before and shortly after; what else changed of their traffic
meanwhile counts, too. Steps of all moves give the cost of traffic, and what is left of each, its
residual, corrects the costs of the classes of namespaces that moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load.columns import Array, Rows

WINDOW, SETTLES = 6, 2
"""Minutes compared on each side, and those after a move in which clients come back and sensors
still show minutes before.
"""
SAMPLES_LEAST = 3
STEPS_LEAST, STEPS_MAX = 6, 4_000
"""Fewer steps say nothing; more cost time and say nothing new."""
CHANGES = 0.002
"""A step is looked at if traffic makes this part of a broker of it, at least."""
CERTAIN = 5.0
"""Moves tell the cost of traffic if it is so many times its standard error."""
APART_LEAST = 1e-4
PRIOR = 0.3
"""The standard deviation of what costs of classes are off, before moves say more."""
TIMES_MAX = 4.0
"""Moves correct a class by no more than this, or its inverse."""


@dataclass(frozen=True, slots=True)
class MoveSteps:
    """Minutes in which a broker got or lost bundles, and what its usage was around them."""

    minute: Rows
    row: Rows
    """Of the broker."""
    usage: Array
    """By how much it changed."""
    bundles: Rows
    """Those that moved."""

    def __len__(self) -> int:
        return len(self.minute)

    def changed(self, each: Array) -> Array:
        """By how much this changed at each step: `each` is `[minute, row]`."""
        before, after = _around(each)
        return np.asarray((after - before)[self.minute, self.row], np.float64)


def move_steps(minute: Rows, row: Rows, bundle: Rows, usage: Array) -> MoveSteps:
    """The steps of a day, from its samples by minute, broker and bundle. `usage`: `[minute, row]`,
    NaN where nobody knows.
    """
    order = np.lexsort((row, minute, bundle))
    minute, row, bundle = minute[order], row[order], bundle[order]
    moved = (bundle[1:] == bundle[:-1]) & (row[1:] != row[:-1])
    moved &= (minute[1:] > minute[:-1]) & (minute[1:] - minute[:-1] <= SAMPLES_LEAST)
    at = np.flatnonzero(moved)
    steps = np.unique(
        np.concatenate([minute[at + 1] * len(usage[0]) + row[at + side] for side in (0, 1)])
    )
    before, after = _around(usage)
    changed = (after - before).reshape(-1)[steps]
    recorded = ~np.isnan(changed)
    steps, changed = steps[recorded], changed[recorded]
    if len(steps) > STEPS_MAX:
        chosen = np.linspace(0, len(steps) - 1, STEPS_MAX).astype(np.int64)
        steps, changed = steps[chosen], changed[chosen]
    return MoveSteps(steps // len(usage[0]), steps % len(usage[0]), changed, np.unique(bundle[at]))


def _around(each: Array) -> tuple[Array, Array]:
    """The means before and after each minute: `[minute, row]`; NaN of too few samples."""
    there = ~np.isnan(each)
    sums = np.vstack([np.zeros(each.shape[1]), np.cumsum(np.where(there, each, 0.0), axis=0)])
    counts = np.vstack([np.zeros(each.shape[1]), np.cumsum(there, axis=0)])
    at, last = np.arange(len(each)), len(each)

    def mean(start: Rows, end: Rows) -> Array:
        count = counts[end] - counts[start]
        few = count < SAMPLES_LEAST
        means = (sums[end] - sums[start]) / np.maximum(count, 1)
        return np.where(few, np.nan, means)

    return (
        mean(np.maximum(at - WINDOW, 0), at),
        mean(np.minimum(at + SETTLES, last), np.minimum(at + SETTLES + WINDOW, last)),
    )


def slope(steps: MoveSteps, each: Array) -> tuple[float, float] | None:
    """Usage for each unit of this traffic (`[minute, row]`), with its standard error; None: moves
    do not tell.
    """
    traffic = steps.changed(each)
    large = np.abs(traffic) > CHANGES * max(float(each.mean()), 1e-300)
    traffic, usage = traffic[large], steps.usage[large]
    if len(traffic) < STEPS_LEAST:
        return None
    ratios, weights = usage / traffic, np.abs(traffic)
    order = np.argsort(ratios)
    half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    middle = float(ratios[order[half]])  # the line through 0 with the least absolute errors
    left = np.abs(usage - middle * traffic)
    error = 1.25 * 1.48 * float(np.median(left)) / float(np.sqrt((traffic**2).sum()))
    error = max(error, 1e-3 * middle)
    return (middle, error) if middle > CERTAIN * error else None


def corrections(steps: MoveSteps, expected: Array, of_classes: Array) -> Array:
    """What is to be multiplied with the costs of some classes, `[class]`, so that the residuals of
    the moves become least. `expected`: the change of usage at each step, `of_classes` the part of
    it that each of these classes makes: `[step, class]`. A class of which moves say little stays
    as it was.
    """
    left = steps.usage - expected
    spread = max(1.48 * float(np.median(np.abs(left))), APART_LEAST)
    weights = 1 / np.maximum(np.abs(left) / (2 * spread), 1)  # the farthest count for less
    weighted = (of_classes * weights[:, None]).T / spread**2
    normal = weighted @ of_classes + np.eye(of_classes.shape[1]) / PRIOR**2
    off = np.linalg.solve(normal, weighted @ left)
    return np.asarray(np.clip(1 + off, 1 / TIMES_MAX, TIMES_MAX), np.float64)
