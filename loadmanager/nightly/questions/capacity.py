"""When is the cluster full, and how many brokers does it need?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.engine.history.forecast import capacity
from loadmanager.kit.history.layout import day_of
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly.day import NUMBER, WHOLE, Columns, Day, Finding, Row, many
from loadmanager.nightly.hurt import NOBODY

NAME = "capacity"
ABOUT = (
    "When is the cluster full? Each day's peak is the highest sum of the brokers' usages in five "
    "minutes; a line through the peaks counts as a trend from four days on, and where chance alone "
    "would make one in one of twenty cases; a card says so from eight days on. Load is taken to be "
    "divided evenly. Days with fewer recorded hours than twelve do not count, unless there are no "
    "others."
)
COLUMNS: Columns = {
    "days": (WHOLE, "days of history"),
    "brokers": (WHOLE, "most brokers in an hour of the last of these days"),
    "peak": (NUMBER, "the highest peak of the last seven days, in fully used brokers"),
    "growth_per_day": (NUMBER, "of the peaks, in brokers a day; 0: no clear trend"),
    "full_in_days": (
        NUMBER,
        "until every broker reaches the overload threshold at the peak; 0: today",
    ),
    "full_at_ts": (WHOLE, "that day"),
    "brokers_needed": (WHOLE, "for the next 30 days with a fifth below the threshold at the peak"),
}
AHEAD_DAYS = 30
HOURS_MIN = 12
TARGET = 0.8
"""The wanted usage at most, as a part of the overload threshold."""
SOON_DAYS = 60
TOLD_DAYS_MIN = 8
"""A whole week and the same day again: the days from a weekend on look like growth."""


def table(day: Day) -> list[Row]:
    """One row; none of a day without loads."""
    peaks: dict[int, dict[int, float]] = {}
    brokers: dict[int, dict[int, set[str]]] = {}
    for row in day.past("hourly") + day.answer("hourly"):
        number, hour = row["hour_ts"] // DAY_MS, row["hour_ts"]
        if row["kind"] == "cluster":
            peaks.setdefault(number, {})[hour] = row["peak"]
        elif row["kind"] == "broker":
            brokers.setdefault(number, {}).setdefault(hour, set()).add(row["name"])
    whole = {number for number, hours in peaks.items() if len(hours) >= HOURS_MIN} or set(peaks)
    if day.start_ms // DAY_MS not in peaks:
        return []
    there = max(map(len, brokers[max(whole)].values()))
    limit = day.settings.overloaded_percent / 100
    daily = [
        max(peaks[number].values()) if number in whole else None
        for number in range(min(whole), max(whole) + 1)
    ]
    need = capacity(daily, there, limit=limit, target=TARGET * limit, days=AHEAD_DAYS)
    if need is None:
        return []
    full = need.full_in_days
    if full == 0 and (daily[-1] or 0.0) < there * limit:
        full = None  # it was so once in these days, not today
    return [
        {
            "days": len(whole),
            "brokers": there,
            "peak": need.peak_now,
            "growth_per_day": need.growth_per_day,
            "full_in_days": full,
            "full_at_ts": None if full is None else round(day.end_ms + full * DAY_MS),
            "brokers_needed": need.brokers_needed,
        }
    ]


def _trend(growth: float) -> str:
    if growth == 0:
        return "it has no clear trend"
    return f"it {'grows' if growth > 0 else 'falls'} by {abs(growth):.2f} brokers a day"


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """A cluster that will be full soon."""
    return [
        Finding(
            importance=58 if row.full_in_days < 14 else 40,
            question=NAME,
            title=f"Full in {row.full_in_days:.0f} days at peak"
            if row.full_in_days > 0
            else "Full at peak already",
            text=f"At its peak the load fills {row.peak:.1f} brokers, and there are {row.brokers}; "
            f"{_trend(row.growth_per_day)}, by {many(row.days, 'day')} of history. "
            + (f"On {day_of(row.full_at_ts)} every" if row.full_in_days > 0 else "Every")
            + " broker is at the overload threshold at the peak, however well the load is divided.",
            advice=f"Plan for {row.brokers_needed} brokers within {AHEAD_DAYS} days: with them, a "
            "fifth below the overload threshold stays free at the peak.",
            hurt=f"{NOBODY} yet: all tenants at the peak of that day"
            if row.full_in_days > 0
            else "all tenants at the peak",
            numbers={"fullInDays": row.full_in_days, "brokersNeeded": row.brokers_needed},
            where="all brokers",
            plot="usage",
            commands=["loadmanager admin brokers list"],
        )
        for row in rows
        if row.full_in_days is not None
        and row.full_in_days <= SOON_DAYS
        and (row.days >= TOLD_DAYS_MIN or row.full_in_days == 0)
    ]
