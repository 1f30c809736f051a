"""`loadmanager admin settings …`: keys of broker.conf that change while all brokers run."""

from __future__ import annotations

from urllib.parse import quote

import click

from loadmanager.cli.admin.asking import V2
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminGroup, Output, done, listed, unchanged
from loadmanager.cli.admin.shapes import Names, Texts
from loadmanager.cli.terminal import table
from loadmanager.kit.errors import OperationalError

CONFIGURATION = f"{V2}/brokers/configuration"

group = AdminGroup(
    "settings", help="Keys of broker.conf that change while the brokers run: list, set, unset."
)
_key = click.argument("key")


@group.command("list")
@click.option("--all", "every", is_flag=True, help="all that can be set, not only those that are")
def settings_list(admin: AdminClient, *, every: bool) -> Output:
    """List the keys that are set for all brokers; the others are as in each one's broker.conf."""
    values = admin.get(f"{CONFIGURATION}/values", Texts)
    if not every:
        return listed(values, ("key", "value"), sorted(values.items()), "no key is set")
    names = admin.get(CONFIGURATION, Names)
    rows = [(name, values.get(name)) for name in sorted(names)]
    return Output({name: values.get(name) for name in names}, table(("key", "value"), rows))


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
