"""The mark of a directory that brokers share: a file with an id."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

NAME = "shared.id"
MARK_BYTES_MAX = 100
FOLDER_OF_LOG = re.compile(r"[0-9a-f]{16}")


class DirectoryMark:
    """The mark of one directory. All methods block, and raise `OSError`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> str | None:
        """The id; None without a mark."""
        try:
            with self.path.open("rb") as file:
                return file.read(MARK_BYTES_MAX).decode(errors="replace").strip() or None
        except FileNotFoundError:
            return None

    def leave(self, mark: str) -> str:
        """Mark the directory, durably, unless somebody has; returns the mark that it has then."""
        draft = self.path.with_name(f"{NAME}.{secrets.token_hex(8)}.draft")
        try:
            with draft.open("x") as file:
                file.write(f"{mark}\n")
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
        return self.read() or mark

    def has_topics(self) -> bool:
        """Whether topics are stored in the directory."""
        return any(FOLDER_OF_LOG.fullmatch(path.name) for path in self.path.parent.iterdir())
