"""Without the lease: stored topics go on by the fence of their logs, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from broker.protocol.driven_broker import MESSAGE, RECEIPT, Wire
from broker.protocol.test_stored_topics import BUNDLE, CLOSE_PRODUCER, Slow
from limits.driven import TOPIC
from simulation.clients import send_frame

from loadmanager.broker.ports.log import Run
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.log_proof import LOOK_VALID_S
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.tasks import Scope

CLOSE_CONSUMER, PRODUCER_SUCCESS, LOOKUP_RESPONSE, ERROR = 16, 17, 24, 14
FLEETING = "non-persistent://public/default/t"


class Cut(Slow):
    """A broker whose lease the test ends."""

    def end_lease(self) -> None:
        """As a silent ZooKeeper does."""
        server = self.server
        server.serving.directory.lease.valid_until_s = 0.0
        server.serving.directory.fence = lambda: None  # type: ignore[method-assign]
        server.fence_unproven({BUNDLE: 1})

    def prove(self) -> None:
        """ZooKeeper answers again."""
        self.server.serving.directory.lease.valid_until_s = float("inf")

    async def take_over(self) -> None:
        """Another broker opens the log of the topic."""
        hosted = self.server.serving.topics.served(str(TOPIC))
        assert hosted is not None
        record = hosted.stored.record  # type: ignore[union-attr]

        async def run(_thread: int, call: Callable[[], Any]) -> Any:
            return call()

        other = LogFiles(MemoryDisk(self.files), run)
        runs = [*record.runs[:-1], Run(record.runs[-1].number, 0, self.storage.writer)]
        await other.open(record.log_id, runs, 0)

    async def look(self) -> None:
        """Look for marks, as each second."""
        await self.server._look()
        await self.settle()


async def a_client(broker: Cut, frame: bytes) -> tuple[Connection, Wire]:
    """A client that says something."""
    connection, wire = await broker.connect()
    await broker.say(connection, frame)
    return connection, wire


def a_producer(topic: str) -> bytes:
    """PRODUCER 1 of a topic."""
    return encode(producer=pb.CommandProducer(topic=topic, producer_id=1, request_id=1))


@pytest.mark.asyncio
async def test_open_stored_topics_go_on() -> None:
    """Messages get receipts and are delivered; clients that connect again are led here."""
    broker = Cut(SharedFiles())
    connection, wire = await broker.begin()
    _, reader = await broker.consumer(permits=10)
    broker.end_lease()
    await broker.settle()
    await broker.say(connection, send_frame(1, 1))
    assert (wire.count(RECEIPT), reader.count(MESSAGE)) == (1, 1)
    asked = encode(lookup=pb.CommandLookupTopic(topic=str(TOPIC), request_id=2))
    broker.server.serving.directory.lookup_in_memory = lambda _: None  # type: ignore[method-assign]
    _, again = await a_client(broker, asked)
    (answer,) = [f.command for f in again.frames if f.command.type == LOOKUP_RESPONSE]
    assert answer.lookup_response.response == 1
    _, another = await a_client(broker, a_producer(str(TOPIC)))
    assert another.count(PRODUCER_SUCCESS) == 1


@pytest.mark.asyncio
async def test_other_topics_are_closed_and_nothing_is_opened() -> None:
    """The connection of a non-persistent topic stays: it may have stored topics, too."""
    broker = Cut(SharedFiles())
    await broker.begin()
    connection, wire = await a_client(broker, a_producer(FLEETING))
    assert wire.count(PRODUCER_SUCCESS) == 1
    broker.end_lease()
    await broker.settle()
    assert wire.count(CLOSE_PRODUCER) == 1
    assert not wire.closed
    for topic in (FLEETING, "persistent://public/default/new"):
        _, refused = await a_client(broker, a_producer(topic))
        assert (refused.count(ERROR), refused.count(PRODUCER_SUCCESS)) == (1, 0)
    broker.prove()
    await broker.say(connection, a_producer(FLEETING))
    assert wire.count(PRODUCER_SUCCESS) == 2


@pytest.mark.asyncio
async def test_a_later_opening_ends_the_receipts() -> None:
    """Of new messages, and of repeated ones, for which nothing is written."""
    for sequence_id in (1, 2):
        broker = Cut(SharedFiles())
        connection, wire = await broker.begin()
        await broker.say(connection, send_frame(1, 1))
        broker.end_lease()
        await broker.settle()
        await broker.take_over()
        await broker.say(connection, send_frame(1, sequence_id))
        assert (wire.count(RECEIPT), wire.count(CLOSE_PRODUCER)) == (1, 1)
        assert broker.server.serving.topics.served(str(TOPIC)) is None


@pytest.mark.asyncio
async def test_a_later_opening_ends_the_deliveries() -> None:
    """Though nothing is written: the marks are looked for."""
    broker = Cut(SharedFiles())
    await broker.begin()
    _, reader = await broker.consumer(permits=10)
    broker.end_lease()
    await broker.settle()
    await broker.look()
    assert reader.count(CLOSE_CONSUMER) == 0
    await broker.take_over()
    await broker.look()
    assert reader.count(CLOSE_CONSUMER) == 1


@pytest.mark.asyncio
async def test_nothing_is_delivered_without_a_proof() -> None:
    """An old look proves nothing, nor one that failed. What waits comes with the next proof."""
    broker = Cut(SharedFiles())
    connection, wire = await broker.begin()
    _, reader = await broker.consumer(permits=10)
    broker.end_lease()
    await broker.settle()
    broker.forward(int(LOOK_VALID_S * 1000) + 1)
    await broker.say(connection, send_frame(1, 1))
    assert (wire.count(RECEIPT), reader.count(MESSAGE)) == (1, 0)
    proof = broker.server.serving.storing.proof  # type: ignore[union-attr]
    broker.timeout_s = 0.01
    broker.works.clear()
    await proof.look()
    assert not proof.holds(broker.clock.monotonic_s())
    broker.works.set()
    assert reader.count(MESSAGE) == 0
    await broker.look()
    assert reader.count(MESSAGE) == 1


@pytest.mark.asyncio
async def test_what_waits_is_delivered_when_the_lease_is_back() -> None:
    """Also if nothing else happens then."""
    broker = Cut(SharedFiles())
    connection, _ = await broker.begin()
    _, reader = await broker.consumer(permits=10)
    broker.end_lease()
    await broker.settle()
    broker.forward(int(LOOK_VALID_S * 1000) + 1)
    await broker.say(connection, send_frame(1, 1))
    assert reader.count(MESSAGE) == 0
    broker.prove()
    await broker.look()
    assert reader.count(MESSAGE) == 1


@pytest.mark.asyncio
async def test_cursors_wait_for_the_lease() -> None:
    """What is acknowledged without it is saved later."""
    broker = Cut(SharedFiles())
    await broker.begin()
    await broker.consumer(permits=10)
    hosted = broker.server.serving.topics.served(str(TOPIC))
    storing = broker.server.serving.storing
    assert hosted is not None
    assert hosted.stored is not None
    assert storing is not None
    broker.end_lease()
    hosted.stored.moved()
    storing.save_cursors()
    assert list(storing.dirty) == [hosted.stored]
    broker.prove()
    storing.save_cursors()
    await broker.settle()
    assert not storing.dirty


class Ending(Cut):
    """One whose tasks may be over."""

    over: Scope | None = None

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """In a scope that is over, if there is one."""
        return super().spawn(work, name) if self.over is None else self.over.spawn(work, name)


@pytest.mark.asyncio
async def test_a_process_that_ends_fences_all_the_same() -> None:
    """A client that says something in its last moments causes no error."""
    broker = Ending(SharedFiles())
    await broker.begin()
    async with Scope("over") as broker.over:
        pass
    broker.end_lease()
    assert broker.server.serving.may_serve(1.0), "the stored topic has a fence of its own"
