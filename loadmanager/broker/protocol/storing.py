"""Stored topics: opening their logs, committing what was sent, reading what consumers want, saving
cursors, trimming.

A receipt is sent when the storage has said that the data is durable, and never for a topic that is
fenced: another broker may have opened its log, and then the storage says so instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadmanager.broker.messaging.cursor import Cursor, read_cursor, write_cursor
from loadmanager.broker.messaging.log import Entry
from loadmanager.broker.messaging.memory import EntryCache, TopicMemory
from loadmanager.broker.messaging.settings import MessagingSettings, StorageSettings
from loadmanager.broker.messaging.stored_log import Rollover, StoredLog
from loadmanager.broker.messaging.subscription import Subscription
from loadmanager.broker.ports.directory import Directory, TopicRecords
from loadmanager.broker.ports.log import (
    FencedError,
    LogRecord,
    Run,
    StoodStillError,
    Storage,
    StorageTimeoutError,
)
from loadmanager.broker.protocol.committing import Committer
from loadmanager.broker.protocol.dispatcher import Dispatcher
from loadmanager.broker.protocol.failures import Failures
from loadmanager.broker.protocol.hosted import AttachedProducer, HostedTopic
from loadmanager.broker.protocol.log_proof import LogProof
from loadmanager.broker.protocol.reading import EntryReader
from loadmanager.broker.protocol.receipts import Owed, Receipts
from loadmanager.broker.protocol.repeated import Repeat, ids_of
from loadmanager.broker.protocol.storage_health import FULL_S, StorageHealth
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import (
    ConflictError,
    CorruptDataError,
    LoadManagerError,
    OperationalError,
)
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import TopicName
from loadmanager.kit.units import MIB

SETTLE_S = 2.0
"""How long an unload waits for the storage and for the cursors at most."""
SEGMENT_MB_MAX = 128
"""A segment that was left without its index is read as a whole."""
RANGES_MAX = 20_000
"""A node of the metadata store holds a cursor with so many."""

log = get_logger("storage")


class StorageFullError(LoadManagerError):
    """The storage refuses to write: producers must wait."""


class StoredTopic:
    """The storage of one open topic."""

    hosted: HostedTopic

    def __init__(
        self,
        storing: Storing,
        topic: TopicName,
        record: LogRecord,
        opened: StoredLog,
        cursors: Mapping[str, Cursor],
    ) -> None:
        self.topic = topic
        self.record = record
        self.log = opened
        self._cursors = cursors
        self._storing = storing
        self._receipts = Receipts()
        self._looking = False
        """Whether repeated messages are being looked for."""
        self.left = False
        """Whether the index of its last segment was left to the next opening."""
        self.closed = False
        self._saved_in_part: set[str] = set()
        self._unsaved_why = ""
        self._saved = asyncio.Event()
        """Not set while the record or a cursor is being written."""
        self._saved.set()
        self.reader = EntryReader(
            topic,
            opened,
            log_id=record.log_id,
            storage=storing.storage,
            run=lambda work, name: storing.run(self, work, name),
            arrived=self._arrived,
        )

    def begin(self, hosted: HostedTopic) -> None:
        """The topic is open: its subscriptions go on from their cursors."""
        self.hosted = hosted
        hosted.stored = self
        self._storing.proof.opened[self] = None
        hosted.figures.begin(self.log.end_id)
        for name, cursor in self._cursors.items():
            hosted.core.subscriptions[name].restore(cursor)
        now_s = self._storing.clock.monotonic_s()
        for name, sent in self.log.producers.items():
            hosted.core.remember(name, sent, now_s)

    # Committing

    def owe(
        self, producer: AttachedProducer, sequence_id: int, entry: Entry | None, chunk_id: int = 0
    ) -> None:
        """A message was appended, or was there before: send its receipt when it is durable."""
        end_id = self.log.next_id if entry is None else entry.entry_id + 1
        self._receipts.owe(end_id, producer, sequence_id, entry, chunk_id)
        self._storing.committer.add(self)

    def answer_later(self, producer: AttachedProducer, answer: bytes) -> bool:
        """Answer a client that closes a producer once the receipts before are sent."""
        return self._receipts.owe_answer(self.log.next_id, producer, answer)

    def committed(self, end_id: int, size_bytes: int) -> None:
        self.log.stored(end_id, size_bytes)
        self._answer()

    def failed(self, error: LoadManagerError) -> None:
        self._storing.failed(self, error)

    def _answer(self) -> None:
        """Send the receipts for what is stored, in order. Those of a silent topic wait: it may be
        settled, and a producer that gets the later ones only cannot know what became of the others.
        """
        answers = self._storing.may_serve()
        receipts = () if self.hosted.silent else self._receipts.take(self.log.end_id)
        for receipt in receipts:
            producer = receipt.producer
            if receipt.answer is not None:
                self._send(receipt)
            elif answers and not producer.is_closed:
                producer.receipt_ms = producer.receipt_ms or self._storing.clock.now_ms()
                self._send(receipt)
        if not self.hosted.fenced:
            self._storing.dispatcher.touch(self.hosted)
        if not self._looking and self._receipts.unnamed(self.log.end_id):
            self._looking = True
            self._storing.run(self, self._find_repeated, "find-repeated")

    def _send(self, owed: Owed) -> None:
        owed.producer.connection.send(owed.encode())
        self._storing.dispatcher.written(owed.producer.connection)

    async def _find_repeated(self) -> None:
        """Find where the repeated messages are that wait for their receipts."""
        receipts, ids = self._receipts.unnamed(self.log.end_id), dict[Repeat, int]()
        try:
            wanted = {receipt.repeat for receipt in receipts}
            ids = await ids_of(self.log, wanted, self.reader.some)
        except LoadManagerError as error:  # the receipts name no entry
            log.info("reading repeated messages failed", topic=str(self.topic), error=str(error))
        finally:
            self._looking = False
            self._receipts.name(receipts, ids)
        self._answer()
        self._storing.dispatcher.deliver()

    def _arrived(self) -> None:
        """Entries were read that consumers wait for."""
        if not self.hosted.fenced:
            self._storing.dispatcher.touch(self.hosted)
            self._storing.dispatcher.deliver()

    # Cursors

    def moved(self) -> None:
        """A cursor may have moved: it is saved soon."""
        self._storing.dirty[self] = None

    async def save(self) -> None:
        """Save the cursors that moved. One that cannot be saved now is saved later."""
        if self.closed:
            return
        if not self._saved.is_set():
            self.moved()  # what moves while something is saved is saved after it
            return
        subscriptions = [
            subscription
            for subscription in self.hosted.core.subscriptions.values()
            if subscription.durable and subscription.changed
        ]
        if not subscriptions:
            return
        self._saved.clear()
        try:
            cursors = {}
            for subscription in subscriptions:
                cursors[subscription.name] = await self._write_cursor(subscription)
            await self._storing.directory().save_cursors(self.topic, self.record, cursors)
            self._unsaved_why = ""
        except ConflictError as error:
            self._storing.failed(self, FencedError(str(error)))
        except LoadManagerError as error:
            if self._unsaved_why != str(error):
                self._unsaved_why = str(error)
                log.warning(
                    "cursors could not be saved; it is tried again",
                    topic=str(self.topic),
                    error=self._unsaved_why,
                )
            for subscription in subscriptions:
                subscription.changed = True
            self.moved()
        finally:
            self._saved.set()

    async def _write_cursor(self, subscription: Subscription) -> bytes:
        """A cursor as bytes. In one turn of the loop, one cursor of all topics is written. One that
        is too large is saved in part, and the log says so once.
        """
        async with self._storing.writing_cursor:
            await asyncio.sleep(0)
            subscription.changed = False
            ranges_max = min(self._storing.settings.value.ranges_max, RANGES_MAX)
            value, whole = write_cursor(subscription.cursor(ranges_max))
        if whole:
            self._saved_in_part.discard(subscription.name)
        elif subscription.name not in self._saved_in_part:
            self._saved_in_part.add(subscription.name)
            log.warning(
                "a cursor is too large to be saved as a whole; what is left out of it is delivered "
                "again when the topic has moved",
                topic=str(self.topic),
                subscription=subscription.name,
            )
        return value

    async def trim(self) -> None:
        """Delete the segments that the log has dropped, after the record says so."""
        first_id, number = self.log.first_id, self.log.run
        if not self._saved.is_set() or self.closed or first_id == self.record.first_id:
            return
        written = {segment.run for segment in self.log.segments}
        runs = tuple(run for run in self.record.runs if run.number in written | {number})
        self._saved.clear()
        try:
            self.record = await self._storing.directory().save_log_record(
                self.topic, replace(self.record, first_id=first_id, runs=runs)
            )
            await self._storing.storage.trim(self.record.log_id, first_id)
        except ConflictError as error:
            self._storing.failed(self, FencedError(str(error)))
        except LoadManagerError as error:
            log.warning(
                "trimming failed; it is tried again", topic=str(self.topic), error=str(error)
            )
        finally:
            self._saved.set()

    async def settle(self) -> None:
        """The topic is being unloaded: answer what was sent before, save the cursors, and leave the
        index of its last segment to the next owner.
        """
        self._answer()
        await self._receipts.all_sent.wait()
        if not self.closed:
            leaving = self._storing.leave(self)
            await self._saved.wait()
            await self.save()
            if leaving is not None:
                await asyncio.wait([leaving])

    def close(self) -> None:
        """The topic is not served here any more."""
        if self.closed:
            return
        self.closed = self.reader.closed = True
        for answer in self._receipts.drop():
            self._send(answer)
        self._storing.close(self)


class Storing:
    """Opens stored topics, and does for all of them what is done from time to time."""

    def __init__(
        self,
        storage: Storage,
        settings: Live[StorageSettings],
        *,
        messaging: Live[MessagingSettings],
        memory: TopicMemory,
        dispatcher: Dispatcher,
        directory: Callable[[], Directory],
        clock: Clock,
        failures: Failures,
        spawn: Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]],
        may_serve: Callable[[], bool],
        close_topic: Callable[[str], object],
    ) -> None:
        self.storage = storage
        self.settings = settings
        self.dispatcher = dispatcher
        self.directory = directory
        self.may_serve = may_serve
        self.dirty: dict[StoredTopic, None] = {}
        """Topics whose cursors moved."""
        self.writing_cursor = asyncio.Lock()
        self._messaging = messaging
        self._memory = memory
        self.clock = clock
        self._failures = failures
        self._spawn = spawn
        self._close_topic = close_topic
        self.committer = Committer(storage, spawn=spawn, failures=failures, done=self._committed)
        self.proof = LogProof(storage, clock, dispatcher.deliver)
        self.health = StorageHealth(storage, clock)
        self._cache = EntryCache(settings.value.cache_mb * MIB)
        self._hung_until_s = float("-inf")

    @property
    def cached_bytes(self) -> int:
        """Memory of the cache."""
        return self._cache.used_bytes

    def run(
        self, stored: StoredTopic, work: Callable[[], Coroutine[Any, Any, Any]], name: str
    ) -> asyncio.Task[Any] | None:
        """Start a task for a topic; None when the broker is stopping. A bug in it costs the topic's
        clients their connection.
        """

        async def contained() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - contained: a bug costs this topic only
                self._failures.report(f"storing {stored.topic} failed; it is closed", error)
                self.failed(stored, LoadManagerError("internal error"))

        running = contained()
        try:
            return self._spawn(running, name)
        except RuntimeError:
            running.close()
            return None

    def check_writable(self) -> None:
        """Raise `StorageFullError` when the storage refused to write just now."""
        if self.health.full:
            raise StorageFullError("the storage of this broker cannot be written to")

    async def open(self, topic: TopicName, life: int, records: TopicRecords) -> StoredTopic:
        """Open a topic's log in a life of its bundle.

        Raises `OperationalError` when a later life has opened it: the client looks it up again. The
        same for a few seconds after the storage did not answer.
        """
        if self.clock.monotonic_s() < self._hung_until_s:
            raise OperationalError("the storage of this broker does not answer")
        try:
            return await self._open(topic, life, records)
        except ConflictError as error:
            raise OperationalError(f"{topic} is served by another broker by now: {error}") from None
        except StoodStillError:
            raise
        except StorageTimeoutError:
            self._hung_until_s = self.clock.monotonic_s() + FULL_S
            raise

    async def _open(self, topic: TopicName, life: int, records: TopicRecords) -> StoredTopic:
        directory, subscriptions = self.directory(), records.subscriptions
        record = records.log or LogRecord(await directory.next_ledger_id(), life)
        if record.life > life:
            raise ConflictError("it was opened in a later life of its bundle")
        try:
            segments, end_id = await self.storage.open(record.log_id, record.runs, record.first_id)
        except OperationalError:
            self.health.suspect()
            raise
        written = {segment.run for segment in segments}
        runs = [run for run in record.runs if run.number in written]
        number = max((run.number for run in record.runs), default=0) + 1
        writer = self.storage.writer
        record = await self._record(topic, record, life, [*runs, Run(number, end_id, writer)])
        # From here on nobody else can save a cursor.
        values = await directory.cursors(topic, subscriptions)
        cursors = {
            name: self._cursor(topic, name, value)
            for name, value in zip(subscriptions, values, strict=True)
        }
        acknowledged_to = max((cursor.end_id for cursor in cursors.values()), default=0)
        if acknowledged_to > end_id:
            # Messages were lost that had been consumed, unless it is another topic that had them,
            # which was deleted: their ids must not be given again.
            if records.log is not None:
                log.error(
                    "stored messages are lost", topic=str(topic), entries=acknowledged_to - end_id
                )
            end_id = acknowledged_to
            record = await self._record(topic, record, life, [*runs, Run(number, end_id, writer)])
        limits = self.settings.value
        rollover = Rollover(
            limits.segment_entries_max,
            min(limits.segment_mb_max, SEGMENT_MB_MAX) * MIB,
            self._messaging.value.producers_remembered_max,
        )
        memory = self._memory.part(str(topic.namespace))
        opened = StoredLog(
            memory, self._cache, segments, run=number, next_id=end_id, rollover=rollover
        )
        return StoredTopic(self, topic, record, opened, cursors)

    async def _record(
        self, topic: TopicName, record: LogRecord, life: int, runs: Sequence[Run]
    ) -> LogRecord:
        changed = replace(record, life=life, runs=tuple(runs))
        return await self.directory().save_log_record(topic, changed)

    @staticmethod
    def _cursor(topic: TopicName, name: str, value: bytes) -> Cursor:
        try:
            return read_cursor(value, f"the cursor of {name} of {topic}")
        except CorruptDataError as error:
            log.error("a cursor is damaged; its subscription starts again", error=str(error))
            return Cursor()

    def failed(self, stored: StoredTopic, error: LoadManagerError) -> None:
        """A topic cannot be written to: close it, so that it is opened again, here or elsewhere."""
        if stored.closed:
            return
        if isinstance(error, FencedError):
            log.warning("a topic is closed", topic=str(stored.topic), reason=str(error))
        else:
            self.health.failed(str(stored.topic), error)
        stored.hosted.silent = True
        self._close_topic(str(stored.topic))

    def _committed(self) -> None:
        """A commit went well."""
        self.health.went_well()
        self.dispatcher.deliver()

    def close(self, stored: StoredTopic) -> None:
        """A topic is not served here any more; leave the index of its last segment."""
        self.dirty.pop(stored, None)
        self.proof.opened.pop(stored, None)
        self.leave(stored)

    def leave(self, stored: StoredTopic) -> asyncio.Task[Any] | None:
        """Leave the index of a topic's last segment to its next opening, unless something that was
        sent is not stored; the task that does it.
        """
        last = stored.log.segments[-1]
        if stored.left or stored.log.end_id != stored.log.next_id:
            return None
        stored.left = True
        last.producers = dict(stored.log.producers)
        return self.run(stored, lambda: self._leave(stored, [last]), "close-log")

    async def _leave(self, stored: StoredTopic, segments: Iterable[Any]) -> None:
        try:
            await self.storage.close(stored.record.log_id, list(segments))
        except LoadManagerError as error:
            log.info("a segment is left without its index", error=str(error))

    @property
    def _leased(self) -> bool:
        return self.directory().lease.held(self.clock.monotonic_s())

    def save_cursors(self) -> None:
        """Save the cursors that moved since the last time; without the lease, they wait."""
        if not self._leased:
            return
        dirty, self.dirty = self.dirty, {}
        for stored in dirty:
            self.run(stored, stored.save, "save-cursors")

    async def settle(self, topics: Iterable[HostedTopic]) -> None:
        """Before a bundle is released: answer what was sent, save its cursors. Takes at most
        `SETTLE_S`.
        """
        running = []
        for hosted in topics:
            if isinstance(stored := hosted.stored, StoredTopic):
                hosted.silent = False
                running.append(self.run(stored, stored.settle, "settle"))
        if tasks := [task for task in running if task is not None]:
            await asyncio.wait(tasks, timeout=SETTLE_S)
        for hosted in topics:
            hosted.silent = True

    def trim(self, hosted: HostedTopic) -> None:
        """Delete what a topic's log has dropped."""
        stored = hosted.stored
        if not isinstance(stored, StoredTopic) or not self._leased:
            return
        if stored.log.first_id > stored.record.first_id:
            self.run(stored, stored.trim, "trim")
