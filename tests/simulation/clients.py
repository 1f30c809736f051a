"""Simulated clients: producers and consumers that speak the binary protocol, and reconnect."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from crc32c import crc32c
from simulation.cluster import Cluster, Transport
from simulation.world import Machine

from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, FrameReader, encode

ANSWER_S = 6.0
REDIRECTS_MAX = 8
FRAME_BYTES_MAX = 1 << 20


class BrokenError(Exception):
    """The connection broke or the answer is an error: the client must start again."""


CONNECT = encode(connect=pb.CommandConnect(client_version="simulation", protocol_version=20))


def send_frame(producer_id: int, sequence_id: int) -> bytes:
    """A SEND of one small message."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=1
    ).SerializeToString()
    body = struct.pack(">I", len(metadata)) + metadata + b"x"
    tail = struct.pack(">HI", 0x0E01, crc32c(body)) + body
    command = pb.BaseCommand(
        type=6, send=pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id)
    ).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(tail), len(command)) + command + tail


class Link:
    """One connection of a client to a broker."""

    def __init__(self, cluster: Cluster, machine: Machine, service_url: str) -> None:
        process = cluster.at(service_url)
        if process is None or process.parts is None or not process.listening:
            raise BrokenError(f"{service_url} refuses connections")
        self.broker = process.machine.name
        self._machine = machine
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.transport = Transport(
            process, machine, self._receive, lambda: self._frames.put_nowait(None)
        )

    def _receive(self, data: bytes) -> None:
        self._reader.feed(data)
        while (frame := self._reader.take()) is not None:
            if frame.command.type == 18:
                self.send(encode(pong=pb.CommandPong()))
            else:
                self._frames.put_nowait(frame)

    def send(self, frame: bytes) -> None:
        """Write."""
        self.transport.from_client(frame)

    async def take(self, *kinds: int, timeout_s: float = ANSWER_S) -> Frame:
        """The next frame of one of these types.

        Raises `BrokenError` for an error, a closed producer or consumer or connection, or silence.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    frame = await self._frames.get()
                    if frame is None:
                        raise BrokenError("the broker closed the connection")
                    kind = frame.command.type
                    if kind in kinds:
                        return frame
                    if kind in (8, 14, 15, 16):
                        raise BrokenError(f"the broker answered with command {kind}")
        except TimeoutError:
            raise BrokenError("no answer") from None

    async def greet(self) -> None:
        """CONNECT."""
        self.send(CONNECT)
        await self.take(3)

    def close(self) -> None:
        """Close the connection."""
        self.transport.cut()


async def lookup(cluster: Cluster, machine: Machine, topic: str, first_url: str) -> str:
    """The service URL of the topic's broker."""
    url, authoritative = first_url, False
    for _ in range(REDIRECTS_MAX):
        link = Link(cluster, machine, url)
        try:
            await link.greet()
            command = pb.CommandLookupTopic(topic=topic, request_id=1, authoritative=authoritative)
            link.send(encode(lookup=command))
            answer = (await link.take(24, timeout_s=ANSWER_S + 4)).command.lookup_response
        finally:
            link.close()
        if answer.response == 2:
            raise BrokenError(f"lookup failed: {answer.message}")
        url, authoritative = answer.brokerServiceUrl, answer.authoritative
        if answer.response == 1:
            return url
    raise BrokenError("too many redirects")


class Client:
    """Produces to one topic, or consumes from it, forever."""

    def __init__(
        self,
        cluster: Cluster,
        machine: Machine,
        topic: str,
        interval_s: float,
        receipt: Callable[[str, str], None],
    ) -> None:
        self.cluster, self.machine, self.topic = cluster, machine, topic
        self._interval_s = interval_s
        self._receipt = receipt
        self._rng = cluster.rng
        self.sequence = 0

    async def produce(self) -> None:
        """Send a message every interval; reconnect after every failure."""
        while True:
            try:
                await self._produce_on(await self._owner())
            except BrokenError:
                await self._pause()

    async def _pause(self) -> None:
        """Wait before the next attempt, longer for a client with few messages."""
        await asyncio.sleep(max(self._interval_s / 60, 0.1) + self._rng.random() * 0.5)

    async def _owner(self) -> str:
        brokers = self.cluster.brokers
        first = brokers[self._rng.randrange(len(brokers))].address.service_url
        return await lookup(self.cluster, self.machine, self.topic, first)

    async def _produce_on(self, url: str) -> None:
        link = Link(self.cluster, self.machine, url)
        try:
            await link.greet()
            link.send(
                encode(producer=pb.CommandProducer(topic=self.topic, producer_id=1, request_id=2))
            )
            await link.take(17)
            while True:
                self.sequence += 1
                link.send(send_frame(1, self.sequence))
                await link.take(7)
                self._receipt(self.topic, link.broker)
                await asyncio.sleep(self._interval_s)
        finally:
            link.close()

    async def consume(self) -> None:
        """Receive messages; reconnect after every failure."""
        while True:
            try:
                link = Link(self.cluster, self.machine, await self._owner())
                try:
                    await self.attach_consumer(link)
                    while True:
                        await link.take(9, timeout_s=1e6)
                        link.send(encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=1)))
                finally:
                    link.close()
            except BrokenError:
                await self._pause()

    async def attach_consumer(self, link: Link, subscription: str = "s") -> None:
        """CONNECT, SUBSCRIBE, FLOW."""
        await link.greet()
        subscribe = pb.CommandSubscribe(
            topic=self.topic,
            subscription=subscription,
            subType=1,
            consumer_id=1,
            request_id=3,
            consumer_name="c",
        )
        link.send(encode(subscribe=subscribe))
        await link.take(13)
        link.send(encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=10)))

    async def probe(self) -> str:
        """Look the topic up, consume, produce one message and receive it; the broker's name.

        Raises `BrokenError`.
        """
        url = await self._owner()
        consumer, producer = (
            Link(self.cluster, self.machine, url),
            Link(self.cluster, self.machine, url),
        )
        try:
            await self.attach_consumer(consumer, "probe")
            await producer.greet()
            producer.send(
                encode(producer=pb.CommandProducer(topic=self.topic, producer_id=1, request_id=2))
            )
            await producer.take(17)
            producer.send(send_frame(1, 1))
            await producer.take(7)
            await consumer.take(9)
            return producer.broker
        finally:
            consumer.close()
            producer.close()
