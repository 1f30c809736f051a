"""Producers whose topic moves, whose brokers crash and whose disk is full, at random."""

from __future__ import annotations

import random
import re

import pytest
from broker.protocol.driven_broker import BUNDLE, ERROR, MESSAGE, RECEIPT, Wire
from broker.protocol.test_hostile_clients import a_producer
from broker.protocol.test_stored_topics import CLOSE_PRODUCER, Slow
from system.raw import a_send

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.storage.memory_disk import SharedFiles


class Producer:
    """A client that repeats what it has no receipt for, in order, whenever it has reconnected."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: list[tuple[int, int, bytes]] = []
        """Sequence id, number and frame of each message without a receipt."""
        self.stored: list[int] = []
        """The numbers of those with one."""
        self.sent = self.sequence_id = self.epoch = self._taken = 0
        self.connection: Connection | None = None
        self._wire = Wire()

    async def connect(self, broker: Slow) -> None:
        self.connection, self._wire = await broker.connect()
        request = a_producer(producer_name=self.name, epoch=self.epoch)
        await broker.say(self.connection, request)
        self.epoch, self._taken = self.epoch + 1, len(self._wire.frames)
        if self._wire.count(ERROR):
            self.lose()
        elif self.pending:
            await broker.say(self.connection, *(frame for _, _, frame in self.pending))
            self.take()

    def send(self, payload: bytes, time_ms: int) -> bytes:
        marked = b"<%s:%d>%s" % (self.name.encode(), self.sent, payload)
        frame = a_send(self.sequence_id, marked, publish_time_ms=time_ms)
        self.pending.append((self.sequence_id, self.sent, frame))
        self.sent, self.sequence_id = self.sent + 1, self.sequence_id + 1
        return frame

    def take(self) -> None:
        """Receipts come in the order of the messages."""
        new, self._taken = self._wire.frames[self._taken :], len(self._wire.frames)
        for command in (frame.command for frame in new):
            if command.type == RECEIPT:
                sequence_id, number, _ = self.pending.pop(0)
                assert command.send_receipt.sequence_id == sequence_id
                self.stored.append(number)
            elif command.type == CLOSE_PRODUCER:
                self.connection = None
        if self._wire.closed:
            self.connection = None

    def lose(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            self.take()
            connection.connection_lost(None)


class Lives:
    """One broker after another serves the topic, from the same files and records."""

    def __init__(self, rng: random.Random, *, deduplicates: bool) -> None:
        self.rng, self.files, self.life, self.time_ms = rng, SharedFiles(), 0, 1_000
        self.deduplicates = deduplicates
        self.producers = [Producer(f"p{number}") for number in range(rng.randint(1, 3))]
        self.broker = self._begin()

    def _begin(self) -> Slow:
        broker = Slow(self.files, segment_entries_max=self.rng.choice([2, 5, 50]))
        broker.storage._direct_max = self.rng.randint(0, 2)
        broker.storage._own._journal_bytes = self.rng.choice([300, 5_000])
        broker.messaging.set(MessagingSettings(deduplicates=self.deduplicates))
        return broker

    async def open(self, broker: Slow) -> None:
        broker.server.serving.directory = self.broker.server.serving.directory
        self.broker, self.life = broker, self.life + 1
        await broker.server.open_bundle(BUNDLE, self.life)

    async def crash(self) -> None:
        """Of what is not durable, some is left."""
        for task in self.broker._tasks:
            task.cancel()
        for producer in self.producers:
            producer.take()
            producer.connection = None
        self.broker.storage._disk.crash(lambda size: self.rng.randint(0, size))  # type: ignore[attr-defined]
        await self.open(self._begin())

    async def move(self) -> None:
        server = self.broker.server
        server.fence_bundle(BUNDLE, self.life)
        await server.settle_bundle(BUNDLE, self.life)
        await server.close_bundle(BUNDLE, self.life, destination=None, timeout_s=1)
        await self.broker.settle()
        for producer in self.producers:
            producer.lose()
        await self.open(self.rng.choice([self.broker, self._begin()]))

    async def send(self, producer: Producer, *, own_numbers: bool) -> None:
        if producer.connection is None:
            await producer.connect(self.broker)
        if producer.connection is None:
            self.broker.forward(6_000)
            return
        if own_numbers and self.rng.random() < 0.2:
            producer.sequence_id = 0
        self.time_ms += 2
        sizes = [self.rng.choice([0, 10, 300]) for _ in range(self.rng.randint(1, 4))]
        frames = [producer.send(bytes(size), self.time_ms) for size in sizes]
        await self.broker.say(producer.connection, *frames)
        producer.take()

    async def step(self, *, own_numbers: bool) -> None:
        producer, what = self.rng.choice(self.producers), self.rng.random()
        if what < 0.7:
            await self.send(producer, own_numbers=own_numbers)
        elif what < 0.8:
            producer.lose()
        elif what < 0.85:
            await self.crash()
        elif what < 0.95:
            await self.move()
        else:
            self.files.room = self.rng.choice([-1, 0, 50, 400])

    async def consumed(self) -> dict[str, list[int]]:
        """The numbers of the messages of each producer, as a consumer gets them at the end."""
        self.files.room = -1
        for producer in self.producers:
            for _ in range(3):
                producer.lose()
                self.broker.forward(10_000)
                await producer.connect(self.broker)
        await self.crash()
        _, wire = await self.broker.consumer(permits=10_000)
        await self.broker.settle()
        tails = [frame.tail for frame in wire.frames if frame.command.type == MESSAGE]
        marks = [found for tail in tails if (found := re.search(rb"<(p\d):(\d+)>", tail))]
        return {
            producer.name: [int(mark[2]) for mark in marks if mark[1].decode() == producer.name]
            for producer in self.producers
        }


@pytest.mark.parametrize("kind", ["plain", "de-duplication", "own numbers"])
@pytest.mark.parametrize("seed", range(20))
async def test_nothing_with_a_receipt_is_lost(seed: int, kind: str) -> None:
    """Consumers get it in order, and once, unless the client numbers messages itself, beginning
    anew: then it may come again.
    """
    lives = Lives(random.Random(seed), deduplicates=kind == "de-duplication")
    await lives.open(lives.broker)
    await lives.broker.consumer(permits=0)
    for _ in range(40):
        await lives.step(own_numbers=kind == "own numbers")
    found = await lives.consumed()
    for producer in lives.producers:
        numbers = found[producer.name]
        assert list(dict.fromkeys(numbers)) == list(range(producer.sent)) == producer.stored
        assert len(numbers) == producer.sent or kind == "own numbers"
