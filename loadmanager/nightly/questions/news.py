"""What is new since yesterday, and since a week ago?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from loadmanager.engine.history.forecast import changed
from loadmanager.kit.units import HOUR_MS
from loadmanager.nightly.day import (
    NUMBER,
    TEXT,
    YES_NO,
    Columns,
    Day,
    Finding,
    Row,
    clock,
    command,
    listed,
    many,
    mib,
    namespace_of,
    over,
    size,
)
from loadmanager.nightly.hurt import NOBODY, OnBrokers

NAME = "news"
ABOUT = (
    "What is new? Traffic that at least doubled or halved, of what carried a hundredth of all "
    "traffic at least, and namespaces whose messages became half as large again. Namespaces are "
    "compared by the hours that both days have, which must be three, topics and bundles by their "
    "means while they were recorded; before 0 it was not there, or not recorded. What a namespace "
    "had a week before at the same hours is usual, such as a weekend's rest."
)
COLUMNS: Columns = {
    "since": (
        TEXT,
        "the day before, its last six hours, its hours with a third at most, or a week before",
    ),
    "kind": (TEXT, "namespace, topic or bundle"),
    "name": (TEXT, "which one"),
    "throughput_before": (NUMBER, "bytes/s in and out then"),
    "throughput_now": (NUMBER, "bytes/s in and out now"),
    "factor": (NUMBER, "now over then; empty: it is new"),
    "rate_before": (NUMBER, "of a namespace: messages/s in and out then; empty: not known"),
    "rate_now": (NUMBER, "of a namespace: messages/s in and out now"),
    "usual": (
        YES_NO,
        "of a namespace: whether it was so a week before at the same hours; empty: not known",
    ),
}
FACTOR, SHARE_MIN = 2.0, 0.01
ROWS_MAX = 1_000
HOURS_MIN = 3
"""Of a day that has just begun, an hour is there in part."""
YESTERDAY = "the day before"
WEEK, WEEK_DAYS = "a week before", 7
LATE, LATE_HOURS = "the day before, of the last six hours", 6
"""What doubled in the afternoon has not doubled over the day, nor by the next one."""
BURST, BURST_HOURS, BURST_FACTOR = "the day before, of some hours", 2, 3.0
"""Nor has what was three times as much for some hours only."""
TABLES = {"topic": "hot_topics", "bundle": "hot_bundles"}
LARGER, SAME_RATE = 1.5, 1.25
"""Messages of another size by the first factor, at a rate that changed by less than the second."""
ALONE_SHARE, ALONE_MAX = 0.1, 3
"""A namespace that grew to this part of all traffic has a card of its own; so many of them have."""


class _Load(NamedTuple):
    """What a namespace carried."""

    throughput: float = 0.0
    rate: float = 0.0


Loads = Mapping[str, _Load]


def table(day: Day) -> list[Row]:
    """A row for each change, those since the day before first."""
    whole = _of_namespaces(YESTERDAY, day, 1)
    names = {row["name"] for row in whole}
    late = [row for row in _of_namespaces(LATE, day, 1, LATE_HOURS) if row["name"] not in names]
    rows = whole + late + _bursts(day)
    for since, days in ((YESTERDAY, 1), (WEEK, WEEK_DAYS)):
        if since == WEEK:
            rows += _of_namespaces(WEEK, day, WEEK_DAYS)
        for kind, name in TABLES.items():
            columns = [kind, "throughput_mean"]
            before = {
                row[kind]: row["throughput_mean"]
                for row in day.past(name, days=days, columns=columns, only=True)
            }
            now = {row[kind]: row["throughput_mean"] for row in day.answer(name)}
            rows += _changes(since, kind, before, now)
    return rows


def _of_namespaces(since: str, day: Day, days: int, last: int = 24) -> list[Row]:
    """Namespaces that changed since the day `days` before."""
    before, now = _namespaces(day, days, last)
    if not before:
        return []
    rows = _changes(since, "namespace", *(_throughputs(loads) for loads in (before, now)))
    if since == LATE or (since == WEEK and _rests(day) != _rests(day, 1)):
        # of a whole day, that began with the old ones, it would be a mean; and from a weekend on
        # only the week before says what rate is usual
        names = {row["name"] for row in rows}
        rows += [
            _change(since, "namespace", name, before[name].throughput, now[name].throughput)
            for name in sorted(before.keys() & now.keys() - names)
            if _other_size(before[name], now[name])
            and now[name].throughput >= SHARE_MIN * sum(_throughputs(now).values())
        ]
    week, today = (None, None) if days == WEEK_DAYS else _namespaces(day, WEEK_DAYS, last)
    for row in rows:
        name = row["name"]
        then, is_ = before.get(name, _Load()), now.get(name, _Load())
        row["rate_before"], row["rate_now"] = then.rate or None, is_.rate
        if week and today:
            changed_too = _throughputs(week).get(name, 0.0), _throughputs(today).get(name, 0.0)
            low, high = min(changed_too), max(changed_too)
            row["usual"] = high < FACTOR * low
    return rows


def _bursts(day: Day) -> list[Row]:
    """Namespaces that carried much more than the day before and the week before for some hours in a
    row, and then a tenth of all traffic: means of these hours.
    """
    now = _hours(day.answer("hourly"))
    before, week = (
        _hours(day.past("hourly", days=days, only=True), days) for days in (1, WEEK_DAYS)
    )
    hours = {hour for loads in before.values() for hour in loads}
    rows = []
    for name, loads in now.items():
        usual = {
            hour: max(before.get(name, {}).get(hour, 0.0), week.get(name, {}).get(hour, 0.0))
            for hour in hours
        }
        much = [hour for hour in loads if loads[hour] >= BURST_FACTOR * usual.get(hour, math.inf)]
        run = _longest_run(sorted(much))
        means = [
            sum(each.get(hour, 0.0) for hour in run) / max(len(run), 1)
            for each in (usual, loads, *now.values())
        ]
        if len(run) >= BURST_HOURS and means[0] > 0 and means[1] >= ALONE_SHARE * sum(means[2:]):
            row = _change(BURST, "namespace", name, means[0], means[1])
            rows.append({**row, "usual": False if week else None})
    return rows


def _hours(rows: Sequence[Row], days: int = 0) -> dict[str, dict[int, float]]:
    """Namespace → what it carried in each hour; those of a day `days` before count as today's."""
    carried: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["kind"] == "namespace":
            hour = row["hour_ts"] // HOUR_MS + 24 * days
            carried.setdefault(row["name"], {})[hour] = row["value"]
    return carried


def _longest_run(hours: Sequence[int]) -> list[int]:
    """The longest run of hours one after the other."""
    best: list[int] = []
    run: list[int] = []
    for hour in hours:
        run = [*run, hour] if run and hour == run[-1] + 1 else [hour]
        best = max(best, run, key=len)
    return best


def _throughputs(loads: Loads) -> dict[str, float]:
    return {name: load.throughput for name, load in loads.items()}


def _other_size(before: _Load, now: _Load) -> bool:
    """Whether as many messages as before are of another size."""
    if min(*before, *now) <= 0:
        return False
    rate = now.rate / before.rate
    size_ = now.throughput / before.throughput / rate
    return max(rate, 1 / rate) < SAME_RATE and max(size_, 1 / size_) >= LARGER


def _namespaces(day: Day, days: int, last: int = 24) -> tuple[Loads, Loads]:
    """Namespace → its mean load then and now, of the `last` hours that both days have."""
    back = days * 24
    then = [row for row in day.past("hourly", days=days, only=True) if row["kind"] == "namespace"]
    now = [row for row in day.answer("hourly") if row["kind"] == "namespace"]
    hours = {row["hour_ts"] // HOUR_MS + back for row in then}
    hours &= {row["hour_ts"] // HOUR_MS for row in now}
    hours = set(sorted(hours)[-last:])
    sums_of: tuple[dict[str, _Load], dict[str, _Load]] = {}, {}
    if len(hours) < HOURS_MIN:
        return sums_of
    for rows, shift, sums in ((then, back, sums_of[0]), (now, 0, sums_of[1])):
        for row in rows:
            if row["hour_ts"] // HOUR_MS + shift in hours:
                so_far = sums.get(row["name"], _Load())
                sums[row["name"]] = _Load(
                    so_far.throughput + row["value"] / len(hours),
                    so_far.rate + (row.get("rate") or 0.0) / len(hours),
                )
    return sums_of


def _changes(since: str, kind: str, before: dict[str, float], now: dict[str, float]) -> list[Row]:
    if not before:
        return []
    return [
        _change(since, kind, name, was, is_)
        for name, was, is_ in changed(before, now, factor=FACTOR, share_min=SHARE_MIN)
    ][:ROWS_MAX]


def _change(since: str, kind: str, name: str, was: float, is_: float) -> Row:
    return {
        "since": since,
        "kind": kind,
        "name": name,
        "throughput_before": was,
        "throughput_now": is_,
        "factor": is_ / was if was > 0 else None,
        "rate_before": None,
        "rate_now": None,
        "usual": None,
    }


def findings(rows: Sequence[Any], day: Day) -> list[Finding]:
    """Namespaces that changed since the day before, if that is not usual of this day of the week:
    a card for those whose messages are larger, one for each that grew to much of all traffic, and
    one for all others. None from a workday to a weekend or back where no week before tells what is
    usual.
    """
    of_namespaces = [row for row in rows if row.kind == "namespace"]
    namespaces = [row for row in of_namespaces if row.since in (YESTERDAY, LATE, BURST)]
    sizes = [row for row in namespaces if _other_size(*_loads(row))]
    if not sizes and _rests(day) != _rests(day, 1):
        sizes = [row for row in of_namespaces if row.since == WEEK and _new_size(row, day)]
    other_size = {row.name for row in sizes}
    changes = [
        row
        for row in namespaces
        if row.name not in other_size
        and _factor(row)
        and not (row.usual or (row.usual is None and _rests(day) != _rests(day, 1)))
    ]
    everything = (
        sum(row["value"] for row in day.answer("hourly") if row["kind"] == "namespace") / 24
    )
    grew: dict[str, Any] = {
        row.name: row
        for row in reversed(changes)
        if row.throughput_now > row.throughput_before
        and row.throughput_now >= ALONE_SHARE * everything
    }
    alone = [row for row in changes if row.name in grew and grew[row.name] is row][:ALONE_MAX]
    own_cards = {row.name for row in alone}
    others = [row for row in changes if row.name not in own_cards and row.since != BURST]
    cards = [_grew(row, day) for row in alone]
    return cards + ([_larger(sizes)] if sizes else []) + ([_several(others)] if others else [])


def _rests(day: Day, days_before: int = 0) -> bool:
    """Whether it is a Saturday or a Sunday."""
    return date.fromisoformat(day.date).weekday() - days_before in (-1, 5, 6)


def _loads(row: Any) -> tuple[_Load, _Load]:
    return (
        _Load(row.throughput_before, row.rate_before or 0.0),
        _Load(row.throughput_now, row.rate_now or 0.0),
    )


def _new_size(row: Any, day: Day) -> bool:
    """Whether the messages are of another size than a week before, at the same rate, and than the
    day before.
    """
    before, now = (loads.get(row.name, _Load()) for loads in _namespaces(day, 1, LATE_HOURS))
    if not _other_size(*_loads(row)) or min(*before, *now) <= 0:
        return False
    size_ = now.throughput / now.rate * before.rate / before.throughput
    return max(size_, 1 / size_) >= LARGER


def _factor(row: Any) -> bool:
    return bool(row.factor is None or row.factor >= FACTOR or row.factor <= 1 / FACTOR)


def _traffic(row: Any) -> str:
    late = {LATE: ", in the last six hours", BURST: ", for some hours"}.get(row.since, "")
    return f"{mib(row.throughput_before)} → {mib(row.throughput_now)}{late}"


def _grew(row: Any, day: Day) -> Finding:
    """A card for a namespace that carries much, and much more than the day before."""
    begun_ms, until_ms = _much_more(row.name, day)
    too_busy = _overloaded(row.name, begun_ms, until_ms, day)
    much = (
        "is new" if row.factor is None else f"had {row.factor:.1f} times the day before's traffic"
    )
    since = "" if begun_ms is None else f", since {clock(begun_ms)}"
    if begun_ms is not None and until_ms is not None:
        since = f", from {clock(begun_ms)} to {clock(until_ms)}"
    rate = ""
    if row.rate_before:
        rate = f" It sent {row.rate_now / row.rate_before:.1f} times as many messages."
    bundles = [
        each["bundle"]
        for each in day.answers.get("hot_bundles", ())
        if namespace_of(each["bundle"]) == row.name
    ]
    return Finding(
        importance=36,
        question=NAME,
        title=f"{row.name} {much}",
        text=f"{_traffic(row)}, at the same hours{since}.{rate}",
        advice="Ask whose traffic that is. A limit keeps it from hurting its neighbours.",
        hurt=OnBrokers(
            too_busy, "they shared brokers with it that were too busy", begun_ms, until_ms
        )
        if too_busy
        else f"{NOBODY}: no broker with its bundles became too busy with it",
        numbers={"factor": row.factor, "throughput": row.throughput_now},
        at_ms=begun_ms,
        until_ms=until_ms,
        where=row.name,
        plot="bundles",
        commands=command("loadmanager admin topics list", row.name)
        + command("loadmanager admin limits set", row.name, " publishRate --messages 1000"),
        explains=[
            f"growth of {row.name}",
            *(f"bundle {bundle}" for bundle in bundles),
            *(f"overload {broker}" for broker in too_busy),
        ],
    )


def _overloaded(name: str, begun_ms: int | None, until_ms: int | None, day: Day) -> list[str]:
    """The brokers with bundles of a namespace that were first overloaded in a time."""
    brokers = {
        row["broker"]
        for row in day.answers.get("broker_usage", ())
        if begun_ms is not None
        and row["over_from_ts"] is not None
        and begun_ms <= row["over_from_ts"] < (until_ms or day.until_ms)
    }
    owners = day.facts.bundles.to_pylist() if brokers else []
    return sorted(
        brokers & {row["broker"] for row in owners if namespace_of(row["bundle"]) == name}
    )


def _much_more(name: str, day: Day) -> tuple[int | None, int | None]:
    """When a namespace had twice what it had a day before, hour after hour, for the last time; the
    end is None if that lasts.
    """
    before = {
        row["hour_ts"] // HOUR_MS + 24: row["value"]
        for row in day.past("hourly", days=1, only=True)
        if (row["kind"], row["name"]) == ("namespace", name)
    }
    begun_ms: int | None = None
    until_ms: int | None = None
    for row in day.answer("hourly"):
        if (row["kind"], row["name"]) == ("namespace", name):
            was = before.get(row["hour_ts"] // HOUR_MS, 0.0)
            if row["value"] < FACTOR * was:
                until_ms = row["hour_ts"] if until_ms is None else until_ms
            elif begun_ms is None or until_ms is not None:
                begun_ms, until_ms = row["hour_ts"], None
    return begun_ms, until_ms if begun_ms is not None else None


def _larger(rows: Sequence[Any]) -> Finding:
    """A card for namespaces whose messages are of another size, at the same rate."""
    texts, worst, since = [], rows[0], WEEK if rows[0].since == WEEK else YESTERDAY
    for row in rows:
        before, now = ((each.throughput / each.rate) for each in _loads(row))
        texts.append(f"{row.name}: {size(before)} → {size(now)} a message ({_traffic(row)})")
    before, now = ((each.throughput / each.rate) for each in _loads(worst))
    way = (
        f"{now / before:.1f} times larger" if now > before else f"{before / now:.1f} times smaller"
    )
    return Finding(
        importance=31,
        question=NAME,
        title=f"Messages of {listed([row.name for row in rows])} are {way} than {since}",
        text=f"{listed(texts, 5)}. The rate of messages is as it was then.",
        advice="Ask who deployed a producer: compression or another format of its messages would "
        "change this.",
        hurt=f"{NOBODY} by itself: the same messages take more or less of the brokers",
        numbers={"namespaces": len(rows), "factor": over(now, before)},
        where=worst.name,
        plot="bundles",
        commands=command("loadmanager admin topics list", worst.name),
        explains=[f"growth of {row.name}" for row in rows],
    )


def _several(rows: Sequence[Any]) -> Finding:
    changes = [f"{row.name} ({_traffic(row)})" for row in rows]
    return Finding(
        importance=30,
        question=NAME,
        title=f"{many(len(rows), 'namespace')} doubled, halved, came or went since the day before",
        text=f"{listed(changes, 5)}, at the same hours.",
        advice="Ask whose traffic that is.",
        hurt=f"{NOBODY} by itself, and whoever missed what no longer comes",
        numbers={"changes": len(rows)},
        where=rows[0].name,
        plot="bundles",
        commands=command("loadmanager admin topics list", rows[0].name),
    )
