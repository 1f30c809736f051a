"""Whom limits had wait in a time, and for how long: the connections that they held, with the
producers of each, as brokers recorded it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loadmanager.cli.admin.archives import incomplete, now_ms, parts_of
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.client_steps import ends_of_brokers
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.downtimes import Stood
from loadmanager.cli.admin.held_then import AGO_MS, HOLDS_MAX, ConnectionHold, held_between
from loadmanager.cli.admin.times import clock, span
from loadmanager.cli.terminal import table
from loadmanager.engine.history.clients import HELD_S, ClientStep
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvents
from loadmanager.kit.units import HOUR_MS

SHOWN_MAX = 20
"""Connections that are listed."""
ATTACHED_MAX = 200
"""Producers of one connection that are asked for."""
PRODUCERS_NAMED = 3
ATTACHED = f"{ClientStep.kind}.attached"
MEANT = (
    "held on and off: from the first hold of the connection to the last, with what was read "
    f"between, of times of {HELD_S} s and longer, so that its clients waited less; all of its "
    "producers and consumers waited together; consumers that a dispatch limit held are not "
    "recorded by name: without --clients, each limit has its sum"
)
NOT_HELD = "what waited for that was held by no limit meanwhile"
HEADERS = ("held on and off", "connection", "broker", "producers", "limits")


@dataclass(slots=True)
class HeldSum:
    """For how long limits held a connection in a time."""

    broker: str
    client: str
    held_ms: float = 0.0
    times: list[tuple[float, float]] = field(default_factory=list)
    """From when until when."""
    limits: set[str] = field(default_factory=set)
    producers: list[ClientStep] | None = None
    """None: not asked for."""

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "connection": self.client,
            "broker": self.broker,
            "held_ms": round(self.held_ms),
            "times": len(self.times),
            "limits": sorted(self.limits),
            "producers": None
            if self.producers is None
            else [{"name": it.name, "topic": it.topic} for it in self.producers],
        }

    def row(self) -> tuple[str, ...]:
        """For people."""
        producers = self.producers or []
        names = [f"{it.name} on {it.topic}" for it in producers[:PRODUCERS_NAMED]]
        more = len(producers) - PRODUCERS_NAMED
        named = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        who = named or "none that is recorded"
        return span(self.held_ms), self.client, self.broker, who, ", ".join(sorted(self.limits))


def sums_of(
    holds: Iterable[ConnectionHold], begin_ms: int, end_ms: int, stood: Stood
) -> list[HeldSum]:
    """What holds come to for each connection within a time, the longest first; without the times
    in which its broker stood still. What a record and the look of now both have, counts once.
    """
    sums = dict[tuple[str, str], HeldSum]()
    for hold in sorted(holds, key=lambda it: it.begin):
        begin, end = float(max(hold.begin, begin_ms)), float(min(hold.end, end_ms))
        if begin >= end:
            continue
        of = sums.setdefault((hold.broker, hold.client), HeldSum(hold.broker, hold.client))
        of.limits.update(limits for _, limits in hold.looks)
        if of.times and begin <= of.times[-1][1]:
            begin, end = of.times[-1][0], max(end, of.times.pop()[1])
        of.times.append((begin, end))
    for of in sums.values():
        of.held_ms = sum(
            end - begin - stood.within(of.broker, begin, end) for begin, end in of.times
        )
    some = [of for of in sums.values() if of.held_ms > 0]
    return sorted(some, key=lambda it: (-it.held_ms, it.client, it.broker))


def _name_producers(admin: AdminClient, of: HeldSum, until_ms: int) -> dict[str, str]:
    """Have a sum name the producers that its broker recorded; returns why it did not answer."""
    values = [
        ("kind", ATTACHED),
        ("about", of.client),
        ("until", until_ms),
        ("limit", ATTACHED_MAX),
    ]
    try:
        answer = parts_of(admin, "events", values, ArchivedEvents, only=of.broker)
    except OperationalError as error:
        return {of.broker: str(error)}
    events = [event for part in answer.parts.values() for event in part.events]
    steps = (event.record_as(ClientStep) for event in events)
    producers = {(step.name, step.topic): step for step in steps if step.what == "producer"}
    of.producers = [*producers.values()]
    return answer.missing


def clients_held(
    admin: AdminClient, broker: str | None, since_ms: int | None, until_ms: int | None
) -> Output:
    """Whom limits had wait in a time, the longest first; of the last hour without `since_ms`."""
    end_ms = now_ms() if until_ms is None else until_ms
    begin_ms = end_ms - HOUR_MS if since_ms is None else since_ms
    if begin_ms >= end_ms:
        raise BadInputError(f"--since {clock(begin_ms)} is not before {clock(end_ms)}")
    ended_ms = min(now_ms(), end_ms + HOUR_MS)  # when a hold is over, that is recorded
    holds = held_between(
        admin, begin_ms, ended_ms, ends_of_brokers(admin, begin_ms - AGO_MS, ended_ms)
    )
    stood = Stood.between(admin, begin_ms, end_ms)
    sums = [it for it in sums_of(holds, begin_ms, end_ms, stood) if broker in (None, it.broker)]
    notes, missing = list[str](), dict[str, str]()
    for it in sums[:SHOWN_MAX]:
        missing |= _name_producers(admin, it, end_ms)
    if len(holds) >= HOLDS_MAX:
        notes.append(f"a broker is asked for its last {HOLDS_MAX:,} records of holds")
    between = f"from {clock(begin_ms)} to {clock(end_ms)} ({span(end_ms - begin_ms)})"
    if not sums:
        nobody = f"{between}: limits held no connection for {HELD_S} s, as far as it is recorded"
        return Output([], (nobody, *incomplete(notes)), missing=missing)
    left = len(sums) - SHOWN_MAX
    lines = [f"{between}: {count_of(len(sums), 'connection')} held; {MEANT}"]
    lines += [f"and {left} more, that were held for less: --json has them"] if left > 0 else []
    lines += stood.lines((it.broker for it in sums), begin_ms, end_ms, NOT_HELD)
    rows = [it.row() for it in sums[:SHOWN_MAX]]
    parts = (table(HEADERS, rows), lines, *incomplete(notes))
    return Output([it.data() for it in sums], parts, missing=missing)
