"""Refusals, with the error that Pulsar gives: clients decide by it whether to come back."""

from __future__ import annotations

import asyncio

import pytest
from broker.protocol.driven_broker import ERROR, Broker, OwnsAll, Wire
from broker.protocol.test_hostile_clients import a_producer, a_subscribe
from limits.driven import TOPIC

from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.names import TopicName

SHARED, EXCLUSIVE = 0, 1
KEY_SHARED = 3
NAMED = "Topic has an existing exclusive producer: first"


@pytest.mark.parametrize(
    ("first", "second", "code", "text"),
    [
        (EXCLUSIVE, EXCLUSIVE, pb.ProducerFenced, NAMED),
        (EXCLUSIVE, SHARED, pb.ProducerBusy, NAMED),
        (SHARED, EXCLUSIVE, pb.ProducerFenced, "Topic has existing shared producers"),
        (SHARED, 4, pb.NotAllowedError, "unknown producer access mode"),
    ],
)
async def test_a_second_producer(
    broker: Broker, first: int, second: int, code: int, text: str
) -> None:
    """Fenced is final, busy may be tried again."""
    connection, wire = await broker.connect()
    await broker.say(connection, a_producer(producer_name="first", producer_access_mode=first))
    assert wire.count(ERROR) == 0
    await broker.say(connection, a_producer(producer_id=2, producer_access_mode=second))
    error = wire.frames[-1].command.error
    assert error.error == code
    assert text in error.message


async def test_key_shared_is_disabled(broker: Broker) -> None:
    """Pulsar's answer where an operator has disabled it; other types are served afterwards."""
    connection, wire = await broker.connect()
    await broker.say(connection, a_subscribe(subType=KEY_SHARED))
    error = wire.frames[-1].command.error
    assert (error.error, error.message) == (
        pb.NotAllowedError,
        "Key_Shared subscription is disabled by broker.",
    )
    await broker.say(connection, a_subscribe())
    assert wire.count(ERROR) == 1


async def test_one_of_several_consumers_cannot_unsubscribe(broker: Broker) -> None:
    """`MetadataError`, as in Pulsar: a consumer that is busy would be tried again."""
    connection, wire = await broker.connect()
    both = [a_subscribe(consumer_id=number, request_id=number) for number in (1, 2)]
    asked = pb.CommandUnsubscribe(consumer_id=1, request_id=3)
    await broker.say(connection, *both, encode(unsubscribe=asked))
    error = wire.frames[-1].command.error
    assert (error.request_id, error.error) == (3, pb.MetadataError)


class OnlyOneTopic(OwnsAll):
    """A directory in which one topic exists."""

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        if topic != TOPIC:
            raise NotFoundError(f"Namespace {topic.namespace} does not exist")
        return 3


@pytest.mark.parametrize(
    ("topic", "partitions"),
    [(str(TOPIC), 3), ("persistent://pulsar/system/transaction_coordinator_assign", 0)],
)
async def test_there_is_no_transaction_coordinator(
    broker: Broker, topic: str, partitions: int
) -> None:
    """No partitions: clients then say that the broker does not enable transactions."""
    broker.server.serving.directory = OnlyOneTopic()
    connection, wire = await broker.connect()
    asked = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=1)
    await broker.say(connection, encode(partition_metadata=asked))
    answer = wire.frames[-1].command.partition_metadata_response
    assert answer.HasField("partitions"), "Java clients read it without asking"
    assert (answer.response, answer.partitions) == (0, partitions)


@pytest.mark.parametrize("durable", [True, False])
async def test_durable_and_other_consumers_do_not_share_a_subscription(
    broker: Broker, durable: bool
) -> None:
    """The second one is refused, whoever was first, with Pulsar's text; the first is served on."""
    _, first = await _subscribed(broker, durable=durable)
    _, second = await _subscribed(broker, durable=not durable)
    assert first.count(ERROR) == 0
    error = second.frames[-1].command.error
    kind = "Durable" if durable else "NonDurable"
    assert (error.error, error.message) == (
        pb.NotAllowedError,
        f"{kind} subscription with the same name already exists.",
    )
    _, third = await _subscribed(broker, durable=durable)
    assert third.count(ERROR) == 0


async def test_a_reader_does_not_join_a_subscription_that_is_being_recorded(broker: Broker) -> None:
    """Nor does it take its name."""
    waits = broker.server.serving.directory = Recording()
    (recording, _), (reader, wire) = await broker.connect(), await broker.connect()
    recording.data_received(a_subscribe())
    while not waits.asked.is_set():
        await asyncio.sleep(0)
    reader.data_received(a_subscribe(durable=False))
    while not wire.count(ERROR):
        await asyncio.sleep(0)
    waits.answers.set()
    await broker.settle()
    assert wire.frames[-1].command.error.message.startswith("Durable subscription")


class Recording(OwnsAll):
    """Records subscriptions when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def record_subscription(
        self, topic: TopicName, subscription: str, cursor: bytes = b""
    ) -> None:
        self.asked.set()
        await self.answers.wait()


async def _subscribed(broker: Broker, *, durable: bool) -> tuple[Connection, Wire]:
    """A client that asked for subscription `s`."""
    connection, wire = await broker.connect()
    await broker.say(connection, a_subscribe(durable=durable))
    return connection, wire
