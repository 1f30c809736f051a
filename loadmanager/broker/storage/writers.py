"""Folders of the processes that write log files: each storage has a folder `writers/<name>` with
its journals, the marks by which others end its runs, and a file that it keeps locked.

A name is used once. What others do with a folder is in `other_writers`.

A sync that failed is told once: the system takes the pages for clean, and may say yes to the next
sync without writing anything. So a segment of which a sync has failed is in doubt for every journal
that covers it, until the journal's pieces were written to it again, and synced without a failure. A
journal goes when no segment of it is in doubt. Pieces are written again to their places: they are
the same bytes, so that it does not matter who does so at the same time, or how often.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from loadmanager.broker.storage.commit_journal import Place, read_batches, write_batch

WRITERS = "writers"
JOURNAL_BYTES = 16 * 1024 * 1024
BUFFER_BYTES = 4 * 1024 * 1024
"""So much waits in memory to be written to segments."""
RESERVE = "reserve"
"""The file of a writer that takes room, half of a journal's: as much as what waits in memory may
need.
"""
SYNCED_AT_ONCE = 256
"""So many segments are written before they are synced: a disk has them open that long. Of one that
was closed meanwhile, a failure is not told that another process has been told of.
"""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
WAITING_MAX = 4
"""With so many journals that could not be cleared, the logs that they wait for are refused."""
JOURNALS_MAX = 64
"""With so many, all are: it is not a few files that cannot be synced."""
FENCES_MAX = 100_000
"""Ends of runs that a writer remembers; those of long ago have no lease any more."""


class Disk(Protocol):
    """Files by path below a directory, `/` between folder and name. Raises `OSError`."""

    def write(self, path: str, offset: int, data: bytes, *, create: bool = True) -> None:
        """Write to a file, which is created if need be; without `create`, a file that does not
        exist raises `FileNotFoundError`.
        """
        ...

    def sync(self, path: str) -> None:
        """Make what was written to a file durable; with its name, if this disk has written its
        first byte. After an error, what was written since the last sync without one may be lost,
        whatever later calls say.
        """
        ...

    def sync_names(self, folder: str) -> None:
        """Make the names in a folder durable, whoever has given them."""
        ...

    def size(self, path: str) -> int:
        """The bytes of a file, with those that are in memory only."""
        ...

    def read_stored(self, path: str, size: int, offset: int = 0) -> bytes:
        """At most the bytes of a file from `offset` to `size`, as the device has it: without what
        is only in memory since a sync failed.
        """
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

    def make_folder(self, folder: str, *, begins: bool = False) -> None:
        """Create a folder, durably, unless it exists. With `begins`, it may have been created by a
        process that could not make its name durable.
        """
        ...

    def remove_folder(self, folder: str) -> None:
        """Delete an empty folder, if it exists."""
        ...

    def lock(self, path: str, *, create: bool = True) -> bool:
        """Lock a file, which is created if need be, until the process ends or `unlock`; false if
        another process has locked it. Without `create`, a file that does not exist raises
        `FileNotFoundError`.
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
    threads may ask whether a segment is in it. `failed` is told of segments that cannot be
    written; `give_room` may free some on a full disk, and says whether it has.
    """

    def __init__(
        self, disk: Disk, failed: Callable[[str], None], give_room: Callable[[], bool]
    ) -> None:
        self._disk, self._failed, self._give_room = disk, failed, give_room
        self._pieces: dict[str, list[bytes]] = {}
        self._offsets: dict[str, int] = {}
        self._size = 0

    def __contains__(self, path: str) -> bool:
        return path in self._pieces

    def make_room(self) -> None:
        """Flush the buffer if it is full, before more is added."""
        if self._size >= BUFFER_BYTES:
            try:
                self.flush(None)
            except OSError:
                if self._size >= BUFFER_BYTES:
                    raise

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

    def read(self, path: str, offset: int, size: int) -> tuple[int, bytes]:
        """Where in a segment begins what is kept of it, at most `offset + size`, and those of the
        `size` bytes from `offset` on that are kept.
        """
        end = offset + size
        at = self._offsets.get(path, end)
        begin, pieces = min(at, end), list[bytes]()
        for piece in self._pieces.get(path, ()):
            pieces.append(piece[max(offset - at, 0) : max(end - at, 0)])
            at += len(piece)
        return begin, b"".join(pieces)

    def flush(self, paths: Iterable[str] | None) -> None:
        """Write what is kept of some segments, or of all. What cannot be written is kept, and so is
        that of a log whose folder is not there: in a new one, nobody would look for it. An error is
        raised when all others are written.
        """
        failed: OSError | None = None
        for path in self.paths() if paths is None else paths:
            pieces = self._pieces.get(path)
            try:
                if pieces and self._disk.exists(path.partition("/")[0]):
                    data = b"".join(pieces)
                    self._write(path, data)
                    self._forget(path, len(data))
            except OSError as error:
                failed = error
                self._failed(path)
        if failed is not None:
            raise failed

    def _write(self, path: str, data: bytes) -> None:
        try:
            self._disk.write(path, self._offsets[path], data)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._give_room():
                raise
            self._disk.write(path, self._offsets[path], data)

    def _forget(self, path: str, size: int) -> None:
        del self._pieces[path], self._offsets[path]
        self._size -= size

    def paths(self, log_id: int | None = None) -> list[str]:
        """The segments that it keeps something of; of one log, if that is given."""
        prefix = "" if log_id is None else f"{log_id:016x}/"
        return [path for path in list(self._pieces) if path.startswith(prefix)]

    def drop(self, paths: Iterable[str]) -> None:
        """Forget what is kept of some segments."""
        for path in paths:
            if path in self:
                self._forget(path, sum(len(piece) for piece in self._pieces[path]))


class Reserve:
    """A file that takes the room that segments will need for what is in the journal alone: without
    it, nobody could open their topics on a full disk, and so free room. The thread that commits
    takes it, any thread may give it.
    """

    def __init__(self, disk: Disk, path: str, size: int) -> None:
        self._disk, self._path, self._size = disk, path, size
        self._taken = False

    def take(self) -> None:
        """Take the room, if it is not taken. Raises `OSError` if there is none."""
        if self._taken:
            return
        try:
            self._disk.write(self._path, 0, bytes(self._size))
            self._disk.sync(self._path)
        except OSError:
            with suppress(OSError):
                self._disk.remove(self._path)
            raise
        finally:
            self._disk.release(self._path)
        self._taken = True

    def give(self) -> bool:
        """Free the room; false if it was not taken."""
        taken, self._taken = self._taken, False
        if taken:
            self._disk.remove(self._path)
        return taken


def write_piece(disk: Disk, place: Place, data: bytes, gone: dict[str, None]) -> int:
    """Write a piece of a journal to its segment; returns its bytes. What is not there was deleted,
    unless the piece is its first one: it was not written yet, or its name was lost. The segment or
    folder that was not there is added to `gone`.
    """
    begins, folder = place.offset == 0, place.path.partition("/")[0]
    try:
        if not begins or disk.exists(folder):
            disk.write(place.path, place.offset, data, create=begins)
            return len(data)
    except FileNotFoundError:
        pass
    gone[folder if begins else place.path] = None
    return 0


def require_gone(disk: Disk, paths: Iterable[str], *, there: bool) -> None:
    """Files were not there; `there` tells whether their directory is, since then. Raise `OSError`
    if it is not, or if the files are: a share that went away for a moment has deleted nothing.
    """
    if not there or any(disk.exists(path) for path in paths):
        raise OSError(errno.ESTALE, "the directory went away meanwhile")


@dataclass(slots=True)
class Journal:
    """A journal of this storage."""

    path: str
    size: int = 0
    """Bytes that are durable. Behind them may be what a failed commit left."""
    segments: dict[str, None] = field(default_factory=dict)
    """Segments that have pieces in it, and may lack them. When there are none, it may go."""
    doubtful: dict[str, int] = field(default_factory=dict)
    """Segments of which a sync failed after its pieces were written to them; the number of the
    failure.
    """
    waits: bool = False
    """Whether it could not be cleared when that was tried last."""


class Writer:
    """The folder of this storage. One thread calls `commit`, `retire` and `abandon`, one calls
    `clear` and `mend`; any thread may call the others.
    """

    def __init__(self, disk: Disk, name: str, journal_bytes: int) -> None:
        self.name = name
        self.retired: list[Journal] = []
        """Journals that are not written any more, and go when their segments are durable."""
        self._disk, self._journal_bytes = disk, journal_bytes
        self._folder = f"{WRITERS}/{name}"
        self.room = Reserve(disk, f"{self._folder}/{RESERVE}", journal_bytes // 2)
        self._begun = False
        self._changing = threading.RLock()
        self._fenced: dict[int, int] = {}
        """Log → the last run that was ended."""
        self.failures = 0
        """Syncs of segments that failed since start."""
        self._doubts = self._number = 0
        self._journal = self._next_journal()

    def begin(self) -> None:
        """Take the folder."""
        with self._changing:
            if not self._begun:
                if not self._disk.lock(f"{self._folder}/lock"):
                    raise OSError(errno.EBUSY, "the folder of this storage is locked")
                self._begun = True

    def fence(self, log_id: int, run: int) -> None:
        """A run of this writer has ended."""
        with self._changing:
            self._fenced[log_id] = max(run, self._fenced.pop(log_id, 0))
            while len(self._fenced) > FENCES_MAX:
                del self._fenced[next(iter(self._fenced))]

    def look(self) -> None:
        """Learn which runs others have ended. Raises `OSError` when the folder is gone: then others
        took this process for dead.

        Another process may have synced the segments of such a run since, and have been told of a
        failure that this one is not told of.
        """
        names = self._disk.names(self._folder)
        if "lock" not in names or not self.is_there:
            raise OSError(
                errno.ESTALE,
                "another broker has ended this storage, or its directory is another one by now",
            )
        marks, ended = list[str](), dict[int, None]()
        for name in names:
            if name.endswith(".fenced"):
                marks.append(f"{self._folder}/{name}")
                with suppress(ValueError):
                    log_id, run = (int(part, 16) for part in name[: -len(".fenced")].split("-"))
                    self.fence(log_id, run)
                    ended[log_id] = None
        for path in self.covered(ended):
            self.doubt(path)
        for mark in marks:
            self._disk.remove(mark)

    def abandon(self) -> None:
        """Write nothing more: whoever finds the folder may end it."""
        for path in (self._journal.path, *self._journal.segments):
            self._disk.release(path)
        with self._changing:
            if self._begun:
                self._disk.unlock(f"{self._folder}/lock")
                self._begun = False

    def has_ended(self, log_id: int, run: int) -> bool:
        return run <= self._fenced.get(log_id, -1)

    def commit(self, pieces: Iterable[tuple[Place, bytes]]) -> None:
        """Make pieces durable."""
        journal = self._journal
        data = write_batch(journal.path, pieces)
        with self._changing:
            for place, _ in pieces:
                journal.segments[place.path] = None
        try:
            self._disk.write(journal.path, journal.size, data)
            self._disk.sync(journal.path)
        except OSError:
            for path in {place.path: None for place, _ in pieces}:
                self.doubt(path)  # others may find what the device has of it
            self.retire()  # nothing is read behind what is torn
            raise
        journal.size += len(data)

    def _next_journal(self) -> Journal:
        self._number += 1
        return Journal(f"{self._folder}/{self._number - 1:08x}.journal")

    @property
    def probe_path(self) -> str:
        """A file that is written only to see whether that is possible."""
        return f"{self._folder}/probe"

    def retire(self, *, only_full: bool = False) -> None:
        """Begin another journal, if the present one is full or has segments that are in doubt, or
        in any case; what it covers is in the segments or in the buffer by now.
        """
        journal = self._journal
        if only_full and journal.size < self._journal_bytes and not journal.doubtful:
            return
        self._disk.release(journal.path)
        with self._changing:
            self.retired.append(journal)
            self._journal = self._next_journal()

    def _journals(self) -> list[Journal]:
        return [*self.retired, self._journal]

    def covered(self, logs: Collection[int]) -> list[str]:
        """The segments of these logs that a journal covers."""
        if not logs:
            return []
        folders = {f"{log_id:016x}" for log_id in logs}
        with self._changing:
            paths = {path: None for journal in self._journals() for path in journal.segments}
        return [path for path in paths if path.partition("/")[0] in folders]

    @property
    def unsure(self) -> bool:
        """True if the present journal covers a segment that is in doubt: it must be retired."""
        return bool(self._journal.doubtful)

    def doubt(self, path: str) -> None:
        """A sync of this segment has failed, or may have."""
        with self._changing:
            self._doubts += 1
            for journal in self._journals():
                if path in journal.segments:
                    journal.doubtful[path] = self._doubts

    def doubts(self, log_id: int) -> bool:
        """True if a segment of a log is in doubt."""
        folder = f"{log_id:016x}/"
        with self._changing:
            return any(
                path.startswith(folder) for journal in self._journals() for path in journal.doubtful
            )

    def sync(self, path: str) -> bool:
        """Make durable what was written to a segment; false if it does not exist. After a failure
        it is in doubt.
        """
        try:
            self._disk.sync(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.failures += 1
            self.doubt(path)
            if error.errno in NO_ROOM:
                self.room.give()
            raise
        return True

    def finish(self, buffer: Buffer, places: Iterable[tuple[Place, bool]]) -> None:
        """Make the segments durable that a commit has finished. What is behind one of which that
        fails has no receipt: only who brings the journal to both of them writes it. So it is in
        doubt, too.
        """
        failed = dict[int, OSError]()
        for place, finished in places:
            if place.log_id in failed:
                buffer.drop([place.path])
                self.doubt(place.path)
            elif finished:
                try:
                    buffer.flush([place.path])
                    if not self.sync(place.path):
                        self.doubt(place.path)
                except OSError as error:
                    failed[place.log_id] = error
                self._disk.release(place.path)
        if failed:
            raise next(iter(failed.values()))

    def settle(self, path: str) -> bool:
        """A segment was synced, and nothing more is written to it: if it is not in doubt, it needs
        no journal any more. False if it is.
        """
        with self._changing:
            if any(path in journal.doubtful for journal in self._journals()):
                return False
            for journal in self._journals():
                journal.segments.pop(path, None)
            return True

    def mend(self, log_id: int) -> None:
        """Write the pieces of a log's segments that are in doubt again, and make them durable."""
        folder = f"{log_id:016x}/"
        for journal in list(self.retired):
            with self._changing:
                paths = [path for path in journal.doubtful if path.startswith(folder)]
            _, failed = self._rewrite(journal, paths)
            if failed is not None:
                raise failed

    def refused(self) -> dict[int, str]:
        """Logs that are not written until they have been opened again, with a segment for which too
        many journals wait. Raises `OSError` when that does not help any more.
        """
        with self._changing:
            waiting = [journal for journal in self.retired if journal.waits]
            if len(waiting) >= JOURNALS_MAX:
                problem = f"{len(waiting)} journals wait for files that cannot be synced"
                raise OSError(errno.EIO, problem)
            if len(waiting) < WAITING_MAX:
                return {}
            paths = [path for journal in waiting for path in journal.doubtful]
        return {int(path.partition("/")[0], 16): path for path in paths}

    def clear(self, journal: Journal) -> tuple[list[str], OSError | None]:
        """Make the segments of a journal durable. Returns those that are, unless somebody else has
        been told of a failure (`look`), and why others are not.
        """
        with self._changing:
            doubtful, paths = list(journal.doubtful), list(journal.segments)
        synced, failed = self._rewrite(journal, doubtful)
        gone = dict[str, None]()
        for path in paths:
            if path not in doubtful:
                try:
                    if not self.sync(path):
                        gone[path] = None
                    synced.append(path)
                except OSError as error:  # the others are synced
                    failed = error
                finally:
                    self._disk.release(path)
        try:
            self._require_gone(gone)
        except OSError as error:
            return [], error
        return synced, failed

    @property
    def is_there(self) -> bool:
        """False if the folder is gone, or its directory is another one."""
        return self._disk.holds(f"{self._folder}/lock")

    def _require_gone(self, paths: Collection[str]) -> None:
        if paths:
            require_gone(self._disk, paths, there=self.is_there)

    def cleared(self, journal: Journal, synced: Iterable[str]) -> bool:
        """Segments were synced, and marks were looked for since: the journal needs not stay for
        those that are not in doubt. True if it needs not stay at all.
        """
        with self._changing:
            for path in synced:
                if path not in journal.doubtful:
                    journal.segments.pop(path, None)
            journal.waits = bool(journal.segments)
            return not journal.waits

    def forget(self, journal: Journal) -> None:
        """A journal was deleted."""
        with self._changing:
            self.retired = [other for other in self.retired if other is not journal]

    def _rewrite(self, journal: Journal, paths: Sequence[str]) -> tuple[list[str], OSError | None]:
        """Write the pieces of these segments again, and make them durable. Returns those that are,
        and why others are not.
        """
        synced, failed = list[str](), None
        for start in range(0, len(paths), SYNCED_AT_ONCE):
            some, error = self._rewrite_some(journal, paths[start : start + SYNCED_AT_ONCE])
            synced += some
            failed = failed or error
        return synced, failed

    def _rewrite_some(
        self, journal: Journal, paths: Sequence[str]
    ) -> tuple[list[str], OSError | None]:
        with self._changing:
            failures = {path: journal.doubtful.get(path) for path in paths}
        gone = dict[str, None]()
        errors, synced = self._write_again(journal, failures, gone), list[str]()
        for path in failures:
            try:
                if path not in errors:
                    if not self.sync(path):
                        gone[path] = None
                    synced.append(path)
            except OSError as error:
                errors[path] = error
            finally:
                self._disk.release(path)
        try:
            self._require_gone(gone)
        except OSError as error:
            return [], error
        with self._changing:
            for path in synced:
                if journal.doubtful.get(path) == failures[path]:  # else a sync failed meanwhile
                    journal.doubtful.pop(path, None)
        return synced, next(iter(errors.values()), None)

    def _write_again(
        self, journal: Journal, paths: Collection[str], gone: dict[str, None]
    ) -> dict[str, OSError]:
        """Returns what cannot be written. Also pieces of a commit that failed are, if the device
        has them as a whole: another process may have found them, and have stored a part of them.
        """
        errors, raw = dict[str, OSError](), b""
        try:
            raw = self._disk.read_stored(journal.path, self._disk.size(journal.path))
        except FileNotFoundError:  # its first commit failed
            gone[journal.path] = None
        if raw and not journal.size:
            try:  # a loss of power must not leave a part in the segments, and no journal
                self._disk.sync_names(self._folder)
            except OSError as error:
                return dict.fromkeys(paths, error)
        for _, _, pieces in read_batches(journal.path, raw):
            for place, data in pieces:
                if place.path in paths and place.path not in errors:
                    try:
                        write_piece(self._disk, place, data, gone)
                    except OSError as error:
                        errors[place.path] = error
        return errors
