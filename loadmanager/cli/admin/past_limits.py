"""The limits of a moment, and whom they held, as brokers recorded it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from loadmanager.cli.admin.archives import (
    PartsOf,
    events_of,
    fields_of_change,
    incomplete,
    listed_at,
    loads_at,
    now_ms,
    parts_of,
)
from loadmanager.cli.admin.asking import namespace_path
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import Stood, say_down
from loadmanager.cli.admin.names_then import nothing_then
from loadmanager.cli.admin.past_documents import document_then
from loadmanager.cli.admin.past_owners import bundles_at
from loadmanager.cli.admin.shapes import Document
from loadmanager.cli.admin.times import clock, span
from loadmanager.cli.admin.where_set import FIELDS, limits_path, rate_text
from loadmanager.cli.terminal import table
from loadmanager.engine.history.archived import limit_words
from loadmanager.engine.history.records import AuditedChange, Throttle
from loadmanager.engine.load.wishes import LIMIT_NAMES
from loadmanager.kit.errors import BadInputError, LoadManagerError
from loadmanager.kit.history.archive_answers import ArchivedLoads, ArchivedSums
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.units import MINUTE_MS
from loadmanager.leader.owners_then import TOPIC, figures, in_force

WAITED = (
    "waited: the sum over all who waited for a limit, of waits that ended in this time; minutes: "
    "those in which one began or ended"
)
MEASURED = ("delivered_messages_per_s", "delivered_bytes_per_s", "held", "waited_ms")
NO_FIGURES = "what limits delivered and held in a record over that time is not known"
AT_MOST = "waits of that time are among those for limits, which were at most so long"
WHO_WAITED = "who waited: the same with --clients"
CHANGES_MAX = 200
"""Changes that are looked through for limits that were removed shortly before a moment."""
PUBLISH = " publish"


def limits_at(
    admin: AdminClient, broker: str | None, at_ms: int, of: TopicName | None = None
) -> Output:
    """What limits held then: of a broker, of a topic or of all."""
    past = loads_at(admin, at_ms, "throttle")
    say_down(admin, at_ms, past)
    bundles, _ = bundles_at(admin, at_ms)
    loads = past.loads
    begin_ms = min((it.ts - it.span_ms for it in loads), default=at_ms)
    stood = Stood.between(admin, begin_ms, max((it.ts for it in loads), default=at_ms))
    still = {it.broker for it in loads if stood.within(it.broker, it.ts - it.span_ms, it.ts)}
    data: list[dict[str, Any]] = [
        {
            "broker": it.broker,
            "limit": name,
            "at": it.ts,
            **figures(it, name),
            **(dict.fromkeys(MEASURED) if it.broker in still | past.unknown.keys() else {}),
        }
        for it in loads
        if broker in (None, it.broker)
        for name in sorted(it.figures)
        if in_force(name, it.broker, bundles) and (of is None or _limits_topic(name, of))
    ]
    end_ms = max((it.ts for it in loads), default=at_ms)
    past.notes += stood.lines((row["broker"] for row in data), begin_ms, end_ms, NO_FIGURES)
    later = set_later(admin, loads, at_ms)
    not_yet = {(it.broker, it.limit) for it in later}
    there = {(row["broker"], row["limit"]) for row in data}
    past.notes += later_lines([it for it in later if (it.broker, it.limit) in there])
    data = [row for row in data if (row["broker"], row["limit"]) not in not_yet]
    removed = [it for it in removals(admin, loads, at_ms) if (it.broker, it.limit) in there]
    past.notes += removed_lines(removed)
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
            None if row["held"] is None else round(row["held"]),
            None if row["waited_ms"] is None else row["waited_ms"] / 1000,
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
    stood = Stood.between(admin, since_ms, end_ms)
    still = {it for it in stood.times if stood.within(it, since_ms, end_ms)}
    rows = [
        (
            limit_words(row["limit"]),
            row["broker"],
            round(row["held"]),
            _at_most(row["waited_ms"], row["broker"] in still),
            round(row["lasted_ms"] / MINUTE_MS, 1),
        )
        for row in data
    ]
    nothing = "no limit had anybody wait then, as far as it is recorded"
    shown = [table(headers, rows) if rows else nothing]
    when = f"from {clock(since_ms)} to {clock(end_ms)}"
    total_s = sum(row["waited_ms"] for row in data) / 1000
    most = " at most" if any(row["broker"] in still for row in data) else ""
    when += f" ({span(end_ms - since_ms)})"
    lines = [f"{when}: {total_s:,.0f} s{most} in all; {WAITED}", WHO_WAITED]
    lines += stood.lines((row["broker"] for row in data), since_ms, end_ms, AT_MOST)
    return Output(
        data,
        (*shown, *([lines] if rows else []), *incomplete([*answer.notes(), *_averaged(answer)])),
        missing=answer.missing,
    )


def _at_most(waited_ms: float, most: bool) -> float | str:
    waited_s = round(waited_ms / 1000, 1)
    return f"≤ {waited_s:,.1f}" if most else waited_s


def _averaged(answer: PartsOf[ArchivedSums]) -> Iterator[str]:
    """What is no more than averages, so that nobody knows the sum."""
    for name, part in sorted(answer.parts.items()):
        if part.averages_until is not None:
            yield f"of {name}, what was before {clock(part.averages_until)} is kept as averages"
        if part.cut_off:
            yield f"{name} had more limits: those with least waiting are left out"


def limits_set_then(admin: AdminClient, target: str, at_ms: int) -> Output:
    """The limits of a namespace or a topic itself, as they were stored at a moment."""
    present: Document | None
    if "://" in target or target.count("/") == 2:
        path = paths.topic_policies(TopicName.parse(target))
        rates = {name: admin.get_any(f"{limits_path(target)}/{name}", Document) for name in FIELDS}
        present = {name: rate for name, rate in rates.items() if rate}
    else:
        path = paths.policies(NamespaceName.parse(target))
        present = admin.get_any(namespace_path(target), Document)
    return document_then(admin, path, present or None, at_ms, partial(_limits_of_document, target))


def _limits_of_document(
    target: str, fields: Mapping[str, Any]
) -> tuple[dict[str, Document], list[str]]:
    """The limits in stored policies, as they are named; those of a namespace are by cluster."""
    rates = dict[str, Document]()
    for field, value in fields.items():
        name = LIMIT_NAMES.get(field, field)
        if name in FIELDS and isinstance(value, dict):
            by_cluster = [it for it in value.values() if isinstance(it, dict)]
            rates[name] = by_cluster[0] if by_cluster else value
    lines = [f"{name}  {rate_text(rate)}" for name, rate in sorted(rates.items())]
    return rates, lines or [f"{target} had no limits of its own"]


@dataclass(frozen=True, slots=True)
class Removal:
    """A limit that is in a record about a moment, and was not set then: it had been removed by
    then, or was set later.
    """

    broker: str
    limit: str
    ts: int


def removals(admin: AdminClient, loads: Sequence[ArchivedLoads], at_ms: int) -> list[Removal]:
    """Those that changes of policies tell of, of limits of topics."""
    begin_ms = min((it.ts - it.span_ms for it in loads), default=at_ms)
    if begin_ms >= at_ms:
        return []
    changes = _changes(admin, begin_ms, at_ms)
    return [
        Removal(it.broker, name, last.ts)
        for it in loads
        for name in it.figures
        if (last := next(_of_limit(name, changes), None)) is not None and not last.after
    ]


def set_later(admin: AdminClient, loads: Sequence[ArchivedLoads], at_ms: int) -> list[Removal]:
    """Limits that records about a moment have, and that were set after it: changes tell of these,
    and the record before does not have them.
    """
    later = [it for it in loads if it.ts > at_ms]
    if not later:
        return []
    changes = _changes(admin, at_ms, max(it.ts for it in later))[::-1]
    firsts = [
        (it, Removal(it.broker, name, first.ts))
        for it in later
        for name in it.figures
        if (first := next(_of_limit(name, changes), None)) is not None and not first.before
    ]
    if not firsts:
        return []
    before_ms = at_ms - max(it.span_ms for it in later)
    before = {
        (it.broker, name)
        for it in loads_at(admin, before_ms, Throttle.kind).loads
        if it.ts <= at_ms
        for name in it.figures
    }
    return [it for _, it in firsts if (it.broker, it.limit) not in before]


def _changes(admin: AdminClient, begin_ms: int, end_ms: int) -> list[AuditedChange]:
    """The newest first; none if the role may not see them."""
    kinds = (AuditedChange.kind,)
    try:
        events = events_of(admin, kinds, since_ms=begin_ms, until_ms=end_ms, limit=CHANGES_MAX)
    except LoadManagerError:
        return []
    changes = [event.record_as(AuditedChange) for event in events.events]
    return [it for it in changes if begin_ms < it.ts <= end_ms]


class _Whether(NamedTuple):
    """Whether a limit was set before a change, and after it."""

    ts: int
    before: bool
    after: bool


def _of_limit(limit: str, changes: Sequence[AuditedChange]) -> Iterator[_Whether]:
    """Those of a limit on what is published to a topic, in the order of the changes."""
    topic = TOPIC.search(limit)
    if topic is None or not limit.endswith(PUBLISH):
        return
    name = TopicName.parse(topic[0])
    stored = {paths.policies(name.namespace), paths.topic_policies(name.partitioned_topic)}
    for change in changes:
        before, after = (_has_publish(text) for text in (change.before, change.after))
        if change.path in stored and not change.failed and (before or after):
            yield _Whether(change.ts, before, after)


def _has_publish(text: str | None) -> bool:
    names = (LIMIT_NAMES.get(field, field) for field in fields_of_change(text))
    return "publishRate" in names


def later_lines(later: Sequence[Removal]) -> list[str]:
    """A line for each that was set after a moment."""
    return [
        f"{limit_words(it.limit)} at {it.broker} was set at {clock(it.ts)}, after then"
        for it in later
    ]


def removed_lines(removed: Sequence[Removal]) -> list[str]:
    """A line for each."""
    return [
        f"{limit_words(it.limit)} at {it.broker} was set until {clock(it.ts)} only"
        for it in removed
    ]


def _limits_topic(limit: str, topic: TopicName) -> bool:
    """Whether it is a limit of this topic, or of a partition of it."""
    name = TOPIC.search(limit)
    return name is not None and TopicName.parse(name[0]).partitioned_topic == topic
