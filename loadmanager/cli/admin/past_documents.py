"""What tenants, policies, groups and other stored documents were at a moment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from loadmanager.cli.admin.archives import events_of, fields_of_change, incomplete
from loadmanager.cli.admin.asking import namespaces_of
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.past_wishes import CHANGES_MAX, documents_then, rebuilt
from loadmanager.cli.terminal import Shown, table
from loadmanager.engine.history.records import AuditedChange
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths

PARTITIONS_MAX = 100_000
"""A record of more is damaged."""
_TOPIC = re.compile(
    rf"({paths.MANAGED_LEDGERS}|{paths.PARTITIONED_TOPICS})/([^/]+/[^/]+)/([^/]+)/([^/]+)"
)


def listed_then(
    admin: AdminClient, root: str, present: Mapping[str, Mapping[str, Any]], at_ms: int
) -> Output:
    """The documents below a path as they were, each with its last change before; `present`: those
    of now, by name.
    """
    then = documents_then(admin, root, present, at_ms)
    data = [
        {"name": name, "fields": it.fields, "changed": it.changed}
        for name, it in then.documents.items()
    ]
    rows = [(name, _in_line(it.fields), it.changed) for name, it in then.documents.items()]
    shown: Shown = "there was none, as far as it is recorded"
    if rows:
        shown = table(("name", "value", "changed"), rows)
    return Output(data, (shown, *incomplete(then.notes)), missing=then.missing)


def as_json(fields: Mapping[str, Any]) -> tuple[Any, Sequence[str]]:
    """A document as data, and in lines."""
    lines = json.dumps(fields, indent=2, sort_keys=True).splitlines()
    return fields, lines if fields else ["nothing was set"]


def document_then(
    admin: AdminClient,
    path: str,
    present: Mapping[str, Any] | None,
    at_ms: int,
    shown: Callable[[Mapping[str, Any]], tuple[Any, Sequence[str]]] = as_json,
) -> Output:
    """One document as it was; `present`: as it is now, None if it is not there. `shown`: how its
    fields are told, as data and in lines.
    """
    name = paths.decode(paths.last(path))
    now = {} if present is None else {name: present}
    then = documents_then(admin, path, now, at_ms)
    if (document := then.documents.get(name)) is None:
        text = "it was not there, as far as it is recorded"
        return Output(None, (text, *incomplete(then.notes)), status=1, missing=then.missing)
    data, lines = shown(document.fields)
    changed = [f"changed last before: {document.changed}"] if document.changed else []
    parts = ([*lines], *changed, *incomplete(then.notes))
    return Output(data, parts, missing=then.missing)


def namespaces_then(admin: AdminClient, tenant: str, at_ms: int) -> set[str]:
    """The namespaces of a tenant at a moment, as far as their changes are recorded; else those of
    now. None of a daemon.
    """
    root = f"{paths.POLICIES}/{tenant}"
    with suppress(OperationalError):
        now = {name.rpartition("/")[2]: dict[str, Any]() for name in namespaces_of(admin, tenant)}
        changes = events_of(
            admin,
            (AuditedChange.kind,),
            root,
            limit=CHANGES_MAX,
            wanted=lambda event: (
                (event.record_as(AuditedChange).path or "").rpartition("/")[0] == root
            ),
        )
        return {f"{tenant}/{name}" for name in rebuilt(changes, now, at_ms).documents}
    return set()


def topics_then(
    admin: AdminClient, namespace: str, present: Collection[str], at_ms: int
) -> tuple[list[str], list[str], dict[str, str]]:
    """The persistent topics of a namespace as they were: those of now, without those that were made
    since, and with those that were deleted; what is not known; and who did not answer.
    """
    changes = events_of(
        admin, (AuditedChange.kind,), namespace, since_ms=at_ms + 1, limit=CHANGES_MAX
    )
    topics = {name for name in present if name.startswith("persistent://")}
    for event in changes.events:  # the newest first
        change = event.record_as(AuditedChange)
        if (match := _TOPIC.fullmatch(change.path or "")) is None or change.failed:
            continue
        name = f"{match[3]}://{match[2]}/{paths.decode(match[4])}"
        of = {name}
        if match[1] == paths.PARTITIONED_TOPICS:
            of = _partitions(name, fields_of_change(change.before or change.after))
        if change.before is None and change.after is not None:
            topics -= of
        elif change.after is None:
            topics |= of
    notes = list(changes.notes)
    if len(changes.events) == CHANGES_MAX:
        notes.append(f"only the last {CHANGES_MAX:,} changes of {namespace} were looked through")
    return sorted(topics), notes, changes.missing


def _partitions(topic: str, fields: Mapping[str, Any]) -> set[str]:
    """The partitions of a topic by its record, which may hold anything."""
    count = fields.get("partitions")
    if not isinstance(count, int) or not 0 < count <= PARTITIONS_MAX:
        return set()
    return {f"{topic}-partition-{index}" for index in range(count)}


def _in_line(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in sorted(fields.items()))


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
