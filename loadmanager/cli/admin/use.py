"""`loadmanager admin use`: names of clusters."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from loadmanager.cli.admin import contexts
from loadmanager.cli.admin.client import AdminClient
from loadmanager.cli.admin.command import AdminCommand, Output, given_trust, given_url, listed
from loadmanager.kit.errors import BadInputError, OperationalError


@click.command(cls=AdminCommand)
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="remove the name")
def use(_admin: AdminClient, name: str | None, *, remove: bool) -> Output:
    """Name a cluster by its --url, or choose one that has a name; later commands go to it.

    The URL may be several, with commas: the first that answers is asked.

    Without a name, lists the names.
    """
    stored = contexts.load()
    if name is None and (remove or given_url() is not None):
        raise BadInputError("a name is missing: loadmanager admin use NAME")
    if name is None:
        rows = [
            (name, url, "in use" if name == stored.current else "")
            for name, url in sorted(stored.urls.items())
        ]
        return listed(
            msgspec.to_builtins(stored), ("name", "url", ""), rows, "no cluster has a name"
        )
    if remove:
        contexts.remove(stored, name)
        return Output({"removed": name}, f"{name} is removed; in use: {stored.current or 'none'}")
    url = given_url()
    if url is not None:
        contexts.check_name(name)
        each = [AdminClient(address, timeout_s=1).url for address in url.split(",")]
        stored.urls[name] = ",".join(each)
        stored.trusts.pop(name, None)
        if given_trust():
            stored.trusts[name] = str(Path(given_trust()).resolve())
    elif name not in stored.urls:
        names = ", ".join(sorted(stored.urls)) or "none yet"
        raise OperationalError(f"{name} is not the name of a cluster; add --url (names: {names})")
    stored.current = name
    contexts.save(stored)
    return Output({"name": name, "url": stored.url}, f"{name} ({stored.url}) is in use now")
