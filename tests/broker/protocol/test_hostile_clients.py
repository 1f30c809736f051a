"""Clients that send what no client should lose their connection; other clients notice nothing, and
the log has no traceback.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from broker.protocol.driven_broker import BUNDLE, ERROR, MESSAGE, RECEIPT, Broker, OwnsAll, Wire
from crc32c import crc32c
from limits.driven import TOPIC
from structlog.testing import capture_logs
from system.raw import CONNECT, a_send

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.answers import UNREAD_BYTES_MAX
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.dispatcher import DELIVERY_BYTES_MAX
from loadmanager.broker.protocol.lookups import on_connect
from loadmanager.broker.protocol.server import HANDLERS
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import MAGIC_CRC32C, encode
from loadmanager.kit.names import NAME_BYTES_MAX, TOPIC_NAME_BYTES_MAX
from loadmanager.limits.policies import PublishRate

MARK, INVALID = "MARK", b"\xff\xfe\xed\xa0"
NAME = str(TOPIC)


def a_subscribe(**fields: Any) -> bytes:
    """SUBSCRIBE of consumer 1."""
    asked: dict[str, Any] = {
        "topic": NAME,
        "subscription": "s",
        "subType": 1,
        "consumer_id": 1,
        "request_id": 1,
        **fields,
    }
    return encode(subscribe=pb.CommandSubscribe(**asked))


def a_producer(**fields: Any) -> bytes:
    """PRODUCER 1."""
    return encode(
        producer=pb.CommandProducer(**{"topic": NAME, "producer_id": 1, "request_id": 1, **fields}),
    )


A_SEND = pb.CommandSend(producer_id=1, sequence_id=0)


def a_frame(send: pb.CommandSend, tail: bytes) -> bytes:
    """SEND with any tail."""
    command = pb.BaseCommand(type=6, send=send).SerializeToString()
    sizes = (4 + len(command) + len(tail), len(command))
    return b"".join(size.to_bytes(4, "big") for size in sizes) + command + tail


def checked(body: bytes) -> bytes:
    """A tail with its checksum."""
    return MAGIC_CRC32C.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def a_publish(
    sequence_id: int = 0, messages: int = 1, payload: bytes = b"x", **metadata: int
) -> bytes:
    """SEND with any numbers."""
    raw = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, **metadata
    ).SerializeToString()  # type: ignore[arg-type]
    send = pb.CommandSend(producer_id=1, sequence_id=sequence_id, num_messages=messages)
    return a_frame(send, len(raw).to_bytes(4, "big") + raw + payload)


def invalid(frame: bytes) -> bytes:
    """The frame with invalid UTF-8 in the place of its mark."""
    assert frame.count(MARK.encode()) == 1
    return frame.replace(MARK.encode(), INVALID)


HOSTILE: dict[str, list[bytes]] = {
    "topic of PRODUCER": [invalid(a_producer(topic=f"persistent://public/default/{MARK}"))],
    "topic of SUBSCRIBE": [invalid(a_subscribe(topic=f"persistent://public/default/{MARK}"))],
    "topic of LOOKUP": [invalid(encode(lookup=pb.CommandLookupTopic(topic=MARK, request_id=1)))],
    "topic of PARTITIONED_METADATA": [
        invalid(
            encode(partition_metadata=pb.CommandPartitionedTopicMetadata(topic=MARK, request_id=1))
        )
    ],
    "namespace": [
        invalid(encode(get_topics=pb.CommandGetTopicsOfNamespace(namespace=MARK, request_id=1)))
    ],
    "producer name": [invalid(a_producer(producer_name=MARK))],
    "subscription": [invalid(a_subscribe(subscription=MARK, durable=False))],
    "consumer name": [
        invalid(a_subscribe(consumer_name=MARK)),
        encode(consumer_stats=pb.CommandConsumerStats(consumer_id=1, request_id=2)),
    ],
    "client version": [invalid(encode(connect=pb.CommandConnect(client_version=MARK)))],
    "a command that is missing": [b"\0\0\0\6\0\0\0\2\x08\6"],
    "a subscription without a name": [a_subscribe(subscription="")],
    "a long subscription": [a_subscribe(subscription="x" * (NAME_BYTES_MAX + 1))],
    "a long consumer name": [a_subscribe(consumer_name="ü" * (NAME_BYTES_MAX // 2 + 1))],
    "a long producer name": [a_producer(producer_name="x" * (NAME_BYTES_MAX + 1))],
    "a long topic": [a_producer(topic="x" * (TOPIC_NAME_BYTES_MAX + 1))],
    "a huge partition": [a_producer(topic="x-partition-" + "9" * 900)],
    "a partition beyond int32": [a_producer(topic="x-partition-2147483648")],
    "a huge sequence id": [a_producer(), a_publish((1 << 64) - 1)],
    "a negative batch": [a_producer(), a_publish(num_messages_in_batch=-(1 << 31))],
    "a batch of nothing": [a_producer(), a_publish(num_messages_in_batch=1000)],
    "an impossible compression": [
        a_producer(),
        a_publish(compression=1, uncompressed_size=(1 << 32) - 1),
    ],
    "unreadable metadata": [a_producer(), a_frame(A_SEND, b"\0\0\0\1\xff")],
    "metadata without its fields": [a_producer(), a_frame(A_SEND, b"\0\0\0\0x")],
    "metadata larger than its frame": [
        a_producer(),
        a_frame(A_SEND, checked(b"\x7f\xff\xff\xffx")),
    ],
    "a huge command": [a_subscribe(metadata=[pb.KeyValue(key="k" * 1000, value="v")] * 2000)],
}


async def neighbour_is_served(
    broker: Broker, neighbour: tuple[Connection, Wire], number: int = 0
) -> bool:
    """True if another client can publish."""
    connection, wire = neighbour
    before = wire.count(RECEIPT)
    await broker.say(connection, a_send(number))
    return wire.count(RECEIPT) == before + 1


@pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE.keys())
async def test_nonsense_is_refused_without_a_traceback(broker: Broker, frames: list[bytes]) -> None:
    """An ERROR or the end of the connection; a neighbour goes on, and nothing counts as a failure
    of ours.
    """
    neighbour = await broker.producer()
    connection, wire = await broker.connect()
    with capture_logs() as logs:
        for frame in frames:
            await broker.say(connection, frame)
    assert wire.closed or wire.count(ERROR) == 1
    assert broker.server.serving.failures.count == 0
    assert [
        entry for entry in logs if "exc_info" in entry or entry["log_level"] in ("error", "warning")
    ] == []
    assert await neighbour_is_served(broker, neighbour)


async def test_a_name_of_the_greatest_length_is_served(broker: Broker) -> None:
    """The limits themselves are allowed."""
    connection, wire = await broker.connect()
    topic = "persistent://public/default/" + "x" * (TOPIC_NAME_BYTES_MAX - 28)
    await broker.say(connection, a_producer(topic=topic, producer_name="p" * NAME_BYTES_MAX))
    await broker.say(
        connection,
        a_subscribe(
            topic=topic, subscription="s" * NAME_BYTES_MAX, consumer_name="c" * NAME_BYTES_MAX
        ),
    )
    assert (wire.count(17), wire.count(13), wire.count(ERROR)) == (1, 1, 0)


async def test_a_producer_with_a_huge_sequence_id_can_come_back(broker: Broker) -> None:
    """A refused request leaves nothing in memory."""
    connection, _ = await broker.connect()
    await broker.say(connection, a_producer(producer_name="p"), a_publish((1 << 64) - 1))
    connection.connection_lost(None)
    again, wire = await broker.connect()
    await broker.say(again, a_producer(producer_name="p", epoch=1))
    assert (wire.count(17), broker.server.serving.failures.count) == (1, 0)


async def test_figures_of_a_consumer_are_within_range_whatever_was_sent(broker: Broker) -> None:
    """CONSUMER_STATS and GET_LAST_MESSAGE_ID answer after 2^33 permits; how many messages a SEND
    has is what its batch says.
    """
    producer, _ = await broker.producer()
    connection, wire = await broker.consumer(10)
    await broker.say(producer, a_publish(0, -(1 << 31)), a_publish(1, (1 << 31) - 1))
    (hosted,) = {found.hosted for found in producer.producers.values()}
    assert hosted.core.messages_in == 2
    flow = encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=(1 << 32) - 1))
    await broker.say(connection, flow, flow, flow)
    await broker.say(
        connection, encode(consumer_stats=pb.CommandConsumerStats(consumer_id=1, request_id=2))
    )
    last = pb.CommandGetLastMessageId(consumer_id=1, request_id=3)
    await broker.say(connection, encode(get_last_message_id=last))
    await broker.say(
        connection,
        encode(seek=pb.CommandSeek(consumer_id=1, request_id=4, message_publish_time=1)),
    )
    assert (
        wire.count(26),
        wire.count(30),
        wire.count(13),
        broker.server.serving.failures.count,
    ) == (
        1,
        1,
        2,
        0,
    )
    assert not wire.closed


def failing(_connection: Connection, _frame: object) -> None:
    """A handler with a bug."""
    raise ZeroDivisionError("a bug")


async def failing_later(_connection: Connection, _frame: object) -> None:
    """A handler whose task has a bug."""
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("handler", [failing, failing_later])
async def test_a_bug_in_a_handler_costs_its_connection_only(
    broker: Broker, handler: Callable[..., Any]
) -> None:
    """Counted; logged with its traceback the first time, in a line from then on; the neighbour is
    served.
    """
    neighbour = await broker.producer()
    with capture_logs() as logs:
        for _ in range(3):
            connection, wire = (
                Connection(broker.server.serving, {2: on_connect, 18: handler}),
                Wire(),
            )
            connection.connection_made(wire)
            await broker.say(connection, CONNECT)
            await broker.say(connection, encode(ping=pb.CommandPing()))
            await asyncio.sleep(0)
            assert wire.closed
    assert broker.server.serving.failures.count == 3
    failed = [entry for entry in logs if entry["log_level"] == "error"]
    assert ["exc_info" in entry for entry in failed] == [True, False, False]
    assert await neighbour_is_served(broker, neighbour)


async def test_a_bug_behind_a_limit_leaves_no_connection_unread(broker: Broker) -> None:
    """A bug that is raised while a limit releases its connection closes that connection."""
    broker.limit("publishRate", PublishRate(messages_per_s=10))
    connection, wire = await broker.producer()
    connection._handlers = {**connection._handlers, 18: failing}
    await broker.say(
        connection, *(a_send(number) for number in range(20)), encode(ping=pb.CommandPing())
    )
    assert not wire.reading
    broker.forward(10_000)
    assert (wire.closed, broker.server.serving.failures.count) == (True, 1)
    assert broker.throttling.next_wakeup_ns() is None


async def test_a_topic_that_cannot_be_delivered_does_not_stop_others(broker: Broker) -> None:
    """A bug in the delivery of one topic closes its consumers; the other topic's consumer gets its
    message.
    """
    bad, bad_wire = await broker.connect()
    await broker.say(
        bad,
        a_subscribe(topic="bad", initialPosition=1),
        encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=9)),
    )
    await broker.say(bad, encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=9)))
    _, wire = await broker.consumer(9)
    hosted = broker.server.serving.topics.served("persistent://public/default/bad")
    assert hosted is not None
    bad.consumers[1].messages = None  # type: ignore[assignment]
    producer, _ = await broker.connect()
    await broker.say(producer, a_producer(topic="bad"), a_producer(producer_id=2))
    await broker.say(producer, a_send(0), a_send(0, producer_id=2))
    assert (bad_wire.closed, broker.server.serving.failures.count) == (True, 1)
    assert wire.count(MESSAGE) == 1


class SlowWire(Wire):
    """A transport whose client does not read: what is written stays in its buffer."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection, self.buffered, self.high, self.paused = connection, 0, 1 << 62, False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: Any) -> None:
        super().write(data)
        self.buffered += len(data)
        if self.buffered > self.high and not self.paused:
            self.paused = True
            self.connection.pause_writing()

    def read_all(self) -> None:
        """The client reads."""
        self.buffered = 0
        if self.paused:
            self.paused = False
            self.connection.resume_writing()


async def slow_consumer(broker: Broker, consumers: int, kind: int) -> tuple[Connection, SlowWire]:
    """A connection of many consumers that does not read."""
    connection = Connection(broker.server.serving, HANDLERS)
    wire = SlowWire(connection)
    connection.connection_made(wire)
    await broker.say(connection, CONNECT)
    for number in range(consumers):
        await broker.say(
            connection,
            a_subscribe(
                consumer_id=number, subscription=f"s{number}", subType=kind, initialPosition=1
            ),
        )
    flows = [
        encode(flow=pb.CommandFlow(consumer_id=number, messagePermits=100_000))
        for number in range(consumers)
    ]
    await broker.say(connection, *flows)
    return connection, wire


@pytest.mark.parametrize("kind", [0, 1])
async def test_delivery_is_bounded_by_bytes(broker: Broker, kind: int) -> None:
    """A client of 20 subscriptions that does not read gets its buffer full and a message more, not
    20 times the backlog; reading, it gets all.
    """
    producer, _ = await broker.producer()
    size, count = 100_000, 60
    await broker.say(producer, *(a_publish(number, payload=b"x" * size) for number in range(count)))
    connection, wire = await slow_consumer(broker, 20, kind)
    high = broker.messaging.value.outbound_buffer_kb * 1024
    assert wire.paused
    assert wire.buffered <= high + 256 * 1024 + 2 * size
    for _ in range(100):
        wire.read_all()
        await asyncio.sleep(0)
    assert wire.count(MESSAGE) == 20 * count
    assert not connection.closing


async def test_one_subscription_does_not_take_a_whole_turn_of_the_loop(broker: Broker) -> None:
    """After a mebibyte of one subscription others have their turn; the rest follows by itself."""
    producer, _ = await broker.producer()
    size, count = 100_000, 30
    await broker.say(producer, *(a_publish(number, payload=b"x" * size) for number in range(count)))
    connection, wire = await broker.connect()
    await broker.say(connection, a_subscribe(initialPosition=1))
    connection.data_received(encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))
    assert wire.count(MESSAGE) == DELIVERY_BYTES_MAX // size + 1
    for _ in range(5):
        await asyncio.sleep(0)
    assert wire.count(MESSAGE) == count


async def test_answers_that_nobody_reads_end_the_connection(broker: Broker) -> None:
    """Requests in progress are answered although the client does not read; beyond a bound the
    broker hangs up.
    """

    class ManyTopics(OwnsAll):
        async def topics_of_namespace(self, namespace: Any, mode: str) -> list[str]:
            return ["x" * 1000] * 1_000

    broker.server.serving.directory = ManyTopics()
    connection = Connection(broker.server.serving, HANDLERS)
    wire = SlowWire(connection)
    connection.connection_made(wire)
    ask = [
        encode(
            get_topics=pb.CommandGetTopicsOfNamespace(
                namespace="public/default", request_id=number, mode=2
            ),
        )
        for number in range(100)
    ]
    await broker.say(connection, CONNECT, *ask)
    assert wire.closed
    assert UNREAD_BYTES_MAX < wire.buffered < UNREAD_BYTES_MAX + 10_000_000
    assert broker.server.serving.failures.count == 0


async def test_answers_that_nobody_reads_are_bounded_for_all_clients_together(
    broker: Broker,
) -> None:
    """Whoever leaves the most unread is closed, however little each one does; what clients have
    read meanwhile does not count. The sum is memory in use.
    """
    broker.messaging.set(MessagingSettings(topics_memory_mb=4))
    outbound = broker.server.serving.attachments.admission.outbound
    assert outbound.limit_bytes == 1024 * 1024
    clients = []
    for number in range(10):
        connection = Connection(broker.server.serving, HANDLERS)
        wire = SlowWire(connection)
        connection.connection_made(wire)
        await broker.say(connection, CONNECT)
        connection.send(encode(pong=pb.CommandPong()) * (7_000 + 100 * number))
        connection.flush()
        clients.append((connection, wire))
    assert not any(wire.closed for _, wire in clients)
    unread = sum(wire.buffered for _, wire in clients)
    assert broker.server.usage().memory_used_bytes == unread
    clients[9][1].read_all()
    for size in (25_000, 25_000):
        connection, _ = clients[0]
        connection.send(encode(pong=pb.CommandPong()) * size)
        connection.flush()
    assert [wire.closed for _, wire in clients] == [True] + [False] * 9
    assert outbound.used_bytes == sum(wire.buffered for _, wire in clients[1:9])
    for connection, _ in clients:
        connection.connection_lost(None)
    assert outbound.used_bytes == 0


async def test_a_client_that_stops_reading_is_closed_in_time(broker: Broker) -> None:
    """One whose outbound buffer is full must take something of it within two keep-alives."""
    connection, wire = await slow_consumer(broker, 1, 0)
    wire.high = 10
    connection.send(encode(pong=pb.CommandPong()) * 10)
    connection.flush()
    assert wire.paused
    now_s = broker.clock.monotonic_s()
    for after_s, takes in ((0, 0), (40, 1), (80, 0), (100, 0)):
        wire.buffered -= takes
        connection.keep_alive(now_s + after_s, 30)
        assert not wire.closed
    connection.keep_alive(now_s + 101, 30)
    assert wire.closed


async def test_a_client_that_never_reads_its_last_words_is_aborted(broker: Broker) -> None:
    """A connection that the broker closed may linger; the keep-alive ends it."""
    connection, wire = await broker.connect()
    broker.messaging.set(MessagingSettings(keep_alive_s=0.5))
    connection.close("a test")
    aborted = asyncio.Event()
    wire.abort = aborted.set  # type: ignore[method-assign]
    broker.server.begin(OwnsAll())
    await asyncio.wait_for(aborted.wait(), 60)


async def test_closing_more_topics_than_time_allows_leaves_no_client_waiting(
    broker: Broker,
) -> None:
    """The broker hangs up on clients of topics that it did not close in time: otherwise they would
    wait for ever.
    """
    wires = []
    for number in range(3):
        connection, wire = await broker.connect()
        for local in range(50):
            await broker.say(
                connection,
                a_producer(topic=f"t{number}-{local}", producer_id=local, request_id=local),
            )
        wires.append(wire)
    await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=-1)
    assert [(wire.closed, wire.count(15)) for wire in wires] == [
        (False, 50),
        (False, 50),
        (True, 0),
    ]
    assert broker.server.memory.used_bytes == 0


async def test_mutated_frames(broker: Broker) -> None:
    """Thirty thousand frames with changed bits, sizes and fields cause no exception and leave no
    task; the neighbour is served.
    """
    rng = random.Random(20261121)
    neighbour = await broker.producer()
    pool = [frame for frames in HOSTILE.values() for frame in frames if len(frame) < 5000]
    pool += [
        a_producer(),
        a_subscribe(),
        a_subscribe(subType=0, durable=False),
        a_subscribe(subType=2),
        a_send(1),
        a_publish(2, 7),
    ]
    pool += [
        encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=5)),
        encode(
            ack=pb.CommandAck(
                consumer_id=1, ack_type=1, message_id=[pb.MessageIdData(ledgerId=1, entryId=3)]
            ),
        ),
        encode(
            ack=pb.CommandAck(
                consumer_id=1,
                ack_type=0,
                message_id=[pb.MessageIdData(ledgerId=1, entryId=2, ack_set=[5])],
            ),
        ),
        encode(redeliver=pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)),
        encode(
            seek=pb.CommandSeek(
                consumer_id=1, request_id=4, message_id=pb.MessageIdData(ledgerId=1, entryId=1)
            ),
        ),
        encode(get_last_message_id=pb.CommandGetLastMessageId(consumer_id=1, request_id=3)),
        encode(consumer_stats=pb.CommandConsumerStats(consumer_id=1, request_id=2)),
        encode(unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=3)),
        encode(close_producer=pb.CommandCloseProducer(producer_id=1, request_id=3)),
        encode(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=3)),
        encode(get_schema=pb.CommandGetSchema(topic=NAME, request_id=3)),
    ]
    sent = 0
    with capture_logs() as logs:
        while sent < 30_000:
            connection, wire = await broker.connect()
            await broker.say(connection, a_producer(), a_subscribe())
            for _ in range(rng.randrange(1, 200)):
                sent += 1
                connection.data_received(mutated(rng, rng.choice(pool)))
                if rng.random() < 0.1:
                    await broker.settle()
                if wire.closed:
                    break
            await broker.settle()
            connection.connection_lost(None)
        await broker.server.serving.topics.measure()
    assert broker.server.serving.failures.count == 0, [
        entry for entry in logs if entry["log_level"] == "error"
    ]
    assert len(broker.server.serving.attachments.connections) == 1
    assert await neighbour_is_served(broker, neighbour, 1)


def mutated(rng: random.Random, frame: bytes) -> bytes:
    """A frame with some bytes of its command changed; half the time its sizes stay right."""
    data = bytearray(frame)
    first = 8 if rng.random() < 0.95 else 0
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        data[rng.randrange(first, len(data))] = rng.choice(
            (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
        )
    return bytes(data)
