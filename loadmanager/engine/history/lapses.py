"""When brokers could not prove their sessions or stood still, by what they recorded themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from loadmanager.engine.history.members import MemberChange

SAME_MS = 1_500
"""What ends and begins within this is one event."""
ENDED_MS, PROVEN_MS = 8_000, 12_000
"""One outage of the store ends the leases of brokers within a quarter of the session timeout, and
they connect again within seconds.
"""
CONSEQUENCE_MS = 5_000
"""What a broker could not do in such a time it does at most this long afterwards: it closes the
topics of bundles that it has lost, say.
"""


@dataclass(frozen=True, slots=True)
class Unproven:
    """A time in which a broker could not prove its session or stood still, by its own record."""

    broker: str
    until: int
    took_ms: int
    stood_ms: int = 0
    """For how long its process had stood still; 0: not at all, or not known."""
    unanswered_ms: int = 0
    """How long before it began the store had given its last answer; 0: not known."""

    @property
    def begin(self) -> int:
        """When it began."""
        return self.until - self.took_ms

    @property
    def answered(self) -> int | None:
        """When the store had given its last answer; None: not known, or the process stood still, so
        that nobody waited for one.
        """
        if self.stood_ms or not self.unanswered_ms:
            return None
        return self.begin - self.unanswered_ms


@dataclass(slots=True)
class SessionLapse:
    """A time in which brokers together stood still or could not prove their sessions."""

    begin: int
    end: int
    brokers: set[str]
    stood_ms: dict[str, int] = field(default_factory=dict)
    """Broker → for how long it stood still, of those that did."""
    answered: int | None = None
    """When the store had given one of them its last answer; None: not known."""

    @property
    def since(self) -> int:
        """When it began at the earliest: from the last answer of the store on, if that is known and
        nobody stood still.
        """
        unknown = self.answered is None or self.stood_ms
        return self.begin if unknown else min(self.begin, self.answered or 0)

    def has(self, it: Unproven) -> bool:
        """Whether that was the same event: it began and ended at about the same time."""
        near = abs(it.begin - self.begin) <= ENDED_MS and abs(it.until - self.end) <= PROVEN_MS
        return near and it.begin <= self.end and self.begin <= it.until

    @property
    def is_of_store(self) -> bool:
        """Whether the metadata store did not answer; false if brokers stood still."""
        return self.since < self.begin


L = TypeVar("L", bound=SessionLapse)


def unproven_of(changes: Iterable[MemberChange]) -> list[Unproven]:
    """The times that brokers recorded; a session that was not proven because a process stood still
    is one with that.
    """
    times = [
        Unproven(it.of, it.ts, took := it.took_ms or 0, took)
        if it.event == "stood"
        else Unproven(it.of, it.ts, it.took_ms or 0, unanswered_ms=it.unheard_ms or 0)
        for it in changes
        if it.event in ("proven", "stood")
    ]
    joined = list[Unproven]()
    for it in sorted(times, key=lambda it: (it.broker, it.begin, it.until)):
        last = joined[-1] if joined else None
        if last is None or last.broker != it.broker or it.begin - last.until > SAME_MS:
            joined.append(it)
            continue
        begin, until = min(last.begin, it.begin), max(last.until, it.until)
        stood_ms = last.stood_ms + it.stood_ms
        joined[-1] = Unproven(it.broker, until, until - begin, stood_ms, last.unanswered_ms)
    return sorted(joined, key=lambda it: (it.until, it.broker))


def together(times: Iterable[Unproven], kind: type[L]) -> list[L]:
    """The events that these are parts of, as lapses of a `kind`, the oldest first."""
    lapses = list[L]()
    for it in sorted(times, key=lambda it: (it.begin, it.broker)):
        lapse = next((each for each in lapses if each.has(it)), None)
        if lapse is None:
            lapse = kind(it.begin, it.until, set())
            lapses.append(lapse)
        lapse.end = max(lapse.end, it.until)
        lapse.brokers.add(it.broker)
        if it.answered is not None:
            lapse.answered = max(lapse.answered or 0, it.answered)
        if it.stood_ms:
            lapse.stood_ms[it.broker] = it.stood_ms
    return lapses


def lapse_of(lapses: Iterable[L], broker: str, at_ms: int) -> L | None:
    """The one of which it is a consequence that a broker was lost, or ended connections or closed
    topics, at a time; None: of none.
    """
    return next(
        (
            it
            for it in lapses
            if broker in it.brokers and it.since <= at_ms <= it.end + CONSEQUENCE_MS
        ),
        None,
    )
