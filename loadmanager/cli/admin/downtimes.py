"""When no broker of the cluster was there: nobody was left to record that the others had gone; and
when brokers could not prove their sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadmanager.cli.admin.archives import GAP_MS, START_MS, STARTS_MAX, LoadsOfAll, parts_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.times import clock, span
from loadmanager.engine.history.members import MemberChange
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvents, RecordedSpan

NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Downtime:
    """A time in which no broker recorded anything, after which one started."""

    begin: int
    end: int

    def __str__(self) -> str:
        """As a sentence."""
        took = span(self.end - self.begin)
        between = f"from {clock(self.begin)} to {clock(self.end)} ({took})"
        return f"the whole cluster was down {between}: no broker recorded anything"


def downtimes(admin: AdminClient, since_ms: int = 0) -> list[Downtime]:
    """Those that ended later than this, the oldest first; none without archives."""
    values = [("kind", MemberChange.kind), ("limit", STARTS_MAX)]
    try:
        answer = parts_of(admin, "events", values, ArchivedEvents)
    except (AnsweredError, OperationalError):
        return []
    if answer.of_daemon:
        return []
    parts = answer.parts.values()
    starts = [it.ts for part in parts for it in part.events if it.record.get("event") == "starts"]
    gaps = between([run for part in parts for run in part.recorded])
    return [
        Downtime(begin, end)
        for begin, end in gaps
        if end >= since_ms and any(begin < ts <= end + START_MS for ts in starts)
    ]


@dataclass(frozen=True, slots=True)
class Unproven:
    """A time in which a broker could not prove its session, by its own record."""

    broker: str
    until: int
    took_ms: int


def unproven(admin: AdminClient, since_ms: int) -> list[Unproven]:
    """The last one of each broker that ended later than this; none without archives."""
    values = [("kind", MemberChange.kind), ("since", since_ms), ("limit", STARTS_MAX)]
    last: dict[str, Unproven] = {}
    try:
        for part in parts_of(admin, "events", values, ArchivedEvents).parts.values():
            for event in part.events:  # the newest first
                change = event.record_as(MemberChange)
                if change.event == "proven":
                    at = Unproven(change.of, event.ts, change.took_ms or 0)
                    last.setdefault(change.of, at)
    except LoadManagerError:
        return []
    return [last[broker] for broker in sorted(last)]


def unproven_text(brokers: Sequence[Unproven]) -> str:
    """When brokers could not prove their sessions, in one sentence."""
    longest, until = max(it.took_ms for it in brokers), clock(max(it.until for it in brokers))
    names = ", ".join(it.broker for it in brokers[:NAMED_MAX])
    more = f" and {len(brokers) - NAMED_MAX} more" if len(brokers) > NAMED_MAX else ""
    return (
        f"until {until}, for {span(longest)} at most, {names}{more} could not prove their "
        "sessions: the metadata store did not answer, or they stood still"
    )


def say_down(admin: AdminClient, at_ms: int, past: LoadsOfAll) -> None:
    """Have the loads of a moment say that the whole cluster was down then, if it was."""
    if past.silent:
        past.notes[:0] = [str(it) for it in downtimes(admin, at_ms) if it.begin <= at_ms]


def between(runs: Iterable[RecordedSpan]) -> Sequence[tuple[int, int]]:
    """The times between all of some spans, if they are longer than a broker's silence may be."""
    gaps, last_ms = list[tuple[int, int]](), None
    for run in sorted(runs, key=lambda it: it.begin):
        if last_ms is not None and run.begin - last_ms > GAP_MS:
            gaps.append((last_ms, run.begin))
        last_ms = run.end if last_ms is None else max(last_ms, run.end)
    return gaps
