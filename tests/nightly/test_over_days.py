"""What is told of several days, and what is not, from stored rows that are made by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.layout import day_of, day_start_ms
from loadmanager.kit.units import DAY_MS, HOUR_MS
from loadmanager.nightly.day import Day, Row
from loadmanager.nightly.questions import growth, leaders, news, slow_brokers

TODAY = "2026-11-20"
START_MS = day_start_ms(TODAY)


def cards(question: Any, day: Day) -> list[str]:
    """The titles of its cards."""
    rows = question.table(day)
    return [card.title for card in question.findings([SimpleNamespace(**row) for row in rows], day)]


def day_of_rows(
    question: str, rows: Callable[[int], list[Row]], days_before: int, date: str = TODAY
) -> Day:
    """A day with `days_before` days before; `rows`: of a day, 0 is today."""
    facts: Any = SimpleNamespace(terms=[], brokers=[])
    start_ms = day_start_ms(date)
    before = {day_of(start_ms - number * DAY_MS): -number for number in range(1, days_before + 1)}

    def stored(name: str, date: str, _columns: Any) -> list[Row]:
        return rows(before[date]) if name == question and date in before else []

    day = Day("c", date, facts, StrategySettings(), stored)
    day.answers |= {question: rows(0), "hot_topics": [], "hot_bundles": []}
    return day


def hourly(
    traffic: Callable[[int], float], date: str = TODAY, others: float = 1.0
) -> Callable[[int], list[Row]]:
    """Loads of t/x by the hour, and of another namespace; `traffic`: of a day."""

    def rows(day: int) -> list[Row]:
        begin_ms = day_start_ms(date) + day * DAY_MS
        return [
            {"kind": "namespace", "name": name, "hour_ts": ts, "value": value, "rate": value}
            for ts in range(begin_ms, begin_ms + DAY_MS, HOUR_MS)
            for name, value in (("t/x", 1e6 * traffic(day)), ("t/y", 1e6 * others))
        ]

    return rows


UNSTEADY = (1.0, 0.95, 0.85, 0.86, 0.94, 0.91, 1.12, 1.3, 1.32, 1.24, 1.12, 1.23, 1.23, 1.29)
"""Traffic that grows by 4 % a day, and varies by 8 %; a quarter more at weekends. The step on the
seventh day explains it better than a line, and yet it grows beside it.
"""
RAISED = (1.0, 1.06, 0.97, 1.04, 0.99, 1.05, 1.33, 1.25, 1.36, 1.28, 1.34, 1.29, 1.3, 1.37)


@pytest.mark.parametrize(
    ("traffic", "days_before", "grows"),
    [
        (lambda day: 1.04**day, 8, True),
        (lambda day: UNSTEADY[day - 1], 13, True),
        (lambda day: RAISED[day - 1], 13, False),
        (lambda day: 1.04**day, 6, False),  # a weekend may be all of it
        (lambda day: 1.01**day, 20, False),
        (lambda day: 2.0 if day > -4 else 1.0, 8, False),  # it doubled once
        (lambda day: 1.04**day * (1.5 if day % 7 in (1, 2) else 1.0), 9, True),  # busy weekends
        (lambda day: 1.04**day * (0.4 if day % 7 in (1, 2) else 1.0), 9, True),
        (lambda day: 2.0 if day > -5 else 1.0, 9, False),  # it doubled on a weekend
        (lambda day: 0.3 if day % 7 in (1, 2) else 1.0, 12, False),  # it rests at weekends
        (lambda day: 1.0, 8, False),
    ],
)
def test_what_grows_every_day(
    traffic: Callable[[int], float], days_before: int, grows: bool
) -> None:
    """By some percent, day after day; and neither a step nor a week does."""
    titles = cards(growth, day_of_rows("hourly", hourly(traffic), days_before))
    assert titles == (["t/x grows by 4.0% a day"] if grows else [])


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (lambda day: 2.0 if day >= -2 else 1.0, True),
        (lambda day: 2.0 if day >= 0 else 1.0, False),  # one day
        (lambda _day: 2.0, False),  # a smaller machine
        (lambda day: 1.3 if day >= -2 else 1.0, False),
    ],
)
def test_a_broker_that_became_slow(factor: Callable[[int], float], says: bool) -> None:
    """By what it uses for its traffic, beside the others and as it was before."""

    def rows(day: int) -> list[Row]:
        costs = {"b0": 1.0, "b1": 1.0, "b2": 1.0, "b3": factor(day)}
        return [
            {
                "broker": broker,
                "mean": 0.4,
                "throughput_mean": 1e6 / cost,
                "rate_mean": 1e3 / cost,
            }
            for broker, cost in costs.items()
        ]

    titles = cards(slow_brokers, day_of_rows("broker_usage", rows, 6))
    said = "b3 costs 2.0 times its usual usage for the same traffic"
    assert titles == ([said] if says else [])


@pytest.mark.parametrize(
    ("date", "days_before", "is_news"),
    [
        ("2026-11-20", 1, True),  # Friday
        ("2026-11-21", 1, False),  # Saturday: no week before says what is usual
        ("2026-11-23", 1, False),
        ("2026-11-24", 1, True),
        ("2026-11-20", 7, False),  # it was so a week before
    ],
)
def test_a_weekend_is_no_news(date: str, days_before: int, is_news: bool) -> None:
    """Today and a week before have a third of the traffic of the days between."""
    traffic = hourly(lambda day: 0.3 if day % 7 == 0 else 1.0, date, others=20.0)
    titles = cards(news, day_of_rows("hourly", traffic, days_before, date))
    said = "1 namespace doubled, halved, came or went since the day before"
    assert titles == ([said] if is_news else [])


@pytest.mark.parametrize(("stopped", "changes"), [((), 3), (("b1",), 0)])
def test_a_leader_that_stopped_in_order_is_not_counted(
    stopped: tuple[str, ...], changes: int
) -> None:
    """Three changes within an hour, of which one may be a stop."""
    terms = [
        {"epoch": number, "broker": f"b{number}", "ts": START_MS + ts, "last_ts": START_MS + ts}
        for number, ts in enumerate((0, 600_000, 1_200_000, 1_800_000))
    ]
    facts: Any = SimpleNamespace(terms=terms, brokers=[], members=[])
    day = Day("c", TODAY, facts, StrategySettings())
    day.corrections = {}
    day.answers["outages"] = [
        {"broker": name, "how": "stop", "ts": START_MS + 1_190_000} for name in stopped
    ]
    titles = cards(leaders, day)
    assert titles == (["The leader changed 3 times between 00:10 and 00:30"] if changes else [])
