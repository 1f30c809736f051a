"""Which namespaces grow a little every day?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from loadmanager.engine.history.trend import DailyLine, line_through
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    command,
    listed,
    many,
    mib,
)
from loadmanager.nightly.hurt import NOBODY

NAME = "growth"
ABOUT = (
    "Which namespaces grow a little every day? A line through the logarithms of the daily means of "
    "up to 28 days: what grows by at least 2 % a day, at such a pace that the line explains four "
    "fifths of what the days differ by, weekends apart, and more than one step would; or the step "
    "would explain less than twice as much, and the days grow beside it, too. Less than eight "
    "days, a weekend among them, tell nothing; neither does a namespace with less than a hundredth "
    "of all traffic."
)
COLUMNS: Columns = {
    "namespace": (TEXT, "the namespace"),
    "days": (WHOLE, "days of history"),
    "growth_per_day": (NUMBER, "growth from day to day, as a fraction"),
    "fit": (NUMBER, "the part of the days' differences, weekends apart, that the line explains"),
    "first": (NUMBER, "mean bytes/s in and out on the first of these days"),
    "last": (NUMBER, "the same on this day"),
    "doubled_in_days": (NUMBER, "until it is twice as much, at this pace"),
}
DAYS_MIN = 8
"""A whole week, and a day to compare with the same one a week before."""
HOURS_MIN = 12
GROWTH_MIN, FIT_MIN, SHARE_MIN = 0.02, 0.8, 0.01


def table(day: Day) -> list[Row]:
    """A row for each namespace that grows."""
    hours: dict[str, dict[int, list[float]]] = {}
    for row in day.past("hourly") + day.answer("hourly"):
        if row["kind"] == "namespace":
            of_day = hours.setdefault(row["name"], {}).setdefault(row["hour_ts"] // DAY_MS, [])
            of_day.append(row["value"])
    today = day.start_ms // DAY_MS
    everything = sum(fmean(days[today]) for days in hours.values() if today in days)
    rows = []
    for name, days in hours.items():
        means = {
            number: mean
            for number, values in sorted(days.items())
            if len(values) >= HOURS_MIN and (mean := fmean(values)) > 0
        }
        if today in means and len(means) >= DAYS_MIN and means[today] >= SHARE_MIN * everything:
            line = line_through(
                list(means), [math.log(mean) for mean in means.values()], weekends=True
            )
            row = _row(name, means, line)
            if (
                row["growth_per_day"] >= GROWTH_MIN
                and line.fit >= FIT_MIN
                and not line.is_only_step
            ):
                rows.append(row)
    return sorted(rows, key=lambda row: (-row["growth_per_day"] * row["last"], row["namespace"]))


def _row(name: str, means: dict[int, float], line: DailyLine) -> Row:
    return {
        "namespace": name,
        "days": len(means),
        "growth_per_day": math.expm1(line.slope),
        "fit": line.fit,
        "first": means[min(means)],
        "last": means[max(means)],
        "doubled_in_days": math.log(2) / line.slope if line.slope > 0 else None,
    }


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """One card for all of them."""
    if not rows:
        return []
    worst = rows[0]
    texts = [
        f"{row.namespace} by {row.growth_per_day:.1%} a day for {many(row.days, 'day')} "
        f"({mib(row.first)} → {mib(row.last)}), twice as much in {row.doubled_in_days:.0f} days"
        for row in rows
    ]
    more = f", and so do {len(rows) - 1} more namespaces" if len(rows) > 1 else ""
    return [
        Finding(
            importance=37,
            question=NAME,
            title=f"{worst.namespace} grows by {worst.growth_per_day:.1%} a day{more}",
            text=f"{listed(texts, 5)}.",
            advice="Ask its owner whether that is meant: clients that connect again and again, or "
            "messages that are sent twice, look like this.",
            hurt=f"{NOBODY} yet: its neighbours once brokers are full of it",
            numbers={"growthPerDay": worst.growth_per_day, "days": worst.days},
            where=worst.namespace,
            plot="bundles",
            commands=command("loadmanager admin topics list", worst.namespace),
        )
    ]
