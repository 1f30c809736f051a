"""Forecasts from the pattern of the day and of the week, with their own error.

A series is a value an hour, the oldest first; `None` where nothing was recorded. Hours are counted
from the epoch, so that an hour's place in the day and in the week follows from its number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from loadmanager.engine.history.trend import line_through

DAY, WEEK = 24, 168
DAYS_MIN = 2
"""Days of history without which nothing is foretold."""
TREND_DAYS_MIN = 4
"""Days of history without which growth is not told from noise."""
GROWTH_PER_DAY_MAX = 0.2
"""A faster growth is not extended into the future."""
FULL_DAYS_MAX = 3650
"""A cluster that would be full later than this is not foretold to be."""
SIGNIFICANT = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""A trend counts from this many of its standard errors on, of four days, five …: Student's t, so
that chance makes one in one of twenty cases. Of more days it is nearly 1.96 + 2.6 / (days - 2).
"""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A series continued."""

    values: list[float]
    """The next hours."""
    error: float | None
    """The error of the back-test: mean absolute error over the mean of what came, for the last day,
    foretold from the days before it; None: too few days.
    """
    naive_error: float | None
    """The same of the naive forecast: each hour as a day before."""
    growth_per_day: float
    """Growth of the daily peak, as a fraction of the mean peak; 0: no clear trend."""
    used: str
    """`pattern`, or `naive` where the back-test found the naive forecast better."""

    @property
    def peak(self) -> float:
        """The highest of the next hours."""
        return max(self.values, default=0.0)


def pattern(first_hour: int, series: Sequence[float | None], hours: int) -> list[float]:
    """The next `hours`: the usual value of an hour of the week, else of the day, with the trend."""
    values = [value for value in series if value is not None]
    if not values:
        return [0.0] * hours
    by_day = _usual(first_hour, series, DAY)
    by_week = _usual(first_hour, series, WEEK) if len(series) >= 2 * WEEK else {}
    growth = growth_per_day(series) * fmean(values)
    # Usual values are those of the middle of the history.
    middle = len(series) / 2
    overall = fmean(values)
    forecast = []
    for index in range(len(series), len(series) + hours):
        hour = first_hour + index
        usual = by_week.get(hour % WEEK, by_day.get(hour % DAY, overall))
        grown = usual + growth * (index - middle) / DAY
        forecast.append(max(grown, 0.0))
    return forecast


def naive(series: Sequence[float | None], hours: int) -> list[float]:
    """The next `hours`, each as a day before; a gap is as the last value known."""
    values = [value for value in series if value is not None]
    last = values[-1] if values else 0.0
    extended = list(series)
    for _ in range(hours):
        before = extended[-DAY] if len(extended) >= DAY else None
        extended.append(last if before is None else before)
    return [value if value is not None else last for value in extended[len(series) :]]


def _usual(first_hour: int, series: Sequence[float | None], period: int) -> dict[int, float]:
    """Hour of the period → the middle of its values."""
    values: dict[int, list[float]] = {}
    for index, value in enumerate(series):
        if value is not None:
            values.setdefault((first_hour + index) % period, []).append(value)
    return {hour: median(several) for hour, several in values.items()}


def growth_per_day(series: Sequence[float | None]) -> float:
    """The clear trend of whole days' means, as a fraction of their mean; 0 if there is none."""
    days = [
        fmean(values) if len(values) >= DAY // 2 else None
        for start in range(len(series) % DAY, len(series), DAY)
        for values in [[value for value in series[start : start + DAY] if value is not None]]
    ]
    values = [value for value in days if value is not None]
    mean = fmean(values) if values else 0.0
    if mean <= 0:
        return 0.0
    return max(-GROWTH_PER_DAY_MAX, min(_trend(days) / mean, GROWTH_PER_DAY_MAX))


def _trend(days: Sequence[float | None]) -> float:
    """The clear trend of a value a day, in its unit; 0 if there is none: a step is none."""
    points = [(day, value) for day, value in enumerate(days) if value is not None]
    if len(points) < TREND_DAYS_MIN:
        return 0.0
    middle, mean = fmean(day for day, _ in points), fmean(value for _, value in points)
    spread = sum((day - middle) ** 2 for day, _ in points)
    slope = sum((day - middle) * (value - mean) for day, value in points) / spread
    rest = sum((value - mean - slope * (day - middle)) ** 2 for day, value in points)
    error = math.sqrt(rest / (len(points) - 2) / spread)
    at = len(points) - TREND_DAYS_MIN
    least = SIGNIFICANT[at] if at < len(SIGNIFICANT) else 1.96 + 2.6 / (len(points) - 2)
    if (
        abs(slope) < least * error
        or line_through(*zip(*points, strict=True), weekends=False).is_step
    ):
        return 0.0
    return slope


def _error(foretold: Sequence[float], came: Sequence[float | None]) -> float | None:
    pairs = [
        (expected, other)
        for expected, other in zip(foretold, came, strict=True)
        if other is not None
    ]
    mean = fmean(other for _, other in pairs) if pairs else 0.0
    if mean <= 0:
        return None
    return fmean(abs(expected - other) for expected, other in pairs) / mean


def forecast(first_hour: int, series: Sequence[float | None], hours: int) -> Forecast | None:
    """The next `hours` of a series; None with less than `DAYS_MIN` days.

    The back-test foretells the last day from the days before it, and chooses the method.
    """
    if len(series) < DAYS_MIN * DAY or all(value is None for value in series):
        return None
    before, last = series[:-DAY], series[-DAY:]
    error = _error(pattern(first_hour, before, DAY), last)
    naive_error = _error(naive(before, DAY), last)
    better = error is not None and naive_error is not None and error <= naive_error
    values = pattern(first_hour, series, hours) if better else naive(series, hours)
    return Forecast(
        values,
        error,
        naive_error,
        growth_per_day(series),
        "pattern" if better else "naive",
    )


@dataclass(frozen=True, slots=True)
class Capacity:
    """The day on which a cluster is full, and the number of brokers that it needs."""

    peak_now: float
    """The highest sum of the brokers' usages in the last seven days, in brokers."""
    growth_per_day: float
    """The growth of the daily peak, in brokers a day; 0: no clear trend."""
    full_in_days: float | None
    """When the peak reaches what the brokers can take; 0: it does; None: not within ten years at
    this pace.
    """
    brokers_needed: int
    """For the highest peak of the next `days`, at the target usage."""


def capacity(
    daily_peaks: Sequence[float | None], brokers: int, *, limit: float, target: float, days: int
) -> Capacity | None:
    """From each day's peak of the sum of the brokers' usages, the oldest first; None for a day
    without a record.

    `limit`: the usage at which a broker is overloaded; `target`: the one to plan for. Load is taken
    to be divided evenly.
    """
    last = [peak for peak in daily_peaks[-7:] if peak is not None]
    if not last or brokers < 1:
        return None
    slope, now = _trend(daily_peaks), max(last)
    room = max(brokers * limit - now, 0.0)
    full = room / slope if 0 < room <= slope * FULL_DAYS_MAX else None if room else 0.0
    then = now + max(slope, 0.0) * days
    return Capacity(now, slope, full, max(1, math.ceil(then / target - 1e-9)))


def changed(
    before: Mapping[str, float], now: Mapping[str, float], *, factor: float, share_min: float
) -> list[tuple[str, float, float]]:
    """The names whose value changed by more than `factor`: name, value before and now; the largest
    change first.

    Leaves out what is less than `share_min` of everything, both times.
    """
    everything = max(sum(before.values()), sum(now.values()))
    changes = []
    for name in sorted({*before, *now}):
        was, is_ = before.get(name, 0.0), now.get(name, 0.0)
        low, high = min(was, is_), max(was, is_)
        if high >= share_min * everything and high > 0 and high >= factor * low:
            changes.append((name, was, is_))
    return sorted(changes, key=lambda row: (-abs(row[2] - row[1]), row[0]))
