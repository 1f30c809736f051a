"""The id of a storage directory that brokers share: a file in it."""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

NAME = "shared.id"
BYTES_MAX = 100
_ID = re.compile(rb"[0-9a-f]{16}")
_FOLDER_OF_LOG = re.compile(r"[0-9a-f]{16}")


def new_id() -> str:
    """An id that no other directory has."""
    return secrets.token_hex(8)


def id_in(data: bytes) -> str | None:
    """The id in a file or a node; None if something else is in it."""
    text = data.strip()
    return text.decode() if _ID.fullmatch(text) else None


class SharedId:
    """The id of one directory. All methods block, and raise `OSError`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory.absolute() / NAME

    def read(self) -> str | None:
        """The id; None without a file."""
        try:
            with self.path.open("rb") as file:
                found = id_in(file.read(BYTES_MAX))
        except FileNotFoundError:
            return None
        if found is None:
            raise OSError(errno.EINVAL, f"there is no id in {self.path}")
        return found

    def give(self, new: str) -> str:
        """Give the directory this id, durably, unless it has one; returns the one that it has."""
        draft = self.path.with_name(f"{NAME}.{secrets.token_hex(8)}.draft")
        try:
            with draft.open("x") as file:
                file.write(f"{new}\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self.read() or new

    def has_topics(self) -> bool:
        """True if topics are stored in the directory."""
        return any(_FOLDER_OF_LOG.fullmatch(path.name) for path in self.path.parent.iterdir())
