"""A broker's archive: its records, so that anybody may ask what was, without the nightly job.

A thread of its own writes them, from a bounded queue. Whatever becomes of the file, the broker goes
on: what cannot be written is dropped and counted.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import NotFoundError, OperationalError
from loadmanager.kit.files.worker import Worker
from loadmanager.kit.history.archive_answers import (
    ArchivedEvent,
    ArchivedEvents,
    ArchivedSum,
    ArchivedSums,
    ArchivePart,
    UnrecordedSpan,
)
from loadmanager.kit.history.archive_file import (
    ArchiveFile,
    OtherFormatError,
    forget_log,
    identity,
    put_aside,
)
from loadmanager.kit.history.archive_reader import ArchiveReader, DamagedError
from loadmanager.kit.history.catalogue import Catalogue, EventsOf, FiguresOf
from loadmanager.kit.history.layout import cluster_folder, safe_name
from loadmanager.kit.history.port import HistoryRecord, LoadRecord
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.logger import get_logger
from loadmanager.kit.telemetry import Sample, counter, gauge
from loadmanager.kit.units import DAY_MS

T = TypeVar("T")

WRITE_S = 1.0
"""How often records are written."""
AGAIN_S = 10.0
"""How long a file that fails is left alone."""
STAYS = 6
"""After a failure, it counts as written again once it did not fail for so many tries' time."""
LATE_MS = 30_000
"""Whatever has not been written for so long is told to be missing, whatever the reason."""
TIDY_S = 60.0
"""How often the bounds are looked at."""
SIGN_S = 10.0
"""How often the file is told that there was nothing to write."""
WAITING_MAX = 50_000
"""Records that wait to be written; more are dropped and counted."""
AT_ONCE = 2_000
"""Records of one transaction."""
CLOSE_S = 2.0
SETTLE_S = 1.0
"""How long who wants to know that records are written waits for it."""
ASKED_MAX = 16
"""Questions that wait; more are refused."""
PARTS_MAX = 1_000
"""Files of a folder that are looked at."""
FOLDER, ENDING = "archive", ".sqlite"

WRITTEN = counter("loadmanager_archive_records", "Records written to the archive")
DROPPED = counter(
    "loadmanager_archive_dropped_records",
    "Records that the archive lacks: it could not keep up, or was broken",
)
FAILURES = counter(
    "loadmanager_archive_failures",
    "Times that the archive could not be written, or had to begin anew",
)
FORGOTTEN = counter(
    "loadmanager_archive_forgotten_rows",
    "Rows of the archive that were deleted before their time, to keep within its size",
)
BYTES = gauge("loadmanager_archive_bytes", "Bytes of the archive that are in use")

log = get_logger("archive")


class Archive:
    """The records of one broker, and the answers from them."""

    def __init__(
        self,
        settings: HistorySettings,
        catalogue: Catalogue,
        *,
        cluster: str,
        broker: str,
        clock: Clock,
        again_s: float = AGAIN_S,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._again_after_s, self._waiting_max = again_s, waiting_max
        folder = Path(settings.directory) / cluster_folder(safe_name(cluster)) / FOLDER
        self._path = folder / (safe_name(broker) + ENDING)
        self._catalogue, self._broker, self._clock = catalogue, broker, clock
        self._days, self._bytes_max = settings.archive_days, settings.archive_bytes_max
        self._queue: deque[HistoryRecord] = deque()
        self._file: ArchiveFile | None = None
        self._wake = threading.Event()
        self._awaited: deque[Callable[[], None]] = deque()
        """What tells those who wait that what was appended before is written."""
        self._closing = False
        self._thread: threading.Thread | None = None
        self._asking, self._asked = Worker("ask-archive"), 0
        self._again_s = self._tidy_s = self._sign_s = 0.0
        self._failing = self._doubted = False
        """`_doubted`: a question found it damaged, which who writes may not notice."""
        self._failed_s, self._trouble = 0.0, ""
        """When it failed last, and why, if it did not succeed since."""
        self._recorded_ms = 0
        """All records up to then are in the file, but for those that were dropped."""
        self._dropped_then = self._dropped_before = 0
        """Records that were dropped up to then, and before the present file began."""
        self._inode: int | None = None
        """Of the file that this process wrote last."""
        self._run = 0
        self._gaps: deque[UnrecordedSpan] = deque()
        """Those that are to be written."""
        self.unrecorded: dict[str, Callable[[], Sequence[HistoryRecord]]] = {}
        """Kind of event → what tells those that are counted, and recorded later."""
        self.present: dict[str, Callable[[], Awaitable[Sequence[LoadRecord]]]] = {}
        """Kind of load → what tells those of the time that is not recorded yet."""
        self.written = self.dropped = self.failures = self.forgotten = self.bytes_used = 0

    # Of the event loop

    def append(self, *records: HistoryRecord) -> None:
        """Have records written soon. Never blocks or raises: it drops what there is no room for."""
        for record in records:
            if record.kind not in self._catalogue:
                continue
            if len(self._queue) >= self._waiting_max or self._closing:
                self.dropped += 1
                continue
            self._queue.append(record)

    async def settle(self, within_s: float = SETTLE_S) -> None:
        """Wait until what was appended is written, so that it is there after a kill; not at all for
        a file that fails.
        """
        if self._trouble or self._closing or self._thread is None:
            return
        loop, written = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(written.set)

        self._awaited.append(tell)
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await written.wait()

    def start(self) -> None:
        """Begin to write."""
        self._recorded_ms = self._clock.now_ms()
        self._thread = threading.Thread(target=self._work, name="archive", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Write what waits, for `CLOSE_S` at most."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_S)
        self._asking.close()

    async def ask(self, question: Callable[[ArchiveReader], T], part: str | None = None) -> T:
        """Ask this archive, or one that a broker of this name left beside it. Raises
        `OperationalError`, and `NotFoundError` when there is none of that name.
        """
        if self._asked >= ASKED_MAX:
            raise OperationalError("too much is asked of the archive at once; try again")
        self._asked += 1
        try:
            answer = await self._asking.run(lambda: question(self._reader(part)))
            if isinstance(answer, ArchivePart) and part in (None, self._broker):
                new = (it for it in self.unrecorded_now() if it not in answer.unrecorded)
                answer.unrecorded += new
            return answer
        except DamagedError:
            self._doubted = self._doubted or part in (None, self._broker)
            raise
        except OSError as error:
            raise OperationalError(f"the archive cannot be read: {error}") from None
        finally:
            self._asked -= 1

    def unrecorded_now(self) -> list[UnrecordedSpan]:
        """What is missing, and is not written in the file yet: also what waits while that fails."""
        gaps, recorded_ms = [*self._gaps], self._recorded_ms
        late = self._clock.now_ms() - recorded_ms > LATE_MS and self._thread is not None
        if self._trouble or late:
            reason = self._trouble or "its disk is slow, or does not answer"
            gaps.append(UnrecordedSpan(recorded_ms, None, reason))
        return gaps

    async def events(
        self,
        kinds: Sequence[str],
        about: str | None,
        times: tuple[int, int],
        limit: int,
        part: str | None = None,
    ) -> ArchivedEvents:
        """Events of some kinds (none: all) about something (None: everything), between two times,
        the newest first, also those that are counted only; see `ask`.
        """
        answer = await self.ask(lambda file: file.events(kinds, about, *times, limit), part)
        counted = [
            (record.ts, -1 - number, kind, record)
            for kind, unrecorded in self.unrecorded.items()
            if part is None and (kind in kinds or not kinds)
            for number, record in enumerate(unrecorded())
            if times[0] <= record.ts <= times[1] and (about is None or about in self._of(record))
        ]
        if counted:
            newest = heapq.nlargest(limit, counted)
            events = [*answer.events, *(_event(*each) for each in newest)]
            events.sort(key=lambda it: (it.ts, it.id), reverse=True)
            answer.cut_off = answer.cut_off or len(events) > limit
            answer.events = events[:limit]
        return answer

    async def sums(
        self,
        kind: str,
        columns: Sequence[str],
        times: tuple[int, int],
        limit: int,
        part: str | None = None,
    ) -> ArchivedSums:
        """See `ArchiveReader.sums`; with what this broker has counted since its last record, if
        that began within the time.
        """
        lasts: Sequence[LoadRecord] = ()
        if part in (None, self._broker) and kind in self.present:
            lasts = await self.present[kind]()
            await self.settle()  # what was recorded before that is in the file then
        answer = await self.ask(lambda file: file.sums(kind, columns, times, limit), part)
        rule = self._catalogue[kind]
        assert isinstance(rule, FiguresOf)
        rows = {row.name: row for row in answer.rows}
        for record in lasts:
            if not times[0] <= record.ts - record.interval_ms < times[1]:
                continue
            name, figures = rule.row(record)
            of = [figures[rule.columns.index(column)] for column in columns]
            if any(of):
                row = rows.setdefault(name, ArchivedSum(name, [0.0] * len(of), 0))
                row.sums = [a + b for a, b in zip(row.sums, of, strict=True)]
                row.lasted_ms += record.interval_ms
        answer.rows = [rows[name] for name in sorted(rows)]
        return answer

    def _of(self, record: HistoryRecord) -> Iterable[str]:
        """What a record is about."""
        rule = self._catalogue.get(record.kind)
        return rule.about(record) if isinstance(rule, EventsOf) else ()

    async def beside(self) -> list[str]:
        """The names of brokers whose archives are beside this one. Raises `OperationalError`."""
        return sorted(await self.ask(lambda _reader: list(self._parts())))

    def _reader(self, part: str | None) -> ArchiveReader:
        if part in (None, self._broker):
            return ArchiveReader(self._path, self._catalogue, self._broker)
        path = self._parts().get(part or "")
        if path is None:
            raise NotFoundError(f"no archive of {part} is beside that of {self._broker}")
        return ArchiveReader(path, self._catalogue)

    def _parts(self) -> dict[str, Path]:
        """Broker → its file, of the others in this folder."""
        parts = {}
        for path in sorted(self._path.parent.glob(f"*{ENDING}"))[:PARTS_MAX]:
            if path != self._path:
                with suppress(OperationalError):  # it is being made, or of another version
                    parts[ArchiveReader(path, self._catalogue).writer()] = path
        return parts

    def samples(self) -> Iterator[Sample]:
        """The archive's metrics."""
        yield WRITTEN.sample(self.written)
        yield DROPPED.sample(self.dropped)
        yield FAILURES.sample(self.failures)
        yield FORGOTTEN.sample(self.forgotten)
        yield BYTES.sample(self.bytes_used)

    # Of the thread

    def _work(self) -> None:
        while True:
            closing, awaited = self._closing, len(self._awaited)
            self._step()
            for _ in range(awaited):
                self._awaited.popleft()()
            if closing:
                self._let_go()
                return
            self._wake.wait(WRITE_S)
            self._wake.clear()

    def _step(self) -> None:
        """Write what waits. Whatever happens, the thread goes on."""
        now_s = time.monotonic()
        if now_s < self._again_s and not self._closing:
            return
        try:
            self._write(now_s)
        except Exception as error:  # noqa: BLE001 - a bug costs the archive only
            self._failed(error)
            self._again_s = now_s + self._again_after_s
            return
        self._trouble = ""
        if self._failing and now_s - self._failed_s >= STAYS * self._again_after_s:
            self._failing = False
            log.info("the archive can be written again", dropped=self.dropped)

    def _write(self, now_s: float) -> None:
        now_ms = self._clock.now_ms()
        if self._file is not None and (lost := self._file.lost()):
            self._begin_anew(lost, now_ms)
        if self._doubted:
            self._doubted = False
            self._check(now_ms)
        if self._file is None:
            self._file = self._opened(now_ms)
        while self._queue:
            count = min(AT_ONCE, len(self._queue))
            self._write_some([self._queue[index] for index in range(count)], now_ms)
            for _ in range(count):
                self._queue.popleft()
            self._sign_s = now_s + SIGN_S
        self._note_gaps(now_ms)
        if now_s >= self._sign_s or self._failing:
            self._write_some([], now_ms)
            self._sign_s = now_s + SIGN_S
        if now_s >= self._tidy_s:
            self._file.roll_up(now_ms)
            since_ms = now_ms - round(self._days * DAY_MS)
            self.forgotten += self._file.retain(since_ms, self._bytes_max)
            self.bytes_used = self._file.size
            self._tidy_s = now_s + TIDY_S
        self._file.remember()
        self._recorded_ms = now_ms

    def _note_gaps(self, now_ms: int) -> None:
        """Write which times lack records, now that all that waited is written."""
        assert self._file is not None
        if self._trouble and self.dropped > self._dropped_then:
            reason = f"{self.dropped - self._dropped_then} records dropped: {self._trouble}"
            self._gaps.append(UnrecordedSpan(self._recorded_ms, now_ms, reason))
        self._dropped_then = self.dropped
        while self._gaps:
            self._file.add_gap(self._gaps[0])
            self._gaps.popleft()

    def _write_some(self, records: list[HistoryRecord], now_ms: int) -> None:
        assert self._file is not None
        try:
            self._file.write(records, now_ms, self.dropped - self._dropped_before)
        except (OSError, sqlite3.Error):
            raise  # they are tried again
        except Exception:
            for _ in records:  # they would fail again
                self._queue.popleft()
            self.dropped += len(records)
            raise
        self.written += len(records)

    def _check(self, now_ms: int) -> None:
        if self._file is not None and (problem := self._file.problem()):
            self._begin_anew(f"it was damaged: {problem}", now_ms)

    def _opened(self, now_ms: int) -> ArchiveFile:
        there = identity(self._path)
        if self._inode is not None and (there is None or there[0] != self._inode):
            did = "removed" if there is None else "replaced"
            self._begin_anew(f"its file was {did}", now_ms)
        try:
            file = self._open(now_ms)
        except OtherFormatError as error:
            self._begin_anew(f"it could not be used: {error}", now_ms)
            file = self._open(now_ms)
        there = identity(self._path)
        self._inode, self._run = None if there is None else there[0], file.run
        return file

    def _open(self, now_ms: int) -> ArchiveFile:
        return ArchiveFile(self._path, self._broker, self._catalogue, now_ms, run=self._run)

    def _begin_anew(self, reason: str, now_ms: int) -> None:
        """Let another file take the place of this one, which is put aside if it is there, and say
        that what it had is missing.
        """
        self.failures += 1
        self._let_go()
        there, aside = identity(self._path), None
        if there is not None and not reason.endswith("file was replaced"):
            aside = put_aside(self._path)
        else:
            forget_log(self._path)
        self._inode, self._run, self._dropped_before = None, 0, self.dropped
        self._gaps.append(UnrecordedSpan(0, now_ms, reason))
        log.warning(
            "the archive cannot be used: a new one begins",
            file=str(self._path),
            put_aside=None if aside is None else str(aside),
            reason=reason,
        )

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._failed_s, self._trouble = time.monotonic(), _reason(error)
        self._let_go()
        if not self._failing:
            self._failing = True
            log.error(
                "the archive cannot be written: records of this time may be missing there; the "
                "history has them",
                file=str(self._path),
                error=str(error),
                kind=type(error).__name__,
            )


def _reason(error: Exception) -> str:
    """Why the file cannot be written, in words."""
    full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    if full or getattr(error, "errno", 0) == errno.ENOSPC:
        return "the disk is full"
    return f"its file cannot be written: {error}"


def _event(ts: int, number: int, kind: str, record: HistoryRecord) -> ArchivedEvent:
    document = msgspec.json.decode(msgspec.json.encode(record))
    return ArchivedEvent(id=number, kind=kind, ts=ts, last=ts, times=1, record=document)
