"""Decisions of earlier terms, from the records in archives, as a leader shows those of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from loadmanager.engine.history.records import Decision
from loadmanager.engine.moves.move import Outcome
from loadmanager.engine.strategies.plan_document import SkipShown, UnloadShown
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.leader.documents.decisions import DecisionShown

T = TypeVar("T")

ACTIONS = ("unload", "place", "split", "skip", "move")
KINDS = tuple(f"decision.{action}" for action in ACTIONS)
"""Kinds of events that are decisions."""
OF_A_CYCLE = ("unload", "skip")
_Recorded = tuple[ArchivedEvent, Decision]


def record_as(event: ArchivedEvent, shape: type[T]) -> T:
    """The record of an event. Raises `OperationalError` for something else."""
    try:
        return msgspec.convert(event.record, shape)
    except msgspec.ValidationError as error:
        raise OperationalError(
            f"an archive has a {event.kind} record that cannot be read: {error}"
        ) from None


def decisions_of(events: Iterable[ArchivedEvent]) -> list[DecisionShown]:
    """The decisions, the newest first; what one cycle unloaded and left is one decision."""
    cycles: dict[tuple[Any, ...], list[_Recorded]] = {}
    decisions = []
    for event in events:
        record = record_as(event, Decision)
        if record.action in OF_A_CYCLE:
            key = (record.epoch, record.cycle, record.strategy, event.last)
            cycles.setdefault(key, []).append((event, record))
        else:
            decisions.append(_single(event, record))
    decisions += map(_cycle, cycles.values())
    return sorted(decisions, key=lambda decision: decision.ts, reverse=True)


def _head(event: ArchivedEvent, record: Decision, kind: str) -> dict[str, Any]:
    head = {"id": f"{record.epoch}-a{event.id}", "ts": event.last, "kind": kind}
    return {**head, "epoch": record.epoch, "cycle": record.cycle}


def _cycle(parts: list[_Recorded]) -> DecisionShown:
    records = [record for _, record in parts]
    unloads = [
        UnloadShown(
            bundle=record.bundle or "",
            source=record.source or "",
            destination=record.destination,
            reason=record.reason,
            why=dict(record.why),
        )
        for record in records
        if record.action == "unload"
    ]
    skipped = [
        SkipShown(what=record.what or "", code=record.code or "", reason=record.reason)
        for record in records
        if record.action == "skip"
    ]
    # That of a move, if there is one: `undo` finds the cycle by it.
    event, record = max(parts, key=lambda part: (part[1].action == "unload", part[0].times))
    head = _head(event, record, "shed")
    if event.times > 1 and not unloads:
        head |= {"times": event.times, "first_at": event.ts}
    return DecisionShown(**head, strategy=record.strategy, unloads=unloads, skipped=skipped)


def _single(event: ArchivedEvent, record: Decision) -> DecisionShown:
    head = _head(event, record, record.action)
    head |= {"bundle": record.bundle or "", "reason": record.reason}
    if record.action == "place":
        return DecisionShown(**head, broker=record.destination, rejected=record.why)
    outcome = Outcome(
        record.outcome or "",
        owner=record.owner,
        clients_closed=record.clients_closed,
        clients_back=record.clients_back,
        clients_unserved=record.clients_unserved,
        clients_waited_ms=record.clients_waited_ms,
        clients_waited_mean_ms=record.clients_waited_mean_ms,
        pause_ms=record.pause_ms,
    )
    head |= {"why": dict(record.why), "state": record.state or "", "outcome": outcome}
    if record.action == "split":
        return DecisionShown(**head, broker=record.owner)
    return DecisionShown(
        **head,
        move=record.move or "",
        author=record.author or "",
        source=record.source or "",
        destination=record.destination,
        ended_at=event.ts,
    )
