"""Which brokers use more for the same traffic than they did?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from loadmanager.kit.history.layout import day_of
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly.day import (
    NUMBER,
    PAST_DAYS,
    TEXT,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    command,
    many,
)

NAME = "slow_brokers"
ABOUT = (
    "Which brokers became slow? What a broker uses for its bytes, and for its messages, as a "
    "multiple of what the other brokers use, compared with the same of up to 28 days before: so "
    "neither a machine that always was smaller nor a day with other messages counts. Brokers that "
    "use less than a tenth are not judged."
)
COLUMNS: Columns = {
    "broker": (TEXT, "the broker"),
    "usage": (NUMBER, "mean usage"),
    "slower": (
        NUMBER,
        "usage for the same traffic, beside the others, as a multiple of what is usual of it",
    ),
    "days": (WHOLE, "on how many days up to this one it was at least one and a half"),
}
SLOWER = 1.5
DAYS_MIN = 2
"""One day may be a test's or a backup's."""
BEFORE_MIN = 2
"""Days before that tell what is usual."""
USAGE_MIN = 0.1
USUAL = 0.25
"""Of the days in order of cost, the one at this part is usual: it may have been slow for most."""
Costs = dict[str, tuple[float, float]]
"""Broker → usage for its bytes and for its messages, beside those of the others."""


def table(day: Day) -> list[Row]:
    """A row for each broker that is there today and was on enough days before."""
    today = day.answer("broker_usage")
    costs = [
        _costs(day.stored("broker_usage", day_of(day.start_ms - number * DAY_MS), None))
        for number in range(1, PAST_DAYS + 1)
    ]
    now, usage = _costs(today), {row["broker"]: row["mean"] for row in today}
    rows = []
    for broker in sorted(now):
        past = [of_day[broker] for of_day in costs if broker in of_day]
        if len(past) < BEFORE_MIN:
            continue
        usual = tuple(_usual(values) for values in zip(*past, strict=True))
        each = [_slower(of_day.get(broker), usual) for of_day in (now, *costs)]
        days = next((number for number, by in enumerate(each) if by < SLOWER), len(each))
        rows.append({"broker": broker, "usage": usage[broker], "slower": each[0], "days": days})
    return sorted(rows, key=lambda row: (-row["slower"], row["broker"]))


def _costs(rows: Iterable[Mapping[str, Any]]) -> Costs:
    """What brokers use for their traffic, over the median of all."""
    each = {
        row["broker"]: (row["mean"] / row["throughput_mean"], row["mean"] / row["rate_mean"])
        for row in rows
        if row["mean"] >= USAGE_MIN and row["throughput_mean"] > 0 and row.get("rate_mean")
    }
    if len(each) < 3:  # of two nobody knows which one is slow
        return {}
    by_bytes, by_messages = (median(values) for values in zip(*each.values(), strict=True))
    return {broker: (cost[0] / by_bytes, cost[1] / by_messages) for broker, cost in each.items()}


def _usual(values: Sequence[float]) -> float:
    return sorted(values)[int(USUAL * (len(values) - 1))]


def _slower(cost: tuple[float, float] | None, usual: Sequence[float]) -> float:
    """The smaller of both multiples; 0 of a day without."""
    return 0.0 if cost is None else min(cost[0] / usual[0], cost[1] / usual[1])


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Brokers that are slow for days."""
    return [
        Finding(
            importance=52,
            question=NAME,
            title=f"{row.broker} costs {row.slower:.1f} times its usual usage for the same traffic",
            text=f"So for {many(row.days, 'day')}, by its bytes and by its messages, compared with "
            f"the other brokers and with itself before. It used {row.usage:.0%} on the mean: a "
            "shedder that learns this gives it less, and the capacity is lost in silence.",
            advice="Look at its machine: a throttled or shared CPU, another process, a failing "
            "disk, an older build. Else replace it.",
            numbers={"slower": row.slower, "days": row.days},
            where=row.broker,
            plot="usage",
            commands=command("loadmanager admin brokers report", row.broker),
            explains=[f"slow {row.broker}"],
        )
        for row in rows
        if row.slower >= SLOWER and row.days >= DAYS_MIN
    ]
