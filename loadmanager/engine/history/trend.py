"""A line through the values of days, beside a single step: what doubled once does not grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Columns = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DailyLine:
    """A line through the values of days that rest at weekends, perhaps."""

    slope: float
    fit: float
    """The part of what the days differ by, weekends apart, that the line explains."""
    is_step: bool
    """Whether one step explains them better than the line."""
    is_only_step: bool
    """Whether it leaves less than half of what the line leaves, or beside it the line is less than
    a third as steep.
    """


def line_through(days: Sequence[int], values: Sequence[float], *, weekends: bool) -> DailyLine:
    """The line through `values`. `days`: their numbers since the epoch where `weekends` count."""
    numbers, wanted = np.array(days, np.float64), np.array(values, np.float64)
    level = [np.ones(len(days))]
    resting = np.array([is_weekend(day) for day in days], np.float64)
    if weekends and 0 < resting.sum() < len(days):
        level.append(resting)
    flat, _ = _fitted(level, wanted)
    pace = numbers - numbers.mean()
    rest, slope = _fitted([*level, pace], wanted)
    if flat <= 1e-12 * float(wanted @ wanted):
        return DailyLine(0.0, 0.0, is_step=False, is_only_step=False)
    steps = [(numbers >= day).astype(np.float64) for day in days[1:]]
    of_steps = [_fitted([*level, step], wanted)[0] for step in steps]
    best = int(np.argmin(of_steps))
    is_step = of_steps[best] < rest
    beside = _fitted([*level, steps[best], pace], wanted)[1] / slope if slope else 0.0
    alone = is_step and (of_steps[best] < rest / 2 or beside < 1 / 3)
    return DailyLine(slope, 1 - rest / flat, is_step=is_step, is_only_step=alone)


def is_weekend(day: int) -> bool:
    """Whether a day, by its number since the epoch, is a Saturday or a Sunday."""
    return (day + 3) % 7 >= 5


def _fitted(columns: Sequence[Columns], wanted: Columns) -> tuple[float, float]:
    """What is left of the values' squares, and what the last column counts."""
    matrix = np.column_stack(columns)
    factors = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    rest = wanted - matrix @ factors
    return float(rest @ rest), float(factors[-1])
