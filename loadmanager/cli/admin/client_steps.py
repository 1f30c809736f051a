"""The steps of clients and the losses and standstills of brokers that archives have, from which it
follows whom they interrupted, and a move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loadmanager.cli.admin.archives import events_of, parts_of
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import Downtime, Lapse, down_before, downtimes, lapses_of
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.lapses import unproven_of
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.engine.history.waits import (
    Interrupted,
    Loss,
    Standstill,
    attached_at,
    interruptions_of,
)
from loadmanager.kit.history.archive_answers import ArchivedEvents
from loadmanager.kit.units import HOUR_MS

STEPS_MAX = 2_000
"""Records of clients that are asked of one broker."""
CHANGES_MAX = 1_000
AGO_MS = 24 * HOUR_MS
AFTER_MS = 10 * 60_000
"""So long after the time that is asked for, clients may have come back, and what interrupted them
may have ended.
"""
SEEN_MS = 10_000
"""A leader sees that a session has ended at most this long after its broker goes on."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Whom brokers interrupted in a time, the oldest first."""

    waits: list[Interrupted]
    losses: list[Loss]
    lapses: list[Lapse]
    """When brokers stood still or could not prove their sessions."""
    notes: list[str]
    """What of clients was not looked at, in sentences."""
    missing: dict[str, str]

    @property
    def whole(self) -> bool:
        """Whether no record of a client is known to be missing."""
        return not self.notes and not self.missing


def interrupted_between(admin: AdminClient, begin_ms: int, end_ms: int) -> Waits:
    """The interruptions of a time, also those that began shortly before and lasted when it began:
    `interrupted` and the line of the day show these.
    """
    steps, notes, missing = client_steps(admin, begin_ms, end_ms + AFTER_MS)
    changes = changes_between(admin, max(0, begin_ms - AFTER_MS), end_ms + AFTER_MS)
    losses = _from_downtimes(losses_of(changes), downtimes(admin, begin_ms))
    waits = interruptions_of(steps, losses, standstills_of(changes))
    within = [
        it
        for it in waits
        if begin_ms <= it.since <= end_ms
        or begin_ms - AFTER_MS <= it.since < begin_ms <= (it.back_at or begin_ms)
    ]
    return Waits(within, losses, lapses_of(unproven_of(changes)), notes, missing)


def client_steps(
    admin: AdminClient, begin_ms: int, until_ms: int, about: str | None = None
) -> tuple[list[ClientStep], list[str], dict[str, str]]:
    """The last steps of clients of each broker, also of before; what is not among them; who did
    not answer. `about`: only those of this name, address or topic.
    """
    kinds = [("kind", f"{ClientStep.kind}.{it}") for it in ("attached", "left", "unrecorded")]
    values: list[tuple[str, Any]] = [
        *kinds, ("about", about), ("until", until_ms), ("limit", STEPS_MAX)
    ]  # fmt: skip
    answer = parts_of(admin, "events", values, ArchivedEvents)
    steps, notes = list[ClientStep](), list[str]()
    for broker, part in sorted(answer.parts.items()):
        events = [it for it in part.events if it.kind.startswith(f"{ClientStep.kind}.")]
        its = [event.record_as(ClientStep) for event in events]
        if len(its) >= STEPS_MAX and (first := min(it.ts for it in its)) > begin_ms - AGO_MS:
            notes.append(f"only what clients of {broker} did since {clock(first)} was looked at")
        lost = sum(it.times for it in its if it.event == "unrecorded" and it.ts >= begin_ms)
        if lost:
            many = count_of(lost, "step")
            notes.append(f"{broker} recorded {many} of clients by their number only: too many came")
        steps += [it for it in its if it.event != "unrecorded"]
    return steps, notes, answer.missing


def losses_between(admin: AdminClient, begin_ms: int, until_ms: int) -> list[Loss]:
    """The losses of brokers that were recorded within a time."""
    return losses_of(changes_between(admin, begin_ms, until_ms))


def changes_between(admin: AdminClient, begin_ms: int, until_ms: int) -> list[MemberChange]:
    """What was recorded of brokers within a time, the newest first."""
    kinds = (MemberChange.kind,)
    events = events_of(admin, kinds, since_ms=begin_ms, until_ms=until_ms, limit=CHANGES_MAX).events
    return [it.record_as(MemberChange) for it in events if it.kind == MemberChange.kind]


def losses_of(changes: Iterable[MemberChange]) -> list[Loss]:
    """Those among changes of brokers."""
    return [
        Loss(it.of, left_at_of(it), unheard_of(it) or 0)
        for it in changes
        if it.event == "left" and it.how == "lost"
    ]


def _from_downtimes(losses: Iterable[Loss], downs: Sequence[Downtime]) -> list[Loss]:
    """Losses of brokers whose whole cluster was down begin with that."""
    return [
        it if (down := down_before(downs, it.ts)) is None else Loss(it.broker, down.begin)
        for it in losses
    ]


def standstills_of(changes: Sequence[MemberChange]) -> list[Standstill]:
    """Those among changes of brokers in which they did not lose their sessions: whose clients are
    not those of a lost broker.
    """
    left = [(it.of, it.ts) for it in changes if it.event == "left" and it.how == "lost"]
    stood = [
        Standstill(it.of, it.ts - it.took_ms, it.ts)
        for it in changes
        if it.event == "stood" and it.took_ms is not None
    ]
    return [
        it
        for it in stood
        if not any(of == it.broker and it.begin <= ts <= it.end + SEEN_MS for of, ts in left)
    ]


def attached_then(
    admin: AdminClient, at_ms: int
) -> tuple[list[ClientStep], list[str], dict[str, str]]:
    """Who was attached at a moment, by the records of who came and left, and of brokers' losses;
    with what is not known, and who did not answer.
    """
    steps, notes, missing = client_steps(admin, at_ms, at_ms)
    return attached_at(steps, losses_between(admin, 0, at_ms), at_ms), notes, missing
