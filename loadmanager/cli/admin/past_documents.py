"""What tenants, policies, groups and other stored documents were at a moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loadmanager.cli.admin.archives import incomplete
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import Output
from loadmanager.cli.admin.past_wishes import documents_then
from loadmanager.cli.terminal import Shown, table


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


def document_then(
    admin: AdminClient, path: str, present: Mapping[str, Any] | None, at_ms: int
) -> Output:
    """One document as it was; `present`: as it is now, None if it is not there."""
    name = path.rpartition("/")[2]
    now = {} if present is None else {name: present}
    then = documents_then(admin, path, now, at_ms)
    if not then.documents:
        text = "it was not there, as far as it is recorded"
        return Output(None, (text, *incomplete(then.notes)), status=1, missing=then.missing)
    (document,) = then.documents.values()
    lines = json.dumps(document.fields, indent=2, sort_keys=True).splitlines()
    changed = [f"changed last before: {document.changed}"] if document.changed else []
    parts = (lines, *changed, *incomplete(then.notes))
    return Output(document.fields, parts, missing=then.missing)


def _in_line(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in sorted(fields.items()))


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
