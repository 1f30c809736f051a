"""Forecasts: exact on what repeats, bounded on what does not."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.history.forecast import (
    DAY,
    WEEK,
    capacity,
    changed,
    forecast,
    growth_per_day,
    naive,
    pattern,
)

SHAPE = [10 + 5 * math.sin(hour / DAY * 2 * math.pi) for hour in range(DAY)]
VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1e12)), min_size=1, max_size=80)


def test_a_day_that_repeats_is_foretold_exactly() -> None:
    """Pattern and naive agree, and the back-test finds no error."""
    told = forecast(5, SHAPE * 4, DAY)
    assert told is not None
    assert told.values == pytest.approx(SHAPE)
    assert (told.error, told.naive_error) == (pytest.approx(0), pytest.approx(0))
    assert (told.growth_per_day, told.used) == (0.0, "pattern")


def test_a_quiet_weekend_is_foretold_from_the_week() -> None:
    """After Sunday comes Monday: the naive forecast errs by half, the pattern does not."""
    week = SHAPE * 5 + [value / 2 for value in SHAPE] * 2
    told = forecast(0, week * 3 + SHAPE, DAY)
    assert told is not None
    assert (told.error, told.naive_error) == (pytest.approx(0), pytest.approx(0.5))
    assert told.values == pytest.approx(SHAPE)


def test_steady_growth_goes_on() -> None:
    """A tenth more of the first day each day: the next day has it, too."""
    days = [[value * (1 + 0.1 * number) for value in SHAPE] for number in range(7)]
    series = [value for day in days for value in day]
    assert growth_per_day(series) == pytest.approx(0.1 / 1.3)
    told = pattern(0, series, DAY)
    assert sum(told) / DAY == pytest.approx(10 * 1.7, rel=0.03)


def test_noise_is_no_growth() -> None:
    """Days that go up and down have no trend."""
    days = [10, 12, 9, 11, 10, 12, 9]
    assert growth_per_day([float(value) for value in days for _ in range(DAY)]) == 0.0


@pytest.mark.parametrize("days", [4, 5, 7, 10, 20])
def test_chance_fills_no_cluster(days: int) -> None:
    """Of many clusters whose peaks differ by chance only, few are foretold to grow or shrink: one
    of twenty, and as many more as 1,000 of them may have by chance.
    """
    rng = random.Random(days)
    grown = 0
    for _ in range(1000):
        told = capacity(
            [rng.gauss(6, 0.3) for _ in range(days)], 10, limit=0.85, target=0.68, days=30
        )
        assert told is not None
        grown += told.growth_per_day != 0
    assert grown <= 75


@given(VALUES, st.integers(0, 10**6), st.integers(1, 60))
def test_forecasts_are_finite_and_not_negative(
    series: list[float | None], first: int, hours: int
) -> None:
    """Whatever was recorded; the naive one stays within what there was."""
    for told in (pattern(first, series, hours), naive(series, hours)):
        assert len(told) == hours
        assert all(math.isfinite(value) and value >= 0 for value in told)
    known = [value for value in series if value is not None]
    assert max(naive(series, hours)) <= max(known, default=0.0)


@given(
    st.lists(st.floats(1, 1e6), min_size=2 * DAY, max_size=2 * DAY),
    st.integers(2, 6),
    st.floats(1e-3, 1e3),
)
def test_the_unit_does_not_matter(day: list[float], days: int, factor: float) -> None:
    """A thousand times the bytes are foretold as a thousand times the bytes."""
    one = forecast(0, day * days, DAY)
    other = forecast(0, [value * factor for value in day * days], DAY)
    assert one is not None
    assert other is not None
    assert other.peak == pytest.approx(one.peak * factor, rel=1e-6)


def test_too_little_history_foretells_nothing() -> None:
    """A day and a half, or days without a record."""
    assert forecast(0, SHAPE + SHAPE[:12], DAY) is None
    assert forecast(0, [None] * WEEK, DAY) is None


def test_full_in_nineteen_days() -> None:
    """The peak grows by 0.1 brokers a day; 10 brokers at 85 % are 8.5; the last peak is 6.6."""
    peaks = [6.0 + 0.1 * day for day in range(7)]
    told = capacity(peaks, 10, limit=0.85, target=0.68, days=30)
    assert told is not None
    assert told.full_in_days == pytest.approx(19)
    assert told.brokers_needed == math.ceil((6.6 + 3) / 0.68)


def test_days_without_a_record_are_days() -> None:
    """A week between two stretches of days: the growth is that of a day, not of a record."""
    peaks = [6.0 + 0.1 * day if day not in range(3, 10) else None for day in range(13)]
    told = capacity(peaks, 10, limit=0.85, target=0.68, days=30)
    assert told is not None
    assert told.growth_per_day == pytest.approx(0.1)
    days = [[value * (1 + 0.1 * number) for value in SHAPE] for number in range(4)]
    gap: list[float | None] = [None] * (3 * DAY)
    series = [*days[0], *days[1], *gap, *[v * 1.5 for v in SHAPE], *[v * 1.6 for v in SHAPE]]
    assert growth_per_day(series) == pytest.approx(0.1 / 1.3)


def test_what_is_further_away_than_years_is_not_foretold() -> None:
    """The last digit of a sum is no growth that fills a cluster."""
    peaks = [1.0] * 5 + [math.nextafter(1.0, 2)] * 2
    told = capacity(peaks, 4, limit=0.85, target=0.68, days=30)
    assert told is not None
    assert told.full_in_days is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.integers(1, 50))
def test_the_brokers_needed_hold_the_peak(peaks: list[float], brokers: int) -> None:
    """At the target, and no broker too many."""
    told = capacity(peaks, brokers, limit=0.85, target=0.68, days=30)
    assert told is not None
    then = told.peak_now + 30 * max(told.growth_per_day, 0)
    assert told.brokers_needed * 0.68 >= then - 1e-6
    assert told.brokers_needed == 1 or (told.brokers_needed - 1) * 0.68 < then + 1e-6
    assert (told.full_in_days == 0) == (told.peak_now >= brokers * 0.85)


def test_what_changed() -> None:
    """New, gone, doubled; what is small both times is left out."""
    before = {"a": 100.0, "b": 50.0, "gone": 40.0, "tiny": 0.1}
    now = {"a": 110.0, "b": 100.0, "new": 30.0, "tiny": 0.9}
    assert changed(before, now, factor=2, share_min=0.01) == [
        ("b", 50.0, 100.0),
        ("gone", 40.0, 0.0),
        ("new", 0.0, 30.0),
    ]
