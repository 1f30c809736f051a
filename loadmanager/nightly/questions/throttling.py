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
    clock,
    hours,
    lasting,
    listed,
    many,
    over,
)
from loadmanager.nightly.hurt import Hurt, OnBrokers

NAME = "throttling"
ABOUT = (
    "Which limits held clients back? A limit held somebody for as long as the waits took that "
    "ended in an interval. Of those that wait when a sample is taken it is not known for how long: "
    "as long as these if most waits had ended, else for the whole interval. So short intervals "
    "make this more exact. A broker records the limits that there are at the end of an interval: "
    "what a limit did in the one in which it was removed is left out, and one that was removed "
    "before its first record is not here at all."
)
COLUMNS: Columns = {
    "limit": (TEXT, "the limit"),
    "level": (TEXT, "broker, topic, subscription or resource group"),
    "broker": (TEXT, "the broker, of a limit that each broker enforces alone"),
    "samples": (WHOLE, "records of it"),
    "configured_messages_per_s": (NUMBER, "configured messages/s, at last; negative: unlimited"),
    "configured_bytes_per_s": (NUMBER, "configured bytes/s, at last; negative: unlimited"),
    "delivered_messages_per_s": (
        NUMBER,
        "mean messages/s that it let through while this was configured; empty: not recorded",
    ),
    "delivered_bytes_per_s": (NUMBER, "the same in bytes/s"),
    "delivered_over_configured": (
        NUMBER,
        (
            "of the scarcer of messages and bytes, in the middle one of the intervals for most of "
            "which somebody was held; empty: fewer than three"
        ),
    ),
    "hours_held": (NUMBER, "hours in which it held somebody"),
    "held_share": (NUMBER, "these, of the recorded time"),
    "times_held": (WHOLE, "how often somebody began to wait"),
    "waited_s": (NUMBER, "sum of the waits, in s"),
    "wanted_more_s": (
        NUMBER,
        (
            "these, of intervals in which clients wanted more than the limit on the whole: for "
            "most of which somebody was held, or in which 90 % of what is configured was "
            "delivered, or a wait took 0.1 s on the mean; others held bursts only"
        ),
    ),
    "queue_length_max": (WHOLE, "most that waited at a sample"),
    "mostly_held_hours": (NUMBER, "hours of intervals for most of which somebody was held"),
    "held_first_ts": (
        WHOLE,
        "the first record in which it held somebody; of one that was new in it, when it was set",
    ),
    "held_last_ts": (WHOLE, "the last one"),
}
JUDGED_HOURS_MIN, JUDGED_MIN = 0.1, 3
"""A limit that held for less, or in fewer intervals, is not called inaccurate."""
CLIENT_HOURS_MIN = 1.0
"""A limit is told for which clients waited for so long in sum, however long the day is, and however
short each wait. Bursts that it holds for a moment do not count.
"""


def table(day: Day) -> list[Row]:
    """A row for each limit; limits that each broker enforces alone (its own, a resource group's)
    have a row for each broker.
    """
    rows = [
        {
            **{name: row[name] for name in COLUMNS if name in row},
            "delivered_over_configured": row["let_through"]
            if row["mostly_held"] >= JUDGED_MIN
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
    """Limits that held clients for long, those for which clients waited longest first, and limits
    whose delivered rate differs from the configured rate.
    """
    limits: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        limits.setdefault((row.level, row.limit), []).append(row)
    findings = []
    for of_limit in limits.values():
        if suffering := _suffering_rows(of_limit):
            findings.append(_suffering(suffering))
        wrong = [row for row in of_limit if _inaccurate(row)]
        if wrong:
            findings.append(_wrong(wrong))
    return findings


def _suffering_rows(of_limit: Sequence[Any]) -> list[Any]:
    """The rows of a limit that hold somebody most of the time; or all that hold anybody, where
    their clients, who wanted more, waited for long together.
    """
    if sum(row.wanted_more_s or 0.0 for row in of_limit) / 3600 >= CLIENT_HOURS_MIN:
        return [row for row in of_limit if row.held_share > 0]
    return [row for row in of_limit if row.held_share >= SUFFERING_SHARE]


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
    waited_h = sum(row.waited_s or 0.0 for row in rows) / 3600
    spent = max(row.hours_held for row in rows)
    waiting = sum(row.queue_length_max or 0 for row in rows)
    on = f" On {listed([row.broker for row in rows])}, the worst first." if len(rows) > 1 else ""
    times = sum(row.times_held or 0 for row in rows)
    each = f", {_wait(3600 * waited_h / times)} each" if times else ""
    title = words.held_back(_named(rows), worst.held_share, "the time")
    if worst.held_share < SUFFERING_SHARE:
        title = f"{_named(rows)} held clients back for {_client_time(waited_h)}"
    most = worst.held_share if worst.held_share >= SUFFERING_SHARE else 0.0
    first, last = (
        min((row.held_first_ts for row in rows if row.held_first_ts is not None), default=None),
        max((row.held_last_ts for row in rows if row.held_last_ts is not None), default=None),
    )
    at_once = f", up to {many(waiting, 'client')} at a time" if waiting else ""
    when = "" if first is None or last is None else _when(clock(first), clock(last))
    return Finding(
        importance=60 + 19 * max(most, waited_h / (waited_h + 8)),
        question=NAME,
        title=title,
        text=f"The {worst.level} limit is {_configured(worst)}"
        f"{' on each' if len(rows) > 1 else ''}; clients wanted more for {lasting(spent)} "
        f"and waited {_client_time(waited_h)} in sum{each}{at_once}{when}.{on}",
        advice=words.held_advice(worst.level),
        hurt=_whom_it_holds(rows, f"they waited {_client_time(waited_h)} in sum"),
        numbers={
            "heldShare": worst.held_share,
            "hoursHeld": spent,
            "waitedS": 3600 * waited_h,
            "brokers": len(rows),
        },
        at_ms=first,
        until_ms=last,
        where=worst.limit,
        plot="limits",
        commands=["loadmanager admin limits list"],
    )


def _when(first: str, last: str) -> str:
    return f", at {first}" if first == last else f", from {first} to {last}"


def _whom_it_holds(rows: Sequence[Any], how: str) -> Hurt:
    """Those whom a limit holds: it says whose clients they are, but that of a broker holds all
    tenants there.
    """
    if rows[0].level == "broker":
        return OnBrokers([row.broker for row in rows if row.broker], how)
    return f"clients of {rows[0].limit}: {how}"


def _wait(value_s: float) -> str:
    return f"{value_s:,.1f} s" if value_s >= 1 else f"{1000 * value_s:,.0f} ms"


def _client_time(value_h: float) -> str:
    """Clients times hours, in the unit that shows it."""
    if value_h >= 1:
        return f"{value_h:,.1f} client-hours"
    value_s = 3600 * value_h
    return (
        f"{value_s / 60:.1f} client-minutes" if value_s >= 60 else f"{value_s:.1f} client-seconds"
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
        hurt=_whom_it_holds(
            rows,
            "they were held more than is configured"
            if worst.delivered_over_configured < 1
            else "nobody more than is configured; their neighbours had less protection",
        ),
        numbers={"error": worst.delivered_over_configured - 1},
        at_ms=worst.held_first_ts,
        until_ms=worst.held_last_ts,
        where=worst.limit,
        plot="limits",
        commands=["loadmanager admin limits list"],
    )
