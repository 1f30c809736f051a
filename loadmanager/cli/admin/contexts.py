"""The clusters that an operator has named: `loadmanager admin use staging --url http://host:8080`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.private_files import make_folder, write_file


class ClusterContexts(msgspec.Struct):
    """The file: name → URL, and the name in use."""

    urls: dict[str, str] = {}
    current: str | None = None
    trusts: dict[str, str] = {}
    """Name → the file with those who vouch for the brokers' certificates."""

    @property
    def url(self) -> str | None:
        """The URL in use."""
        return self.urls.get(self.current or "")

    def trust_of(self, url: str | None) -> str:
        """The file for a URL that has a name, or for the name in use (None); empty: whom the
        system trusts.
        """
        if url is None:
            return self.trusts.get(self.current or "", "")
        names = [name for name, address in sorted(self.urls.items()) if address == url.rstrip("/")]
        return next((self.trusts[name] for name in names if name in self.trusts), "")


def path() -> Path:
    """The path of the file (XDG base directories)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / (
        "loadmanager/contexts.json"
    )


def load() -> ClusterContexts:
    """The file's content; empty without a file. Raises `BadInputError` if it cannot be read."""
    try:
        return msgspec.json.decode(path().read_bytes(), type=ClusterContexts)
    except FileNotFoundError:
        return ClusterContexts()
    except (OSError, msgspec.DecodeError) as error:
        raise BadInputError(f"{path()}: {error}; mend the file or delete it") from None


def check_name(name: str) -> None:
    """Raise `BadInputError` unless a cluster may have this name."""
    if not re.fullmatch(r"[\w][-.\w]{0,99}", name):
        raise BadInputError(f"{name!r}: a name of letters, digits and -._ is expected")


def remove(contexts: ClusterContexts, name: str) -> None:
    """Forget a name, and write the file. Raises `OperationalError` for one that there is not."""
    if contexts.urls.pop(name, None) is None:
        names = ", ".join(sorted(contexts.urls)) or "none yet"
        raise OperationalError(f"{name} is not the name of a cluster (names: {names})")
    contexts.trusts.pop(name, None)
    if contexts.current == name:
        contexts.current = None
    save(contexts)


def save(contexts: ClusterContexts) -> None:
    """Write the file. Raises `OperationalError` if it cannot be written."""
    try:
        make_folder(path().parent)
        write_file(path(), msgspec.json.format(msgspec.json.encode(contexts)))
    except OSError as error:
        raise OperationalError(f"{path()} cannot be written: {error}") from None
