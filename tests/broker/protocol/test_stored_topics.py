"""Stored topics: when receipts are sent, what a failing storage costs, reads beyond the cache."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from broker.protocol.driven_broker import ERROR, MESSAGE, RECEIPT, Broker, OwnsAll, Wire
from broker.protocol.test_hostile_clients import a_publish
from limits.driven import TOPIC
from simulation.clients import send_frame
from structlog.testing import capture_logs

from loadmanager.broker.messaging.cursor import read_cursor
from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.messaging.subscription import SubscriptionType
from loadmanager.broker.ports.log import LogRecord
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.storage_health import FAILURES_MAX, FULL_S
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.conf import Live
from loadmanager.kit.names import TopicName

BUNDLE = "public/default/0x00000000_0xffffffff"
SUCCESS, CLOSE_PRODUCER = 13, 15


class Slow(Broker):
    """A broker whose storage works when the test lets it."""

    def __init__(self, files: SharedFiles, **settings: Any) -> None:
        super().__init__()
        self.files = files
        self.works = asyncio.Event()
        self.works.set()
        self.timeout_s = 60.0
        self.storage = LogFiles(MemoryDisk(files), self._run, timeout_s=lambda: self.timeout_s)
        self.server.store_in(self.storage, Live(StorageSettings(**settings)))

    async def _run(self, _thread: int, call: Callable[[], Any]) -> Any:
        await self.works.wait()
        return call()

    async def begin(self) -> tuple[Connection, Wire]:
        """A client with producer 1."""
        await self.server.open_bundle(BUNDLE, 1)
        return await self.producer()


@pytest.mark.asyncio
async def test_no_receipt_before_the_storage_says_so() -> None:
    """Messages are answered, and delivered, once they are stored, all that came meanwhile at
    once.
    """
    broker = Slow(SharedFiles())
    connection, wire = await broker.begin()
    _, reader = await broker.consumer(permits=10)
    broker.works.clear()
    connection.data_received(send_frame(1, 1))
    await asyncio.sleep(0)
    connection.data_received(send_frame(1, 2) + send_frame(1, 3))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (wire.count(RECEIPT), reader.count(MESSAGE)) == (0, 0)
    broker.works.set()
    await broker.settle()
    assert (wire.count(RECEIPT), reader.count(MESSAGE)) == (3, 3)


@pytest.mark.asyncio
async def test_a_fenced_topic_sends_no_receipts() -> None:
    """What becomes stored after the bundle was fenced is not answered; settling answers it."""
    for settles in (False, True):
        broker = Slow(SharedFiles())
        connection, wire = await broker.begin()
        broker.works.clear()
        connection.data_received(send_frame(1, 1))
        await asyncio.sleep(0)
        broker.server.fence_bundle(BUNDLE, 1)
        work = broker.server.settle_bundle(BUNDLE, 1) if settles else asyncio.sleep(0)
        settling = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        broker.works.set()
        await broker.settle()
        await settling
        assert wire.count(RECEIPT) == settles


def close_frame(request_id: int) -> bytes:
    """A client closes producer 1."""
    return encode(close_producer=pb.CommandCloseProducer(producer_id=1, request_id=request_id))


@pytest.mark.asyncio
async def test_a_client_that_closes_a_producer_gets_its_receipts_first() -> None:
    """It may take none after the answer, and tell its program that messages were not sent that are
    stored. Without any that is due it is answered at once.
    """
    broker = Slow(SharedFiles())
    connection, wire = await broker.begin()
    broker.works.clear()
    connection.data_received(send_frame(1, 1) + send_frame(1, 2) + close_frame(7))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (wire.count(RECEIPT), wire.count(SUCCESS)) == (0, 0)
    broker.works.set()
    await broker.settle()
    kinds = [it.command.type for it in wire.frames if it.command.type in (RECEIPT, SUCCESS)]
    assert kinds == [RECEIPT, RECEIPT, SUCCESS]
    connection, wire = await broker.producer()
    await broker.say(connection, send_frame(1, 1))
    connection.data_received(close_frame(8))
    await broker.settle()
    assert (wire.count(RECEIPT), wire.count(SUCCESS)) == (1, 1)


@pytest.mark.asyncio
async def test_a_client_that_closes_a_producer_is_answered_though_the_topic_is_gone() -> None:
    """Nothing stored its messages, and it is not left to wait once the storage gives up."""
    broker = Slow(SharedFiles())
    connection, wire = await broker.begin()
    broker.works.clear()
    broker.timeout_s = 0.05
    connection.data_received(send_frame(1, 1) + close_frame(7))
    await asyncio.sleep(0)
    await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
    await broker.settle()
    assert (wire.count(RECEIPT), wire.count(SUCCESS)) == (0, 1)


@pytest.mark.asyncio
async def test_a_producer_that_the_broker_closed_gets_no_receipt() -> None:
    """Its client does not know the producer any more, and sends again what has no receipt."""
    broker = Slow(SharedFiles())
    connection, wire = await broker.begin()
    broker.works.clear()
    connection.data_received(send_frame(1, 1))
    await asyncio.sleep(0)
    broker.server.serving.attachments.close_producer(connection.producers[1], None, "a test")
    broker.works.set()
    await broker.settle()
    assert (wire.count(RECEIPT), wire.count(CLOSE_PRODUCER)) == (0, 1)


@pytest.mark.asyncio
async def test_a_full_disk_is_an_error_of_producers() -> None:
    """The producer is closed without a receipt, and refused with PersistenceError; with room again
    it is served, and what was stored before is there.
    """
    files = SharedFiles()
    broker = Slow(files)
    connection, wire = await broker.begin()
    await broker.say(connection, send_frame(1, 1))
    files.room = 10
    await broker.say(connection, send_frame(1, 2))
    assert (wire.count(RECEIPT), wire.count(CLOSE_PRODUCER)) == (1, 1)
    _, refused = await broker.producer()
    errors = [frame.command.error for frame in refused.frames if frame.command.type == ERROR]
    assert [error.error for error in errors] == [pb.PersistenceError]
    files.room = -1
    broker.forward(10_000)
    connection, wire = await broker.producer()
    await broker.say(connection, send_frame(1, 2))
    assert wire.count(RECEIPT) == 1
    _, reader = await broker.consumer(permits=10)
    await broker.settle()
    assert reader.count(MESSAGE) == 2


@pytest.mark.asyncio
async def test_a_storage_in_which_no_topic_can_be_opened_is_trouble() -> None:
    """It failed before anybody had written anything: no commit can tell."""
    files = SharedFiles()
    files.trouble = lambda call, _: errno.EROFS if call in ("write", "make_folder") else 0
    broker = Slow(files)
    await broker.begin()
    for _ in range(FAILURES_MAX):
        trouble = await broker.server.trouble()
        broker.forward(FULL_S * 1000)
    assert "cannot be written to" in trouble


@pytest.mark.asyncio
async def test_backlogs_larger_than_the_cache_are_read_in_order() -> None:
    """A consumer gets what the cache lacks from the segments; a damaged message is left out, and
    counted.
    """
    files = SharedFiles()
    broker = Slow(files, segment_entries_max=30)
    broker.server.serving.storing._cache.limit_bytes = 500  # type: ignore[union-attr]
    connection, _ = await broker.begin()
    await broker.consumer(permits=0)
    for number in range(100):
        await broker.say(connection, send_frame(1, number))
    path = next(path for path in sorted(files.content) if path.endswith(".log"))
    files.change(path, lambda content: content.__setitem__(-1, content[-1] ^ 1))  # entry 29
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    flow = encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=1000))
    consumer = next(iter(hosted.attached.values())).connection
    assert isinstance(consumer, Connection)
    wire = consumer._transport
    assert isinstance(wire, Wire)
    await broker.say(consumer, flow)
    await broker.settle()
    got = [f.command.message.message_id.entryId for f in wire.frames if f.command.type == MESSAGE]
    assert got == [number for number in range(100) if number != 29]
    assert broker.storage.damaged == 1


@pytest.mark.asyncio
async def test_since_when_a_backlog_waits_that_nobody_takes() -> None:
    """Since its oldest message was published, which the storage is asked for once it is not in
    memory; not of a backlog that has a consumer.
    """
    broker = Slow(SharedFiles())
    broker.server.serving.storing._cache.limit_bytes = 500  # type: ignore[union-attr]
    connection, _ = await broker.begin()
    await broker.consumer(permits=0)
    for number in range(4):
        await broker.say(connection, send_frame(1, number))
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    hosted.core.subscribe("nobody's", SubscriptionType.SHARED, 1, durable=True)
    for number in range(4, 1_100):
        await broker.say(connection, send_frame(1, number))

    def oldest() -> dict[str, int | None]:
        hosted.measure(1.0, 0)
        assert {it.messages > 1_000 for it in hosted.traffic.backlogs} == {True}
        return {it.name: it.oldest_ms for it in hosted.traffic.backlogs}

    first = oldest()
    assert first.pop("nobody's") is None
    await broker.settle()
    second = oldest()
    assert second.pop("nobody's") == 1  # as `send_frame` says
    assert {*first.values(), *second.values()} == {None}


@pytest.mark.asyncio
async def test_a_topic_goes_on_after_its_bundle_was_closed() -> None:
    """Ledger id, entry ids, cursor and messages are those of before."""
    broker = Slow(SharedFiles())
    connection, _ = await broker.begin()
    consumer, reader = await broker.consumer(permits=10)
    await broker.say(connection, *(send_frame(1, number) for number in range(5)))
    ids = [f.command.message.message_id for f in reader.frames if f.command.type == MESSAGE]
    ack = pb.CommandAck(consumer_id=1, ack_type=0, message_id=[ids[0], ids[1], ids[3]])
    await broker.say(consumer, encode(ack=ack))
    broker.server.fence_bundle(BUNDLE, 1)
    await broker.server.settle_bundle(BUNDLE, 1)
    await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
    await broker.server.open_bundle(BUNDLE, 2)
    _, reader = await broker.consumer(permits=10)
    await broker.settle()
    again = [f.command.message.message_id for f in reader.frames if f.command.type == MESSAGE]
    assert again == [ids[2], ids[4]]


@pytest.mark.asyncio
async def test_a_disk_that_hangs_holds_nobody_for_long() -> None:
    """Nothing is acknowledged; the clients are closed and refused in time, and it is logged once.
    When the disk answers again, so does the broker, with everything that was acknowledged.
    """
    broker = Slow(SharedFiles())
    connection, wire = await broker.begin()
    await broker.say(connection, send_frame(1, 1))
    broker.works.clear()
    broker.timeout_s = 0.01
    with capture_logs() as lines:
        await broker.say(connection, send_frame(1, 2), send_frame(1, 3))
        while not wire.count(CLOSE_PRODUCER):
            await asyncio.sleep(0.01)
        _, refused = await broker.producer()
        while not refused.count(ERROR):
            await asyncio.sleep(0.01)
        _, again = await broker.producer()
    assert (wire.count(RECEIPT), again.count(ERROR)) == (1, 1)
    assert [line["event"][:31] for line in lines if line["log_level"] == "error"] == [
        "the storage cannot be written t"
    ]
    broker.works.set()
    broker.timeout_s = 60.0
    broker.forward(10_000)
    connection, wire = await broker.producer()
    await broker.say(connection, send_frame(1, 2))
    assert wire.count(RECEIPT) == 1
    _, reader = await broker.consumer(permits=10)
    await broker.settle()
    assert reader.count(MESSAGE) == 2


def an_ack(entry_id: int, ack_set: list[int], consumer_id: int = 1) -> bytes:
    """ACK of a part of a batch."""
    position = pb.MessageIdData(ledgerId=1, entryId=entry_id, ack_set=ack_set)
    return encode(ack=pb.CommandAck(consumer_id=consumer_id, ack_type=0, message_id=[position]))


class SlowStore(OwnsAll):
    """A directory that saves cursors when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.works = asyncio.Event()

    async def save_cursors(
        self, topic: TopicName, record: LogRecord, cursors: Mapping[str, bytes]
    ) -> None:
        await self.works.wait()
        await super().save_cursors(topic, record, cursors)


async def test_what_is_acknowledged_while_cursors_are_saved_is_saved_next() -> None:
    """The metadata store is slower than the interval at which cursors are saved."""
    broker = Slow(SharedFiles())
    broker.server.serving.directory = directory = SlowStore()
    connection, _ = await broker.begin()
    consumer, _ = await broker.consumer(permits=10)
    await broker.say(connection, send_frame(1, 0), send_frame(1, 1))
    storing = broker.server.serving.storing
    assert storing is not None
    for entry_id in range(2):
        consumer.data_received(an_ack(entry_id, []))
        storing.save_cursors()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    directory.works.set()
    await broker.settle()
    storing.save_cursors()
    await broker.settle()
    (saved,) = await directory.cursors(TOPIC, ["s"])
    assert read_cursor(saved, "s").mark == 2


@pytest.mark.asyncio
async def test_a_cursor_that_is_too_large_is_saved_in_part() -> None:
    """The log says so once; the other subscription of the topic is saved, and the large one goes on
    from what was saved. Words beyond the batch are not kept.
    """
    broker = Slow(SharedFiles())
    connection, _ = await broker.begin()
    consumer, _ = await broker.consumer(permits=1000)
    other = {"topic": str(TOPIC), "subscription": "other", "subType": 1, "initialPosition": 1}
    subscribe = pb.CommandSubscribe(**other, consumer_id=2, request_id=2)  # type: ignore[arg-type]
    await broker.say(consumer, encode(subscribe=subscribe))
    batch = a_publish(num_messages_in_batch=64_000, payload=bytes(64_000 * 6))
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    for _ in range(40):
        await broker.say(connection, batch)
    for entry_id in range(40):
        await broker.say(consumer, an_ack(entry_id, [(1 << 62) + 1] * 2_000))
    assert len(hosted.core.subscriptions["s"].cursor(9).ack_sets[0]) == 1_000
    await broker.say(consumer, an_ack(0, [], consumer_id=2))
    with capture_logs() as lines:
        for _ in range(2):
            broker.server.serving.storing.save_cursors()  # type: ignore[union-attr]
            await broker.settle()
            await broker.say(consumer, an_ack(39, [1 << 62] * 1_000))
    assert [line["subscription"] for line in lines if "too large" in line["event"]] == ["s"]
    saved = dict(
        zip("ab", await broker.server.serving.directory.cursors(TOPIC, ["s", "other"]), strict=True)
    )
    assert read_cursor(saved["b"], "other").mark == 1
    assert 0 < len(read_cursor(saved["a"], "s").ack_sets) < 40


@pytest.mark.asyncio
async def test_sequence_ids_survive_the_death_of_a_broker() -> None:
    """A producer that comes to the next owner is told its last sequence id, and duplicates are
    acknowledged without being stored, although everything was consumed and trimmed.
    """
    files = SharedFiles()
    policies = {"deduplicationEnabled": True}
    broker = Slow(files, segment_entries_max=3)
    broker.server.rules.set_policies("public/default", policies)
    connection, _ = await broker.begin()
    await broker.say(connection, *(send_frame(1, number) for number in range(1, 7)))
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    hosted.core.trim(0)
    await hosted.stored.trim()  # type: ignore[union-attr]
    heir = Slow(files)
    heir.server.serving.directory = broker.server.serving.directory
    heir.server.rules.set_policies("public/default", policies)
    connection, wire = await heir.begin()
    success = [frame.command.producer_success for frame in wire.frames if frame.command.type == 17]
    assert [answer.last_sequence_id for answer in success] == [6]
    await heir.say(connection, send_frame(1, 6), send_frame(1, 7))
    ids = [frame.command.send_receipt.message_id for frame in wire.frames
           if frame.command.type == RECEIPT]  # fmt: skip
    none = (1 << 64) - 1
    assert [(one.ledgerId, one.entryId) for one in ids] == [
        (none, none),
        (hosted.core.ledger_id, 6),
    ]


async def test_an_earlier_life_of_a_bundle_opens_nothing() -> None:
    """A broker that was slow to open a topic finds that a later life has it: its client looks the
    topic up again, and the later owner goes on.
    """
    files = SharedFiles()
    owner, late = Slow(files), Slow(files)
    late.server.serving.directory = owner.server.serving.directory
    await owner.server.open_bundle(BUNDLE, 5)
    connection, wire = await owner.producer()
    await owner.say(connection, send_frame(1, 1))
    await late.server.open_bundle(BUNDLE, 3)
    _, refused = await late.producer()
    errors = [frame.command.error for frame in refused.frames if frame.command.type == ERROR]
    assert [error.error for error in errors] == [pb.ServiceNotReady]
    await owner.say(connection, send_frame(1, 2))
    assert wire.count(RECEIPT) == 2


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.asyncio
async def test_a_file_that_somebody_removes_takes_no_more_messages(
    cut: bool, journaled: bool
) -> None:
    """The producer is closed without a receipt; the log is opened again, and takes messages that
    are there afterwards. Other topics are written to.
    """
    files = SharedFiles()
    broker = Slow(files)
    broker.storage._direct_max = 0 if journaled else 2
    connection, wire = await broker.begin()
    await broker.say(connection, *(send_frame(1, number) for number in range(3)))
    await broker.storage.flush()
    (path,) = (path for path in files.content if path.startswith("0000") and path.endswith(".log"))
    if cut:
        files.change(path, lambda content: content.__delitem__(slice(10, None)))
    else:
        files.drop(path)
    other = encode(producer=pb.CommandProducer(topic=f"{TOPIC}2", producer_id=2, request_id=2))
    await broker.say(connection, other)
    await broker.say(connection, send_frame(1, 3), send_frame(2, 0))
    assert (wire.count(RECEIPT), wire.count(CLOSE_PRODUCER)) == (4, 1)
    connection, wire = await broker.producer()
    await broker.say(connection, send_frame(1, 3))
    assert wire.count(RECEIPT) == 1
    _, reader = await broker.consumer(permits=10)
    await broker.settle()
    assert reader.count(MESSAGE) == 1


class Deleting(OwnsAll):
    """Its topic is deleted and created again while a subscription is recorded."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker

    async def record_subscription(
        self, topic: TopicName, subscription: str, cursor: bytes = b""
    ) -> None:
        self.broker.server.close_topic(str(topic), force=True)
        self._records.clear()
        await super().record_subscription(topic, subscription, cursor)


@pytest.mark.asyncio
async def test_a_subscription_of_a_topic_that_is_deleted_meanwhile_misses_nothing() -> None:
    """Its cursor is of the old topic: it is not believed, and no alarm is raised for it."""
    broker = Slow(SharedFiles())
    broker.server.serving.directory = Deleting(broker)
    connection, _ = await broker.begin()
    await broker.say(connection, *(send_frame(1, number) for number in range(5)))
    with capture_logs() as lines:
        reader, wire = await broker.connect()
        subscribe = {"topic": str(TOPIC), "subscription": "s", "subType": 1, "consumer_id": 1}
        asked = pb.CommandSubscribe(**subscribe, request_id=1)  # type: ignore[arg-type]
        await broker.say(reader, encode(subscribe=asked))
        flow = encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=10))
        await broker.say(reader, flow)
        connection, _ = await broker.producer()
        await broker.say(connection, send_frame(1, 0), send_frame(1, 1))
    assert wire.count(MESSAGE) == 2
    assert [line for line in lines if line["log_level"] == "error"] == []


@pytest.mark.asyncio
async def test_a_delivery_time_before_1970_is_none() -> None:
    """Such a message is stored, and delivered at once."""
    broker = Slow(SharedFiles())
    connection, wire = await broker.begin()
    _, reader = await broker.consumer(permits=10)
    await broker.say(connection, a_publish(1, deliver_at_time=-1), a_publish(2))
    assert (wire.count(RECEIPT), wire.closed, reader.count(MESSAGE)) == (2, False, 2)


@pytest.mark.asyncio
async def test_a_file_that_is_gone_costs_its_messages_only() -> None:
    """They are passed over, with one error; what is in other files is delivered."""
    files = SharedFiles()
    broker = Slow(files, segment_entries_max=2)
    connection, _ = await broker.begin()
    for number in range(6):
        await broker.say(connection, send_frame(1, number))
    storing = broker.server.serving.storing
    assert storing is not None
    storing._cache._entries.clear()
    segments = sorted(path for path in files.content if path.endswith(".log"))
    assert len(segments) == 3
    files.drop(segments[1])
    with capture_logs() as logs:
        _, reader = await broker.consumer(permits=10)
        await broker.settle()
    assert reader.count(MESSAGE) == 4
    assert [line["first"] for line in logs if "is gone" in line["event"]] == [2]
    assert broker.storage.damaged == 1
