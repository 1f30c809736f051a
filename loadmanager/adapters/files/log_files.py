"""The logs of durable topics as files in a directory that the brokers share.

A log is the folder `<log id>`, its segments are `<run>-<first entry id>.log` in it, with an
`.index` beside each one that is durable and finished (all in hexadecimal). `<run>.closed` tells
that all segments of a run are. Who writes them, and how a run is ended, is in `writers`. A writer
looks for the marks of others after every write, before anybody hears that the data is durable; a
later run leaves its mark before it reads. So either the writer sees the mark, or the reader sees
the data.

Segments are those of one topic, not of a bundle: topics go on by themselves through splits and
merges, are trimmed and deleted one by one, and a move reads only the topics that are used. The
price would be an `fdatasync` for each topic that was written to. So one thread commits what arrived
for all topics at once: `DIRECT_MAX` segments are written and synced themselves, more of them by way
of one journal, and then the segments are written when many writes have become one. On the disk of a
virtual machine, 64 segments take 10 ms in one thread and 9 in eight (17 to 30 beside a busy
interpreter), and 0.2 ms with the journal.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from loadmanager.adapters.files.commit_journal import Place, closed_path, index_path, segment_path
from loadmanager.adapters.files.shared_id import BYTES_MAX, MISSING, OTHER_DIRECTORY, TAKEN, id_in
from loadmanager.adapters.files.shared_id import NAME as SHARED_ID
from loadmanager.adapters.files.writers import (
    JOURNAL_BYTES,
    Buffer,
    Disk,
    OtherWriters,
    Writer,
)
from loadmanager.core.errors import OperationalError
from loadmanager.core.messaging.segments import (
    ID_MAX,
    Damage,
    SegmentIndex,
    read_index,
    scan,
    write_index,
)
from loadmanager.core.messaging.stored_log import Piece
from loadmanager.core.wire.frames import publish_time_of
from loadmanager.ports.log import Batch, Run, UnansweredError

WORKERS = 8
COMMITTER = WORKERS
"""The number of the thread that writes; the one that clears the journals has the next."""
CLEARER = WORKERS + 1
THREADS = WORKERS + 2
DIRECT_MAX = 2
FLUSHED_AT_ONCE = 8
"""Segments that are written before the next commit has its turn."""
PROBE_BYTES = 4096
RETIRED_MAX = 4
"""With so many full journals, commits wait until their segments are synced."""

log = structlog.get_logger("storage")


class LogFiles:
    """Implements `ports.log.Storage`. `run` runs a call that may block, in the thread of that
    number; `syncs` tells whether data is made durable before it is acknowledged; `timeout_s`, how
    long a call may take; `names`, new names for its folder.
    """

    def __init__(
        self,
        disk: Disk,
        run: Callable[[int, Callable[[], Any]], Awaitable[Any]],
        *,
        syncs: Callable[[], bool] = lambda: True,
        timeout_s: Callable[[], float] = lambda: 60.0,
        names: Callable[[], str] = lambda: secrets.token_hex(8),
        journal_bytes: int = JOURNAL_BYTES,
        direct_max: int = DIRECT_MAX,
    ) -> None:
        self._disk = disk
        self._run = run
        self._syncs, self._timeout_s = syncs, timeout_s
        self._journal_bytes, self._direct_max = journal_bytes, direct_max
        self._unsynced: dict[str, None] = {}
        self._buffer = Buffer(disk)
        self._names = names
        self._own = Writer(disk, names(), journal_bytes)
        self._others = OtherWriters(disk)
        self._shared_id: str | None = None
        """The id of the directory; None if it has none, or if that is not checked."""
        self._misses = False
        """Whether the last log that was to be opened was refused because of its directory."""
        self._written_by: dict[int, str] = {}
        """Log → the writer that its present run is recorded with."""
        self.commits = self.committed_bytes = 0
        self.commit_s = self.sync_s = 0.0
        """Seconds that commits took in their thread, and of those, to make them durable."""
        self._damaged = 0

    @property
    def damaged(self) -> int:
        """Damaged parts found in segments and journals since start, torn ends left out."""
        return self._damaged + self._others.damaged

    @property
    def writer(self) -> str:
        """See the port."""
        return self._own.name

    async def _in_thread(self, number: int, call: Callable[[], Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s()):
                return await self._run(number, call)
        except TimeoutError:
            raise UnansweredError(
                f"the storage has not answered for {self._timeout_s():g} s"
            ) from None
        except OSError as error:
            raise OperationalError(f"the storage failed: {error.strerror or error}") from error

    async def _for_log(self, log_id: int, call: Callable[[], Any]) -> Any:
        return await self._in_thread(log_id % WORKERS, call)

    async def open(
        self, log_id: int, runs: Sequence[Run], first_id: int
    ) -> tuple[list[SegmentIndex], int]:
        """See the port."""
        if runs and runs[-1].writer == self.writer:
            self._own.fence(log_id, runs[-1].number)
            await self._in_thread(COMMITTER, lambda: self._buffer.flush(self._buffer.paths(log_id)))
        found: tuple[list[SegmentIndex], int] = await self._for_log(
            log_id, lambda: self._open(log_id, runs, first_id)
        )
        self._written_by[log_id] = self.writer
        return found

    def _open(
        self, log_id: int, runs: Sequence[Run], first_id: int
    ) -> tuple[list[SegmentIndex], int]:
        folder = f"{log_id:016x}"
        self._require_directory(log_id, folder, begins=not runs)
        self._own.begin()
        self._disk.make_folder(folder)
        if runs:
            self._end_run(log_id, runs[-1])
        elif self._segments(log_id):
            problem = f"the folder {folder} of a new topic has messages already; {TAKEN}"
            log.error("a topic cannot be stored here", log=log_id, problem=problem)
            raise OperationalError(problem)
        names, segments, end_id = self._segments(log_id), list[SegmentIndex](), first_id
        bounds = [*(run.first_id for run in runs[1:]), ID_MAX]
        for run, bound in zip(runs, bounds, strict=False):
            found_to = max(run.first_id, first_id)
            for number, first in names:
                if number == run.number and first < bound:
                    index = self._read_index(log_id, number, first, bound)
                    if index.end_id > first_id and index.offsets:
                        if segments and segments[-1].run == number and end_id != first:
                            self._report(log_id, f"entries {end_id} to {first - 1} are missing")
                        segments.append(index)
                        end_id = found_to = index.end_id
            if found_to < bound < ID_MAX:
                self._report(log_id, f"entries {found_to} to {bound - 1} are missing")
        return segments, max([end_id, *(run.first_id for run in runs)])

    def _require_directory(self, log_id: int, folder: str, *, begins: bool) -> None:
        """Raise `OperationalError` if the directory is not the one that it was: what a broker
        stores in another one, the next owner of the topic does not find.
        """
        if begins and self._shared_id and self._read_id() != self._shared_id:
            problem = f"{OTHER_DIRECTORY}echo {self._shared_id} > {SHARED_ID} there"
        elif not begins and not self._disk.exists(folder):
            problem = f"loadManagerStorageDirectory has no folder {folder}; {MISSING}"
        else:
            self._misses = False
            return
        if not self._misses:
            log.error("the storage is not what it was", log=log_id, problem=problem)
        self._misses = True
        raise OperationalError(problem)

    async def remember_id(self) -> None:
        """The directory is the right one now. If it has an id, new logs are stored only while it
        has that id.
        """
        with suppress(OperationalError):  # the caller has checked the directory, and logged this
            self._shared_id = await self._in_thread(CLEARER, self._read_id)

    def _read_id(self) -> str | None:
        found = self._disk.exists(SHARED_ID)
        return id_in(self._disk.read(SHARED_ID, 0, BYTES_MAX)) if found else None

    def _end_run(self, log_id: int, run: Run) -> None:
        """After this, nothing more of a run is acknowledged, and its segments have everything that
        was.
        """
        if run.writer == self._own.name:
            return
        self._others.fence(run.writer, log_id, run.number)
        closed = closed_path(log_id, run.number)
        if not self._disk.exists(closed):
            self._others.recover(run.writer)
        for name in self._disk.names(f"{log_id:016x}"):
            path = f"{log_id:016x}/{name}"
            if name.endswith(".closed") and path < closed:
                self._disk.remove(path)

    def _segments(self, log_id: int) -> list[tuple[int, int]]:
        """Run and first id of each segment, in order."""
        found = []
        for name in self._disk.names(f"{log_id:016x}"):
            stem, _, suffix = name.partition(".")
            with suppress(ValueError):
                run, first = (int(part, 16) for part in stem.split("-"))
                if suffix == "log":
                    found.append((run, first))
        return sorted(found)

    def _read_index(self, log_id: int, run: int, first_id: int, bound: int) -> SegmentIndex:
        """The index of a segment: as it was left, else by reading the segment. Entries from `bound`
        on are left out: a later owner gave their ids to others.
        """
        path = segment_path(log_id, run, first_id)
        with suppress(FileNotFoundError):
            index = read_index(self._disk.read(index_path(path)), run)
            if index is not None and index.first_id == first_id and index.end_id <= bound:
                return index
        data = self._disk.read(path)
        index, damages = scan(data, run, first_id, bound, publish_time_of=publish_time_of)
        for damage in damages:
            self._report_damage(log_id, path, damage)
        if self._syncs():
            self._disk.sync(path)  # its writer may have died before it did
        self._disk.release(path)
        self._leave_index(log_id, index)
        return index

    def _report_damage(self, log_id: int, path: str, damage: Damage) -> None:
        if damage.torn:
            log.info("a write that was cut off is left out", file=path, bytes=damage.size)
            return
        self._report(log_id, f"{path} is damaged at byte {damage.offset}, {damage.size} bytes long")

    def _report(self, log_id: int, problem: str) -> None:
        self._damaged += 1
        log.error("stored messages are lost; the others are served", log=log_id, problem=problem)

    async def append(self, batch: Batch) -> set[int]:
        """See the port."""
        fenced, unsynced = await self._in_thread(COMMITTER, lambda: self._commit(batch))
        self._unsynced |= unsynced
        while len(self._own.retired) >= RETIRED_MAX:
            await self._clear_journal()
        found: set[int] = fenced
        return found

    def _commit(self, batch: Batch) -> tuple[set[int], dict[str, None]]:
        """Returns the logs that are fenced, and the segments that are not durable."""
        began_s = time.perf_counter()
        pieces = [
            (Place(log_id, piece.segment.run, piece.segment.first_id, piece.offset), piece)
            for log_id, some in batch.items()
            for piece in some
        ]
        if self._buffer.full:
            self._buffer.flush(None)
        spoilt = self._spoilt((place, place.offset) for place, piece in pieces if piece.data)
        pieces = [(place, piece) for place, piece in pieces if place.log_id not in spoilt]
        touched = {place.path: None for place, piece in pieces if piece.data}
        if journaled := self._syncs() and len(touched) > self._direct_max:
            self._own.commit([(place, piece.data) for place, piece in pieces if piece.data])
            for place, piece in pieces:
                self._buffer.add(place.path, piece.offset, piece.data)
        else:
            self._buffer.flush(touched)
            self._write(pieces)
        if self._syncs() and not journaled:
            for path in touched:
                self._disk.sync(path)
            spoilt |= self._spoilt(
                (place, place.offset + len(piece.data)) for place, piece in pieces
            )
        sync_s = time.perf_counter() - began_s
        for place, piece in pieces:
            if piece.finished:
                self._finish(place, piece)
        self._own.retire(only_full=True)
        self._look()
        self._count(pieces, time.perf_counter() - began_s, sync_s if self._syncs() else 0.0)
        runs = {log_id: some[-1].segment.run for log_id, some in batch.items() if some}
        return self._ended(runs) | spoilt, {} if self._syncs() else touched

    def _write(self, pieces: Iterable[tuple[Place, Piece]]) -> None:
        """Write pieces to their segments. A finished segment is durable before there is anything in
        the next one: a machine that stops meanwhile leaves no gap between what it had not
        acknowledged.
        """
        for place, piece in pieces:
            if piece.data:
                self._disk.write(place.path, piece.offset, piece.data)
                if piece.finished and self._syncs():
                    self._disk.sync(place.path)

    def _spoilt(self, places: Iterable[tuple[Place, int]]) -> set[int]:
        """The logs of which somebody deleted or cut a segment that has so many bytes, as far as it
        was written, or whose folder is not there. They have to be opened again.
        """
        found = set[int]()
        for place, size in places:
            written = self._buffer.written(place.path, size)
            folder = place.path.partition("/")[0]
            if not (self._disk.has(place.path, written) if written else self._disk.exists(folder)):
                log.warning("somebody deleted or cut a file that is written", file=place.path)
                self._disk.release(place.path)
                found.add(place.log_id)
        return found

    def _count(self, pieces: Sequence[tuple[Place, Piece]], took_s: float, sync_s: float) -> None:
        self.commits += 1
        self.committed_bytes += sum(len(piece.data) for _, piece in pieces)
        self.commit_s += took_s
        self.sync_s += sync_s

    def _finish(self, place: Place, piece: Piece) -> None:
        """The last piece of a segment was taken: make all of it durable, with its index."""
        if piece.segment.offsets:
            self._buffer.flush([place.path])
            self._disk.sync(place.path)
            self._disk.release(place.path)
            self._leave_index(place.log_id, piece.segment)

    def _look(self) -> None:
        try:
            self._own.look()
        except OSError as error:
            if error.errno == errno.ESTALE:
                self._own.abandon()
                self._own = Writer(self._disk, self._names(), self._journal_bytes)
            raise

    async def look(self, runs: Mapping[int, int]) -> set[int]:
        """See the port."""

        def look() -> set[int]:
            self._look()
            return self._ended(runs)

        ended: set[int] = await self._in_thread(COMMITTER, look)
        return ended

    def _ended(self, runs: Mapping[int, int]) -> set[int]:
        own, written_by = self._own, self._written_by
        return {
            log_id
            for log_id, run in runs.items()
            if written_by.get(log_id, own.name) != own.name or own.has_ended(log_id, run)
        }

    def _leave_index(self, log_id: int, index: SegmentIndex) -> None:
        with suppress(OSError):  # without it the segment is read again
            path = segment_path(log_id, index.run, index.first_id)
            if self._disk.exists(path):
                self._disk.create(index_path(path), write_index(index))

    async def sync(self) -> None:
        """Make durable what was written without (`loadManagerStorageSync=interval`), and delete the
        journals whose segments are durable.
        """
        unsynced, self._unsynced = self._unsynced, {}
        if unsynced:
            await self._in_thread(CLEARER, partial(self._sync, list(unsynced)))
        while self._own.retired:
            await self._clear_journal()

    async def flush(self) -> None:
        """Write to the segments what only the journal has so far."""
        await self._flush(self._buffer.paths())

    async def _flush(self, paths: Sequence[str]) -> None:
        waiting = [path for path in paths if path in self._buffer]
        for start in range(0, len(waiting), FLUSHED_AT_ONCE):
            some = waiting[start : start + FLUSHED_AT_ONCE]
            await self._in_thread(COMMITTER, partial(self._buffer.flush, some))

    def _sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._disk.sync(path)
                self._disk.release(path)

    async def _clear_journal(self) -> None:
        own = self._own
        journal, segments = own.retired[0]
        await self._flush(segments)

        def clear() -> None:
            self._sync(segments)
            self._disk.remove(journal)

        await self._in_thread(CLEARER, clear)
        if own.retired and own.retired[0][0] == journal:
            del own.retired[0]

    async def recover(self) -> None:
        """Bring the journals of processes that have ended into their segments."""
        for writer in await self._in_thread(CLEARER, self._others.names):
            if writer != self.writer:
                size = await self._in_thread(CLEARER, partial(self._others.recover, writer))
                log.info("the journals of a broker were read", writer=writer, bytes=size)

    async def probe(self) -> None:
        """See the port."""

        def probe() -> None:
            self._own.begin()
            self._disk.write(self._own.probe_path, 0, secrets.token_bytes(PROBE_BYTES))
            self._disk.sync(self._own.probe_path)

        await self._in_thread(COMMITTER, probe)

    async def read(self, log_id: int, segment: SegmentIndex, offset: int, size: int) -> bytes:
        """See the port."""
        path = segment_path(log_id, segment.run, segment.first_id)
        await self._flush([path])
        data: bytes = await self._for_log(log_id, lambda: self._read(path, offset, size))
        return data

    def _read(self, path: str, offset: int, size: int) -> bytes:
        try:
            return self._disk.read(path, offset, size)
        except FileNotFoundError:
            if self._disk.exists(path.partition("/")[0]):
                return b""  # this file alone is gone
            raise

    async def trim(self, log_id: int, first_id: int) -> None:
        """See the port."""
        await self._for_log(log_id, lambda: self._trim(log_id, first_id))

    def _trim(self, log_id: int, first_id: int) -> None:
        names = self._segments(log_id)
        for (run, first), (_, following) in zip(names, names[1:], strict=False):
            if following <= first_id:
                path = segment_path(log_id, run, first)
                for name in (index_path(path), path):
                    self._disk.remove(name)

    async def close(self, log_id: int, segments: Sequence[SegmentIndex]) -> None:
        """See the port."""
        paths = [segment_path(log_id, index.run, index.first_id) for index in segments]

        def finish() -> None:
            self._buffer.flush(paths)
            for path in paths:
                self._disk.release(path)

        def leave() -> None:
            for index, path in zip(segments, paths, strict=True):
                if index.offsets:
                    self._disk.sync(path)
                    self._disk.release(path)
                    self._leave_index(log_id, index)
                self._disk.create(closed_path(log_id, index.run), b"")

        # A move waits for this, and each call of this thread waits for the commit before it.
        await self._in_thread(COMMITTER, finish)
        await self._for_log(log_id, leave)
        self._written_by.pop(log_id, None)

    async def _release(self, paths: Sequence[str]) -> None:
        def release() -> None:
            for path in paths:
                self._disk.release(path)

        await self._in_thread(COMMITTER, release)

    async def delete(self, log_id: int) -> None:
        """See the port."""
        folder = f"{log_id:016x}"

        def delete() -> list[str]:
            names = self._disk.names(folder)
            for name in names:
                self._disk.remove(f"{folder}/{name}")
            self._disk.remove_folder(folder)
            return [f"{folder}/{name}" for name in names]

        await self._in_thread(COMMITTER, lambda: self._buffer.drop(log_id))
        await self._release(await self._for_log(log_id, delete))
