"""The limits of a moment, and whom they held, as brokers recorded it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from loadmanager.cli.admin.archives import (
    OLD_MS,
    PartsOf,
    figures,
    incomplete,
    listed_at,
    loads_at,
    now_ms,
    parts_of,
)
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import say_down
from loadmanager.cli.admin.names_then import nothing_then
from loadmanager.cli.admin.past_owners import PastBundle, bundles_at, in_bundle
from loadmanager.cli.admin.times import clock, span
from loadmanager.cli.terminal import table
from loadmanager.engine.history.archived import limit_words
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.history.archive_answers import ArchivedLoads, ArchivedSums
from loadmanager.kit.names import TopicName
from loadmanager.kit.units import MINUTE_MS

WAITED = (
    "waited: the sum over all who waited for a limit, of waits that ended in this time; minutes: "
    "those in which one began or ended"
)
WHO_WAITED = "who waited: the same with --clients"
_TOPIC = re.compile(r"(non-)?persistent://\S+")


def limits_at(
    admin: AdminClient, broker: str | None, at_ms: int, of: TopicName | None = None
) -> Output:
    """What limits held then: of a broker, of a topic or of all."""
    past = loads_at(admin, at_ms, "throttle")
    say_down(admin, at_ms, past)
    bundles, _ = bundles_at(admin, at_ms)
    data: list[dict[str, Any]] = [
        {"broker": loads.broker, "limit": name, "at": loads.ts, **figures(loads, name)}
        for loads in fresh(past.loads, at_ms)
        if broker in (None, loads.broker)
        for name in sorted(loads.figures)
        if in_force(name, loads.broker, bundles) and (of is None or _limits_topic(name, of))
    ]
    if broker is not None and not any(it.broker == broker for it in past.loads):
        past.notes.append(nothing_then(admin, broker, at_ms))
    headers = ("broker", "limit", "msg/s", "delivered", "bytes/s", "delivered", "held", "waited s")
    names = (
        "configured_messages_per_s",
        "delivered_messages_per_s",
        "configured_bytes_per_s",
        "delivered_bytes_per_s",
    )
    rows = [
        (
            row["broker"],
            limit_words(row["limit"]),
            *(None if row[name] == -1 else row[name] for name in names),
            round(row["held"]),
            row["waited_ms"] / 1000,
        )
        for row in data
    ]
    whose = "limit" if of is None else "limit of its own"
    nothing = f"no {whose} was in use then, as far as it is recorded"
    return listed_at(data, headers, rows, past, nothing)


def waits_between(
    admin: AdminClient, broker: str | None, since_ms: int, until_ms: int | None
) -> Output:
    """For how long limits had somebody wait in a time, those with most of it first."""
    end_ms = now_ms() if until_ms is None else until_ms
    if since_ms >= end_ms:
        raise BadInputError(f"--since {clock(since_ms)} is not before {clock(end_ms)}")
    values = [("since", since_ms), ("until", end_ms)]
    answer = parts_of(admin, "waits", values, ArchivedSums)
    answer.asked = (since_ms, end_ms)
    data: list[dict[str, Any]] = [
        {
            "limit": row.name,
            "broker": name,
            **dict(zip(part.columns, row.sums, strict=True)),
            "lasted_ms": row.lasted_ms,
        }
        for name, part in sorted(answer.parts.items())
        for row in part.rows
        if broker in (None, name)
    ]
    data.sort(key=lambda row: (-row["waited_ms"], row["limit"], row["broker"]))
    headers = ("limit", "broker", "waits", "waited s", "in minutes")
    rows = [
        (
            limit_words(row["limit"]),
            row["broker"],
            round(row["held"]),
            round(row["waited_ms"] / 1000, 1),
            round(row["lasted_ms"] / MINUTE_MS, 1),
        )
        for row in data
    ]
    nothing = "no limit had anybody wait then, as far as it is recorded"
    shown = [table(headers, rows) if rows else nothing]
    when = f"from {clock(since_ms)} to {clock(end_ms)}"
    total_s = sum(row["waited_ms"] for row in data) / 1000
    lines = [f"{when} ({span(end_ms - since_ms)}): {total_s:,.0f} s in all; {WAITED}", WHO_WAITED]
    return Output(
        data,
        (*shown, *([lines] if rows else []), *incomplete([*answer.notes(), *_averaged(answer)])),
        missing=answer.missing,
    )


def _averaged(answer: PartsOf[ArchivedSums]) -> Iterator[str]:
    """What is no more than averages, so that nobody knows the sum."""
    for name, part in sorted(answer.parts.items()):
        if part.averages_until is not None:
            yield f"of {name}, what was before {clock(part.averages_until)} is kept as averages"
        if part.cut_off:
            yield f"{name} had more limits: those with least waiting are left out"


def fresh(loads: Sequence[ArchivedLoads], at_ms: int) -> list[ArchivedLoads]:
    """Those that had not ended long before a moment: a limit is recorded while it is in use."""
    return [it for it in loads if at_ms - it.ts <= max(it.span_ms, OLD_MS)]


def in_force(limit: str, broker: str, bundles: Sequence[PastBundle]) -> bool:
    """False for the limit of a topic whose bundle another broker owned then, or nobody: averages
    have it of all that owned it within their time.
    """
    topic = _TOPIC.search(limit)
    if topic is None:
        return True
    name = TopicName.parse(topic[0])
    there = [it.owner for it in bundles if in_bundle(name, it.bundle)]
    owners = set(filter(None, there))  # others were split or merged about then
    return broker in owners if owners else not there


def _limits_topic(limit: str, topic: TopicName) -> bool:
    """Whether it is a limit of this topic, or of a partition of it."""
    name = _TOPIC.search(limit)
    return name is not None and TopicName.parse(name[0]).partitioned_topic == topic
