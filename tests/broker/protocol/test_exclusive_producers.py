"""Producers that want a topic for themselves: they wait, or fence others out (PIP 68)."""

from __future__ import annotations

import asyncio

import pytest
from broker.protocol.driven_broker import ERROR, Broker, OwnsAll, Wire
from broker.protocol.test_hostile_clients import a_producer
from system.raw import a_send

from loadmanager.broker.messaging.topic import ProducerAccessMode
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import TopicName

SUCCESS, CLOSE_PRODUCER, RECEIPT = 17, 15, 7


async def join(
    broker: Broker, name: str, access: ProducerAccessMode, **fields: int
) -> tuple[Connection, Wire]:
    """A client with one producer."""
    connection, wire = await broker.connect()
    asked = {"producer_name": name, "producer_access_mode": int(access), **fields}
    await broker.say(connection, a_producer(**asked))
    return connection, wire


def answers(wire: Wire) -> list[tuple[bool, int]]:
    """Ready and topic epoch of each PRODUCER_SUCCESS."""
    found = [frame.command.producer_success for frame in wire.frames]
    return [
        (success.producer_ready, success.topic_epoch) for success in found if success.producer_name
    ]


async def leave(broker: Broker, connection: Connection) -> None:
    """CLOSE_PRODUCER by the client."""
    await broker.say(
        connection, encode(close_producer=pb.CommandCloseProducer(producer_id=1, request_id=9))
    )


@pytest.mark.parametrize(
    "first",
    [
        ProducerAccessMode.SHARED,
        ProducerAccessMode.EXCLUSIVE,
        ProducerAccessMode.WAIT_FOR_EXCLUSIVE,
    ],
)
async def test_producers_wait_in_order(broker: Broker, first: ProducerAccessMode) -> None:
    """The next becomes exclusive when the topic has no producer any more, with a greater epoch."""
    leader, first_wire = await join(broker, "a", first)
    _, second = await join(broker, "b", ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    lost, third = await join(broker, "c", ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    _, fourth = await join(broker, "d", ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    epoch = 0 if first is ProducerAccessMode.SHARED else 1
    assert answers(first_wire) == [(True, epoch)]
    assert answers(second) == answers(third) == [(False, 0)]
    lost.connection_lost(None)
    await leave(broker, leader)
    assert answers(second)[1:] == [(True, epoch + 1)]
    assert (answers(third)[1:], answers(fourth)[1:]) == ([], [])
    others = [
        await join(broker, "e", access)
        for access in (ProducerAccessMode.SHARED, ProducerAccessMode.EXCLUSIVE)
    ]
    assert [wire.frames[-1].command.error.error for _, wire in others] == [
        pb.ProducerBusy,
        pb.ProducerFenced,
    ]


async def test_a_waiting_producer_sends_nothing(broker: Broker) -> None:
    """SEND before it is ready ends its connection; afterwards it is served."""
    first, _ = await join(broker, "a", ProducerAccessMode.EXCLUSIVE)
    hasty, hasty_wire = await join(broker, "b", ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    patient, wire = await join(broker, "c", ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    await broker.say(hasty, a_send(0))
    assert hasty_wire.closed
    hasty.connection_lost(None)
    first.connection_lost(None)
    await broker.settle()
    await broker.say(patient, a_send(0))
    assert (wire.count(RECEIPT), wire.closed) == (1, False)


async def test_fencing(broker: Broker) -> None:
    """It closes all others, those that wait, too; who was exclusive before is refused for good, and
    who is exclusive may come back.
    """
    _, first = await join(broker, "a", ProducerAccessMode.EXCLUSIVE)
    _, waiting = await join(broker, "b", ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    fencing, third = await join(broker, "c", ProducerAccessMode.EXCLUSIVE_WITH_FENCING)
    assert (first.count(CLOSE_PRODUCER), waiting.count(CLOSE_PRODUCER)) == (1, 1)
    assert answers(third) == [(True, 2)]
    fencing.connection_lost(None)
    _, again = await join(broker, "a", ProducerAccessMode.EXCLUSIVE, topic_epoch=1, epoch=1)
    error = again.frames[-1].command.error
    assert (error.error, error.message) == (
        pb.ProducerFenced,
        "Topic epoch has already moved. Current epoch: 2, Producer epoch: 1",
    )
    _, back = await join(broker, "c", ProducerAccessMode.EXCLUSIVE, topic_epoch=2, epoch=1)
    assert answers(back) == [(True, 2)]


class Forgetful(OwnsAll):
    """A directory that cannot store topic epochs at first."""

    broken = True

    async def next_topic_epoch(self, topic: TopicName) -> int:
        if self.broken:
            raise OperationalError("the metadata store does not answer")
        return await super().next_topic_epoch(topic)


async def test_without_a_stored_epoch_nobody_is_exclusive(broker: Broker) -> None:
    """The producer is refused, or the one that waited is cut off; both may come again."""
    broker.server.serving.directory = directory = Forgetful()
    connection, wire = await join(broker, "a", ProducerAccessMode.EXCLUSIVE)
    assert (wire.count(ERROR), connection.producers) == (1, {})
    shared, _ = await join(broker, "s", ProducerAccessMode.SHARED)
    _, waiting = await join(broker, "b", ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    await leave(broker, shared)
    assert (answers(waiting), waiting.closed) == ([(False, 0)], True)
    directory.broken = False
    (hosted,) = broker.server.serving.open_topics.values()
    for producer in list(hosted.producers.values()):
        producer.connection.connection_lost(None)  # type: ignore[attr-defined]
    _, last = await join(broker, "b", ProducerAccessMode.EXCLUSIVE)
    assert answers(last) == [(True, 1)]


class Slow(OwnsAll):
    """Stores topic epochs when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def next_topic_epoch(self, topic: TopicName) -> int:
        await self.answers.wait()
        return await super().next_topic_epoch(topic)


async def test_every_fencing_producer_is_answered(broker: Broker) -> None:
    """One wins; the others, which it fenced out before they were ready, are told so."""
    broker.server.serving.directory = slow = Slow()
    clients = [await broker.connect() for _ in range(4)]
    for number, (connection, _) in enumerate(clients):
        access = int(ProducerAccessMode.EXCLUSIVE_WITH_FENCING)
        connection.data_received(
            a_producer(producer_name=f"f{number}", producer_access_mode=access, request_id=7)
        )
        for _ in range(5):
            await asyncio.sleep(0)
    slow.answers.set()
    await broker.settle()
    errors = [
        [frame.command.error for frame in wire.frames if frame.command.type == ERROR]
        for _, wire in clients
    ]
    assert [[(error.request_id, error.error) for error in some] for some in errors] == [
        *[[(7, pb.ProducerFenced)]] * 3,
        [],
    ]
    assert [len(answers(wire)) for _, wire in clients] == [0, 0, 0, 1]
