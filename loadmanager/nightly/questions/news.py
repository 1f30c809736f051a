"""What is new since yesterday, and since a week ago?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadmanager.engine.history.forecast import changed
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    Columns,
    Day,
    Finding,
    Row,
    command,
    listed,
    many,
    mib,
)

NAME = "news"
ABOUT = (
    "What is new? Traffic that at least doubled or halved, of what carried a hundredth of all "
    "traffic at least. Namespaces are compared by the hours that both days have, which must be "
    "three, topics and bundles by their means while they were recorded; before 0 it was not there, "
    "or not recorded."
)
COLUMNS: Columns = {
    "since": (
        TEXT,
        "what it is compared with: the day before, its last six hours, or the day a week before",
    ),
    "kind": (TEXT, "namespace, topic or bundle"),
    "name": (TEXT, "which one"),
    "throughput_before": (NUMBER, "bytes/s in and out then"),
    "throughput_now": (NUMBER, "bytes/s in and out now"),
    "factor": (NUMBER, "now over then; empty: it is new"),
}
FACTOR, SHARE_MIN = 2.0, 0.01
ROWS_MAX = 1_000
HOURS_MIN = 3
"""Of a day that has just begun, an hour is there in part."""
YESTERDAY = "the day before"
SPANS = {YESTERDAY: 1, "a week before": 7}
LATE, LATE_HOURS = "the day before, of the last six hours", 6
"""What doubled in the afternoon has not doubled over the day, nor by the next one."""
TABLES = {"topic": "hot_topics", "bundle": "hot_bundles"}


def table(day: Day) -> list[Row]:
    """A row for each change, those since the day before first."""
    rows: list[Row] = []
    for since, days in SPANS.items():
        rows += _changes(since, "namespace", *_namespaces(day, days))
        if days == 1:
            names = {row["name"] for row in rows}
            late = _changes(LATE, "namespace", *_namespaces(day, days, LATE_HOURS))
            rows += [row for row in late if row["name"] not in names]
        for kind, name in TABLES.items():
            columns = [kind, "throughput_mean"]
            before = {
                row[kind]: row["throughput_mean"]
                for row in day.past(name, days=days, columns=columns, only=True)
            }
            now = {row[kind]: row["throughput_mean"] for row in day.answer(name)}
            rows += _changes(since, kind, before, now)
    return rows


def _namespaces(day: Day, days: int, last: int = 24) -> tuple[dict[str, float], dict[str, float]]:
    """Namespace → mean bytes/s then and now, of the `last` hours that both days have."""
    back = days * 24
    then = [row for row in day.past("hourly", days=days, only=True) if row["kind"] == "namespace"]
    now = [row for row in day.answer("hourly") if row["kind"] == "namespace"]
    hours = {row["hour_ts"] // HOUR_MS + back for row in then}
    hours &= {row["hour_ts"] // HOUR_MS for row in now}
    hours = set(sorted(hours)[-last:])
    sums_of: tuple[dict[str, float], dict[str, float]] = {}, {}
    if len(hours) < HOURS_MIN:
        return sums_of
    for rows, shift, sums in ((then, back, sums_of[0]), (now, 0, sums_of[1])):
        for row in rows:
            if row["hour_ts"] // HOUR_MS + shift in hours:
                sums[row["name"]] = sums.get(row["name"], 0.0) + row["value"] / len(hours)
    return sums_of


def _changes(since: str, kind: str, before: dict[str, float], now: dict[str, float]) -> list[Row]:
    if not before:
        return []
    return [
        {
            "since": since,
            "kind": kind,
            "name": name,
            "throughput_before": was,
            "throughput_now": is_,
            "factor": is_ / was if was > 0 else None,
        }
        for name, was, is_ in changed(before, now, factor=FACTOR, share_min=SHARE_MIN)
    ][:ROWS_MAX]


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Namespaces that changed since the day before, on one card."""
    namespaces = [row for row in rows if row.kind == "namespace" and row.since in (YESTERDAY, LATE)]
    if not namespaces:
        return []
    changes = [
        f"{row.name} ({mib(row.throughput_before)} → {mib(row.throughput_now)}"
        f"{', in the last six hours' if row.since == LATE else ''})"
        for row in namespaces
    ]
    return [
        Finding(
            importance=30,
            question=NAME,
            title=f"{many(len(namespaces), 'namespace')} doubled, halved, came or went since the "
            "day before",
            text=f"{listed(changes, 5)}, at the same hours.",
            advice="Ask whose traffic that is.",
            numbers={"changes": len(namespaces)},
            where=namespaces[0].name,
            plot="bundles",
            commands=command("loadmanager admin topics list", namespaces[0].name),
        )
    ]
