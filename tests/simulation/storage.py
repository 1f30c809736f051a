"""The storage alone, on a disk that is as mean as one can be.

Two or three brokers open logs, append, read, close, trim, take each other's logs, clear journals,
are killed, crash and lose power; syncs fail once and lie afterwards, those of one file fail for
long, pages are evicted, writes and syncs find no room, the share goes away. The threads of the
storages run one at a time, and any of them may go on between two calls of the disk; a broker may
end there, too. A seed fixes everything.

Whatever happens, every opening finds every entry that has a receipt, or that an earlier opening has
found, with its content; nobody gets a receipt whose log another broker has opened without that
entry; and no producer is remembered with a message that is not there.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import EDQUOT, EIO, ENOSPC, ESTALE
from random import Random
from typing import Any

from simulation.world import SimulationError
from structlog.testing import capture_logs

from loadmanager.broker.messaging.memory import EntryCache, TopicMemory
from loadmanager.broker.messaging.segments import ABSENT, HEADER_BYTES, SegmentIndex, entries_in
from loadmanager.broker.messaging.stored_log import Rollover, StoredLog
from loadmanager.broker.ports.log import Run
from loadmanager.broker.storage.commit_journal import segment_path
from loadmanager.broker.storage.log_files import COMMITTER, LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.kit.errors import CorruptDataError, LoadManagerError

STEPS = 120
UID_BYTES = 12
OPENINGS_MAX = 100
"""Each file may have one failure that the next sync tells of."""
KINDS = ("end", "power", "evict", "back", "sync", "full", "room", "away", "bad")
PASSED_OVER = frozenset({"lock", "make_folder", "holds", "exists"})
"""Calls between which no other thread goes on: they hold a lock, or change nothing."""


class Turns:
    """Threads of which one runs at a time, until its next call of the disk."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._here = threading.local()

    def pause(self) -> None:
        """Called in a thread: any other one may go on."""
        pause = getattr(self._here, "pause", None)
        if pause is not None:
            pause()

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run a call in a thread of its own, with the pauses that it makes."""
        mine, main = threading.Lock(), threading.Lock()  # each is taken until the other's turn
        mine.acquire()
        main.acquire()
        result: list[Any] = []
        errors: list[BaseException] = []
        wait = self._wait()

        def pause() -> None:
            nonlocal wait
            wait = self._wait()
            if wait:  # otherwise this thread goes on, which needs no switch of threads
                main.release()
                mine.acquire()

        def body() -> None:
            self._here.pause = pause
            mine.acquire()
            try:
                result.append(call())
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                errors.append(error)
            main.release()

        _thread.start_new_thread(body, ())
        while not (result or errors):
            for _ in range(wait):
                await asyncio.sleep(0)
            mine.release()
            main.acquire()
        if errors:
            raise errors[0]
        return result[0]

    def _wait(self) -> int:
        """For how many turns of the event loop a thread pauses."""
        return self._rng.choice((0, 0, 1, 4))


@dataclass(slots=True)
class Record:
    """What the metadata store has of a log."""

    version: int = 0
    runs: list[Run] = field(default_factory=list)
    first_id: int = 0


@dataclass(slots=True, eq=False)
class Opened:
    """A log that a broker has open."""

    log: StoredLog
    run: int
    found: dict[int, bytes]
    """Entry → its content, of those that it can read."""
    sent: dict[int, bytes] = field(default_factory=dict)
    """What has no receipt yet."""


class Broker:
    """A process with a storage."""

    def __init__(self, world: Storages, name: str) -> None:
        self.world = world
        self.disk = MemoryDisk(world.files)
        self._threads = {"committer": asyncio.Lock(), "others": asyncio.Lock()}
        self.storage = LogFiles(
            self.disk,
            self._run,
            names=world.new_name,
            journal_bytes=world.journal_bytes,
            direct_max=world.direct_max,
        )
        self.name = name
        self.opened: dict[int, Opened] = {}

    async def _run(self, number: int, call: Callable[[], Any]) -> Any:
        async with self._threads["committer" if number == COMMITTER else "others"]:
            return await self.world.turns.run(call)

    async def open(self, log_id: int) -> None:
        """Open a log, as a topic's owner does."""
        self.opened.pop(log_id, None)
        record = self.world.records[log_id]
        version, runs, first_id = record.version, list(record.runs), record.first_id
        segments, end_id = await self.storage.open(log_id, runs, first_id)
        if record.version != version or self.disk.crashed:
            return  # another one has opened it meanwhile
        found = self._content(log_id, segments)
        written = {segment.run for segment in segments}
        number = max((run.number for run in runs), default=0) + 1
        kept = [run for run in runs if run.number in written]
        record.version, record.runs = version + 1, [*kept, Run(number, end_id, self.storage.writer)]
        self.world.check(log_id, found, segments)
        log = StoredLog(
            TopicMemory(1 << 40),
            EntryCache(0),
            segments,
            run=number,
            next_id=end_id,
            rollover=self.world.rollover,
        )
        self.opened[log_id] = Opened(log, number, found)

    def _content(self, log_id: int, segments: list[SegmentIndex]) -> dict[int, bytes]:
        """What an opening has found, as the disk has it."""
        found = {}
        for segment in segments:
            path = segment_path(log_id, segment.run, segment.first_id)
            data = bytes(self.world.files.files[path].on_device())
            for index, at in enumerate(segment.offsets):
                if at != ABSENT:
                    begin = at + HEADER_BYTES
                    found[segment.first_id + index] = data[begin : begin + UID_BYTES]
        return found

    async def append(self, logs: list[int]) -> None:
        """Send some messages to these logs, and commit them."""
        rng, batch, ends = self.world.rng, {}, {}
        for log_id in logs:
            opened = self.opened[log_id]
            for _ in range(rng.randint(1, 4)):
                uid = self.world.new_uid()
                tail = uid + bytes(rng.choice((5, 40, 600, 3000)))
                producer = f"p{rng.randint(0, 2)}"
                entry = opened.log.append(tail, 1, 0, producer, int(uid))
                opened.sent[entry.entry_id] = uid
                self.world.sent(log_id, opened.run, producer, entry.entry_id, uid)
            pieces, end_id, size = opened.log.take()
            batch[log_id], ends[log_id] = pieces, (opened, end_id, size)
        try:
            fenced = await self.storage.append(batch)
        except LoadManagerError:
            for log_id in logs:
                self.opened.pop(log_id, None)
            raise
        for log_id, (opened, end_id, size) in ends.items():
            if log_id in fenced:
                self.opened.pop(log_id, None)
                self.world.counts["fenced"] += 1
            elif not self.disk.crashed:
                opened.log.stored(end_id, size)
                self.world.receipt(log_id, opened)

    async def read(self, log_id: int) -> None:
        """Read an entry that exists, as for a consumer."""
        opened = self.opened[log_id]
        choices = [entry for entry in opened.found if opened.log.place(entry) is not None]
        if not choices:
            return
        entry_id = self.world.rng.choice(choices)
        for again in (False, True):
            place = opened.log.place(entry_id)
            if place is None:
                return
            data = await self.storage.read(log_id, place.segment, place.offset, place.size)
            try:
                tail = next(iter(entries_in(data))).tail[:UID_BYTES]
            except (CorruptDataError, StopIteration):
                tail = b""
            if tail == opened.found[entry_id]:
                self.world.counts["read"] += 1
                return
            if self.world.records[log_id].runs[-1].number != opened.run or self.disk.crashed:
                return  # it is not the owner any more
            if again or not await self.storage.mend(log_id):
                self.world.fail(f"entry {entry_id} of log {log_id} cannot be read: {tail!r}")

    async def close(self, log_id: int) -> None:
        """Leave a log to its next owner."""
        log = self.opened.pop(log_id).log
        log.segments[-1].producers = dict(log.producers)
        await self.storage.close(log_id, [log.segments[-1]])

    async def trim(self, log_id: int) -> None:
        """Delete what was consumed."""
        opened, record = self.opened[log_id], self.world.records[log_id]
        if record.runs[-1].number != opened.run:
            return
        opened.log.drop_until(self.world.rng.randint(0, opened.log.end_id), 0)
        if opened.log.first_id > record.first_id:
            record.version, record.first_id = record.version + 1, opened.log.first_id
            await self.storage.trim(log_id, record.first_id)

    def end(self) -> None:
        """The process is killed, or its machine crashes."""
        self.opened.clear()
        if self.world.rng.random() < 0.5:
            self.disk.kill()
        else:
            self.disk.crash(lambda size: self.world.rng.randint(0, size))


class Storages:
    """The brokers, their disk, and what must be true of both."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.files = SharedFiles(strict_names=rng.random() < 0.5, rng=rng)
        self.files.trouble = self._trouble
        self.turns = Turns(rng)
        self.journal_bytes = rng.choice((300, 2_000, 20_000, 1_000_000))
        self.direct_max = rng.choice((0, 1, 2))
        self.rollover = Rollover(rng.choice((3, 10, 50)), rng.choice((500, 5_000, 1 << 20)), 100)
        self.logs = range(1, 1 + rng.choice((2, 4, 7, 12)))
        self.records = {log_id: Record() for log_id in self.logs}
        self.durable: dict[int, dict[int, bytes]] = {log_id: {} for log_id in self.logs}
        """Log → entry → content, of all that has a receipt or was found."""
        self._sent: dict[int, dict[tuple[int, str], list[tuple[int, bytes]]]] = {}
        """Log → run and producer → the entries that were sent, with their content."""
        self.counts: Counter[str] = Counter()
        self.failure = ""
        self._sync_fails = rng.choice((0.0, 0.02, 0.1, 0.3))
        self._failing: dict[str, int] = {}
        """Calls of the disk that fail now."""
        self._bad = ""
        """A file that cannot be synced for long."""
        self._faults = True
        self._names = self._uids = 0
        self.brokers = [Broker(self, f"b{n}") for n in range(rng.choice((2, 2, 3)))]

    def new_name(self) -> str:
        """The name of a storage's folder."""
        self._names += 1
        return f"{self._names:016x}"

    def new_uid(self) -> bytes:
        """The content of a message, which is its sequence id, too."""
        self._uids += 1
        return b"%012d" % self._uids

    def fail(self, problem: str) -> None:
        """Remember the first problem."""
        self.failure = self.failure or problem

    def _trouble(self, call: str, path: str) -> int:
        """Let other threads go on; then fail the call, perhaps."""
        if call not in PASSED_OVER:
            self.turns.pause()
        if "all" in self._failing:
            return self._failing["all"]
        error = self._failing.pop(call, 0)
        if call in ("sync", "sync_names") and self._faults and self.rng.random() < self._sync_fails:
            error = EIO
        if call == "sync" and path == self._bad:
            self.counts["syncs of a bad file"] += 1
            error = EIO
        if error and call == "sync":
            self.counts["failed syncs"] += 1
        return error

    def check(self, log_id: int, found: dict[int, bytes], segments: list[SegmentIndex]) -> None:
        """An opening has found this."""
        first_id = self.records[log_id].first_id
        for entry_id, content in self.durable[log_id].items():
            if entry_id >= first_id and found.get(entry_id) != content:
                self.fail(f"log {log_id}, entry {entry_id}: {found.get(entry_id)!r}")
        self.counts["openings"] += 1
        self.counts["found again"] += len(self.durable[log_id])
        self.durable[log_id].update(found)
        if wrong := [entry_id for entry_id, content in found.items() if not content.isdigit()]:
            self.fail(f"log {log_id}: what was found is not there: {wrong}")
        elif segments:
            last = max({int(content) for content in found.values()} | {-1})
            for name, known in segments[-1].producers.items():
                if known.sequence_id > last:
                    self.fail(f"log {log_id}: {name} is remembered with a lost message")

        for (run, name), sent in self._sent.get(log_id, {}).items():
            there = [found.get(entry) == uid for entry, uid in sent if entry >= first_id]
            if there != sorted(there, reverse=True):
                self.fail(f"log {log_id}, run {run}: {name}'s messages have a hole")

    def sent(self, log_id: int, run: int, producer: str, entry_id: int, content: bytes) -> None:
        """A message was sent."""
        of_log = self._sent.setdefault(log_id, {})
        of_log.setdefault((run, producer), []).append((entry_id, content))

    def receipt(self, log_id: int, opened: Opened) -> None:
        """What was sent has its receipts."""
        current = self.records[log_id].runs
        for entry_id, content in list(opened.sent.items()):
            if entry_id < opened.log.end_id:
                if current[-1].number != opened.run and (
                    self.durable[log_id].get(entry_id) != content
                ):
                    self.fail(f"log {log_id}: a receipt in run {opened.run} after {current[-1]}")
                self.durable[log_id][entry_id] = opened.found[entry_id] = content
                del opened.sent[entry_id]
                self.counts["receipts"] += 1

    # What happens

    async def step(self, index: int) -> None:
        """One thing that a broker does."""
        broker, rng = self.brokers[index], self.rng
        mine = list(broker.opened)
        kind = rng.choices(
            ("append", "open", "read", "close", "trim", "flush", "sync", "recover"),
            (40, 22, 8, 7, 3, 7, 8, 3),
        )[0]
        try:
            if kind == "open" or (not mine and kind in ("append", "read", "close", "trim")):
                await broker.open(rng.choice(self.logs))
            elif kind == "append":
                await broker.append(rng.sample(mine, rng.randint(1, len(mine))))
            elif kind in ("read", "close", "trim"):
                await getattr(broker, kind)(rng.choice(mine))
            else:
                await getattr(broker.storage, kind)()
        except LoadManagerError:
            self.counts["errors"] += 1

    async def live(self, index: int) -> None:
        """What one broker does, and how it ends now and then."""
        for _ in range(STEPS):
            if self.failure:
                return
            await self.step(index)
            if self.brokers[index].disk.crashed:
                self.counts["ends"] += 1
                self.brokers[index] = Broker(self, f"b{index}")

    async def trouble(self, running: Callable[[], bool]) -> None:
        """What happens to brokers and disk meanwhile."""
        rng = self.rng
        while running():
            for _ in range(rng.randint(1, 400)):
                await asyncio.sleep(0)
            kind = rng.choices(KINDS, (2, 1, 2, 1, 1, 1, 1, 1, 1))[0]
            if kind == "end":
                rng.choice(self.brokers).end()
            elif kind == "power":
                self.counts["power"] += 1
                for broker in self.brokers:
                    broker.opened.clear()
                    broker.disk.kill()
                self.files.lose_power(keep=rng.choice((0, 1, None, None)))
            elif kind == "evict" and self.files.files:
                self.files.evict(rng.choice(sorted(self.files.files)))
            elif kind == "back" and self.files.files:
                path = rng.choice(sorted(self.files.files))
                self.files.fail_to_write_back(path)
                self.files.evict(path)
            elif kind == "sync":
                self._failing["sync"] = rng.choice((EIO, ENOSPC, EDQUOT))
            elif kind == "full":
                self._failing["write"] = ENOSPC
            elif kind == "bad":
                segments = [path for path in sorted(self.files.files) if path.endswith(".log")]
                self._bad = rng.choice(segments) if segments and not self._bad else ""
            else:
                await self._for_a_while(kind)

    async def _for_a_while(self, kind: str) -> None:
        if kind == "room":
            self.files.room = self.rng.choice((0, 100, 2_000))
        else:
            self._failing["all"] = ESTALE
        for _ in range(self.rng.randint(1, 200)):
            await asyncio.sleep(0)
        self.files.room = -1
        self._failing.pop("all", None)

    async def run(self) -> None:
        """Everything; at last all logs are opened once more."""
        living = [asyncio.create_task(self.live(index)) for index in range(len(self.brokers))]
        trouble = asyncio.create_task(
            self.trouble(lambda: not self.failure and not all(task.done() for task in living))
        )
        await asyncio.gather(*living, trouble)
        self._faults = False
        self._failing.clear()
        self._bad = ""
        for ends in (self.files.lose_power, lambda: None):
            for broker in self.brokers:
                broker.disk.kill()
            ends()
            last = Broker(self, "last")
            for log_id in self.logs:
                for _ in range(OPENINGS_MAX):
                    if not self.failure and log_id not in last.opened:
                        with suppress(LoadManagerError):  # a failure that nobody was told of
                            await last.open(log_id)
                if log_id not in last.opened:
                    self.fail(f"log {log_id} cannot be opened any more")
            self.brokers = [last]


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Threads that take turns cost half as much where none of them wakes up another core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def run(seed: int) -> Counter[str]:
    """What happened, how often. Raises `SimulationError`."""
    storages = Storages(seed)
    with capture_logs(), _on_one_core():
        asyncio.run(storages.run())
    if storages.failure:
        raise SimulationError(f"seed {seed}: {storages.failure}")
    return storages.counts
