"""The clusters that an operator has named: `loadmanager admin use staging --url http://host:8080`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import msgspec

from loadmanager.cli.admin_client import AdminClient
from loadmanager.cli.admin_commands import Output
from loadmanager.cli.tables import table
from loadmanager.core.errors import BadInputError, OperationalError


class Contexts(msgspec.Struct):
    """The file: name → URL, and the name in use."""

    urls: dict[str, str] = {}
    current: str | None = None

    @property
    def url(self) -> str | None:
        """The URL in use."""
        return self.urls.get(self.current or "")


def path() -> Path:
    """Where the file is (XDG base directories)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / (
        "loadmanager/contexts.json"
    )


def load() -> Contexts:
    """The file's content; empty without a file. Raises `BadInputError` if it cannot be read."""
    try:
        return msgspec.json.decode(path().read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.DecodeError) as error:
        raise BadInputError(f"{path()}: {error}; mend the file or delete it") from None


def use(_admin: AdminClient, args: argparse.Namespace) -> Output:
    """Name a cluster by its --url, or choose one that has a name; later commands go to it.

    Without a name, lists the names.
    """
    contexts = load()
    if args.name is None:
        rows = [
            (name, url, "in use" if name == contexts.current else "")
            for name, url in sorted(contexts.urls.items())
        ]
        return Output(msgspec.to_builtins(contexts), table(("name", "url", ""), rows))
    if args.given_url is not None:
        contexts.urls[args.name] = AdminClient(args.given_url, timeout_s=1).url
    elif args.name not in contexts.urls:
        known = ", ".join(sorted(contexts.urls)) or "none yet"
        raise BadInputError(f"{args.name} is no name of a cluster; add --url (names: {known})")
    contexts.current = args.name
    try:
        path().parent.mkdir(parents=True, exist_ok=True)
        path().write_bytes(msgspec.json.format(msgspec.json.encode(contexts)))
    except OSError as error:
        raise OperationalError(f"{path()} cannot be written: {error}") from None
    return Output(
        {"name": args.name, "url": contexts.url}, f"{args.name} ({contexts.url}) is in use now"
    )
