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
for all topics at once: a record for each of `DIRECT_MAX` segments is written and synced there, more
by way of one journal, of which a batch is there as a whole or not at all, and then the segments are
written when many writes have become one. On the disk of a
virtual machine, 64 segments take 10 ms in one thread and 9 in eight (17 to 30 beside a busy
interpreter), and 0.2 ms with the journal.

After a sync that failed, the page cache proves nothing: what was not synced before may be on no
disk, and the next sync says yes. So nobody is answered; an opening reads what the device has; and
what the journal holds is written again (`writers`).
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from loadmanager.broker.messaging.segments import SegmentIndex, is_in_one_sector, is_one_record
from loadmanager.broker.messaging.stored_log import Piece
from loadmanager.broker.ports.log import Batch, Run, Sizes, StoodStillError, StorageTimeoutError
from loadmanager.broker.storage.commit_journal import Place, closed_path, index_path, segment_path
from loadmanager.broker.storage.earlier_runs import EarlierRuns, EarlierSegments
from loadmanager.broker.storage.log_sizes import LogSizes
from loadmanager.broker.storage.other_writers import OtherWriters
from loadmanager.broker.storage.writers import (
    JOURNAL_BYTES,
    Buffer,
    Disk,
    Journal,
    Writer,
    require_gone,
)
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger

WORKERS = 8
COMMITTER = WORKERS
"""The number of the thread that writes; the one that clears the journals has the next, and then
comes the one that looks how large logs are.
"""
CLEARER, MEASURER = WORKERS + 1, WORKERS + 2
THREADS = WORKERS + 3
DIRECT_MAX = 2
FLUSHED_AT_ONCE = 8
"""Segments that are written before the next commit has its turn."""
PROBE_BYTES = 4096
LATE_S = 0.5
"""A timer that is later tells that this process stood still."""
RETIRED_MAX = 4
"""With so many full journals, commits wait until their segments are synced."""

log = get_logger("storage")


def _words_of(error: OSError) -> str:
    """What went wrong, and with which file, if that is known: without the directory, as clients are
    told, too.
    """
    words = error.strerror or str(error)
    if isinstance(error.filename, str):
        words += f": {'/'.join(error.filename.split('/')[-2:])}"
    return words


class LogFiles:
    """Implements `broker.ports.log.Storage`. `run` runs a call that may block, in the thread of
    that number; `syncs` tells whether data is made durable before it is acknowledged; `timeout_s`,
    how long a call may take; `names`, new names for its folder.
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
        self._buffer = Buffer(disk, self._failed, self._give_room)
        self._names = names
        self._own = Writer(disk, names(), journal_bytes)
        self._others = OtherWriters(disk)
        self._earlier = EarlierRuns(disk, self._others, self._sync_segment, syncs)
        self._written_by: dict[int, str] = {}
        """Log → the writer that its present run is recorded with."""
        self._scanned: dict[int, Sequence[SegmentIndex]] = {}
        """Log → segments without an index that its opening has found. Of two openings at the same
        time, only that which is recorded may leave its indexes: the other one may have found less.
        """
        self._unindexed: dict[int, Sequence[SegmentIndex]] = {}
        """The same, of openings that are recorded."""
        self.sizes: Sizes = LogSizes(disk, partial(self._in_thread, MEASURER))
        self.lost = 0
        self.commits = self.committed_bytes = 0
        self.commit_s = self.sync_s = 0.0
        """Seconds that commits took in their thread, and of those, to make them durable."""

    @property
    def damaged(self) -> int:
        """Damaged parts found in segments and journals since start, by openings and by readers;
        torn ends are left out.
        """
        return self._earlier.damaged + self._others.damaged + self.lost

    @property
    def writer(self) -> str:
        return self._own.name

    async def _in_thread(self, number: int, call: Callable[[], Any]) -> Any:
        loop, limit_s = asyncio.get_running_loop(), self._timeout_s()
        began_s = loop.time()
        try:
            async with asyncio.timeout(limit_s):
                return await self._run(number, call)
        except TimeoutError:
            passed_s = loop.time() - began_s
            if passed_s > limit_s + LATE_S:  # no timer is so late while this process runs
                raise StoodStillError(
                    f"this broker stood still for some of {passed_s:.0f} s: it was frozen, or its "
                    "machine, and the storage could not answer"
                ) from None
            raise StorageTimeoutError(
                f"the storage has not answered for {self._timeout_s():g} s"
            ) from None
        except OSError as error:
            raise OperationalError(f"the storage failed: {_words_of(error)}") from error

    async def _for_log(self, log_id: int, call: Callable[[], Any]) -> Any:
        return await self._in_thread(log_id % WORKERS, call)

    async def open(
        self, log_id: int, runs: Sequence[Run], first_id: int
    ) -> tuple[list[SegmentIndex], int]:
        earlier: EarlierSegments
        if runs and runs[-1].writer == self.writer:
            earlier = await self._open_own(log_id, runs, first_id)
        else:
            if own := self._buffer.paths(log_id):  # of a run that others may have found more of
                await self._in_thread(COMMITTER, lambda: self._buffer.flush(own))
            earlier = await self._for_log(log_id, lambda: self._find(log_id, runs, first_id))
        self._scanned.pop(log_id, None)
        if earlier.scanned:
            self._scanned[log_id] = earlier.scanned
        self._written_by[log_id] = self.writer
        return earlier.segments, earlier.end_id

    async def _open_own(self, log_id: int, runs: Sequence[Run], first_id: int) -> EarlierSegments:
        """Open a log whose last run is this writer's. If another process has begun to do so, too,
        it may have synced the segments, with a failure.
        """
        self._own.fence(log_id, runs[-1].number)
        while True:
            await self._in_thread(COMMITTER, lambda: self._buffer.flush(self._buffer.paths(log_id)))
            if self._own.doubts(log_id):
                await self._mend(log_id)
            earlier: EarlierSegments = await self._for_log(
                log_id, lambda: self._find(log_id, runs, first_id)
            )
            await self._in_thread(COMMITTER, self._look)
            if not self._own.doubts(log_id):
                return earlier

    def _find(self, log_id: int, runs: Sequence[Run], first_id: int) -> EarlierSegments:
        self._earlier.require_directory(log_id, begins=not runs)
        self._own.begin()
        earlier = self._earlier.find(log_id, runs, first_id, self.writer)
        if not runs:  # its folder may be below a share that went away meanwhile
            require_gone(self._disk, (), there=self._own.is_there)
            self._earlier.require_directory(log_id, begins=False)
        return earlier

    async def _leave_indexes(self) -> None:
        while self._unindexed:
            log_id, segments = self._unindexed.popitem()
            for segment in segments:
                await self._for_log(log_id, partial(self._earlier.leave_index, log_id, segment))

    def _sync_segment(self, path: str) -> None:
        if not self._own.sync(path):
            raise FileNotFoundError(errno.ENOENT, "a segment is not there any more", path)

    async def mend(self, log_id: int) -> bool:
        covered = self._own.covered([log_id])
        for path in covered:
            self._own.doubt(path)
        if covered:
            await self._mend(log_id)
        return bool(covered)

    async def _mend(self, log_id: int) -> None:
        await self._in_thread(COMMITTER, partial(self._own.retire, only_full=True))
        await self._in_thread(CLEARER, partial(self._own.mend, log_id))

    async def remember_id(self) -> None:
        """The directory is the right one now. If it has an id, new logs are stored only while it
        has that id.
        """
        with suppress(OperationalError):  # the caller has checked the directory, and logged this
            self._earlier.shared_id = await self._in_thread(CLEARER, self._earlier.read_id)

    async def append(self, batch: Batch) -> set[int]:
        fenced, unsynced = await self._in_thread(COMMITTER, lambda: self._commit(batch))
        self._unsynced |= unsynced
        for log_id in batch:
            if log_id in self._scanned and log_id not in fenced:
                self._unindexed[log_id] = self._scanned.pop(log_id)
        while (
            len(due := [journal for journal in self._own.retired if not journal.waits])
            >= RETIRED_MAX
        ):
            await self._clear_journal(due[0])
        fenced_logs: set[int] = fenced
        return fenced_logs

    def _commit(self, batch: Batch) -> tuple[set[int], dict[str, None]]:
        """Returns the logs that are fenced, and the segments that are not durable."""
        began_s = time.perf_counter()
        pieces = [
            (Place(log_id, piece.segment.run, piece.segment.first_id, piece.offset), piece)
            for log_id, some in batch.items()
            for piece in some
        ]
        self._buffer.make_room()
        spoilt = self._refuse(batch)
        pieces = [(place, piece) for place, piece in pieces if place.log_id not in spoilt]
        spoilt |= self._spoilt((place, place.offset) for place, piece in pieces if piece.data)
        pieces = [(place, piece) for place, piece in pieces if place.log_id not in spoilt]
        touched = {place.path: None for place, piece in pieces if piece.data}
        if journaled := self._syncs() and not self._goes_directly(
            touched, [piece for _, piece in pieces if piece.data]
        ):
            try:
                self._own.room.take()
                self._own.commit([(place, piece.data) for place, piece in pieces if piece.data])
            except FileNotFoundError:
                self._look()  # whether others have deleted its folder
                raise
            for place, piece in pieces:
                self._buffer.add(place.path, piece.offset, piece.data)
        else:
            self._buffer.flush(touched)
            self._write(pieces)
        if self._syncs() and not journaled:
            for path in touched:
                self._own.sync(path)
            spoilt |= self._spoilt(
                (place, place.offset + len(piece.data)) for place, piece in pieces
            )
        sync_s = time.perf_counter() - began_s
        finished = [(place, piece) for place, piece in pieces if piece.finished]
        self._own.finish(self._buffer, [(place, piece.finished) for place, piece in pieces])
        self._own.retire(only_full=True)
        self._look()
        for place, piece in finished:
            self._settle(place.log_id, place.path, piece.segment)
        self._count(pieces, time.perf_counter() - began_s, sync_s if self._syncs() else 0.0)
        runs = {log_id: some[-1].segment.run for log_id, some in batch.items() if some}
        return self._ended(runs) | spoilt, {} if self._syncs() else touched

    def _give_room(self) -> bool:
        return self._own.room.give()

    def _failed(self, path: str) -> None:
        """A segment could not be written."""
        self._own.doubt(path)

    def _refuse(self, batch: Batch) -> set[int]:
        """The logs of a batch that are not written, because too many journals wait for them."""
        refused = self._own.refused()
        for log_id in (log_ids := refused.keys() & batch.keys()):
            file = refused[log_id]
            log.error("a file cannot be synced; its topic is closed until it can be", file=file)
        return log_ids

    def _goes_directly(self, touched: Collection[str], pieces: Iterable[Piece]) -> bool:
        """True if a commit goes straight to its segments: few, and a record for each, or a sector.
        Of more, a failed sync or a loss of power may leave the later records without the earlier
        ones, and then their producer would be taken to have sent all of them.
        """
        return len(touched) <= self._direct_max and all(
            is_one_record(piece.data) or is_in_one_sector(piece.offset, len(piece.data))
            for piece in pieces
        )

    def _write(self, pieces: Iterable[tuple[Place, Piece]]) -> None:
        """Write pieces to their segments. A finished segment is durable before there is anything in
        the next one: a machine that stops meanwhile leaves no gap between what it had not
        acknowledged.
        """
        for place, piece in pieces:
            if piece.data:
                self._disk.write(place.path, piece.offset, piece.data)
                if piece.finished and self._syncs():
                    self._own.sync(place.path)

    def _spoilt(self, places: Iterable[tuple[Place, int]]) -> set[int]:
        """The logs of which somebody deleted or cut a segment that has so many bytes, as far as it
        was written, or whose folder is not there. They have to be opened again.
        """
        log_ids = set[int]()
        for place, size in places:
            written = self._buffer.written(place.path, size)
            folder = place.path.partition("/")[0]
            if not (self._disk.has(place.path, written) if written else self._disk.exists(folder)):
                log.warning("somebody deleted or cut a file that is written", file=place.path)
                self._disk.release(place.path)
                log_ids.add(place.log_id)
        return log_ids

    def _count(self, pieces: Sequence[tuple[Place, Piece]], took_s: float, sync_s: float) -> None:
        self.commits += 1
        self.committed_bytes += sum(len(piece.data) for _, piece in pieces)
        self.commit_s += took_s
        self.sync_s += sync_s

    def _settle(self, log_id: int, path: str, segment: SegmentIndex) -> None:
        """Leave the index of a finished segment that was synced, unless it is in doubt; marks of
        later openings were looked for since.
        """
        if segment.offsets and self._own.settle(path):
            self._earlier.leave_index(log_id, segment)

    def _look(self) -> None:
        try:
            self._own.look()
        except OSError as error:
            if error.errno == errno.ESTALE:
                self._own.abandon()
                self._own = Writer(self._disk, self._names(), self._journal_bytes)
            raise

    async def look(self, runs: Mapping[int, int]) -> set[int]:
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

    async def sync(self) -> None:
        """Make durable what was written without (`loadManagerStorageSync=interval`), and delete the
        journals whose segments are durable.
        """
        unsynced, self._unsynced = self._unsynced, {}
        if unsynced:
            await self._in_thread(CLEARER, partial(self._sync, list(unsynced)))
        if self._own.unsure:
            await self._in_thread(COMMITTER, partial(self._own.retire, only_full=True))
        bad, failed = set[str](), None
        for journal in list(self._own.retired):
            if bad.isdisjoint(journal.doubtful):  # else it cannot be cleared now
                failed = await self._clear_journal(journal) or failed
                bad |= journal.doubtful.keys()
        if failed is not None:
            raise failed

    async def flush(self) -> None:
        """Write to the segments what only the journal has so far, and the indexes of segments that
        openings have found without.
        """
        await self._flush(self._buffer.paths())
        await self._leave_indexes()

    async def _flush(self, paths: Sequence[str]) -> None:
        waiting = [path for path in paths if path in self._buffer]
        failed: OperationalError | None = None
        for start in range(0, len(waiting), FLUSHED_AT_ONCE):
            some = waiting[start : start + FLUSHED_AT_ONCE]
            try:
                await self._in_thread(COMMITTER, partial(self._buffer.flush, some))
            except StorageTimeoutError:
                raise
            except OperationalError as error:
                failed = error
        if failed is not None:
            raise failed

    def _sync(self, paths: Sequence[str]) -> None:
        failed: OSError | None = None
        for path in paths:
            try:
                self._own.sync(path)
                self._disk.release(path)
            except OSError as error:  # the others are synced
                failed = error
        if failed is not None:
            raise failed

    async def _clear_journal(self, journal: Journal) -> OperationalError | None:
        """Delete a journal, once its segments are durable. Marks of later openings are looked for
        before: such an opening may have synced a segment of it, with a failure. Returns why the
        journal cannot be cleared now; the next turn tries again.
        """
        own = self._own
        try:
            await self._flush(list(journal.segments))
            synced, failed = await self._in_thread(CLEARER, partial(own.clear, journal))
            await self._in_thread(COMMITTER, self._look)
            if own is not self._own:
                return OperationalError("others have ended this storage")
            if own.cleared(journal, synced):
                await self._in_thread(CLEARER, partial(self._disk.remove, journal.path))
                own.forget(journal)
        except StorageTimeoutError:
            raise
        except OperationalError as error:
            if own is not self._own:
                raise
            journal.waits = True
            return error
        return OperationalError(f"a file cannot be synced: {failed}") if failed else None

    async def recover(self) -> None:
        """Bring the journals of processes that have ended into their segments."""
        for writer in await self._in_thread(CLEARER, self._others.names):
            if writer != self.writer:
                size = await self._in_thread(CLEARER, partial(self._others.recover, writer))
                log.info("the journals of a broker were read", writer=writer, bytes=size)

    async def probe(self) -> None:
        def probe() -> None:
            path = self._own.probe_path
            if self._earlier.is_other:
                raise OSError(errno.ESTALE, "its directory is another one by now")
            self._own.begin()
            self._look()
            if self._syncs():
                self._own.room.take()
            try:
                self._disk.write(path, 0, secrets.token_bytes(PROBE_BYTES))
                self._disk.sync(path)
            finally:  # a file that is there needs no room
                self._disk.release(path)
                self._disk.remove(path)

        await self._in_thread(COMMITTER, probe)

    async def read(self, log_id: int, segment: SegmentIndex, offset: int, size: int) -> bytes:
        """See the port. What only the journal has so far comes from memory: on a full disk it could
        not be brought to the segment, and no consumer would free room.
        """
        path = segment_path(log_id, segment.run, segment.first_id)
        begin, buffered = offset + size, b""
        if path in self._buffer:
            reading = partial(self._buffer.read, path, offset, size)
            begin, buffered = await self._in_thread(COMMITTER, reading)
        if begin <= offset:
            return buffered
        written = begin - offset
        data: bytes = await self._for_log(log_id, lambda: self._read(path, offset, written))
        return data + buffered if len(data) == written else data

    def _read(self, path: str, offset: int, size: int) -> bytes:
        try:
            return self._disk.read(path, offset, size)
        except FileNotFoundError:
            if self._disk.exists(path.partition("/")[0]):
                return b""  # this file alone is gone
            raise

    async def trim(self, log_id: int, first_id: int) -> None:
        await self._for_log(log_id, lambda: self._trim(log_id, first_id))

    def _trim(self, log_id: int, first_id: int) -> None:
        for run, first in self._earlier.passed(self._earlier.segments(log_id), first_id):
            path = segment_path(log_id, run, first)
            for name in (index_path(path), path):
                self._disk.remove(name)

    async def close(self, log_id: int, segments: Sequence[SegmentIndex]) -> None:
        paths = [segment_path(log_id, index.run, index.first_id) for index in segments]

        def finish() -> None:
            self._buffer.flush(paths)
            for path in paths:
                self._disk.release(path)

        def leave() -> None:
            for index, path in zip(segments, paths, strict=True):
                if index.offsets:
                    if not self._own.sync(path):
                        self._own.doubt(path)
                    self._disk.release(path)
            self._own.look()
            for index, path in zip(segments, paths, strict=True):
                self._settle(log_id, path, index)
                if not self._own.doubts(log_id):
                    self._disk.create(closed_path(log_id, index.run), b"")

        if scanned := self._scanned.pop(log_id, None):
            self._unindexed[log_id] = scanned
            await self._leave_indexes()
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
        folder = f"{log_id:016x}"

        def delete() -> list[str]:
            names = self._disk.names(folder)
            for name in names:
                self._disk.remove(f"{folder}/{name}")
            self._disk.remove_folder(folder)
            return [f"{folder}/{name}" for name in names]

        self._scanned.pop(log_id, None)
        self._unindexed.pop(log_id, None)
        await self._in_thread(COMMITTER, lambda: self._buffer.drop(self._buffer.paths(log_id)))
        await self._release(await self._for_log(log_id, delete))
