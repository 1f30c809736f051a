"""The pins, cordons and pauses of operators at a moment, from the changes that archives have."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadmanager.cli.admin.archives import EventsOfAll, events_of, fields_of_change
from loadmanager.cli.admin.asking import OWN, query
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.sentences import paused_text
from loadmanager.cli.admin.times import clock
from loadmanager.engine.history.records import AuditedChange
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.leader.documents.moves import CordonShown, MovesShown, PauseShown

CHANGES_MAX = 1_000


@dataclass(slots=True)
class DocumentThen:
    """A stored document at a moment."""

    fields: dict[str, Any]
    changed: str
    """When and by whom it was changed last before; empty: that is not recorded."""


@dataclass(slots=True)
class DocumentsThen:
    """The documents of one kind at a moment, by what they are of."""

    documents: dict[str, DocumentThen]
    notes: list[str]
    missing: dict[str, str] = field(default_factory=dict)


def documents_then(
    admin: AdminClient, root: str, present: Mapping[str, Mapping[str, Any]], at_ms: int
) -> DocumentsThen:
    """The documents below a path at a moment. `present`: those of now, as they are stored: what was
    ordered before there are records is among them, unless it is over since. Raises
    `OperationalError` for a daemon, whose changes do not say what became of documents.
    """
    events = events_of(
        admin,
        (AuditedChange.kind,),
        root,
        limit=CHANGES_MAX,
        wanted=lambda event: _is_of(event.record_as(AuditedChange).path or "", root),
    )
    if events.of_daemon:
        raise OperationalError(
            "the daemon keeps pins, cordons and goals in a file, of which no past state is "
            "recorded; `admin audit --until TIME` tells how they were changed"
        )
    return rebuilt(events, present, at_ms)


def _is_of(path: str, root: str) -> bool:
    """Whether a document is that of a path, or right below it."""
    return root in (path, path.rpartition("/")[0])


def pause_then(admin: AdminClient, at_ms: int) -> list[str]:
    """That moves were paused at a moment, until when, why, by whom and since when; empty if they
    were not, as far as that is recorded.
    """
    present = dict[str, dict[str, Any]]()
    with contextlib.suppress(OperationalError):  # without a leader
        if (pause := admin.get(f"{OWN}/moves{query(limit=1)}", MovesShown).paused) is not None:
            present[paths.last(paths.PAUSE)] = {
                "untilMs": pause.until, "note": pause.note, "by": pause.by, "sinceMs": pause.since
            }  # fmt: skip
    try:
        then = documents_then(admin, paths.PAUSE, present, at_ms).documents
    except OperationalError:  # of a daemon
        return []
    return [
        paused_text(
            PauseShown(
                until=it.fields["untilMs"],
                note=it.fields.get("note", ""),
                by=it.fields.get("by", ""),
                since=it.fields.get("sinceMs"),
            ),
            verb="were",
        )
        for it in then.values()
        if it.fields.get("untilMs", 0) > at_ms  # else it was over
    ]


def cordons_then(admin: AdminClient, at_ms: int) -> Mapping[str, DocumentThen]:
    """Broker → its cordon at a moment. Raises `OperationalError` for a daemon."""
    present = dict[str, dict[str, Any]]()
    with contextlib.suppress(OperationalError):  # without a leader
        present = {
            it.broker: {"sinceMs": it.since, "by": it.by, "drain": it.state != "cordoned"}
            for it in admin.get(f"{OWN}/cordons", list[CordonShown])
        }
    return documents_then(admin, paths.CORDONS, present, at_ms).documents


def rebuilt(
    events: EventsOfAll, present: Mapping[str, Mapping[str, Any]], at_ms: int
) -> DocumentsThen:
    """The documents of then: forwards from the change that made them; where that is not recorded,
    backwards from the present.
    """
    changes = dict[str, list[tuple[int, AuditedChange]]]()
    for event in sorted(events.events, key=lambda it: (it.ts, it.id)):
        change = event.record_as(AuditedChange)
        name = paths.decode(paths.last(change.path or ""))
        changes.setdefault(name, []).append((event.ts, change))
    documents = dict[str, DocumentThen]()
    for name in sorted({*changes, *present}):
        of = changes.get(name, [])
        before = [change for ts, change in of if ts <= at_ms]
        after = [change for ts, change in of if ts > at_ms]
        fields = _forwards(before)
        if fields is None and not (before and before[-1].after is None):
            fields = _backwards(present.get(name), after)
        if fields is not None:
            last = max(((ts, change) for ts, change in of if ts <= at_ms), default=None, key=_time)
            by = "" if last is None else f"{clock(last[0])} by {last[1].role or last[1].address}"
            documents[name] = DocumentThen(fields, by)
    notes = list(events.notes)
    for name, of in changes.items():
        cut = [ts for ts, change in of if _is_cut(change)]
        if cut:
            notes.append(
                f"the change of {name} at {clock(cut[-1])} is too long to be recorded whole"
            )
    if len(events.events) == CHANGES_MAX:
        notes.append(f"only the last {CHANGES_MAX:,} changes were looked through")
    return DocumentsThen(documents, notes, events.missing)


def _is_cut(change: AuditedChange) -> bool:
    return any((text or "").endswith("…") for text in (change.before, change.after))


def _time(change: tuple[int, AuditedChange]) -> int:
    return change[0]


def _forwards(changes: Sequence[AuditedChange]) -> dict[str, Any] | None:
    """What changes made, the oldest first; None: nothing, or it was there before the first."""
    fields: dict[str, Any] | None = None
    for change in changes:
        if change.after is None:
            fields = None
        elif change.before is None:
            fields = fields_of_change(change.after)
        elif fields is not None:
            for name in fields_of_change(change.before):
                fields.pop(name, None)
            fields |= fields_of_change(change.after)
    return fields


def _backwards(
    present: Mapping[str, Any] | None, changes: Sequence[AuditedChange]
) -> dict[str, Any] | None:
    """What it was before these changes, the oldest first; None: it was not there."""
    fields = None if present is None else dict(present)
    for change in reversed(changes):
        if change.before is None:
            fields = None
            continue
        fields = fields or {}
        for name in fields_of_change(change.after):
            fields.pop(name, None)
        fields |= fields_of_change(change.before)
    return fields
