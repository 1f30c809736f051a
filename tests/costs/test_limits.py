"""What clients that came and went leave in the limits of a topic on which another one waits."""

from __future__ import annotations

from collections.abc import Callable

from costs.weighing import left_by
from limits.driven import TOPIC, Client, DrivenClock, a_broker, resume_ready

from loadmanager.kit.names import TopicName
from loadmanager.limits.dispatch import Charge, DispatchGate, DispatchLimiter
from loadmanager.limits.limit import Ticket
from loadmanager.limits.policies import PublishRate, plain
from loadmanager.limits.publish import PublishLimiter, Sender
from loadmanager.limits.tracker import ConnectionThrottle

CLIENTS = 3_000
WAITING = 1
ENTRIES_MAX = 2 * WAITING + 64
"""Budget of a heap: two entries for each ticket or limit that waits, and 64."""
NOTHING = {"Sender": 0, "Ticket": 0, "ConnectionThrottle": 0, "Client": 0, "DispatchGate": 0}
POLICIES = {"publishRate": plain(PublishRate(messages_per_s=1, bytes_per_s=-1))}


class Throttled:
    """A topic whose limit is used up, and on which one producer waits."""

    def __init__(self) -> None:
        self.clock = DrivenClock()
        self.broker = a_broker(self.clock)
        self.broker.set_topic_policies(TOPIC, POLICIES, self.clock())
        self.topic = self.broker.topic(TOPIC, self.clock())
        self.waiting = Client(self.clock, self.broker, self.topic, 100_000, 100, cap=1)
        self.waiting.go_on()
        assert self.waiting.throttle.paused

    def leaves(self, client: Client) -> None:
        """A client's producer and connection close."""
        client.topic.leave(client.sender, self.clock())
        self.broker.disconnect(client.throttle, self.clock())
        resume_ready(self.broker)
        self.clock.forward_ms(0.001)

    def entries(self) -> list[int]:
        """The entries of the heaps of the topic's limits and of the schedule."""
        heaps = [limit._heap for limit in self.topic.publish]
        return [len(self.broker.schedule._heap), *map(len, heaps)]


def kept(throttled: Throttled, visit: Callable[[Throttled], None]) -> dict[str, int]:
    """The objects that are left once all clients have come and gone."""
    kinds = (Sender, Ticket, ConnectionThrottle, Client, DispatchGate)
    return left_by(lambda: [visit(throttled) for _ in range(CLIENTS)], *kinds)


def publish_once(throttled: Throttled) -> None:
    """A client publishes, has to wait, and leaves."""
    client = Client(throttled.clock, throttled.broker, throttled.topic, 1, 100, cap=1)
    client.go_on()
    assert client.throttle.paused
    throttled.leaves(client)


def test_a_producer_that_left_while_another_waits() -> None:
    """Nothing of 3,000 producers is kept, and the heaps are within their budget."""
    throttled = Throttled()
    assert kept(throttled, publish_once) == NOTHING
    assert max(throttled.entries()) <= ENTRIES_MAX
    assert throttled.waiting.sender.waiting()


def test_a_producer_that_left_after_its_turn_came() -> None:
    """What was set aside for a producer that left is given back, whoever else has something set
    aside.
    """
    throttled = Throttled()
    throttled.clock.forward_ms(100_500_000)
    throttled.broker.release(throttled.clock())  # the first one has tokens set aside, and idles

    def visit(throttled: Throttled) -> None:
        client = Client(throttled.clock, throttled.broker, throttled.topic, 10, 100, cap=1)
        client.go_on()
        throttled.clock.forward_ms(10_000)
        throttled.broker.release(throttled.clock())
        throttled.leaves(client)

    assert kept(throttled, visit) == NOTHING
    assert max(throttled.entries()) <= ENTRIES_MAX


def test_a_subscription_that_left_while_another_waits() -> None:
    """Nothing of 3,000 subscriptions is kept of which each waited for the limit of its topic."""
    throttled = Throttled()
    clock, broker = throttled.clock, throttled.broker
    rate = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1}
    broker.set_topic_policies(TOPIC, {**POLICIES, "dispatchRate": rate}, clock())
    held = throttled.topic.gate("held", throttled.waiting, clock())
    held.charge(Charge(100_000, 100_000, 100), clock())
    assert held.allowance(clock()) == (0, 0)

    def come_and_go(throttled: Throttled) -> None:
        gate = throttled.topic.gate("gone", throttled.waiting, clock())
        assert gate.allowance(clock()) == (0, 0)
        throttled.topic.close_gate("gone", clock())
        resume_ready(broker)
        clock.forward_ms(0.001)

    assert kept(throttled, come_and_go) == NOTHING
    (limit,) = held.limits
    assert isinstance(limit, DispatchLimiter)
    assert len(limit._heap) <= ENTRIES_MAX


def test_a_topic_that_closed_while_another_waits() -> None:
    """Nothing of 3,000 topics is kept whose limits held a producer when they closed."""
    throttled = Throttled()

    def visit(throttled: Throttled) -> None:
        name = TopicName.parse("persistent://public/default/other")
        topic = throttled.broker.topic(name, throttled.clock())
        throttled.broker.set_topic_policies(name, POLICIES, throttled.clock())
        client = Client(throttled.clock, throttled.broker, topic, 1_000, 100, cap=1)
        client.go_on()
        throttled.leaves(client)
        topic.close(throttled.clock())
        throttled.broker.set_topic_policies(name, {}, throttled.clock())

    assert kept(throttled, visit) == NOTHING
    limits = left_by(lambda: [visit(throttled) for _ in range(CLIENTS)], PublishLimiter)
    assert limits["PublishLimiter"] <= ENTRIES_MAX
    assert throttled.entries()[0] <= ENTRIES_MAX
