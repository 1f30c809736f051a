"""The steps of clients and the losses and standstills of brokers that archives have, from which it
follows whom they interrupted, and a move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadmanager.cli.admin.archives import events_of, now_ms, parts_of
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.downtimes import Downtime, Lapse, downtimes, lapses_of
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.lapses import unproven_of
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.history.waits import Interrupted, Loss, attached_at
from loadmanager.kit.history.archive_answers import ArchivedEvents
from loadmanager.leader.interruptions import (
    AFTER_MS,
    CHANGES_MAX,
    STEPS,
    STEPS_MAX,
    all_losses,
    steps_of,
    waits_between,
)

UNSURE = (
    "not counted: steps of clients were recorded by their number only since the last record of "
    "each, so that nobody knows which were still there as their broker was lost or stood still"
)


@dataclass(frozen=True, slots=True)
class Waits:
    """Whom brokers interrupted in a time, the oldest first."""

    waits: list[Interrupted]
    lapses: list[Lapse]
    """When brokers stood still or could not prove their sessions."""
    steps: list[ClientStep]
    """Of all clients, also of before."""
    changes: list[MemberChange]
    """What was recorded of brokers about then, the newest first."""
    downs: list[Downtime]
    """When all brokers were down."""
    notes: list[str]
    """What of clients was not looked at, in sentences."""
    missing: dict[str, str]

    @property
    def losses(self) -> list[Loss]:
        """Those of brokers."""
        return all_losses(self.changes, self.downs)

    @property
    def whole(self) -> bool:
        """Whether no record of a client is known to be missing."""
        return not self.notes and not self.missing


def interrupted_between(admin: AdminClient, begin_ms: int, end_ms: int) -> Waits:
    """The interruptions of a time, also those that began shortly before and lasted when it began:
    `interrupted` and the line of the day show these.
    """
    as_of_ms = min(now_ms(), end_ms + AFTER_MS)
    steps, notes, missing = client_steps(admin, begin_ms, end_ms + AFTER_MS)
    changes = changes_between(admin, max(0, begin_ms - AFTER_MS), end_ms + AFTER_MS)
    downs = downtimes(admin, begin_ms - AFTER_MS)
    within = waits_between(steps, changes, downs, (begin_ms, end_ms), as_of_ms)
    if unsure := sum(it.unsure for it in within):
        within = [it for it in within if not it.unsure]
        notes.append(f"{count_of(unsure, 'client')} {UNSURE}")
    return Waits(
        waits=within,
        lapses=lapses_of(unproven_of(changes)),
        steps=steps,
        changes=changes,
        downs=downs,
        notes=notes,
        missing=missing,
    )


def client_steps(
    admin: AdminClient, begin_ms: int, until_ms: int, about: str | None = None
) -> tuple[list[ClientStep], list[str], dict[str, str]]:
    """The last steps of clients of each broker, also of before; what is not among them; who did
    not answer. `about`: only those of this name, address or topic.
    """
    values: list[tuple[str, Any]] = [("kind", kind) for kind in STEPS]
    values += [("about", about), ("until", until_ms), ("limit", STEPS_MAX)]
    answer = parts_of(admin, "events", values, ArchivedEvents)
    of_clients, notes = steps_of(answer.parts, begin_ms), list[str]()
    for broker in sorted(answer.parts):
        if (first := of_clients.since.get(broker)) is not None:
            notes.append(f"only what clients of {broker} did since {clock(first)} was looked at")
        if lost := of_clients.unrecorded.get(broker):
            many = count_of(lost, "step")
            notes.append(f"{broker} recorded {many} of clients by their number only: too many came")
    return of_clients.steps, notes, answer.missing


def losses_between(admin: AdminClient, begin_ms: int, until_ms: int) -> list[Loss]:
    """The losses of brokers that were recorded within a time, and those in it of which nobody was
    left to record them.
    """
    downs = [it for it in downtimes(admin, begin_ms) if it.begin <= until_ms]
    return all_losses(changes_between(admin, begin_ms, until_ms), downs)


def changes_between(admin: AdminClient, begin_ms: int, until_ms: int) -> list[MemberChange]:
    """What was recorded of brokers within a time, the newest first."""
    kinds = (MemberChange.kind,)
    events = events_of(admin, kinds, since_ms=begin_ms, until_ms=until_ms, limit=CHANGES_MAX).events
    return [it.record_as(MemberChange) for it in events if it.kind == MemberChange.kind]


def ends_of_brokers(admin: AdminClient, begin_ms: int, until_ms: int) -> list[Loss]:
    """When brokers were lost or stopped within a time: nobody records that they hold connections
    no more.
    """
    begin_ms = max(0, begin_ms)
    changes = changes_between(admin, begin_ms, until_ms)
    stops = [Loss(it.of, it.ts) for it in changes if it.event == "stops"]
    return [*losses_between(admin, begin_ms, until_ms), *stops]


def attached_then(
    admin: AdminClient, at_ms: int
) -> tuple[list[ClientStep], list[str], dict[str, str]]:
    """Who was attached at a moment, by the records of who came and left, and of brokers' losses;
    with what is not known, and who did not answer.
    """
    steps, notes, missing = client_steps(admin, at_ms, at_ms)
    return attached_at(steps, losses_between(admin, 0, at_ms), at_ms), notes, missing
