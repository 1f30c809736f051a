"""`loadmanager admin settings …`: keys of broker.conf that change while all brokers run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import click

from loadmanager.broker.admin.documents import SettingShown
from loadmanager.cli.admin.archives import EventsOfAll, events_of, fields_of_change, incomplete
from loadmanager.cli.admin.asking import OWN, V2, ask_each, brokers_of, count_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminGroup, Output, done, unchanged
from loadmanager.cli.admin.shapes import Document, Names, Texts
from loadmanager.cli.admin.times import at_option, clock
from loadmanager.cli.compared_settings import by_value, differing
from loadmanager.cli.terminal import table
from loadmanager.engine.history.archived import SETTINGS
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import OperationalError

CHANGES_MAX = 2_000
LINE_MAX = 500
CONFIGURATION = f"{V2}/brokers/configuration"

group = AdminGroup(
    "settings", help="Keys of broker.conf that change while the brokers run: list, set, unset."
)
_key = click.argument("key")


@group.command("list")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="all that can be set: the value in force and where it comes from",
)
@at_option
def settings_list(admin: AdminClient, *, every: bool, at: int | None) -> Output:
    """List the keys that are set for all brokers, and say which settings in force differ from
    broker to broker; keys that are not set are as in each one's broker.conf, else the defaults.

    With --at, those that were set then, each with its last change before.
    """
    values = admin.get(f"{CONFIGURATION}/values", Texts)
    if at is not None:
        return _settings_at(admin, values, at)
    answers, missing = ask_each(admin, brokers_of(admin), _in_force)
    compared = _compared(answers)
    if every:
        origins, _ = ask_each(admin, list(answers), _origins)
        rows = list(_every(admin.get(CONFIGURATION, Names), values, answers, origins))
        data = {key: {"value": value, "from": origin} for key, value, origin in rows}
        listed_keys = table(("key", "value in force", "from"), rows)
        return Output(data, (listed_keys, compared), missing=missing)
    shown = table(("key", "value"), sorted(values.items())) if values else "no key is set"
    return Output(values, (shown, compared), missing=missing)


def _every(
    names: Iterable[str],
    values: Mapping[str, str],
    answers: Mapping[str, Mapping[str, str]],
    origins: Mapping[str, Mapping[str, SettingShown]],
) -> Iterator[tuple[str, str | None, str]]:
    """Each key with its value in force and where that comes from: set for all brokers, their
    broker.conf, their command line, or the default of this version.
    """
    from loadmanager.broker import settings  # it takes time

    defaults = {name: str(value) for name, value in settings.KEYS.load().runtime().items()}
    for name in sorted(names):
        said = dict.fromkeys(answer[name] for answer in answers.values() if name in answer)
        value = " or ".join(said) if said else values.get(name)
        of = dict.fromkeys(each[name].origin for each in origins.values() if name in each)
        origin = " or ".join(of)
        if not of:  # of brokers of an earlier version
            origin = "default" if value == defaults.get(name) else "broker.conf or --set"
            origin = "settings set" if name in values else origin
        if name not in values and len(said) > 1:
            origin += ", which differ"
        yield name, value, "no broker says" if value is None else origin


def _origins(at: AdminClient, _broker: str) -> dict[str, SettingShown]:
    try:
        return at.get(f"{OWN}/settings", dict[str, SettingShown])
    except AnsweredError:  # an earlier version
        return {}


def _compared(answers: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Whether all brokers have the same settings, in lines."""
    differ = differing(answers)
    if not differ:
        return [f"the settings in force are the same on {count_of(len(answers), 'broker')}"]
    return [f"{key} differs: {by_value(values)}"[:LINE_MAX] for key, values in differ.items()]


def _in_force(at: AdminClient, _broker: str) -> dict[str, str]:
    keys = at.get(f"{CONFIGURATION}/runtime", Document)
    return {key: str(value) for key, value in keys.items()}


def _settings_at(admin: AdminClient, values: Texts, at_ms: int) -> Output:
    """The present values without what was changed since, each with its last change before."""
    later = events_of(admin, ("change",), SETTINGS, since_ms=at_ms + 1, limit=CHANGES_MAX)
    for _, before, after in _changes(later):  # the newest first
        for key in (*before, *after):
            values.pop(key, None)
        values |= {key: str(value) for key, value in before.items()}
    earlier = events_of(admin, ("change",), SETTINGS, until_ms=at_ms, limit=CHANGES_MAX)
    changed: dict[str, str] = {}
    for text, before, after in _changes(earlier):
        for key in (*before, *after):
            changed.setdefault(key, text)
    rows = [(key, value, changed.get(key, "")) for key, value in sorted(values.items())]
    shown = table(("key", "value", "changed"), rows) if rows else "no key was set"
    data = [dict(zip(("key", "value", "changed"), row, strict=True)) for row in rows]
    notes = list(dict.fromkeys((*later.notes, *earlier.notes)))
    return Output(data, (shown, *incomplete(notes)), missing={**later.missing, **earlier.missing})


def _changes(events: EventsOfAll) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """When and by whom settings were changed, and the keys before and after."""
    for event in events.events:
        record = event.record_as(ChangeShown)
        who = f"{clock(event.ts)} by {record.role or record.address}"
        yield who, fields_of_change(record.before), fields_of_change(record.after)


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
