"""A day that has just begun is compared with whole ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.layout import day_of, day_start_ms
from loadmanager.kit.units import DAY_MS, HOUR_MS
from loadmanager.nightly.day import Day, Row
from loadmanager.nightly.questions import capacity, news

TODAY = "2026-11-20"
START_MS = day_start_ms(TODAY)
BROKERS = [f"b{number}" for number in range(10)]
SPACES = {"t/a": 100.0, "t/b": 50.0}


def hourly(start_ms: int, hours: int, brokers: int = 10, part: float = 1.0) -> list[Row]:
    """Brokers at half of what they can; `part`: of the traffic of each hour."""
    rows: list[Row] = []
    for hour_ts in range(start_ms, start_ms + hours * HOUR_MS, HOUR_MS):
        common = {"hour_ts": hour_ts}
        sum_ = 0.5 * brokers
        rows.append({**common, "kind": "cluster", "name": "c", "value": sum_, "peak": sum_})
        rows += [
            {**common, "kind": "broker", "name": name, "value": 0.5, "peak": 0.5}
            for name in BROKERS[:brokers]
        ]
        rows += [
            {**common, "kind": "namespace", "name": name, "value": part * value, "peak": value}
            for name, value in SPACES.items()
        ]
    return rows


def today(rows: list[Row], days_before: int) -> Day:
    """A day whose loads by the hour are these."""
    facts: Any = None
    before = {day_of(START_MS - number * DAY_MS) for number in range(1, days_before + 1)}

    def stored(question: str, date: str, _columns: Any) -> list[Row]:
        known = question == "hourly" and date in before
        return hourly(day_start_ms(date), 24) if known else []

    day = Day("c", TODAY, facts, StrategySettings(), stored)
    day.answers |= {"hourly": rows, "hot_topics": [], "hot_bundles": []}
    return day


@pytest.mark.parametrize("hours", [1, 11, 24])
def test_some_minutes_make_no_full_cluster(hours: int) -> None:
    """One broker had recorded its load by then."""
    (row,) = capacity.table(today(hourly(START_MS, hours, brokers=1 if hours < 24 else 10), 5))
    assert (row["brokers"], row["peak"], row["full_in_days"]) == (10, 5.0, None)
    assert row["days"] == (6 if hours == 24 else 5)


def test_the_first_day_counts_however_short_it_is() -> None:
    """There is nothing else."""
    (row,) = capacity.table(today(hourly(START_MS, 2, brokers=4), 0))
    assert (row["days"], row["brokers"], row["peak"]) == (1, 4, 2.0)
    assert capacity.table(today([], 5)) == []


def test_minutes_are_no_news() -> None:
    """An hour that has just begun has a part of its traffic; several that have less are news."""
    assert news.table(today(hourly(START_MS, 1, part=0.1), 1)) == []
    found = news.table(today(hourly(START_MS, 3, part=0.1), 1))
    assert [(row["name"], row["factor"]) for row in found] == [
        (name, pytest.approx(0.1)) for name in SPACES
    ]


def test_what_doubled_in_the_evening_is_news() -> None:
    """Though neither this day has twice the traffic of the last one, nor the next of this one."""
    rows = hourly(START_MS, 24)
    for row in rows:
        if row["name"] == "t/a" and row["hour_ts"] >= START_MS + 17 * HOUR_MS:
            row["value"] *= 2.5
    found = news.table(today(rows, 1))
    assert [(row["since"], row["name"], row["factor"]) for row in found] == [
        (news.LATE, "t/a", pytest.approx(2.5))
    ]
    (card,) = news.findings([SimpleNamespace(**row) for row in found], today(rows, 1))
    assert card.title == "t/a had 2.5 times the day before's traffic"
    said = "100 B/s → 250 B/s, in the last six hours, at the same hours, since 17:00."
    assert card.text == said
