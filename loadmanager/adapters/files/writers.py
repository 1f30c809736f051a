"""Folders of the processes that write log files: each storage has a folder `writers/<name>` with
its journals, the marks by which others end its runs, and a file that it keeps locked.

A name is used once. The folder of one whose lock is free belongs to a process that has ended:
whoever finds it brings its journals into their segments and deletes it.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import structlog

from loadmanager.adapters.files.commit_journal import Place, is_cut_off, read_batches, write_batch

WRITERS = "writers"
DAMAGED = "damaged"
"""Where journals are kept of which a part cannot be read."""
JOURNAL_BYTES = 16 * 1024 * 1024
BUFFER_BYTES = 4 * 1024 * 1024
"""So much waits in memory to be written to segments."""
FENCES_MAX = 100_000
"""Ends of runs that a writer remembers; those of long ago have no lease any more."""

log = structlog.get_logger("storage")


class Disk(Protocol):
    """Files by path below a directory, `/` between folder and name. Raises `OSError`."""

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write to a file, which is created if need be."""
        ...

    def sync(self, path: str) -> None:
        """Make what was written to a file durable, with its name."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Replace a whole file at once; durable when the system likes."""
        ...

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """At most `size` bytes; fewer at the end of the file. −1: all."""
        ...

    def exists(self, path: str) -> bool:
        """True if there is such a file or folder."""
        ...

    def has(self, path: str, size: int) -> bool:
        """True if a file that this thread writes still has its name, and so many bytes."""
        ...

    def names(self, folder: str) -> list[str]:
        """The files and folders in a folder, sorted; none if it does not exist."""
        ...

    def release(self, path: str) -> None:
        """Close a file: this thread writes nothing more to it."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        ...

    def make_folder(self, folder: str) -> None:
        """Create a folder, durably, unless it exists."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Delete an empty folder, if it exists."""
        ...

    def lock(self, path: str) -> bool:
        """Lock a file, which is created if need be, until the process ends or `unlock`; false if
        another process has locked it.
        """
        ...

    def unlock(self, path: str) -> None:
        """Let others lock a file, if it is locked."""
        ...

    def holds(self, path: str) -> bool:
        """True if the file of that name is the one that this process has locked."""
        ...


class Buffer:
    """Data that is in a journal but not in its segments yet. The thread that commits uses it; other
    threads may ask whether a segment is in it.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._pieces: dict[str, list[bytes]] = {}
        self._offsets: dict[str, int] = {}
        self._size = 0

    def __contains__(self, path: str) -> bool:
        return path in self._pieces

    @property
    def full(self) -> bool:
        """True if the buffer must be flushed before more is added."""
        return self._size >= BUFFER_BYTES

    def add(self, path: str, offset: int, data: bytes) -> None:
        """Keep a piece, which follows the one before in its segment."""
        if data:
            self._offsets.setdefault(path, offset)
            self._pieces.setdefault(path, []).append(data)
            self._size += len(data)

    def written(self, path: str, end: int) -> int:
        """The number of the first `end` bytes of a segment that are in its file, not in this
        buffer.
        """
        return min(self._offsets.get(path, end), end)

    def flush(self, paths: Iterable[str] | None) -> None:
        """Write what is kept of some segments, or of all. What cannot be written is kept, and so is
        that of a log whose folder is not there: in a new one, nobody would look for it.
        """
        for path in self.paths() if paths is None else paths:
            pieces = self._pieces.get(path)
            if pieces and self._disk.exists(path.partition("/")[0]):
                data = b"".join(pieces)
                self._disk.write(path, self._offsets[path], data)
                self._forget(path, len(data))

    def _forget(self, path: str, size: int) -> None:
        del self._pieces[path], self._offsets[path]
        self._size -= size

    def paths(self, log_id: int | None = None) -> list[str]:
        """The segments that it keeps something of; of one log, if that is given."""
        prefix = "" if log_id is None else f"{log_id:016x}/"
        return [path for path in list(self._pieces) if path.startswith(prefix)]

    def drop(self, log_id: int) -> None:
        """Forget what is kept of a log."""
        for path in self.paths(log_id):
            self._forget(path, sum(len(piece) for piece in self._pieces[path]))


class Writer:
    """The folder of this storage. `begin` may be called by any thread, the others by the one that
    commits.
    """

    def __init__(self, disk: Disk, name: str, journal_bytes: int) -> None:
        self.name = name
        self.retired: list[tuple[str, list[str]]] = []
        """Journals that are full, with the segments that must be synced before they go."""
        self._disk, self._journal_bytes = disk, journal_bytes
        self._folder = f"{WRITERS}/{name}"
        self._begun = False
        self._changing = threading.Lock()
        self._fenced: dict[int, int] = {}
        """Log → the last run that was ended."""
        self._number = self._size = 0
        self._covered: dict[str, None] = {}

    def begin(self) -> None:
        """Take the folder."""
        with self._changing:
            if not self._begun:
                if not self._disk.lock(f"{self._folder}/lock"):
                    raise OSError(errno.EBUSY, "the folder of this storage is locked")
                self._begun = True

    def fence(self, log_id: int, run: int) -> None:
        """A run of this writer has ended. May be called by any thread."""
        with self._changing:
            self._fenced[log_id] = max(run, self._fenced.pop(log_id, 0))
            while len(self._fenced) > FENCES_MAX:
                del self._fenced[next(iter(self._fenced))]

    def look(self) -> None:
        """Learn which runs others have ended. Raises `OSError` when the folder is gone: then others
        took this process for dead.
        """
        names = self._disk.names(self._folder)
        if not self._disk.holds(f"{self._folder}/lock"):
            raise OSError(
                errno.ESTALE,
                "another broker has ended this storage, or its directory is another one by now",
            )
        for name in names:
            if name.endswith(".fenced"):
                with suppress(ValueError):
                    log_id, run = (int(part, 16) for part in name[: -len(".fenced")].split("-"))
                    self.fence(log_id, run)
                self._disk.remove(f"{self._folder}/{name}")

    def abandon(self) -> None:
        """Write nothing more: whoever finds the folder may end it."""
        for path in (self._path, *self._covered):
            self._disk.release(path)
        with self._changing:
            if self._begun:
                self._disk.unlock(f"{self._folder}/lock")
                self._begun = False

    def has_ended(self, log_id: int, run: int) -> bool:
        """True if a run was ended."""
        return run <= self._fenced.get(log_id, -1)

    def commit(self, pieces: Iterable[tuple[Place, bytes]]) -> None:
        """Make pieces durable."""
        path = self._path
        data = write_batch(path, pieces)
        for place, _ in pieces:
            self._covered[place.path] = None
        try:
            self._disk.write(path, self._size, data)
            self._disk.sync(path)
        except OSError:
            self.retire()  # nothing is read behind what is torn
            raise
        self._size += len(data)

    @property
    def probe_path(self) -> str:
        """A file that is written only to see whether that is possible."""
        return f"{self._folder}/probe"

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self._number:08x}.journal"

    def retire(self, *, only_full: bool = False) -> None:
        """Begin another journal; what the present one covers is in the segments or in the buffer by
        now.
        """
        if only_full and self._size < self._journal_bytes:
            return
        self._disk.release(self._path)
        self.retired.append((self._path, list(self._covered)))
        self._covered.clear()
        self._number, self._size = self._number + 1, 0


class OtherWriters:
    """The folders of all other storages. May be used by any thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._applied: dict[str, dict[str, int]] = {}
        """Writer that lives → journal → up to where it was applied."""
        self.damaged = 0
        """Damaged parts found in journals since start."""

    def fence(self, writer: str, log_id: int, run: int) -> None:
        """End a run of a writer, which looks for the mark after every write. It need not be
        durable: a machine that stops ends all runs.
        """
        if self._disk.exists(f"{WRITERS}/{writer}/lock"):
            self._disk.create(f"{WRITERS}/{writer}/{log_id:x}-{run:x}.fenced", b"")

    def names(self) -> list[str]:
        """All writers that have a folder."""
        return self._disk.names(WRITERS)

    def recover(self, writer: str) -> int:
        """Bring a writer's journals into their segments; if its process has ended, sync them and
        delete the folder. Returns the bytes that were written.
        """
        folder = f"{WRITERS}/{writer}"
        with self._lock:
            if not self._disk.exists(f"{folder}/lock"):
                return 0  # its segments have everything
            dead = self._disk.lock(f"{folder}/lock")
            try:
                return self._recover(writer, folder, dead=dead)
            except OSError:
                if dead:  # or else others would take it for alive
                    self._disk.unlock(f"{folder}/lock")
                raise

    def _recover(self, writer: str, folder: str, *, dead: bool) -> int:
        applied = self._applied.setdefault(writer, {})
        journals = [name for name in self._disk.names(folder) if name.endswith(".journal")]
        segments, size = dict[str, None](), 0
        for name in journals:
            with suppress(FileNotFoundError):  # its segments have been synced meanwhile
                known = {} if dead else applied
                size += self._apply(f"{folder}/{name}", name, known, segments, dead=dead)
        if not dead:
            self._applied[writer] = {name: applied.get(name, 0) for name in journals}
            return size
        self._delete(folder, segments)
        del self._applied[writer]
        return size

    def _apply(
        self,
        path: str,
        name: str,
        applied: dict[str, int],
        segments: dict[str, None],
        *,
        dead: bool,
    ) -> int:
        begin = end = applied.get(name, 0)
        raw = self._disk.read(path, begin)
        for size, damaged, pieces in read_batches(path, raw):
            if damaged:
                self._keep_damaged(path, end, damaged)
            for place, data in pieces:
                target = place.path
                folder = target.partition("/")[0]
                # What is not there was deleted; a new segment's name may have been lost.
                if self._disk.exists(target if place.offset else folder):
                    self._disk.write(target, place.offset, data)
                    segments[target] = None
            end = begin + size
        for target in segments:
            self._disk.release(target)
        applied[name] = end
        if dead and (rest := raw[end - begin :]):
            if is_cut_off(path, rest):
                size = len(rest)
                log.warning("a commit was cut off and is left out", file=path, at=end, bytes=size)
            else:
                self._keep_damaged(path, end, len(rest))
        return end - begin

    def _keep_damaged(self, path: str, at: int, size: int) -> None:
        """A part of a journal, other than a torn end, cannot be read: its data are lost if they are
        not in the segments. The journal is kept, for whoever may know better.
        """
        self.damaged += 1
        kept = f"{DAMAGED}/{path.replace('/', '-')}"
        if not self._disk.exists(kept):
            self._disk.make_folder(DAMAGED)
            self._disk.create(kept, self._disk.read(path))
        log.error(
            "a part of a journal is damaged: stored messages may be lost",
            file=path,
            offset=at,
            bytes=size,
            kept=kept,
        )

    def _delete(self, folder: str, segments: Iterable[str]) -> None:
        for path in segments:
            with suppress(FileNotFoundError):
                self._disk.sync(path)
                self._disk.release(path)
        for name in self._disk.names(folder):
            if name != "lock":
                self._disk.remove(f"{folder}/{name}")
        self._disk.remove(f"{folder}/lock")
        self._disk.unlock(f"{folder}/lock")
        self._disk.remove_folder(folder)
