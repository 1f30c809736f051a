"""Dispatch limits and the limit on SUBSCRIBE, on a driven clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from limits.driven import SECOND, TOPIC, DrivenClock, a_broker, jain, run_until, settle

from loadmanager.limits.broker import TopicThrottling
from loadmanager.limits.dispatch import NO_LIMIT, Charge, PublishRates, SubscribeLimiter
from loadmanager.limits.policies import DispatchRate, SubscribeRate, plain
from loadmanager.limits.report import held_report

START = 100 * SECOND


class Dispatcher:
    """A subscription with a backlog of entries of `batches` messages each."""

    def __init__(
        self,
        clock: DrivenClock,
        topic: TopicThrottling,
        batches: Iterator[int],
        *,
        name: str = "s",
        size: int = 100,
    ) -> None:
        self.clock = clock
        self.batches = batches
        self.size = size
        self.sent: list[tuple[int, int]] = []
        self.gate = topic.gate(name, self, clock())

    def go_on(self) -> None:
        while not self.gate.blocked:
            messages, size = self.gate.allowance(self.clock())
            if not messages or not size:
                return
            batch = next(self.batches, 0)
            if not batch:
                return
            self.sent.append((self.clock(), batch))
            self.gate.charge(Charge(1, batch, batch * self.size), self.clock())

    def per_second(self, seconds: int) -> list[int]:
        counts = [0] * seconds
        for at, messages in self.sent:
            if at < START + seconds * SECOND:
                counts[(at - START) // SECOND] += messages
        return counts


def ones() -> Iterator[int]:
    """Entries of one message, without end."""
    while True:
        yield 1


def then_ones(*first: int) -> Iterator[int]:
    """The given entries, then entries of one message."""
    yield from first
    yield from ones()


def policy(**rates: int) -> dict[str, object]:
    """Topic policies with a dispatch rate."""
    return {"dispatchRate": plain(DispatchRate(**rates))}


def test_over_delivery_is_paid_back_as_documented() -> None:
    """At 10/s, 11 delivered in one second leave 9 for the next, and 30 at once leave none for the
    next two.
    """
    for first, expected in (
        ((1,) * 9 + (2,), [11, 9, 10, 10]),
        ((30,), [30, 0, 0, 10]),
        ((1000,), [1000, *[0] * 99, 10]),
    ):
        clock = DrivenClock()
        broker = a_broker(clock)
        topic = broker.topic(TOPIC, clock())
        broker.set_topic_policies(TOPIC, policy(messages=10), clock())
        dispatcher = Dispatcher(clock, topic, then_ones(*first))
        dispatcher.go_on()
        run_until(broker, clock, START + len(expected) * SECOND)
        assert dispatcher.per_second(len(expected)) == expected


def test_a_subscription_names_the_limit_that_holds_it() -> None:
    """Also between two holds of a moment; and not one that has nothing to send."""
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=10), clock())
    Dispatcher(clock, topic, ones(), name="busy").go_on()
    Dispatcher(clock, topic, ones(), name="idle")
    run_until(broker, clock, START + 5 * SECOND)
    (hold,) = held_report(broker, clock(), 5).subscriptions
    assert (hold.topic, hold.subscription, hold.limits) == (
        str(TOPIC), "busy", [f"{TOPIC} dispatch"]
    )  # fmt: skip


@pytest.mark.parametrize("rate", [100, 1000, 10_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_every_second_the_first_included_delivers_the_limit(rate: int) -> None:
    """Five subscriptions that share a topic's limit get it within 5 % each second, 0.5 % over ten,
    in equal parts.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=rate), clock())
    dispatchers = [Dispatcher(clock, topic, ones(), name=f"s{i}") for i in range(5)]
    for dispatcher in dispatchers:
        dispatcher.go_on()
    run_until(broker, clock, START + 10 * SECOND, late_ms=1)
    seconds = [sum(counts) for counts in zip(*(d.per_second(10) for d in dispatchers), strict=True)]
    assert all(abs(got - rate) <= 0.05 * rate for got in seconds), seconds
    assert sum(seconds) == pytest.approx(10 * rate, rel=0.005)
    assert jain([sum(d.per_second(10)) for d in dispatchers]) >= 0.99


@pytest.mark.parametrize("tightest", ["broker", "topic", "subscription"])
def test_the_tightest_of_all_levels_wins(tightest: str) -> None:
    """With limits at every level at once, the smallest governs, whichever level it is at."""
    rates = {
        level: 1000 if level == tightest else 5000 for level in ("broker", "topic", "subscription")
    }
    clock = DrivenClock()
    broker = a_broker(clock, broker_dispatch_messages_per_s=rates["broker"])
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(
        TOPIC,
        {
            **policy(messages=rates["topic"]),
            "subscriptionDispatchRate": plain(DispatchRate(messages=rates["subscription"])),
        },
        clock(),
    )
    dispatcher = Dispatcher(clock, topic, ones())
    dispatcher.go_on()
    run_until(broker, clock, START + 10 * SECOND, late_ms=2)
    assert sum(dispatcher.per_second(10)) == pytest.approx(10_000, rel=0.01)
    assert set(dispatcher.gate.throttled_by) == {(tightest, "messages")}


def test_a_period_of_several_seconds_grants_its_rate_per_period() -> None:
    """Ten per 60 seconds are ten in every minute."""
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=10, period_s=60), clock())
    dispatcher = Dispatcher(clock, topic, ones())
    dispatcher.go_on()
    run_until(broker, clock, START + 180 * SECOND)
    counts = dispatcher.per_second(180)
    assert [sum(counts[i : i + 60]) for i in (0, 60, 120)] == [10, 10, 10]


def test_a_limit_relative_to_the_publish_rate_follows_it() -> None:
    """Publish rate 500/s plus 100/s configured delivers 600/s, and 100/s once nobody publishes."""
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    topic.set_published(PublishRates(500, 0), clock())
    broker.set_topic_policies(TOPIC, policy(messages=100, relative=True), clock())
    dispatcher = Dispatcher(clock, topic, ones())
    dispatcher.go_on()
    run_until(broker, clock, START + 5 * SECOND)
    topic.set_published(PublishRates(0, 0), clock())
    run_until(broker, clock, START + 10 * SECOND)
    counts = dispatcher.per_second(10)
    assert sum(counts[:5]) == pytest.approx(3000, rel=0.02)
    assert sum(counts[6:]) == pytest.approx(400, rel=0.05)


def test_batches_count_as_one_where_the_broker_says_so() -> None:
    """With dispatchThrottlingOnBatchMessageEnabled, 10/s are ten entries however many messages they
    hold.
    """
    clock = DrivenClock()
    broker = a_broker(clock, dispatch_charges_entries=True)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=10), clock())
    dispatcher = Dispatcher(clock, topic, then_ones(*[50] * 200))
    dispatcher.go_on()
    run_until(broker, clock, START + 3 * SECOND)
    assert dispatcher.per_second(3) == [500, 500, 500]


def test_removing_the_limit_or_the_subscription_leaves_nothing_waiting() -> None:
    """A dispatcher in deep debt goes on when its limit is removed; a closed one never does."""
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=1), clock())
    going = Dispatcher(clock, topic, iter([1000, 1, 1]), name="going")
    gone = Dispatcher(clock, topic, iter([1000, 1, 1]), name="gone")
    going.go_on()
    gone.go_on()
    topic.close_gate("gone", clock())
    broker.set_topic_policies(TOPIC, {}, clock())
    settle(broker, clock)
    assert [messages for _, messages in going.sent] == [1000, 1, 1]
    assert [messages for _, messages in gone.sent] in ([1000], [])
    assert going.gate.limits == ()
    assert going.gate.allowance(clock()) == (NO_LIMIT, NO_LIMIT)
    assert broker.next_wakeup_ns() is None


def test_a_caught_up_dispatcher_that_uses_no_tokens_does_not_stop_others() -> None:
    """Tokens set aside for a dispatcher without backlog go to the next one after a moment."""
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=100), clock())
    idle = Dispatcher(clock, topic, iter([1, 1]), name="idle")
    busy = Dispatcher(clock, topic, ones(), name="busy")
    idle.go_on()
    busy.go_on()
    run_until(broker, clock, START + 5 * SECOND)
    assert sum(busy.per_second(5)) == pytest.approx(498, abs=10)


def test_subscribes_are_counted_per_consumer_and_window() -> None:
    """Two per 30 s: the third is refused; another consumer and the next window are served."""
    clock = DrivenClock()
    limiter = SubscribeLimiter()
    limiter.update(SubscribeRate(subscribes=2, period_s=30))
    assert [limiter.try_subscribe("h", "c", 1, clock()) for _ in range(3)] == [True, True, False]
    assert limiter.try_subscribe("h", "c", 2, clock())
    clock.forward_ms(30_000)
    assert limiter.try_subscribe("h", "c", 1, clock())
    limiter.update(SubscribeRate())
    assert all(limiter.try_subscribe("h", "c", 1, clock()) for _ in range(10))


def test_a_subscription_that_withdraws_was_not_held() -> None:
    """It asked once more than it had messages, as after each one that comes alone; one that has
    something to send was held.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=10), clock())
    alone = Dispatcher(clock, topic, iter((1,) * 40))
    limits = alone.gate.limits
    for second in range(1, 9):
        for _ in range(5):  # as many as half a second of the rate
            alone.gate.charge(Charge(1, 1, 100), clock())
        alone.gate.allowance(clock())
        assert alone.gate.blocked
        alone.gate.withdraw(clock())
        run_until(broker, clock, START + second * SECOND)
    assert sum(alone.gate.throttled_by.values()) == 0
    assert not any(limit.stats.holds for limit in limits)
    busy = Dispatcher(clock, topic, ones(), name="busy")
    busy.go_on()
    run_until(broker, clock, clock() + SECOND)
    assert sum(busy.gate.throttled_by.values()) > 0
    assert any(limit.stats.holds for limit in limits)
