"""Which sensors could not be trusted?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

from loadmanager.engine.findings import words
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
from loadmanager.nightly.hurt import NOBODY, OnBrokers
from loadmanager.nightly.schema import RESOURCES
from loadmanager.nightly.trusted import by_broker, stuck, trusted

NAME = "sensors"
SAID = "not trusted by the broker"
ABOUT = (
    "Which sensors could not be trusted? Those that brokers reported, those that showed more than "
    "one and a half times what there is, and CPUs and NICs that showed one value, to the last "
    "digit, for an hour or more: CPUs only below their limit, NICs only while the broker's traffic "
    "changed."
)
COLUMNS: Columns = {
    "broker": (TEXT, "the broker"),
    "sensor": (TEXT, "the sensor"),
    "fault": (TEXT, "what is wrong"),
    "samples": (WHOLE, "records with this fault; of one value: all in between"),
    "hours": (NUMBER, "hours that these stand for"),
    "first_ts": (WHOLE, "the beginning of the first five minutes with it"),
    "last_ts": (WHOLE, "the end of the last ones"),
    "poisoned": (YES_NO, "whether the broker's usage came from it: then this report leaves it out"),
}


def table(day: Day) -> list[Row]:
    """A row for each broker, sensor and fault."""
    rows = []
    lied = {(step["broker"], step["bucket"]) for step in trusted(day) if step["lied"]}
    brokers = by_broker(day.facts.brokers)
    for broker, steps in brokers.items():
        rows += _own_faults(broker, steps, {bucket for name, bucket in lied if name == broker})
    stretches: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for broker, sensor, begun, ended in stuck(day):
        stretches.setdefault((broker, sensor), []).append((begun, ended))
    for (broker, sensor), times in stretches.items():
        begun, ended = times[0][0], times[-1][1]
        within = [
            step
            for step in brokers[broker]
            if any(low <= step["first_ts"] and step["last_ts"] <= high for low, high in times)
        ]
        poisoned = any((broker, step["bucket"]) in lied for step in within)
        samples = sum(step["samples"] for step in within)
        spent = hours(sum(step["interval_ms"] for step in within))
        row = _row(broker, sensor, words.STUCK, samples, spent, times=(begun, ended))
        rows.append(row | {"poisoned": poisoned})
    return sorted(rows, key=lambda row: (-row["hours"], row["broker"], row["sensor"], row["fault"]))


def _own_faults(broker: str, steps: Sequence[Row], lied: Set[int]) -> list[Row]:
    """Faults that samples tell of themselves; `lied`: the five minutes whose usage is left out."""
    samples: Counter[tuple[str, str]] = Counter()
    spent: Counter[tuple[str, str]] = Counter()
    times: dict[tuple[str, str], tuple[int, int]] = {}
    poisoned: set[tuple[str, str]] = set()
    for step in steps:
        faults: Counter[str] = Counter(step["faults"])
        counts = Counter({(name, SAID): count for name, count in faults.items()})
        counts.update({(name, words.IMPOSSIBLE): step[f"{name}_impossible"] for name in RESOURCES})
        for key, count in counts.items():
            if count:
                samples[key] += count
                spent[key] += count * step["interval_ms"] / step["samples"]
                begun, _ = times.get(key, (step["first_ts"], 0))
                times[key] = begun, step["last_ts"]
                if key[1] == words.IMPOSSIBLE and step["bucket"] in lied:
                    poisoned.add(key)
    return [
        _row(broker, *key, count, hours(spent[key]), times=times[key])
        | {"poisoned": key in poisoned}
        for key, count in samples.items()
    ]


def _row(
    broker: str, sensor: str, fault: str, samples: int, spent: float, *, times: tuple[int, int]
) -> Row:
    return {
        "broker": broker,
        "sensor": sensor,
        "fault": fault,
        "samples": samples,
        "hours": spent,
        "first_ts": times[0],
        "last_ts": times[1],
        "poisoned": False,
    }


def findings(rows: Sequence[Any], _day: Day) -> list[Finding]:
    """Every fault of more than an hour."""
    return [
        Finding(
            importance=20 if row.fault == SAID else 55 if row.poisoned else 40,
            question=NAME,
            title=f"{words.sensor(row.sensor, row.broker, row.fault)}, for {lasting(row.hours)}",
            text="It drove no decision meanwhile."
            if row.fault == SAID
            else f"From {clock(row.first_ts)} to {clock(row.last_ts)}. "
            + (
                "The broker's usage came from it, so decisions went by it; this report leaves "
                "that usage out."
                if row.poisoned
                else words.WRONG_SENSOR
            ),
            advice=words.sensor_advice(row.sensor),
            hurt=OnBrokers(
                [row.broker], "they were moved or left by a wrong usage", row.first_ts, row.last_ts
            )
            if row.poisoned and row.fault != SAID
            else f"{NOBODY}: no usage came from it",
            numbers={"hours": row.hours, "samples": row.samples},
            at_ms=row.first_ts,
            until_ms=row.last_ts,
            where=row.broker,
            plot="usage",
            commands=command("loadmanager admin brokers report", row.broker),
            explains=[f"sensor {row.broker}"],
        )
        for row in rows
        if row.hours >= 1
    ]
