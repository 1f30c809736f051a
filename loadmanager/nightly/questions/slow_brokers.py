"""Which brokers use more for the same traffic than they did?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.usage_line import VARIES, usage_line
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
from loadmanager.nightly.hurt import OnBrokers
from loadmanager.nightly.trusted import by_broker, trusted

NAME = "slow_brokers"
ABOUT = (
    "Which brokers became slow? What a broker uses for its traffic, by what bytes and messages "
    "cost today, as a multiple of what the other brokers use, compared with the same of up to 28 "
    "days before: so neither a machine that always was smaller nor a day with other messages "
    "counts. Brokers that use less than a tenth are not judged."
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
SUMS = ("throughput_sum", "rate_sum")
Costs = dict[str, float]
"""Broker → usage over what its traffic usually costs, beside the same of the others."""


def table(day: Day) -> list[Row]:
    """A row for each broker that is there today and was on enough days before."""
    today = _judged(day.answer("broker_usage"))
    before = [
        _judged(day.stored("broker_usage", day_of(day.start_ms - number * DAY_MS), None))
        for number in range(1, PAST_DAYS + 1)
    ]
    if not today:
        return []
    cost, idle = _cost_of_traffic(today, day)
    now, *costs = (_costs(rows, cost, idle) for rows in (today, *before))
    usage = {row["broker"]: row["mean"] for row in today}
    rows = []
    for broker in sorted(now):
        past = [of_day[broker] for of_day in costs if broker in of_day]
        if len(past) < BEFORE_MIN:
            continue
        usual = _usual(past)
        each = [of_day.get(broker, 0.0) / usual for of_day in (now, *costs)]
        days = next((number for number, by in enumerate(each) if by < SLOWER), len(each))
        rows.append({"broker": broker, "usage": usage[broker], "slower": each[0], "days": days})
    return sorted(rows, key=lambda row: (-row["slower"], row["broker"]))


def _judged(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The brokers that say what traffic costs."""
    return [
        row
        for row in rows
        if row["mean"] >= USAGE_MIN and row["throughput_mean"] > 0 and row.get("rate_mean")
    ]


def _traffic(rows: Sequence[Mapping[str, Any]]) -> Array:
    """Brokers × (bytes/s, messages/s)."""
    return np.array([[row["throughput_mean"], row["rate_mean"]] for row in rows], np.float64)


def _cost_of_traffic(rows: Sequence[Mapping[str, Any]], day: Day) -> tuple[Array, float]:
    """What a byte/s and a message/s cost, and what brokers use without traffic, by how the usage of
    each follows its own traffic today: brokers that are balanced use the same whatever they carry.
    Where that tells nothing, bytes and messages count alike, and nothing is used without them.
    """
    figures = [
        np.array(
            [(step["usage"], *(step[name] / step["samples"] for name in SUMS)) for step in honest],
            np.float64,
        )
        for steps in by_broker(trusted(day)).values()
        if (honest := [step for step in steps if not step["lied"]])
    ]
    scale = _traffic(rows).mean(axis=0)
    if figures:
        changes = np.vstack([each - each.mean(axis=0) for each in figures])
        least, best = float((changes[:, 0] ** 2).sum()), None
        for chosen in ([1, 2], [1], [2]):
            columns = changes[:, chosen] / scale[[at - 1 for at in chosen]]
            costs = np.linalg.lstsq(columns, changes[:, 0], rcond=None)[0]
            rest = float(((columns @ costs - changes[:, 0]) ** 2).sum())
            if costs.min() > 0 and rest < least * (1 - VARIES):
                least, best = rest, np.zeros(2)
                best[[at - 1 for at in chosen]] = costs
        if best is not None:
            cost = best / scale
            lines = [usage_line(each[:, 1:] @ cost, each[:, 0]) for each in figures]
            return cost, median([line[1] for line in lines if line is not None] or [0.0])
    return 1 / scale, 0.0


def _costs(rows: Sequence[Mapping[str, Any]], cost: Array, idle: float) -> Costs:
    """What each broker uses for its traffic, over the median of the others."""
    if len(rows) < 3:  # of two nobody knows which one is slow
        return {}
    used = np.array([max(row["mean"] - idle, row["mean"] / 2) for row in rows])
    each = used / (_traffic(rows) @ cost)
    order = np.argsort(each)
    # the middle of all but one: `each` in order, without its own place
    place = np.argsort(order)
    low, high = (len(each) - 2) // 2, (len(each) - 1) // 2
    middle = [(each[order[at + (place <= at)]]) for at in (low, high)]
    beside = each / ((middle[0] + middle[1]) / 2)
    return {row["broker"]: float(value) for row, value in zip(rows, beside, strict=True)}


def _usual(values: Sequence[float]) -> float:
    return sorted(values)[int(USUAL * (len(values) - 1))]


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Brokers that are slow for days."""
    return [
        Finding(
            importance=52,
            question=NAME,
            title=f"{row.broker} costs {row.slower:.1f} times its usual usage for the same traffic",
            text=f"So for {many(row.days, 'day')}, compared with the other brokers and with itself "
            f"before. It used {row.usage:.0%} on the mean: a "
            "shedder that learns this gives it less, and the capacity is lost in silence.",
            advice="Look at its machine: a throttled or shared CPU, another process, a failing "
            "disk, an older build. Else replace it.",
            hurt=OnBrokers([row.broker], "served by a slow machine that day"),
            numbers={"slower": row.slower, "days": row.days},
            where=row.broker,
            plot="usage",
            commands=command("loadmanager admin brokers report", row.broker),
            explains=[f"slow {row.broker}"],
        )
        for row in rows
        if row.slower >= SLOWER and row.days >= DAYS_MIN
    ]
