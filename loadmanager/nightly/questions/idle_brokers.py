"""Which brokers had nothing to do, and how long did a new one wait for load?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    WHOLE,
    YES_NO,
    Columns,
    Day,
    Finding,
    Row,
    clock,
    command,
    hours,
    lasting,
)
from loadmanager.nightly.facts import BUCKET_MS
from loadmanager.nightly.hurt import NOBODY
from loadmanager.nightly.trusted import by_broker

NAME = "idle_brokers"
ABOUT = (
    "Which brokers had nothing to do? A broker is idle without bundles or without messages, and "
    "new if it appears after the others."
)
COLUMNS: Columns = {
    "broker": (TEXT, "the broker"),
    "first_ts": (WHOLE, "its first record of the day"),
    "last_ts": (WHOLE, "its last record of the day"),
    "first_load_ts": (WHOLE, "its first record with bundles and messages"),
    "idle_hours": (NUMBER, "hours without bundles or without messages"),
    "hours": (NUMBER, "hours that its records stand for"),
    "new": (YES_NO, "whether it appeared more than five minutes after the first broker"),
    "waited_minutes": (NUMBER, "from its first record to its first load"),
}
HOURS_MIN = 1.0
"""Brokers with fewer recorded hours are not judged."""


def table(day: Day) -> list[Row]:
    brokers = by_broker(day.facts.brokers)
    first = min((steps[0]["first_ts"] for steps in brokers.values()), default=0)
    rows = [_row(broker, steps, first) for broker, steps in brokers.items()]
    return sorted(rows, key=lambda row: (-row["idle_hours"], row["broker"]))


def _row(broker: str, steps: Sequence[Row], first: int) -> Row:
    begun, ended = steps[0]["first_ts"], steps[-1]["last_ts"]
    busy = next((step["busy_ts"] for step in steps if step["busy_ts"] is not None), None)
    return {
        "broker": broker,
        "first_ts": begun,
        "last_ts": ended,
        "first_load_ts": busy,
        "idle_hours": hours(sum(step["idle_ms"] for step in steps)),
        "hours": hours(sum(step["interval_ms"] for step in steps)),
        "new": begun - first > BUCKET_MS,
        "waited_minutes": ((ended if busy is None else busy) - begun) / 60_000,
    }


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """New brokers that waited, and brokers that were idle most of the day, unless drained."""
    findings = []
    for row in rows:
        if row.new and row.waited_minutes > 10:
            until = (
                f"got load at {clock(row.first_load_ts)}"
                if row.first_load_ts
                else "never got any that day"
            )
            findings.append(
                Finding(
                    importance=42,
                    question=NAME,
                    title=f"{row.broker} was new and waited {row.waited_minutes:.0f} "
                    "minutes for load",
                    text=f"It appeared at {clock(row.first_ts)} and {until}.",
                    advice="lowerBoundarySheddingEnabled=true makes ThresholdShedder fill idle "
                    "brokers; AvgShedder does by itself.",
                    hurt=f"{NOBODY}: capacity was there that others could have used",
                    numbers={"waitedMinutes": row.waited_minutes},
                    at_ms=row.first_ts,
                    until_ms=row.first_load_ts or row.last_ts,
                    where=row.broker,
                    plot="usage",
                    commands=command("loadmanager admin brokers report", row.broker),
                )
            )
        elif row.broker in day.drained:
            continue
        elif row.hours >= HOURS_MIN and row.idle_hours / row.hours > 0.5:
            findings.append(
                Finding(
                    importance=25,
                    question=NAME,
                    title=f"{row.broker} was idle for {lasting(row.idle_hours)} of "
                    f"{lasting(row.hours)}",
                    text="It had no bundles, or its bundles had no messages.",
                    advice="Run one broker less, or let the shedder fill it: "
                    "lowerBoundarySheddingEnabled=true.",
                    hurt=f"{NOBODY}: the broker is paid for and used by no one",
                    numbers={"idleHours": row.idle_hours, "hours": row.hours},
                    where=row.broker,
                    plot="usage",
                    commands=command("loadmanager admin brokers report", row.broker),
                )
            )
    return findings
