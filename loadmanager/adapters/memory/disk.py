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
        self.unsynced: dict[str, tuple[MemoryDisk, int]] = {}
        """Path → who wrote to it last, and how many of its bytes are durable; those after them may
        be lost.
        """
        self.locks: dict[str, MemoryDisk] = {}


class MemoryDisk:
    """Implements `adapters.files.writers.Disk` for one machine."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files
        self.crashed = False

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write to a file. Raises `OSError` when the disk is full, after a part."""
        self._check()
        content = self._files.content.setdefault(path, bytearray())
        _, durable = self._files.unsynced.get(path, (self, len(content)))
        self._files.unsynced[path] = self, durable
        content += bytes(max(offset - len(content), 0))
        room, more = self._files.room, max(offset + len(data) - len(content), 0)
        if 0 <= room < more:
            fits = len(data) - more + room
            content[offset : offset + fits] = data[:fits]
            self._files.room = 0
            raise OSError(ENOSPC, "No space left on device")
        content[offset : offset + len(data)] = data
        if room >= 0:
            self._files.room -= more

    def sync(self, path: str) -> None:
        """Make durable what was written to a file, by anybody."""
        self._check()
        if path not in self._files.content:
            raise FileNotFoundError(2, "No such file", path)
        self._files.unsynced.pop(path, None)

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
        """True if there is such a file; folders always exist."""
        self._check()
        return path in self._files.content or "/" not in path

    def has(self, path: str, size: int) -> bool:
        """True if there is a file of so many bytes."""
        self._check()
        return path in self._files.content and len(self._files.content[path]) >= size

    def names(self, folder: str) -> list[str]:
        """The files and folders in a folder, sorted."""
        self._check()
        prefix = f"{folder}/"
        return sorted(
            {
                path[len(prefix) :].partition("/")[0]
                for path in self._files.content
                if path.startswith(prefix)
            }
        )

    def release(self, path: str) -> None:
        """Do nothing: no file is kept open."""

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        self._check()
        self._files.content.pop(path, None)
        self._files.unsynced.pop(path, None)

    def make_folder(self, folder: str) -> None:
        """Folders are not kept."""

    def remove_folder(self, folder: str) -> None:
        """Folders are not kept."""

    def lock(self, path: str) -> bool:
        """Lock a file until the machine crashes."""
        self._check()
        holder = self._files.locks.get(path)
        if holder is not None and not holder.crashed:
            return False
        self._files.locks[path] = self
        self._files.content.setdefault(path, bytearray())
        return True

    def unlock(self, path: str) -> None:
        """Let others lock a file."""
        self._files.locks.pop(path, None)

    def holds(self, path: str) -> bool:
        """True if this machine has locked the file."""
        return path in self._files.content and self._files.locks.get(path) is self

    def _check(self) -> None:
        if self.crashed:
            raise OSError(5, "the machine has crashed")

    def crash(self, left: Callable[[int], int]) -> None:
        """The machine stops: of so many bytes that were not synced, `left` are there afterwards."""
        self.crashed = True
        mine = {path: at for path, (disk, at) in self._files.unsynced.items() if disk is self}
        for path, durable in mine.items():
            del self._files.unsynced[path]
            content = self._files.content.get(path)
            if content is not None:
                del content[durable + left(len(content) - durable) :]
                if not content:
                    del self._files.content[path]
