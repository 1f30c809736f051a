"""Which limits held clients back, and did they deliver what they promise?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.engine.findings import words
from loadmanager.engine.findings.throttling import INACCURATE, SUFFERING_SHARE
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    WHOLE,
    Columns,
    Day,
    Finding,
    Row,
    hours,
    lasting,
    listed,
    many,
    over,
)

NAME = "throttling"
ABOUT = (
    "Which limits held clients back? A limit held somebody for as long as the waits took that "
    "ended in an interval. Of those that wait when a sample is taken it is not known for how long: "
    "as long as these if most waits had ended, else for the whole interval. So short intervals "
    "make this more exact."
)
COLUMNS: Columns = {
    "limit": (TEXT, "the limit"),
    "level": (TEXT, "broker, topic, subscription or resource group"),
    "broker": (TEXT, "the broker, of a limit that each broker enforces alone"),
    "samples": (WHOLE, "records of it"),
    "configured_messages_per_s": (NUMBER, "configured messages/s, at last; negative: unlimited"),
    "configured_bytes_per_s": (NUMBER, "configured bytes/s, at last; negative: unlimited"),
    "delivered_messages_per_s": (NUMBER, "mean messages/s that it let through"),
    "delivered_bytes_per_s": (NUMBER, "mean bytes/s that it let through"),
    "delivered_over_configured": (
        NUMBER,
        "of the scarcer of messages and bytes, in intervals for most of which somebody was held",
    ),
    "hours_held": (NUMBER, "hours in which it held somebody"),
    "held_share": (NUMBER, "these, of the recorded time"),
    "times_held": (WHOLE, "how often somebody began to wait"),
    "waited_s": (NUMBER, "sum of the waits, in s"),
    "queue_length_max": (WHOLE, "most that waited at a sample"),
    "mostly_held_hours": (NUMBER, "hours of intervals for most of which somebody was held"),
    "held_first_ts": (WHOLE, "the first record in which it held somebody"),
    "held_last_ts": (WHOLE, "the last one"),
}
JUDGED_HOURS_MIN = 0.1
"""A limit that held for less is not called inaccurate: its first interval may be short."""


def table(day: Day) -> list[Row]:
    """A row for each limit; limits that each broker enforces alone (its own, a resource group's)
    have a row for each broker.
    """
    rows = [
        {
            **{name: row[name] for name in COLUMNS if name in row},
            "delivered_over_configured": over(row["let_through"] or 0.0, row["mostly_held_ms"] or 0)
            if row["let_through"] is not None
            else None,
            "hours_held": hours(row["held_ms"]),
            "held_share": over(row["held_ms"], row["interval_ms"]) or 0.0,
            "mostly_held_hours": hours(row["mostly_held_ms"] or 0),
        }
        for row in day.facts.limits
    ]
    return sorted(
        rows,
        key=lambda row: (-row["held_share"], -row["hours_held"], row["limit"], row["broker"] or ""),
    )


def name_of(row: Any) -> str:
    """A limit for a person."""
    return f"{row.limit} of {row.broker}" if row.broker else str(row.limit)


def _configured(row: Any) -> str:
    return words.configured(row.configured_messages_per_s, row.configured_bytes_per_s)


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Limits that hold a client most of the time, and limits whose delivered rate differs from the
    configured rate.
    """
    limits: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        limits.setdefault((row.level, row.limit), []).append(row)
    findings = []
    for of_limit in limits.values():
        suffering = [row for row in of_limit if row.held_share >= SUFFERING_SHARE]
        if suffering:
            findings.append(_suffering(suffering))
        wrong = [row for row in of_limit if _inaccurate(row)]
        if wrong:
            findings.append(_wrong(wrong))
    return findings


def _inaccurate(row: Any) -> bool:
    return (
        row.delivered_over_configured is not None
        and row.mostly_held_hours >= JUDGED_HOURS_MIN
        and abs(row.delivered_over_configured - 1) > INACCURATE
    )


def _named(rows: Sequence[Any]) -> str:
    if len(rows) == 1:
        return name_of(rows[0])
    return f"{rows[0].limit} of {len(rows)} brokers"


def _suffering(rows: Sequence[Any]) -> Finding:
    """One card for a limit, with the sum over the brokers that enforce it."""
    worst = rows[0]
    waited, hours = sum(row.waited_s for row in rows), max(row.hours_held for row in rows)
    waiting = sum(row.queue_length_max for row in rows)
    on = f" On {listed([row.broker for row in rows])}, the worst first." if len(rows) > 1 else ""
    return Finding(
        importance=60 + 19 * worst.held_share,
        question=NAME,
        title=words.held_back(_named(rows), worst.held_share, "the time"),
        text=f"The {worst.level} limit is {_configured(worst)}"
        f"{' on each' if len(rows) > 1 else ''}; clients wanted more for {lasting(hours)} "
        f"and waited {waited:,.0f} s in sum, up to {many(waiting, 'client')} at a time.{on}",
        advice=words.held_advice(worst.level),
        numbers={
            "heldShare": worst.held_share,
            "hoursHeld": hours,
            "waitedS": waited,
            "brokers": len(rows),
        },
        at_ms=worst.held_first_ts,
        until_ms=worst.held_last_ts,
        where=worst.limit,
        plot="limits",
        commands=["loadmanager admin limits list"],
    )


def _wrong(rows: Sequence[Any]) -> Finding:
    worst = max(rows, key=lambda row: abs(row.delivered_over_configured - 1))
    return Finding(
        importance=38,
        question=NAME,
        title=f"{_named(rows)} let {worst.delivered_over_configured:.0%} of what is "
        "configured through",
        text="While clients were held most of the time, they got "
        f"{worst.delivered_over_configured:.1%} of {_configured(worst)}.",
        advice="Frames larger than a second's limit, or a broker short of CPU, make a "
        "limit inaccurate: smaller batches help.",
        numbers={"error": worst.delivered_over_configured - 1},
        at_ms=worst.held_first_ts,
        until_ms=worst.held_last_ts,
        where=worst.limit,
        plot="limits",
        commands=["loadmanager admin limits list"],
    )
