"""What a client that came and left leaves at a broker, in objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from broker.admin.serving import serving
from broker.protocol.driven_broker import BUNDLE, MESSAGE, Broker
from clusters.running import until
from costs.weighing import alive
from hostile.callers import left_behind
from limits.driven import TOPIC
from system.raw import a_send

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.hosted import AttachedConsumer, AttachedProducer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import FrameReader, encode
from loadmanager.kit.http.connections import HttpConnection
from loadmanager.limits.limit import Ticket
from loadmanager.limits.policies import PublishRate
from loadmanager.limits.publish import Sender
from loadmanager.limits.tracker import ConnectionThrottle

PRODUCER_SUCCESS, SUCCESS, LOOKUP_RESPONSE = 17, 13, 24
VISITS = 100
OF_CLIENTS = (
    Connection,
    FrameReader,
    AttachedProducer,
    AttachedConsumer,
    Consumer,
    Sender,
    Ticket,
    ConnectionThrottle,
)
Visit = Callable[[Broker], Awaitable[None]]


async def lookup(broker: Broker) -> None:
    """Ask where a topic is, and leave."""
    connection, wire = await broker.connect()
    await broker.say(
        connection, encode(lookup=pb.CommandLookupTopic(topic=str(TOPIC), request_id=1))
    )
    assert wire.frames[-1].command.type == LOOKUP_RESPONSE
    connection.connection_lost(None)


async def produce(broker: Broker) -> None:
    """Send a message, and leave."""
    connection, wire = await broker.producer()
    assert wire.frames[-1].command.type == PRODUCER_SUCCESS
    await broker.say(connection, a_send(0))
    connection.connection_lost(None)


async def produce_half(broker: Broker) -> None:
    """Leave in the middle of a frame."""
    connection, _ = await broker.producer()
    await broker.say(connection, a_send(0)[:-3])
    connection.connection_lost(None)


async def consume(broker: Broker) -> None:
    """Take messages, acknowledge none, and leave."""
    connection, wire = await broker.consumer(10)
    assert wire.frames[-1].command.type in (SUCCESS, MESSAGE)
    connection.connection_lost(None)


async def nonsense(broker: Broker) -> None:
    """Send what is no frame."""
    connection, _ = await broker.connect()
    connection.data_received(b"\x00\x00\x00\x08\x00\x00\x00\x04\x08\x06\x32\x00")
    await broker.settle()
    connection.connection_lost(None)


async def unfinished(broker: Broker) -> None:
    """Ask for a producer, and leave before the answer."""
    connection, _ = await broker.connect()
    connection.data_received(
        encode(producer=pb.CommandProducer(topic=str(TOPIC), producer_id=1, request_id=1))
    )
    connection.connection_lost(None)
    await broker.settle()


@pytest.mark.parametrize("throttled", [False, True])
@pytest.mark.parametrize("visit", [lookup, produce, produce_half, consume, nonsense, unfinished])
async def test_a_client_that_left_leaves_no_object(visit: Visit, *, throttled: bool) -> None:
    """Budget: 0 objects, also while another producer waits for a limit of the topic."""
    broker = Broker()
    await broker.server.open_bundle(BUNDLE, 1)
    staying, wire = await broker.producer()
    if throttled:
        broker.limit("publishRate", PublishRate(messages_per_s=1, bytes_per_s=-1))
    await broker.say(staying, a_send(0), a_send(1), a_send(2))
    assert wire.reading is not throttled
    await visit(broker)
    before = alive(*OF_CLIENTS)
    for _ in range(VISITS):
        await visit(broker)
    assert alive(*OF_CLIENTS) == before
    assert (before["Connection"], before["AttachedProducer"]) == (1, 1)
    assert left_behind(broker.server) == {"connections": 1, "producers": 1}
    await broker.server.stop()


async def test_a_client_of_the_admin_api_leaves_no_object() -> None:
    """Budget: 0 connections."""
    async with serving(1) as served:
        (server,), url = served.servers, f"http://{served.brokers[0].address.broker_id}"
        before = server._connections._crowd.count
        for _ in range(VISITS):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url}/admin/v2/brokers/health") as answer,
            ):
                await answer.read()
        await until(lambda: server._connections._crowd.count <= before)
        await until(lambda: alive(HttpConnection)["HttpConnection"] <= before)
