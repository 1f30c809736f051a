"""`loadmanager admin settings …`: keys of broker.conf that change while all brokers run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click

from loadmanager.broker.admin.documents import SettingShown
from loadmanager.cli.admin.archives import (
    EventsOfAll,
    events_of,
    fields_of_change,
    has_archives,
    incomplete,
)
from loadmanager.cli.admin.asking import OWN, V2, ask_each, brokers_of, count_of
from loadmanager.cli.admin.audit import changes_of
from loadmanager.cli.admin.client import AdminClient, AnsweredError
from loadmanager.cli.admin.command import AdminGroup, Output, done, unchanged
from loadmanager.cli.admin.shapes import Document, Names, Texts
from loadmanager.cli.admin.times import at_option, clock
from loadmanager.cli.compared_settings import by_value, differing
from loadmanager.cli.terminal import Shown, table
from loadmanager.engine.history.archived import SETTINGS
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.metadata import paths

CHANGES_MAX = 2_000
LINE_MAX = 500
VALUES_MAX = 3
"""Values of one key that are shown; of more, their number."""
UNSET_MAX = 5
SWITCHES = ("loadBalancerEnabled", "loadBalancerSheddingEnabled")
"""Keys that switch balancing."""
OWN_ORIGINS = ("broker.conf", "--set")
UNREAD = 503
SET = "settings set"
"""Where the value of a key comes from that is set for all brokers."""
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
    """List the keys that are set for all brokers, and those that brokers have from broker.conf or a
    command line, with the values, the defaults, who set each, when, and what it was before; and
    say which settings in force differ from broker to broker.

    With --at, those that were set then, each with its last change before.
    """
    values, unread = _set_now(admin)
    if at is not None:
        return _settings_at(admin, values, at)
    answers, missing = ask_each(admin, brokers_of(admin), _in_force)
    compared = _compared(answers)
    origins, _ = ask_each(admin, list(answers), _origins)
    defaults, changes = _defaults(), _last_changes(admin)
    if every:
        names = admin.get(CONFIGURATION, Names)
        rows = list(_every(names, values, answers, origins, defaults))
        data = {
            key: {
                "value": value,
                "from": origin,
                "default": defaults.get(key),
                **(changes[key].data() if key in changes else {}),
            }
            for key, value, origin in rows
        }
        listed_keys = table(("key", "value in force", "from"), rows)
        return Output(data, (listed_keys, compared, unread), missing=missing)
    parts = [_set_keys(values, defaults, changes), *_unset_keys(values, changes)]
    parts += _of_brokers(answers, origins, defaults, set(values))
    return Output(values, (*parts, compared, unread), missing=missing)


def _set_now(admin: AdminClient) -> tuple[dict[str, str], list[str]]:
    """The keys that are set for all brokers; if the store cannot be read, those that are in force
    at the broker that is asked, and that this is so.
    """
    try:
        return admin.get(f"{CONFIGURATION}/values", Texts), []
    except AnsweredError as error:
        if error.status != UNREAD:
            raise
        origins, in_force = _origins(admin, ""), _in_force(admin, "")
        text = f"what is set for all brokers cannot be read ({error}): these are in force here"
        return {key: in_force[key] for key, of in origins.items() if of.origin == SET}, [text]


def _defaults() -> dict[str, str]:
    from loadmanager.broker import settings  # it takes time

    return {name: str(value) for name, value in settings.KEYS.load().runtime().items()}


@dataclass(frozen=True, slots=True)
class LastChange:
    """Who changed a key for all brokers last."""

    ts: int
    who: str
    before: str | None
    """The value before; None: it was not set for all brokers."""

    def data(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"changedAt": self.ts, "changedBy": self.who, "before": self.before}


def _last_changes(admin: AdminClient) -> dict[str, LastChange]:
    """Key → its last change that is recorded; none if nobody can say."""
    last = dict[str, LastChange]()
    for key, change, _ in _recorded_changes(admin):
        last.setdefault(key, change)
    return last


def last_switch(admin: AdminClient, keys: Collection[str]) -> tuple[str, LastChange] | None:
    """The last change that switched one of these keys, which are true if they are not set."""
    for key, change, after in _recorded_changes(admin):
        was, then = (("true" if it is None else it).lower() for it in (change.before, after))
        if key in keys and was != then:
            return key, change
    return None


def switched_off_at(admin: AdminClient, at_ms: int) -> list[str]:
    """That balancing was switched off at a moment, since when and by whom; empty if it was not, as
    far as that is recorded: what a broker.conf says is not.
    """
    changes, off = [*_recorded_changes(admin)], list[str]()
    for key in SWITCHES:
        of_key = [(change, after) for name, change, after in changes if name == key]
        earlier = [it for it in of_key if it[0].ts <= at_ms]
        if earlier:
            change, value = earlier[0]
            since = f" since {clock(change.ts)} by {change.who}"
        elif of_key:
            value, since = of_key[-1][0].before, ""
        else:
            continue
        if (value or "").lower() == "false":
            off.append(f"BALANCING WAS OFF{since} ({key})")
    return off


def _recorded_changes(admin: AdminClient) -> Iterator[tuple[str, LastChange, str | None]]:
    """Key, its change and the value after it, the newest first; none if nobody can say."""
    try:
        if has_archives(admin):
            events = events_of(admin, ("change",), SETTINGS, limit=CHANGES_MAX).events
            records = [it.record_as(ChangeShown) for it in events if it.kind == "change"]
        else:
            records = changes_of(admin, None, None, None, limit=1_000).changes
    except LoadManagerError:
        return
    for record in records:
        if record.path != paths.DYNAMIC_CONFIGURATION or record.failed:
            continue
        before, after = fields_of_change(record.before), fields_of_change(record.after)
        for key in dict.fromkeys((*before, *after)):
            if before.get(key) != after.get(key):
                was, then = (str(of[key]) if key in of else None for of in (before, after))
                yield key, LastChange(record.ts, record.role or record.address, was), then


def _set_keys(
    values: Mapping[str, str], defaults: Mapping[str, str], changes: Mapping[str, LastChange]
) -> Shown:
    """The keys that are set for all brokers."""
    if not values:
        return "no key is set"
    rows = []
    for key, value in sorted(values.items()):
        change = changes.get(key)
        by, at, was = (
            (None, None, None)
            if change is None
            else (change.who, clock(change.ts), change.before or "not set")
        )
        rows.append((key, value, defaults.get(key), was, by, at))
    return table(("key", "value", "default", "before", "set by", "at"), rows)


def _unset_keys(values: Mapping[str, str], changes: Mapping[str, LastChange]) -> list[str]:
    """Those that were given back to broker.conf last, the last one first."""
    lines = [
        (change.ts, f"{key} was {change.before} until {clock(change.ts)}, unset by {change.who}")
        for key, change in changes.items()
        if key not in values and change.before is not None
    ]
    return [text for _, text in sorted(lines, reverse=True)[:UNSET_MAX]]


def _of_brokers(
    answers: Mapping[str, Mapping[str, str]],
    origins: Mapping[str, Mapping[str, SettingShown]],
    defaults: Mapping[str, str],
    beside: Collection[str],
) -> list[Shown]:
    """The keys that brokers have from their own files or command lines, if not the default."""
    own = {
        key: shown.origin
        for each in origins.values()
        for key, shown in each.items()
        if shown.origin in OWN_ORIGINS and key not in beside
    }
    rows = []
    for key in sorted(own):
        said = dict.fromkeys(answer[key] for answer in answers.values() if key in answer)
        if [*said] != [defaults.get(key)]:
            text = f"{len(said)} values" if len(said) > VALUES_MAX else " or ".join(said)
            rows.append((key, text, defaults.get(key), own[key]))
    return [table(("key", "value", "default", "from"), rows)] if rows else []


def _every(
    names: Iterable[str],
    values: Mapping[str, str],
    answers: Mapping[str, Mapping[str, str]],
    origins: Mapping[str, Mapping[str, SettingShown]],
    defaults: Mapping[str, str],
) -> Iterator[tuple[str, str | None, str]]:
    """Each key with its value in force and where that comes from: set for all brokers, their
    broker.conf, their command line, or the default of this version.
    """
    for name in sorted(names):
        said = dict.fromkeys(answer[name] for answer in answers.values() if name in answer)
        value = " or ".join(said) if said else values.get(name)
        of = dict.fromkeys(each[name].origin for each in origins.values() if name in each)
        origin = " or ".join(of)
        if not of:  # of brokers of an earlier version
            origin = "default" if value == defaults.get(name) else "broker.conf or --set"
            origin = SET if name in values else origin
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
