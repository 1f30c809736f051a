"""Loads by the hour, for questions over several days."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, Columns, Day, Finding, Row
from loadmanager.nightly.trusted import filled, trusted

NAME = "hourly"
ABOUT = (
    "Loads by the hour, which later days are compared with. Of brokers and the cluster: usage, "
    "where the cluster's is the sum of its brokers'; a sample stands for the whole interval before "
    "it. Of namespaces: bytes/s in and out."
)
COLUMNS: Columns = {
    "kind": (TEXT, "broker, namespace or cluster"),
    "name": (TEXT, "which one"),
    "hour_ts": (WHOLE, "when the hour began"),
    "value": (NUMBER, "mean of the hour"),
    "peak": (NUMBER, "highest five minutes of the hour; of a namespace: the mean"),
    "rate": (NUMBER, "of a namespace: messages/s in and out, mean of the hour"),
}


def table(day: Day) -> list[Row]:
    """A row for each of them and hour."""
    brokers: dict[tuple[str, int], list[float]] = {}
    buckets: dict[int, list[float]] = {}
    for step in filled(trusted(day)):
        hour = step["bucket"] // HOUR_MS * HOUR_MS
        brokers.setdefault((step["broker"], hour), []).append(step["usage"])
        buckets.setdefault(step["bucket"], []).append(step["usage"])
    sums: dict[int, list[float]] = {}
    for bucket, usages in buckets.items():
        sums.setdefault(bucket // HOUR_MS * HOUR_MS, []).append(sum(usages))
    rows = [_row("broker", name, hour, values) for (name, hour), values in brokers.items()]
    rows += [_row("cluster", day.cluster, hour, values) for hour, values in sums.items()]
    rows += [
        _row("namespace", row["namespace"], row["hour"], [row["bytes"] / 3600])
        | {"rate": row["messages"] / 3600}
        for row in day.facts.namespaces_by_hour
    ]
    return sorted(rows, key=lambda row: (row["kind"], row["name"], row["hour_ts"]))


def _row(kind: str, name: str, hour: int, values: Sequence[float]) -> Row:
    return {
        "kind": kind,
        "name": name,
        "hour_ts": hour,
        "value": fmean(values),
        "peak": max(values),
    }


def findings(_rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Empty: the loads by themselves are no finding."""
    return []
