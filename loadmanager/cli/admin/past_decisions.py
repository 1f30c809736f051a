"""Decisions of earlier terms, from the records in archives, as a leader shows those of its own."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec import UNSET, structs

from loadmanager.cli.admin.times import time_of_day
from loadmanager.engine.history.records import Decision, recorded_outcome
from loadmanager.engine.strategies.plan_document import SkipShown, UnloadShown
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.leader.documents.decisions import DecisionShown

ACTIONS = ("unload", "place", "split", "skip", "move")
KINDS = tuple(f"decision.{action}" for action in ACTIONS)
"""Kinds of events that are decisions."""
OF_A_CYCLE = ("unload", "skip")
_Recorded = tuple[ArchivedEvent, Decision]


def as_of(events: Iterable[ArchivedEvent], at_ms: float) -> list[ArchivedEvent]:
    """Events as they stood at a moment. Of a reason that came again, the record has the figures of
    the last time, and how often it came in all: if that was later, only its code is told.
    """
    return [event if event.last <= at_ms else _begun(event) for event in events]


def _begun(event: ArchivedEvent) -> ArchivedEvent:
    code = event.record.get("code") or event.record.get("reason", "")
    reason = f"{code} since {time_of_day(event.ts)}, with figures that are not recorded of then"
    record = {**event.record, "reason": reason, "why": {}}
    return structs.replace(event, last=event.ts, times=1, record=record)


def decisions_of(
    events: Iterable[ArchivedEvent], whole_after_ms: float = inf
) -> list[DecisionShown]:
    """The decisions, the newest first; what one cycle unloaded and left is one decision.

    `whole_after_ms`: of cycles after this time all records are here. Of others nobody knows whether
    they moved more.
    """
    cycles: dict[tuple[Any, ...], list[_Recorded]] = {}
    decisions = []
    for event in events:
        record = event.record_as(Decision)
        if record.action in OF_A_CYCLE:
            key = (record.epoch, record.cycle, record.strategy, event.last)
            cycles.setdefault(key, []).append((event, record))
        else:
            decisions.append(_single(event, record))
    for parts in cycles.values():
        decision = _cycle(parts)
        if decision.ts > whole_after_ms and decision.unloads is not UNSET:
            decision.unloads_count = len(decision.unloads)
        decisions.append(decision)
    return sorted(decisions, key=lambda decision: decision.ts, reverse=True)


def _head(event: ArchivedEvent, record: Decision, kind: str) -> dict[str, Any]:
    id_ = record.ids[0] if record.ids else f"{record.epoch}-a{event.id}"
    head = {"id": id_, "ts": event.last, "kind": kind}
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
        SkipShown(
            what=record.what or "",
            code=record.code or "",
            reason=record.reason,
            why=dict(record.why) or UNSET,
            times=event.times if event.times > 1 else UNSET,
            first_at=event.ts if event.times > 1 else UNSET,
        )
        for event, record in parts
        if record.action == "skip"
    ]
    # That of a move, if there is one: `undo` finds the cycle by it.
    event, record = max(parts, key=lambda part: (part[1].action == "unload", part[0].times))
    head = _head(event, record, "shed")
    return DecisionShown(**head, strategy=record.strategy, unloads=unloads, skipped=skipped)


def _single(event: ArchivedEvent, record: Decision) -> DecisionShown:
    head = _head(event, record, record.action)
    head |= {"bundle": record.bundle or "", "reason": record.reason}
    if record.action == "place":
        why: dict[str, float | str] = dict(record.figures)
        return DecisionShown(
            **head, broker=record.destination, rejected=record.why, why=why or UNSET
        )
    head |= {
        "why": dict(record.why),
        "state": record.state or "",
        "outcome": recorded_outcome(record),
    }
    if record.action == "split":
        return DecisionShown(**head, broker=record.owner)
    head |= {"clients": record.clients}
    return DecisionShown(
        **head,
        move=record.move or "",
        author=record.author or "",
        source=record.source or "",
        destination=record.destination,
        ended_at=event.ts,
    )
