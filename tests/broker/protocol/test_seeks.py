"""Seeks by time read little, however many a client asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from broker.protocol.driven_broker import BUNDLE, Broker
from broker.protocol.test_hostile_clients import a_subscribe
from limits.driven import TOPIC
from simulation.clients import send_frame

from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.protocol.hosted import SEEK_S
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import TAIL_START_BYTES, encode
from loadmanager.kit.conf import Live

SUCCESS = 13
MESSAGES = 3_000


class Counting(MemoryDisk):
    """A disk that notes the sizes of what is read, and how many calls were under way at most."""

    def __init__(self, files: SharedFiles) -> None:
        super().__init__(files)
        self.reads: list[int] = []
        self.under_way = self.most = 0

    async def run(self, _thread: int, call: Callable[[], Any]) -> Any:
        """Run a call of the storage after a while."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return call()

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        data = super().read(path, offset, size)
        self.reads.append(len(data))
        return data


async def a_cold_topic() -> tuple[Broker, Counting]:
    """A broker whose memory has nothing of a topic."""
    broker, disk = Broker(), Counting(SharedFiles())
    storage = LogFiles(disk, disk.run)
    broker.server.store_in(storage, Live(StorageSettings()))
    await broker.server.open_bundle(BUNDLE, 1)
    connection, _ = await broker.producer()
    await broker.say(connection, *(send_frame(1, number) for number in range(MESSAGES)))
    storing = broker.server.serving.storing
    assert storing is not None
    storing._cache._entries.clear()
    await storage.flush()
    disk.reads.clear()
    return broker, disk


@pytest.mark.asyncio
async def test_many_seeks_by_time_cost_one_search() -> None:
    """Of 490 SEEKs one is answered and the others end with the consumer; a probe reads no more than
    the beginning of one message.
    """
    broker, disk = await a_cold_topic()
    connection, wire = await broker.consumer(permits=0)
    seeks = [pb.CommandSeek(consumer_id=1, request_id=9, message_publish_time=1)] * 490
    await broker.say(connection, *(encode(seek=seek) for seek in seeks))
    assert wire.count(SUCCESS) == 2  # of SUBSCRIBE and one SEEK
    assert len(disk.reads) <= MESSAGES.bit_length()
    assert max(disk.reads) <= TAIL_START_BYTES + 100


@pytest.mark.asyncio
async def test_searches_of_a_topic_take_turns() -> None:
    """However many connections seek, one probe of a topic is under way at a time."""
    broker, disk = await a_cold_topic()
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    disk.most = 0
    found = await asyncio.gather(*(hosted.published_since(time_ms) for time_ms in [0, 1, 2] * 10))
    assert found == [0, 0, MESSAGES] * 10
    assert disk.most == 1


@pytest.mark.parametrize("returns", [False, True])
async def test_a_reader_that_seeks_and_leaves_is_forgotten(broker: Broker, returns: bool) -> None:
    """Its subscription waits for it for a while, and no longer."""
    connection, _ = await broker.connect()
    await broker.say(connection, a_subscribe(durable=False))
    position = pb.MessageIdData(ledgerId=1, entryId=0)
    seek = pb.CommandSeek(consumer_id=1, request_id=2, message_id=position)
    await broker.say(connection, encode(seek=seek))
    connection.connection_lost(None)
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    await broker.server.serving.topics.measure()
    assert list(hosted.core.subscriptions) == ["s"]
    if returns:
        connection, _ = await broker.connect()
        await broker.say(connection, a_subscribe(durable=False))
    broker.forward(SEEK_S * 1000)
    await broker.server.serving.topics.measure()
    assert list(hosted.core.subscriptions) == ["s"] * returns
    assert not hosted.sought
