"""Limits on connections, producers, consumers, subscriptions, memory and file descriptors."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from broker.protocol.driven_broker import BUNDLE, ERROR, RECEIPT, Broker, OwnsAll, Wire
from broker.protocol.test_hostile_clients import a_producer, a_publish, a_subscribe
from kit.system.descriptors import no_descriptors
from limits.driven import TOPIC
from structlog.testing import capture_logs
from system.raw import CONNECT

from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.protocol.connection import Connection
from loadmanager.broker.protocol.server import HANDLERS, BrokerServer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode

PRODUCER_SUCCESS, SUCCESS, CLOSE_PRODUCER = 17, 13, 15


async def connect_from(broker: Broker, address: str) -> tuple[Connection, Wire]:
    """A client of that address that has said CONNECT."""
    connection, wire = Connection(broker.server.serving, HANDLERS), Wire()
    wire._extra = {"peername": (address, 4000)}
    connection.connection_made(wire)
    await broker.say(connection, CONNECT)
    return connection, wire


def refusal(wire: Wire) -> tuple[int, str]:
    """Code and text of the last ERROR."""
    error = [frame for frame in wire.frames if frame.command.type == ERROR][-1].command.error
    return error.error, error.message


@pytest.mark.parametrize("limit", [{"connections_max": 3}, {"connections_per_address_max": 3}])
async def test_one_connection_too_many(broker: Broker, limit: dict[str, int]) -> None:
    """The client is told and the connection closed, with one log line for all such connections;
    when another connection ends, there is room again.
    """
    broker.messaging.set(MessagingSettings(**limit))
    clients = [await broker.connect() for _ in range(3)]
    with capture_logs() as logs:
        for _ in range(5):
            connection, wire = await broker.connect()
            assert wire.closed
            assert refusal(wire)[0] == pb.NotAllowedError
            assert refusal(wire)[1].startswith("Reached the maximum number of connections")
            connection.connection_lost(None)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "connections are refused"
    ]
    assert broker.server.serving.attachments.admission.refused == 5
    clients[0][0].connection_lost(None)
    _, wire = await broker.connect()
    assert not wire.closed
    if "connections_per_address_max" in limit:
        _, elsewhere = await connect_from(broker, "10.0.0.2")
        assert not elsewhere.closed


async def test_the_address_that_has_most_gives_way(broker: Broker) -> None:
    """When the broker is full, newcomers of other addresses are served in place of its connections:
    of those that have not said CONNECT, then of those that have been silent longest.
    """
    broker.messaging.set(MessagingSettings(connections_max=4))
    stranger, silent = Connection(broker.server.serving, HANDLERS), Wire()
    silent._extra = {"peername": ("10.0.0.9", 4000)}
    greedy = [await connect_from(broker, "10.0.0.9")]
    stranger.connection_made(silent)
    for _ in range(2):
        broker.clock.forward_ms(10)
        greedy.append(await connect_from(broker, "10.0.0.9"))
    broker.clock.forward_ms(10)
    await broker.say(greedy[0][0], encode(ping=pb.CommandPing()))
    newcomers = [await connect_from(broker, f"10.0.0.{number}") for number in (1, 2)]
    assert silent.closed
    assert [wire.closed for _, wire in greedy] == [False, True, False]
    assert not any(wire.closed for _, wire in newcomers)
    _, refused = await connect_from(broker, "10.0.0.9")
    assert refused.closed, "nobody has more than it"


async def test_a_role_has_so_many_connections(broker: Broker) -> None:
    """One more is refused; when one ends, there is room again."""
    broker.messaging.set(MessagingSettings(connections_per_role_max=2))

    async def of(role: str) -> tuple[Connection, Wire]:
        connection, wire = Connection(broker.server.serving, HANDLERS), Wire()
        connection.connection_made(wire)
        connection.roles = (role,)
        await broker.say(connection, CONNECT)
        return connection, wire

    clients = [await of("greedy") for _ in range(3)]
    assert [wire.closed for _, wire in clients] == [False, False, True]
    assert refusal(clients[2][1])[1] == "Reached the maximum number of connections of this role"
    assert not (await of("other"))[1].closed
    for index in (2, 0):
        clients[index][0].connection_lost(None)
    assert not (await of("greedy"))[1].closed


async def test_messages_that_do_not_end_are_bounded_together(broker: Broker) -> None:
    """Whoever holds most of them gives up the connection that began first; a message of somebody
    else arrives in pieces as before.
    """
    broker.messaging.set(MessagingSettings(publish_buffer_mb=1))
    unfinished = broker.server.serving.attachments.admission.unfinished
    neighbour, wire = await broker.producer()
    frame = a_publish(payload=b"x" * 300_000)
    neighbour.data_received(frame[:200_000])
    wires = []
    for _ in range(10):
        connection, held = Connection(broker.server.serving, HANDLERS), Wire()
        connection.connection_made(held)
        connection.roles = ("greedy",)
        await broker.say(connection, CONNECT)
        connection.data_received(frame[:200_000])
        wires.append(held)
        assert unfinished.used_bytes <= 1 << 20
    assert [held.closed for held in wires] == [True] * 6 + [False] * 4
    neighbour.data_received(frame[200_000:])
    assert wire.count(RECEIPT) == 1
    assert unfinished.used_bytes == 4 * 200_000


async def test_before_connect_little_is_kept(broker: Broker) -> None:
    """A stranger who announces more than a CONNECT with two long tokens is closed at once."""
    for announced, closed in ((64 * 1024, False), (64 * 1024 + 1, True)):
        connection, wire = Connection(broker.server.serving, HANDLERS), Wire()
        connection.connection_made(wire)
        connection.data_received(announced.to_bytes(4, "big") + bytes(1000))
        assert wire.closed == closed


async def test_open_files_cap_connections_without_a_setting() -> None:
    """brokerMaxConnections=0 means as many as the limit of open files allows."""
    broker = Broker()
    broker.server = BrokerServer(
        broker.messaging,
        clock=broker.clock,
        spawn=broker.spawn,
        throttling=broker.throttling,
        connections_cap=2,
    )
    broker.server.serving.directory = OwnsAll()
    wires = [(await broker.connect())[1] for _ in range(3)]
    assert [wire.closed for wire in wires] == [False, False, True]


LIMITS: dict[str, tuple[dict[str, int], list[bytes], int, str]] = {
    "producers of a topic": (
        {"producers_per_topic_max": 2},
        [a_producer(producer_id=number, request_id=number) for number in range(3)],
        pb.ProducerBusy,
        "Topic reached max producers limit (limit 2, maxProducersPerTopic)",
    ),
    "producers of an address": (
        {"producers_per_address_max": 2},
        [a_producer(producer_id=number, request_id=number) for number in range(3)],
        pb.ProducerBusy,
        "Topic reached max same address producers limit (limit 2, maxSameAddressProducersPerTopic)",
    ),
    "consumers of a topic": (
        {"consumers_per_topic_max": 2},
        [a_subscribe(consumer_id=number, subscription=f"s{number}") for number in range(3)],
        pb.ConsumerBusy,
        "Topic reached max consumers limit (limit 2, maxConsumersPerTopic)",
    ),
    "consumers of an address": (
        {"consumers_per_address_max": 2},
        [a_subscribe(consumer_id=number, subscription=f"s{number}") for number in range(3)],
        pb.ConsumerBusy,
        "Topic reached max same address consumers limit (limit 2, maxSameAddressConsumersPerTopic)",
    ),
    "consumers of a subscription": (
        {"consumers_per_subscription_max": 2},
        [a_subscribe(consumer_id=number) for number in range(3)],
        pb.ConsumerBusy,
        "Subscription reached max consumers limit (limit 2, maxConsumersPerSubscription)",
    ),
    "subscriptions of a topic": (
        {"subscriptions_per_topic_max": 2},
        [a_subscribe(consumer_id=number, subscription=f"s{number}") for number in range(3)],
        pb.NotAllowedError,
        f"Exceed the maximum number of subscriptions of the topic: {TOPIC}",
    ),
    "initial subscriptions": (
        {"subscriptions_per_topic_max": 2},
        [
            a_producer(producer_id=number, initial_subscription_name=f"s{number}")
            for number in range(3)
        ],
        pb.NotAllowedError,
        f"Exceed the maximum number of subscriptions of the topic: {TOPIC}",
    ),
    "subscriptions that are not durable": (
        {"subscriptions_per_topic_max": 2},
        [
            a_subscribe(consumer_id=number, subscription=f"s{number}", durable=False)
            for number in range(3)
        ],
        pb.NotAllowedError,
        f"Exceed the maximum number of subscriptions of the topic: {TOPIC}",
    ),
}


@pytest.mark.parametrize(("limit", "frames", "code", "text"), LIMITS.values(), ids=LIMITS.keys())
async def test_limits_of_a_topic(
    broker: Broker, limit: dict[str, int], frames: list[bytes], code: int, text: str
) -> None:
    """Two are taken, the third is refused with Pulsar's code and text, also when all come at once;
    one that goes makes room.
    """
    broker.messaging.set(MessagingSettings(**limit))
    connection, wire = await broker.connect()
    await broker.say(connection, *frames)
    assert wire.count(PRODUCER_SUCCESS) + wire.count(SUCCESS) == 2
    assert refusal(wire) == (code, text)
    assert wire.count(ERROR) == 1
    if "subscription" not in text:
        close = encode(close_producer=pb.CommandCloseProducer(producer_id=0, request_id=9))
        leave = encode(close_consumer=pb.CommandCloseConsumer(consumer_id=0, request_id=9))
        await broker.say(connection, close, leave)
        await broker.say(connection, frames[2])
        assert wire.count(ERROR) == 1


async def test_a_producer_that_takes_over_needs_no_room(broker: Broker) -> None:
    """A client that reconnects replaces itself, though the topic is full; the address is counted
    once.
    """
    broker.messaging.set(MessagingSettings(producers_per_topic_max=1, producers_per_address_max=1))
    connection, _ = await broker.connect()
    await broker.say(connection, a_producer(producer_name="p"))
    for epoch in (1, 2):
        again, wire = await broker.connect()
        await broker.say(again, a_producer(producer_name="p", epoch=epoch))
        assert wire.count(PRODUCER_SUCCESS) == 1
    again.connection_lost(None)
    other, wire = await broker.connect()
    await broker.say(other, a_producer(producer_name="q"))
    assert wire.count(PRODUCER_SUCCESS) == 1


async def test_memory_of_all_topics_is_looked_at_on_publish(broker: Broker) -> None:
    """A producer is closed when the topics of its namespace hold as much as they may, three
    quarters of all, and refused with the reason when it reconnects. Another namespace is served.
    """
    broker.messaging.set(MessagingSettings(topics_memory_mb=1))
    consumer, consumer_wire = await broker.connect()
    await broker.say(consumer, a_subscribe())
    connection, wire = await broker.producer()
    await broker.say(
        connection, *(a_publish(number, payload=b"x" * 100_000) for number in range(20))
    )
    assert wire.count(RECEIPT) == 8
    assert wire.count(CLOSE_PRODUCER) == 1
    assert broker.server.memory.used_bytes < 0.9e6
    await broker.say(connection, a_producer())
    code, text = refusal(wire)
    assert code == pb.ProducerBlockedQuotaExceededException
    assert "the topics of namespace public/default hold" in text
    neighbour, other = await broker.connect()
    await broker.say(neighbour, a_producer(topic="persistent://victim/ns/t"))
    await broker.say(neighbour, a_publish())
    assert other.count(RECEIPT) == 1
    ack = pb.CommandAck(
        consumer_id=1,
        ack_type=0,
        message_id=[pb.MessageIdData(ledgerId=1, entryId=number) for number in range(8)],
    )
    await broker.say(consumer, encode(ack=ack))
    await broker.say(connection, a_producer())
    assert wire.count(ERROR) == 2  # retained messages were dropped a moment ago: not again at once
    broker.clock.forward_ms(1000)
    await broker.say(connection, a_producer(request_id=7))
    assert wire.frames[-1].command.producer_success.request_id == 7
    assert broker.server.memory.used_bytes < 1e6
    assert not consumer_wire.closed


async def test_memory_of_closed_topics_is_given_back(broker: Broker) -> None:
    """Messages count from publish to close, fence or deletion."""
    connection, _ = await broker.connect()
    for local in ("a", "b", "c"):
        await broker.say(connection, a_producer(topic=local))
        await broker.say(connection, a_publish(payload=b"x" * 10_000))
    before = broker.server.memory.used_bytes
    assert before > 30_000
    assert broker.server.close_topic("persistent://public/default/a", force=True)
    assert broker.server.memory.used_bytes == before * 2 // 3
    assert broker.server.usage().memory_used_bytes == broker.server.memory.used_bytes
    broker.server.fence_all()
    assert broker.server.memory.used_bytes == 0


async def test_accepting_pauses_without_file_descriptors_and_goes_on() -> None:
    """No descriptor left: nothing ends, one line is logged; with one free again, the client that
    waited is served.
    """
    broker = Broker()
    await broker.server.open_bundle(BUNDLE, 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket() as client,
        capture_logs() as logs,
    ):
        broker.server.begin(OwnsAll())
        await broker.server.listen(listening)
        await asyncio.sleep(0.01)
        with no_descriptors():
            client.connect(listening.getsockname())
            client.sendall(CONNECT)
            await asyncio.sleep(0.2)
            assert not broker.server.serving.attachments.connections
        client.setblocking(False)
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1000), 60)
        assert answer[9] == 3
        await broker.server.stop()
    events: list[Any] = [entry["event"] for entry in logs if entry["log_level"] != "debug"]
    assert events == [
        "no connection can be accepted: raise the limit of open files",
        "connections are accepted again",
    ]
