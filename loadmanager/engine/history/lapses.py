"""When brokers could not prove their sessions or stood still, by what they recorded themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from loadmanager.engine.history.members import MemberChange

SAME_MS = 1_500
"""What ends and begins within this is one event."""
ENDED_MS, PROVEN_MS = 8_000, 12_000
"""One outage of the store ends the leases of brokers within a quarter of the session timeout, and
they connect again within seconds.
"""
SIGN_MS = 12_000
"""A broker that lives gives a sign within this time."""
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
    is_open: bool = False
    """Whether no record tells how it ended: the process ended before, or it is not over yet.
    `until` is the broker's last sign, and `took_ms` is 0: whether its session was proven until then
    is not known.
    """

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
    is_open: bool = False
    """Whether it lasted at least until `end`: no record tells how it ended."""

    is_unproven: bool = True
    """Whether brokers stood still or could not prove their sessions from `begin` on. False: the
    store did not answer until then, and their sessions were proven, or it is not known.
    """

    @property
    def since(self) -> int:
        """When it began at the earliest: from the last answer of the store on, if that is known and
        nobody stood still.
        """
        unknown = self.answered is None or self.stood_ms
        return self.begin if unknown else min(self.begin, self.answered or 0)

    def has(self, it: Unproven) -> bool:
        """Whether that was the same event: it began and ended at about the same time."""
        ended_near = abs(it.until - self.end) <= PROVEN_MS
        if it.took_ms and self.is_unproven:
            near = ended_near and abs(it.begin - self.begin) <= ENDED_MS
            return near and it.begin <= self.end and self.begin <= it.until
        # What is known of one of them is when the store had answered, and not when it ended if
        # it is open.
        near = abs((it.answered or 0) - (self.answered or 0)) <= ENDED_MS
        may_end = it.is_open and (self.is_open or it.until <= self.end)
        return self.is_of_store and near and (ended_near or may_end)

    def covers(self, at_ms: int) -> bool:
        """Whether it lasted at a moment, as far as it is known: one without a recorded end until
        its brokers would have given their next signs.
        """
        return self.since <= at_ms <= self.end + (SIGN_MS if self.is_open else 0)

    @property
    def is_of_store(self) -> bool:
        """Whether the metadata store did not answer; false if brokers stood still."""
        return self.since < self.begin


L = TypeVar("L", bound=SessionLapse)


LastSign = Callable[[str, int], int]
"""Broker, time → when it gave the last sign of those that it gave without a gap from then on."""


def no_sign(_broker: str, at_ms: int) -> int:
    """Of one of which nothing else is known."""
    return at_ms


def unproven_of(changes: Iterable[MemberChange], last_sign: LastSign = no_sign) -> list[Unproven]:
    """The times that brokers recorded; a session that was not proven because a process stood still
    is one with that. What began and has no recorded end lasted at least until the last sign of its
    broker, or its next start.
    """
    changes = sorted(changes, key=lambda it: it.ts)
    times = [
        Unproven(it.of, it.ts, took := it.took_ms or 0, took)
        if it.event == "stood"
        else Unproven(it.of, it.ts, it.took_ms or 0, unanswered_ms=it.unheard_ms or 0)
        for it in changes
        if it.event in ("proven", "stood")
    ]
    return sorted(
        [*_joined(times), *_open(changes, last_sign)], key=lambda it: (it.until, it.broker)
    )


def _open(changes: Iterable[MemberChange], last_sign: LastSign) -> Iterator[Unproven]:
    """What began and has no recorded end; `changes`: the oldest first."""
    begun = dict[str, MemberChange]()
    for it in changes:
        if it.event == "unanswered":
            begun[it.of] = it
        elif it.event == "proven":
            begun.pop(it.of, None)
        elif it.event == "starts" and (before := begun.pop(it.of, None)) is not None:
            yield _unended(before, min(it.ts, last_sign(it.of, before.ts)))
    for broker, before in begun.items():
        yield _unended(before, last_sign(broker, before.ts))


def _unended(begun: MemberChange, sign_ms: int) -> Unproven:
    until_ms = max(begun.ts, sign_ms)
    unanswered_ms = until_ms - begun.ts + (begun.unheard_ms or 0)
    return Unproven(begun.of, until_ms, 0, unanswered_ms=unanswered_ms, is_open=True)


def _joined(times: Iterable[Unproven]) -> list[Unproven]:
    """Of each broker, what follows on something else at once is one with that."""
    joined = list[Unproven]()
    for it in sorted(times, key=lambda it: (it.broker, it.begin, it.until)):
        last = joined[-1] if joined else None
        if last is None or last.broker != it.broker or it.begin - last.until > SAME_MS:
            joined.append(it)
            continue
        begin, until = min(last.begin, it.begin), max(last.until, it.until)
        stood_ms = last.stood_ms + it.stood_ms
        joined[-1] = Unproven(it.broker, until, until - begin, stood_ms, last.unanswered_ms)
    return joined


def together(times: Iterable[Unproven], kind: type[L]) -> list[L]:
    """The events that these are parts of, as lapses of a `kind`, the oldest first."""
    lapses = list[L]()
    for it in sorted(times, key=lambda it: (it.is_open, it.begin, it.broker)):
        lapse = next((each for each in lapses if each.has(it)), None)
        if lapse is None:
            lapse = kind(it.begin, it.until, set(), is_open=it.is_open, is_unproven=it.took_ms > 0)
            lapses.append(lapse)
        elif it.took_ms and not lapse.is_unproven:
            lapse.begin, lapse.is_unproven = it.begin, True
        lapse.end = max(lapse.end, it.until)
        if not lapse.is_unproven:
            lapse.begin = lapse.end
        lapse.brokers.add(it.broker)
        if it.answered is not None:
            lapse.answered = max(lapse.answered or 0, it.answered)
        if it.stood_ms:
            lapse.stood_ms[it.broker] = it.stood_ms
    return sorted(lapses, key=lambda it: (it.begin, min(it.brokers)))


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
