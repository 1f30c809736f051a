"""The protocol server without sockets: timers, virtual time, settings that change, order that
repeats.
"""

from __future__ import annotations

import asyncio

import pytest
from broker.protocol.driven_broker import BUNDLE, ERROR, Broker, OwnsAll, Wire
from limits.driven import TOPIC
from structlog.testing import capture_logs

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.server import HANDLERS
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import CONNECT_BYTES_MAX, encode
from loadmanager.kit.errors import OperationalError
from loadmanager.limits.policies import PublishRate
from loadmanager.limits.tracker import Holder

MIB = 1024 * 1024


async def test_a_repeated_step_that_fails_is_logged_and_goes_on(broker: Broker) -> None:
    """One traffic measurement that raises does not end the measurements."""
    connection, _ = await broker.producer()
    hosted = broker.server.serving.topics.served(str(TOPIC))
    assert hosted is not None
    broker.messaging.set(MessagingSettings(stats_interval_s=0.1))
    rates = hosted.core
    hosted.core = None  # type: ignore[assignment]
    with capture_logs() as logs:
        broker.server.begin(OwnsAll())
        async with asyncio.timeout(60):
            while not broker.server.serving.failures.count:
                await asyncio.sleep(0.01)
    assert [entry["event"] for entry in logs] == ["a periodic step failed and is tried again"]
    hosted.core = rates
    rates.messages_in += 1
    async with asyncio.timeout(60):
        while not hosted.traffic.msg_rate_in:
            broker.clock.forward_ms(100)
            await asyncio.sleep(0.01)
    assert connection.open


async def test_a_connection_that_fails_keeps_nobody_from_going_on(broker: Broker) -> None:
    """Two held connections are released at once. The first raises when it goes on; the timer makes
    the second go on.
    """

    class Waiting:
        def __init__(self, *, fails: bool) -> None:
            self.fails, self.resumed = fails, asyncio.Event()
            self.throttle = broker.throttling.connection(self)
            topic.sender("p", self.throttle).charge(topic.publish, 1, 1, broker.clock())

        def topics(self) -> set[str]:
            return set()

        def stop_reading(self) -> None:
            raise AssertionError("no publish buffer is limited here")

        def waits(self, _holder: Holder | None = None) -> bool:
            return True

        def go_on(self) -> None:
            self.resumed.set()
            if self.fails:
                raise ZeroDivisionError

    topic = broker.throttling.topic(TOPIC, broker.clock())
    broker.limit("publishRate", PublishRate(messages_per_s=10))
    first, second = Waiting(fails=True), Waiting(fails=False)
    assert first.throttle.paused
    assert second.throttle.paused
    with capture_logs() as logs:
        broker.clock.forward_ms(3000)
        broker.server.serving.dispatcher.deliver()  # sets the timer, which is due
        await asyncio.wait_for(second.resumed.wait(), 60)
    assert first.resumed.is_set()
    assert [entry["event"] for entry in logs] == ["resuming a connection or subscription failed"]


async def test_settings_that_change_act_on_what_exists(broker: Broker) -> None:
    """maxMessagePublishBufferSizeInMB is dynamic: the running broker's buffer has the new limit."""
    assert broker.throttling.publish_buffer.limit_bytes == 256 * MIB
    broker.messaging.set(MessagingSettings(publish_buffer_mb=7))
    assert broker.throttling.publish_buffer.limit_bytes == 7 * MIB


async def test_time_is_the_clocks(broker: Broker) -> None:
    """A silent connection is probed and closed by the given clock, without a second
    of real time.
    """
    broker.messaging.set(MessagingSettings(keep_alive_s=0.5))
    _, wire = await broker.connect()
    broker.server.begin(OwnsAll())
    async with asyncio.timeout(60):
        while not wire.closed:
            broker.clock.forward_ms(1000)
            await asyncio.sleep(0.01)
    assert wire.count(18) == 1


async def test_a_client_that_does_not_say_connect(broker: Broker) -> None:
    """Is closed after the keep-alive interval, although it sends a byte from time to time; one that
    has said CONNECT stays.
    """
    keep_alive_s = broker.messaging.value.keep_alive_s
    quiet, wire = Connection(broker.server.serving, HANDLERS), Wire()
    quiet.connection_made(wire)
    talking, other = await broker.connect()
    frame = encode(connect=pb.CommandConnect(client_version="x" * 1000))
    for number in range(4):
        assert not wire.closed
        await broker.say(quiet, frame[number : number + 1])
        await broker.say(talking, encode(pong=pb.CommandPong()))
        broker.server._keep_alive()
        broker.clock.forward_ms(int(keep_alive_s * 250))
    broker.server._keep_alive()
    assert (wire.closed, other.closed) == (True, False)


async def test_a_large_frame_before_connect(broker: Broker) -> None:
    """Is refused by its announced size, before its bytes are kept; afterwards it may be as large as
    a message.
    """
    head = (CONNECT_BYTES_MAX + 1).to_bytes(4, "big")
    early, wire = Connection(broker.server.serving, HANDLERS), Wire()
    early.connection_made(wire)
    await broker.say(early, head)
    assert (wire.closed, wire.count(ERROR)) == (True, 1)
    late, wire = await broker.connect()
    await broker.say(late, head)
    assert not wire.closed
    assert late.unprocessed_bytes == len(head)


@pytest.mark.parametrize("split", [False, True])
async def test_what_was_read_of_an_older_life_opens_no_topic(broker: Broker, split: bool) -> None:
    """Subscriptions read before the bundle was opened anew, or was split, are not those of the
    present life.
    """

    class Slow(OwnsAll):
        def __init__(self) -> None:
            super().__init__()
            self.asked, self.go_on = asyncio.Event(), asyncio.Event()

        async def open_topic(self, topic: object) -> tuple[str, ...]:
            self.asked.set()
            await self.go_on.wait()
            return ("of the older life",)

    broker.server.serving.directory = directory = Slow()
    opening = asyncio.ensure_future(broker.server.serving.topics.host(TOPIC))
    await directory.asked.wait()
    if split:
        halves = ["public/default/0x00000000_0x80000000", "public/default/0x80000000_0xffffffff"]
        broker.server.split_bundle(BUNDLE, 1, halves, 2)
    else:
        await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=1)
        await broker.server.open_bundle(BUNDLE, 2)
    directory.go_on.set()
    with pytest.raises(OperationalError, match="Please redo the lookup"):
        await opening
    assert broker.server.serving.topics.served(str(TOPIC)) is None
