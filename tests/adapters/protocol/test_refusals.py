"""What is refused, with the error that Pulsar gives: clients decide by it whether to come back."""

from __future__ import annotations

import pytest
from adapters.protocol.driven_broker import ERROR, Broker, OwnsAll
from adapters.protocol.test_hostile_clients import a_producer, a_subscribe
from core.throttling.driven import TOPIC

from loadmanager.core.bundles.names import TopicName
from loadmanager.core.errors import NotFoundError
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import encode

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
    broker.server.directory = OnlyOneTopic()
    connection, wire = await broker.connect()
    asked = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=1)
    await broker.say(connection, encode(partition_metadata=asked))
    answer = wire.frames[-1].command.partition_metadata_response
    assert answer.HasField("partitions"), "Java clients read it without asking"
    assert (answer.response, answer.partitions) == (0, partitions)
