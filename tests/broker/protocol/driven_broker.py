"""A protocol server on a clock that the test drives, and a transport that records its calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from limits.driven import TOPIC, DrivenClock
from system.raw import CONNECT

from bench._server import Alone
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.server import HANDLERS, BrokerServer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import Frame, FrameReader, encode
from loadmanager.kit.conf import Live
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.policies import DispatchRate, PublishRate, SubscribeRate, plain
from loadmanager.limits.settings import ThrottlingSettings

BUNDLE = "public/default/0x00000000_0xffffffff"
RECEIPT, MESSAGE, PONG, ERROR = 7, 9, 19, 14


class OwnsAll(Alone):
    """`Directory` of a broker that owns everything and records nothing."""

    def __init__(self, fence: Callable[[], None] = lambda: None) -> None:
        super().__init__(port=1)
        self.fence = fence


class Wire(asyncio.Transport):
    """A transport that records its calls."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        super().__init__({"peername": ("10.0.0.1", 4000), "socket": sock})
        self.reading = True
        self.closed = False
        self.frames: list[Frame] = []
        self._reader = FrameReader(1 << 24)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def write(self, data: Any) -> None:
        self._reader.feed(bytes(data))
        while (frame := self._reader.take()) is not None:
            self.frames.append(frame)

    def count(self, kind: int) -> int:
        return sum(frame.command.type == kind for frame in self.frames)


class Broker:
    """A server on a driven clock."""

    def __init__(self, **settings: Any) -> None:
        self.clock = DrivenClock()
        self.throttling = BrokerThrottling(
            ThrottlingSettings(**settings), cluster="c", now_ns=self.clock()
        )
        self.messaging = Live(MessagingSettings())
        self.server = BrokerServer(
            self.messaging, clock=self.clock, spawn=self.spawn, throttling=self.throttling
        )
        self.server.serving.directory = OwnsAll(self.server.fence_all)
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        return task

    async def settle(self) -> None:
        """Wait until requests are answered."""
        while self._tasks:
            await self._tasks.pop()

    async def connect(self, sock: socket.socket | None = None) -> tuple[Connection, Wire]:
        """A client that has said CONNECT; `sock`: the broker's end of its connection."""
        connection, wire = Connection(self.server.serving, HANDLERS), Wire(sock)
        connection.connection_made(wire)
        await self.say(connection, CONNECT)
        return connection, wire

    async def say(self, connection: Connection, *frames: bytes) -> None:
        """Bytes that arrive in one read."""
        connection.data_received(b"".join(frames))
        await self.settle()

    async def producer(self) -> tuple[Connection, Wire]:
        """A client with producer 1."""
        connection, wire = await self.connect()
        await self.say(
            connection,
            encode(producer=pb.CommandProducer(topic=str(TOPIC), producer_id=1, request_id=1)),
        )
        return connection, wire

    async def consumer(self, permits: int) -> tuple[Connection, Wire]:
        """A client with consumer 1 of a subscription from the beginning, which wants that many
        messages.
        """
        connection, wire = await self.connect()
        asked = pb.CommandSubscribe(
            topic=str(TOPIC),
            subscription="s",
            subType=1,
            consumer_id=1,
            request_id=1,
            initialPosition=1,
        )
        await self.say(
            connection,
            encode(subscribe=asked),
            encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=permits)),
        )
        await self.say(
            connection, encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=permits))
        )
        return connection, wire

    def limit(self, field: str, rate: PublishRate | DispatchRate | SubscribeRate) -> None:
        """Set one limit of the topic."""
        self.throttling.set_topic_policies(
            TOPIC, {**self.throttling.topic_policies(TOPIC), field: plain(rate)}, self.clock()
        )
        self.server.limits_changed()

    def configure(self, **settings: Any) -> None:
        """broker.conf keys of throttling change."""
        self.throttling.set_settings(ThrottlingSettings(**settings), self.clock())
        self.server.limits_changed()

    def forward(self, ms: float) -> None:
        """Time passes; wake-ups happen when they are due."""
        end_ns = self.clock.now_ns + round(ms * 1e6)
        while (at_ns := self.throttling.next_wakeup_ns()) is not None and at_ns < end_ns:
            self.clock.now_ns = max(self.clock.now_ns, at_ns)
            self.server.limits_changed()
        self.clock.now_ns = end_ns
