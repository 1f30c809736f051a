"""When the clients of a bundle came back to it: those that want something, once they got it."""

from __future__ import annotations

from broker.protocol.driven_broker import BUNDLE, MESSAGE, RECEIPT, Broker
from limits.driven import TOPIC
from system.raw import a_send

from loadmanager.broker.protocol.hosted import returns
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.limits.policies import DispatchRate, PublishRate
from loadmanager.member.ports.hosting import Returns


def of(broker: Broker) -> Returns:
    """The clients of the bundle."""
    bundles = broker.server.serving.open_bundles
    return returns(bundles.get(BUNDLE), broker.clock.now_ms())


async def test_who_wants_nothing_is_back_when_it_is_connected(broker: Broker) -> None:
    """A producer that has nothing to send, and a consumer of a subscription without messages; what
    they want much later does not count.
    """
    broker.forward(1000)
    connection, _ = await broker.producer()
    _, wire = await broker.consumer(permits=10)
    before = of(broker)
    assert (before.returned_ms, before.unserved) == ([1000, 1000], 0)
    broker.forward(60_000)
    await broker.say(connection, a_send(1))
    assert wire.count(MESSAGE) == 1
    after = of(broker)
    assert (after.returned_ms, after.unserved) == ([1000, 1000], 0)
    assert after.served_ms == 61_000


async def test_who_wants_something_is_back_when_it_got_it(broker: Broker) -> None:
    """A consumer of a backlog whose limit is used up waits for its first delivery."""
    broker.limit("subscriptionDispatchRate", DispatchRate(messages=10))
    broker.forward(1000)
    connection, _ = await broker.producer()
    first, _ = await broker.consumer(permits=10)
    await broker.say(connection, *(a_send(number) for number in range(100)))
    first.connection_lost(None)
    _, wire = await broker.consumer(permits=10)
    assert wire.count(MESSAGE) == 0
    assert (of(broker).returned_ms, of(broker).unserved) == ([1000], 1)
    broker.forward(2000)
    assert wire.count(MESSAGE) > 0
    _, back_ms = of(broker).returned_ms
    assert (of(broker).unserved, 1000 < back_ms <= 3000) == (0, True)


async def test_a_message_that_waits_in_a_held_connection_counts(broker: Broker) -> None:
    """Another producer of the connection is over its limit: nothing is read, and who was attached
    before that is not back until its first message has got its receipt.
    """
    broker.limit("publishRate", PublishRate(messages_per_s=10))
    broker.forward(1000)
    connection, wire = await broker.producer()
    second = pb.CommandProducer(topic=str(TOPIC), producer_id=2, request_id=2)
    await broker.say(connection, encode(producer=second))
    await broker.say(connection, *(a_send(number) for number in range(60)))
    await broker.say(connection, a_send(0, producer_id=2))
    sent_ms = broker.clock.now_ms()
    assert connection.is_held
    assert (len(of(broker).returned_ms), of(broker).unserved) == (1, 1)
    while of(broker).unserved:
        broker.forward(100)
    waited_ms = broker.clock.now_ms() - sent_ms
    assert wire.count(RECEIPT) == 61
    assert waited_ms > 1000
    first_ms, second_ms = of(broker).returned_ms
    assert (first_ms, 900 + waited_ms <= second_ms <= 1000 + waited_ms) == (1000, True)


async def test_a_backlog_that_waits_for_a_flow_in_a_held_connection_counts(broker: Broker) -> None:
    """A consumer beside such a producer."""
    broker.limit("publishRate", PublishRate(messages_per_s=10))
    broker.forward(1000)
    connection, wire = await broker.producer()
    asked = pb.CommandSubscribe(
        topic=str(TOPIC),
        subscription="s",
        subType=1,
        consumer_id=1,
        request_id=3,
        initialPosition=1,
    )
    await broker.say(connection, encode(subscribe=asked))
    await broker.say(connection, *(a_send(number) for number in range(60)))
    flow = encode(flow=pb.CommandFlow(consumer_id=1, messagePermits=10))
    await broker.say(connection, flow)
    flowed_ms = broker.clock.now_ms()
    assert (connection.is_held, of(broker).unserved) == (True, 1)
    while not wire.count(MESSAGE):
        broker.forward(100)
    waited_ms = broker.clock.now_ms() - flowed_ms
    assert waited_ms > 1000
    assert 900 + waited_ms <= max(of(broker).returned_ms) <= 1000 + waited_ms
