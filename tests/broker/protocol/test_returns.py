"""When the clients of a bundle came back to it: those that want something, once they got it."""

from __future__ import annotations

from broker.protocol.driven_broker import BUNDLE, MESSAGE, Broker
from system.raw import a_send

from loadmanager.broker.protocol.hosted import returns
from loadmanager.limits.policies import DispatchRate
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
