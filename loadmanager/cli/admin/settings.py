"""`loadmanager admin settings …`: keys of broker.conf that change while all brokers run."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from urllib.parse import quote

import click

from loadmanager.cli.admin.archives import at_option, events_of, incomplete
from loadmanager.cli.admin.asking import V2
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done, listed, unchanged
from loadmanager.cli.admin.shapes import Names, Texts
from loadmanager.cli.admin.times import clock
from loadmanager.cli.terminal import table
from loadmanager.engine.history.archived import SETTINGS
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import OperationalError

CHANGES_MAX = 2_000
CONFIGURATION = f"{V2}/brokers/configuration"

group = AdminGroup(
    "settings", help="Keys of broker.conf that change while the brokers run: list, set, unset."
)
_key = click.argument("key")


@group.command("list")
@click.option("--all", "every", is_flag=True, help="all that can be set, not only those that are")
@at_option
def settings_list(admin: AdminClient, *, every: bool, at: int | None) -> Output:
    """List the keys that are set for all brokers; the others are as in each one's broker.conf.

    With --at, those of then: the present ones without what was changed since.
    """
    values = admin.get(f"{CONFIGURATION}/values", Texts)
    if at is not None:
        return _settings_at(admin, values, at)
    if not every:
        return listed(values, ("key", "value"), sorted(values.items()), "no key is set")
    names = admin.get(CONFIGURATION, Names)
    rows = [(name, values.get(name)) for name in sorted(names)]
    return Output({name: values.get(name) for name in names}, table(("key", "value"), rows))


def _settings_at(admin: AdminClient, values: Texts, at_ms: int) -> Output:
    changes = events_of(admin, ("change",), SETTINGS, since_ms=at_ms + 1, limit=CHANGES_MAX)
    since: dict[str, str] = {}
    for change in changes.events:  # the newest first
        record = change.record_as(ChangeShown)
        before, after = _fields(record.before), _fields(record.after)
        for key in sorted({*before, *after}):
            values.pop(key, None)
            if key in before:
                values[key] = str(before[key])
            since[key] = f"{clock(change.ts)} by {record.role or record.address}"
    names = sorted({*values, *since})
    rows = [(name, values.get(name), since.get(name, "")) for name in names]
    shown = table(("key", "value", "changed"), rows) if rows else "no key was set"
    data = [dict(zip(("key", "value", "changed"), row, strict=True)) for row in rows]
    return Output(data, (shown, *incomplete(changes.notes)), missing=changes.missing)


def _fields(text: str | None) -> dict[str, Any]:
    """The keys that a change names; none if its text was cut off."""
    with contextlib.suppress(ValueError):
        fields = json.loads(text or "{}")
        if isinstance(fields, dict):
            return fields
    return {}


@group.command("set")
@_key
@click.argument("value")
def settings_set(admin: AdminClient, key: str, value: str) -> Output:
    """Set a key for all brokers, at once and for brokers that start later."""
    if admin.get(f"{CONFIGURATION}/values", Texts).get(key) == value:
        return unchanged(f"{key} is {value} on all brokers already", key=key, value=value)
    admin.send("POST", f"{CONFIGURATION}/{quote(key, safe='')}/{quote(value, safe='')}")
    return done(f"{key} is {value} on all brokers", key=key, value=value)


@group.command("unset")
@_key
def settings_unset(admin: AdminClient, key: str) -> Output:
    """Let each broker have the value of its own broker.conf again."""
    if key not in admin.get(f"{CONFIGURATION}/values", Texts):
        raise OperationalError(f"{key} is not set: nothing was changed")
    admin.send("DELETE", f"{CONFIGURATION}/{quote(key, safe='')}")
    return done(f"{key} is as in broker.conf again", key=key)
