"""A disk in memory that several machines share, for tests: a machine that crashes loses what it had
not synced.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC


class SharedFiles:
    """The files as every machine sees them. `room`: bytes that may still be written; −1: any."""

    def __init__(self) -> None:
        self.content: dict[str, bytearray] = {}
        self.room = -1


class MemoryDisk:
    """Implements `adapters.files.log_files.Disk` for one machine."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files
        self._unsynced: dict[str, int] = {}
        """Path → how many of its bytes are durable; those after them may be lost."""
        self.crashed = False

    def append(self, path: str, data: bytes) -> None:
        """Write at the end of a file. Raises `OSError` when the disk is full, after a part."""
        self._check()
        content = self._files.content.setdefault(path, bytearray())
        self._unsynced.setdefault(path, len(content))
        room = self._files.room
        if 0 <= room < len(data):
            content += data[:room]
            self._files.room = 0
            raise OSError(ENOSPC, "No space left on device")
        content += data
        if room >= 0:
            self._files.room -= len(data)

    def sync(self, path: str) -> None:
        """Make durable what was written to a file."""
        self._check()
        self._unsynced.pop(path, None)

    def create(self, path: str, data: bytes) -> None:
        """Replace a whole file."""
        self._check()
        self._files.content[path] = bytearray(data)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """At most `size` bytes. Raises `FileNotFoundError`."""
        self._check()
        if path not in self._files.content:
            raise FileNotFoundError(2, "No such file", path)
        end = None if size < 0 else offset + size
        return bytes(self._files.content[path][offset:end])

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        self._check()
        return path in self._files.content

    def names(self, folder: str) -> list[str]:
        """The files of a folder, sorted."""
        self._check()
        prefix = f"{folder}/"
        return sorted(
            path[len(prefix) :] for path in self._files.content if path.startswith(prefix)
        )

    def release(self, path: str) -> None:
        """Nothing is kept open."""

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        self._check()
        self._files.content.pop(path, None)
        self._unsynced.pop(path, None)

    def remove_folder(self, folder: str) -> None:
        """Folders are not kept."""

    def _check(self) -> None:
        if self.crashed:
            raise OSError(5, "the machine has crashed")

    def crash(self, left: Callable[[int], int]) -> None:
        """The machine stops: of so many bytes that were not synced, `left` are there afterwards."""
        self.crashed = True
        for path, durable in self._unsynced.items():
            content = self._files.content.get(path)
            if content is not None:
                del content[durable + left(len(content) - durable) :]
                if not content:
                    del self._files.content[path]
        self._unsynced.clear()
