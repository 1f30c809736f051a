"""The steps of clients and the losses of brokers that archives have, from which it follows whom a
loss or a move interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loadmanager.cli.admin.archives import events_of, parts_of
from loadmanager.cli.admin.asking import count_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.clients import ClientStep
from loadmanager.engine.history.members import MemberChange, left_at_of, unheard_of
from loadmanager.engine.history.waits import Loss
from loadmanager.kit.history.archive_answers import ArchivedEvents
from loadmanager.kit.units import HOUR_MS

STEPS_MAX = 2_000
"""Records of clients that are asked of one broker."""
CHANGES_MAX = 1_000
AGO_MS = 24 * HOUR_MS


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
    kinds = (MemberChange.kind,)
    events = events_of(admin, kinds, since_ms=begin_ms, until_ms=until_ms, limit=CHANGES_MAX).events
    return losses_of(it.record_as(MemberChange) for it in events if it.kind == MemberChange.kind)


def losses_of(changes: Iterable[MemberChange]) -> list[Loss]:
    """Those among changes of brokers."""
    return [
        Loss(it.of, left_at_of(it), unheard_of(it) or 0)
        for it in changes
        if it.event == "left" and it.how == "lost"
    ]
