"""Which clients came, left and were refused is recorded, in bounds."""

from __future__ import annotations

import asyncio
import socket

import pytest
from broker.protocol.driven_broker import BUNDLE, Broker, OwnsAll
from broker.protocol.test_hostile_clients import a_producer
from limits.driven import TOPIC
from system.raw import a_send

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.messaging.topic import ProducerAccessMode
from loadmanager.broker.protocol.client_log import (
    AT_ONCE,
    EVERY_S,
    FORGOTTEN_S,
    REASONS_MAX,
    REFUSALS_AT_ONCE,
    REFUSALS_EVERY_S,
)
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import COMMAND_TYPES, encode
from loadmanager.engine.history.clients import HELD_S, REFUSED_AGAIN_S, REPEATS_EVERY_S, ClientStep
from loadmanager.kit.history.port import HistoryRecord
from loadmanager.limits.held_connection import HeldConnection
from loadmanager.limits.held_connections import held_connections
from loadmanager.limits.policies import PublishRate
from loadmanager.testing.virtual_time import VirtualLoop


class Records:
    """Keeps what is recorded."""

    def __init__(self) -> None:
        self.steps: list[ClientStep] = []

    def append(self, *records: HistoryRecord) -> None:
        self.steps += [record for record in records if isinstance(record, ClientStep)]

    def taken(self) -> list[ClientStep]:
        """What was recorded since the last call."""
        steps, self.steps = self.steps, []
        return steps


def recorded(broker: Broker) -> Records:
    records = Records()
    broker.server.record_clients(records, "a:80")
    return records


def asking(name: str, *, topic: str = str(TOPIC), request_id: int = 2) -> bytes:
    command = pb.CommandProducer(
        topic=topic, producer_id=request_id, request_id=request_id, producer_name=name
    )
    return encode(producer=command)


async def test_since_when_it_was_not_served_before_it_was_sent_away(broker: Broker) -> None:
    """From the fence on, also where the bundle is closed later."""
    records = recorded(broker)
    await broker.server.open_bundle(BUNDLE, 1)
    await broker.producer()
    broker.server.fence_bundle(BUNDLE, 1)
    broker.clock.forward_ms(9_800)
    await broker.server.close_bundle(BUNDLE, 1, destination=None, timeout_s=0)
    (_, left) = records.taken()
    assert (left.event, left.fenced_ms) == ("left", 9_800)


async def test_a_client_comes_and_leaves(broker: Broker) -> None:
    """With its address, how long it was there, what it did and why it left."""
    records = recorded(broker)
    connection, _ = await broker.consumer(10)
    (came,) = records.taken()
    assert (came.event, came.what, came.subscription) == ("attached", "consumer", "s")
    assert (came.topic, came.client, came.broker) == (str(TOPIC), "10.0.0.1:4000", "a:80")
    broker.clock.forward_ms(2_500)
    await broker.say(
        connection, encode(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=5))
    )
    (left,) = records.taken()
    assert (left.event, left.reason, left.messages) == ("left", "its client closed it", 0)
    assert (left.attached_ms, left.fenced_ms) == (2_500, None)

    connection, _ = await broker.producer()
    (came,) = records.taken()
    connection.connection_lost(None)
    (left,) = records.taken()
    assert (left.name, left.reason) == (came.name, "its client ended the connection")


@pytest.mark.parametrize("by", ["its limit", "who comes"])
async def test_a_held_client_that_hangs_up_ended_the_connection_itself(
    broker: Broker, by: str
) -> None:
    """Though the broker finds it out, as its limit lets go, or as another one takes its name."""
    records = recorded(broker)
    broker.limit("publishRate", PublishRate(messages_per_s=10))
    ours, its = socket.socketpair()
    with ours, its:
        connection, wire = await broker.connect(ours)
        await broker.say(connection, asking("p"), asking("q", request_id=3))
        await broker.say(connection, *(a_send(n, producer_id=2) for n in range(100)))
        assert (wire.reading, wire.closed) == (False, False)
        its.close()
        if by == "who comes":
            other, _ = await broker.connect()
            await broker.say(other, asking("p"))
        else:
            broker.forward(20_000)
        assert wire.closed
        connection.connection_lost(None)
    reasons = {it.name: it.reason for it in records.taken() if it.event == "left"}
    assert reasons["q"] == "its client ended the connection"


async def test_a_producer_that_waits_to_be_exclusive_comes_when_it_is(broker: Broker) -> None:
    """It is not there while it waits; if it goes until then, it may go on waiting elsewhere."""
    records = recorded(broker)
    wanted = int(ProducerAccessMode.WAIT_FOR_EXCLUSIVE)

    async def joined(name: str) -> Connection:
        connection, _ = await broker.connect()
        asked = {"producer_name": name, "producer_access_mode": wanted}
        await broker.say(connection, a_producer(**asked))
        return connection

    first = await joined("first")
    impatient = await joined("impatient")
    await joined("patient")
    (came,) = records.taken()
    assert (came.event, came.name) == ("attached", "first")
    impatient.connection_lost(None)
    assert records.taken() == []
    broker.clock.forward_ms(2_500)
    first.connection_lost(None)
    await broker.settle()
    left, came = records.taken()
    assert (left.event, left.name) == ("left", "first")
    assert (came.event, came.name, came.ts - left.ts) == ("attached", "patient", 0)


async def test_who_is_refused_is_recorded_with_the_reason(broker: Broker) -> None:
    """A command, and a connection of which there are too many."""
    records = recorded(broker)
    connection, _ = await broker.connect()
    await broker.say(connection, asking("p"))
    records.taken()
    other, _ = await broker.connect()
    await broker.say(other, asking("p"))
    (refused,) = records.taken()
    assert (refused.event, refused.what, refused.name) == ("refused", "producer", "p")
    assert (refused.code, refused.topic) == ("ProducerBusy", str(TOPIC))
    lookup = pb.CommandLookupTopic(topic="no://topic", request_id=9)
    await broker.say(other, encode(lookup=lookup))
    (refused,) = records.taken()
    assert (refused.what, refused.code, refused.topic) == (
        "lookup",
        "NotAllowedError",
        "no://topic",
    )

    broker.messaging.set(MessagingSettings(connections_per_address_max=2))
    await broker.connect()
    (refused,) = records.taken()
    assert refused.what == "connection"
    assert "maximum number of connections on address 10.0.0.1" in refused.reason


async def test_the_same_refusal_is_counted_for_a_while(broker: Broker) -> None:
    """A client that tries again and again adds one record in a minute, also of what it tried last:
    a killed broker has not forgotten it.
    """
    records = recorded(broker)
    connection, _ = await broker.connect()
    asked = pb.CommandSubscribe(
        topic=str(TOPIC), subscription="", subType=1, consumer_id=1, request_id=1
    )
    nameless = encode(subscribe=asked)
    for _ in range(5):
        await broker.say(connection, nameless)
    assert [step.times for step in records.taken()] == [1]
    clients = broker.server.serving.clients
    (counted,) = clients.unrecorded()
    assert (counted.times, counted.what, counted.ts) == (4, "consumer", broker.clock.now_ms())
    clients.record_repeats()
    assert not records.taken()
    broker.clock.forward_ms(REFUSED_AGAIN_S * 1_000)
    clients.record_repeats()
    assert records.taken() == [counted]
    assert not clients.unrecorded()
    await broker.say(connection, nameless)
    broker.clock.forward_ms(REFUSED_AGAIN_S * 1_000)
    clients.record_repeats()
    assert [step.times for step in records.taken()] == [1]


def test_repeats_are_looked_for_from_time_to_time() -> None:
    """By a timer of the server: no further client is needed."""

    async def refused_twice() -> None:
        broker = Broker()
        records = recorded(broker)
        connection, _ = await broker.connect()
        for _ in range(2):
            broker.server.serving.clients.refused(connection, pb.NotAllowedError, "no")
        broker.server.begin(OwnsAll())
        broker.clock.forward_ms(REFUSED_AGAIN_S * 1_000)
        await asyncio.sleep(REPEATS_EVERY_S + 1)
        await broker.server.stop()
        assert [step.times for step in records.taken()] == [1, 1]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(refused_twice())


async def test_a_refusal_that_comes_after_a_long_time_is_a_new_one(broker: Broker) -> None:
    """It is recorded at once."""
    records = recorded(broker)
    connection, _ = await broker.connect()
    clients = broker.server.serving.clients
    for _ in range(2):
        clients.refused(connection, pb.NotAllowedError, "no")
        assert len(records.taken()) == 1
        broker.clock.forward_ms(FORGOTTEN_S * 1_000)
        clients.record_repeats()


async def test_many_that_go_on_are_recorded_in_turn(broker: Broker) -> None:
    """So many in a time, and new ones beside them."""
    records = recorded(broker)
    connection, _ = await broker.connect()
    clients = broker.server.serving.clients
    names = [f"{number}" for number in range(2 * REFUSALS_AT_ONCE)]

    def again() -> list[str]:
        for name in names:
            clients.refused(connection, pb.NotAllowedError, "no", _producer(name))
        return [step.name for step in records.taken() if step.event == "refused"]

    assert again() == names[:REFUSALS_AT_ONCE]
    broker.clock.forward_ms(REFUSALS_EVERY_S * 1_000)
    assert again() == names[REFUSALS_AT_ONCE:]
    for turn in (names[:REFUSALS_AT_ONCE], names[REFUSALS_AT_ONCE:]):
        broker.clock.forward_ms(REFUSALS_EVERY_S * 1_000)
        assert not again()
        clients.record_repeats()
        assert [step.name for step in records.taken()] == turn
    names.append("new")
    assert again() == ["new"]


def _producer(name: str) -> pb.BaseCommand:
    asked = pb.CommandProducer(topic=str(TOPIC), producer_id=1, request_id=1, producer_name=name)
    return pb.BaseCommand(type=COMMAND_TYPES["producer"], producer=asked)


async def test_refusals_for_different_reasons_are_different(broker: Broker) -> None:
    """Also of one client with one error; what has ever new reasons adds a few records only."""
    records = recorded(broker)
    connection, _ = await broker.connect()
    records.taken()
    clients = broker.server.serving.clients
    for why in ("a token is expected", "invalid token", "a token is expected"):
        clients.refused(connection, pb.AuthenticationError, why)
    first = [step.reason for step in records.taken()]
    assert first == ["a token is expected", "invalid token"]
    assert [(step.reason, step.times) for step in clients.unrecorded()] == [(first[0], 1)]
    for number in range(REASONS_MAX):
        clients.refused(connection, pb.AuthenticationError, f"it waits {number} s")
    assert len(records.taken()) == REASONS_MAX - 2
    clients.refused(connection, pb.NotAllowedError, "another error")
    missing, other = records.taken()
    assert (missing.event, missing.times, other.reason) == ("unrecorded", 2, "another error")


async def test_too_many_at_once_are_counted_only(broker: Broker) -> None:
    """And the next record is preceded by their number."""
    records = recorded(broker)
    connection, _ = await broker.connect()
    for number in range(AT_ONCE + 7):
        await broker.say(connection, asking(f"p-{number}", request_id=number + 2))
    assert len(records.taken()) == AT_ONCE
    broker.clock.forward_ms(EVERY_S * 1_500)
    await broker.say(connection, asking("last", request_id=AT_ONCE + 100))
    missing, last = records.taken()
    assert (missing.event, missing.times, last.name) == ("unrecorded", 7, "last")


async def test_a_connection_that_a_limit_holds_for_long(broker: Broker) -> None:
    """It is recorded when it is so for a while, and when it is so no more, with the limit."""
    records = recorded(broker)
    clients = broker.server.serving.clients

    def look() -> list[tuple[str, int, int | None]]:
        clients.record_held(held_connections(broker.throttling, broker.clock.monotonic_ns()))
        steps = records.taken()
        assert {(it.client, it.address, it.reason) for it in steps} <= {
            ("10.0.0.1:4000", "10.0.0.1", f"{TOPIC} publish")
        }
        return [(it.event, it.ts - begin_ms, it.held_ms) for it in steps]

    broker.limit("publishRate", PublishRate(messages_per_s=1))
    connection, _ = await broker.producer()
    records.taken()
    begin_ms = broker.clock.now_ms()
    await broker.say(connection, *(a_send(number) for number in range(9)))
    broker.forward(1_000 * HELD_S - 1)
    assert look() == []
    broker.forward(1)
    assert look() == [("held", 1_000 * HELD_S, 1_000 * HELD_S)]
    broker.forward(2_000)
    assert look() == []
    connection.connection_lost(None)
    records.taken()
    assert look() == [("freed", 1_000 * HELD_S + 2_000, 1_000 * HELD_S + 2_000)]
    assert look() == []


async def test_connections_that_limits_hold_are_recorded_in_bounds(broker: Broker) -> None:
    """Of those beyond, neither that it begins nor that it ends."""
    records = recorded(broker)
    clients = broker.server.serving.clients
    held = [
        HeldConnection(f"10.0.0.1:{number}", 1_000.0 * HELD_S, ["a limit"], [], [], 0)
        for number in range(REFUSALS_AT_ONCE + 1)
    ]
    clients.record_held(held)
    assert len(records.taken()) == REFUSALS_AT_ONCE
    clients.record_held([])
    assert [it.event for it in records.taken()] == ["freed"] * REFUSALS_AT_ONCE
