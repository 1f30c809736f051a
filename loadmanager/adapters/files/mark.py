"""The mark of a directory that brokers share: a file with an id."""

from __future__ import annotations

import os
import re
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

    def leave(self, mark: str) -> None:
        """Mark the directory, durably."""
        draft = self.path.with_name(f"{NAME}.{os.getpid()}.draft")
        with draft.open("w") as file:
            file.write(f"{mark}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def has_topics(self) -> bool:
        """Whether topics are stored in the directory."""
        return any(FOLDER_OF_LOG.fullmatch(path.name) for path in self.path.parent.iterdir())
