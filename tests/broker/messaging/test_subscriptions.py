"""Topics and cursors in memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.messaging.log import EntryLog
from loadmanager.broker.messaging.memory import ENTRY_OVERHEAD_BYTES, TopicMemory
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.messaging.subscription import (
    PASSED_OVER_MAX,
    Delivery,
    Subscription,
    SubscriptionType,
)
from loadmanager.broker.messaging.topic import (
    WAITING_MAX,
    ProducerAccessMode,
    QuotaExceededError,
    Topic,
)
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError

EXCLUSIVE, SHARED, FAILOVER = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.SHARED,
    SubscriptionType.FAILOVER,
)


def a_log(entries: int = 0, messages: int = 1) -> EntryLog:
    """A log of small entries."""
    log = EntryLog(TopicMemory(1 << 60))
    for number in range(entries):
        log.append(str(number).encode(), messages)
    return log


def deliver(subscription: Subscription, entries_max: int = 1000, now_ms: int = 0) -> list[Delivery]:
    """All that can be handed out."""
    return list(
        subscription.dispatch(
            entries_max=entries_max, round_robin_max=2, unacked_max=0, now_ms=now_ms
        )
    )


def ids(deliveries: list[Delivery]) -> list[int]:
    """Entry ids in order of delivery."""
    return [delivery.entry.entry_id for delivery in deliveries]


def a_subscription(
    log: EntryLog, kind: SubscriptionType, *names: str, permits: int = 1000
) -> tuple[Subscription, list[Consumer]]:
    """A subscription at the log's begin with consumers."""
    subscription = Subscription("s", kind, log, 0, durable=True)
    consumers = [Consumer(name, permits=permits) for name in names]
    for consumer in consumers:
        subscription.attach(consumer, kind)
    return subscription, consumers


def test_exclusive_in_order_within_permits() -> None:
    """One consumer gets entries in order, as many as it has permits for; a batch may take it below
    zero.
    """
    subscription, (consumer,) = a_subscription(a_log(10, messages=3), EXCLUSIVE, "a", permits=4)
    assert ids(deliver(subscription)) == [0, 1]
    assert consumer.permits == -2
    with pytest.raises(ConflictError):
        subscription.attach(Consumer("b"), EXCLUSIVE)


def test_shared_takes_turns() -> None:
    """Consumers with permits take turns of a few entries; one that cannot be written to is left
    out.
    """
    subscription, (a, b) = a_subscription(a_log(8), SHARED, "a", "b")
    assert [delivery.consumer.name for delivery in deliver(subscription)] == [
        "a",
        "a",
        "b",
        "b",
    ] * 2
    b.writable = False
    log = subscription._log
    log.append(b"x", 1)
    log.append(b"x", 1)
    log.append(b"x", 1)
    assert {delivery.consumer for delivery in deliver(subscription)} == {a}


def test_failover_moves_on_in_order() -> None:
    """Only the active consumer is served; when it goes, the next gets what was not acknowledged, in
    order.
    """
    subscription, (a, b) = a_subscription(a_log(6), FAILOVER, "a", "b")
    assert {delivery.consumer for delivery in deliver(subscription)} == {a}
    subscription.ack(a, 0)
    subscription.ack(a, 2)
    subscription.detach(a)
    again = deliver(subscription)
    assert ids(again) == [1, 3, 4, 5]
    assert {delivery.consumer for delivery in again} == {b}
    assert again[0].redelivery_count == 1


def test_redelivery_of_some() -> None:
    """A negative acknowledgement brings just those entries again, with their count; to a shared
    consumer that has permits.
    """
    subscription, (consumer,) = a_subscription(a_log(5), SHARED, "a")
    deliver(subscription)
    subscription.redeliver(consumer, [3, 1, 99])
    again = deliver(subscription)
    assert ids(again) == [1, 3]
    assert [delivery.redelivery_count for delivery in again] == [1, 1]


def test_batch_index_acknowledgement() -> None:
    """A batch is acknowledged when all its messages are; a redelivery names the messages that are
    not.
    """
    subscription, (consumer,) = a_subscription(a_log(2, messages=4), SHARED, "a")
    deliver(subscription)
    subscription.ack(consumer, 0, (0b1010,))
    subscription.redeliver(consumer)
    assert [(d.entry.entry_id, d.ack_set) for d in deliver(subscription)] == [
        (0, (0b1010,)),
        (1, ()),
    ]
    subscription.ack(consumer, 0, (0b0101,))
    assert subscription.mark == 1


def test_cumulative_acknowledgement() -> None:
    """All up to an entry; ids outside the log change nothing."""
    subscription, (consumer,) = a_subscription(a_log(5), EXCLUSIVE, "a")
    deliver(subscription)
    subscription.ack_cumulative(consumer, (1 << 64) - 1)
    assert subscription.mark == 0
    subscription.ack(consumer, 3)
    subscription.ack_cumulative(consumer, 2)
    assert (subscription.mark, consumer.unacked_messages, subscription.backlog_messages) == (
        4,
        1,
        1,
    )


def test_seek_begins_anew() -> None:
    """After a seek everything from there on is delivered again, acknowledged or not."""
    subscription, (consumer,) = a_subscription(a_log(5), EXCLUSIVE, "a")
    deliver(subscription)
    subscription.ack_cumulative(consumer, 4)
    subscription.rewind_to(2)
    assert ids(deliver(subscription)) == [2, 3, 4]


@given(
    kind=st.sampled_from([SHARED, FAILOVER, EXCLUSIVE]),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["publish", "deliver", "ack", "nack", "leave", "join"]),
            st.integers(0, 30),
        ),
        max_size=60,
    ),
)
def test_nothing_is_lost(kind: SubscriptionType, steps: list[tuple[str, int]]) -> None:
    """Whatever consumers do, in the end every entry was acknowledged once it was asked for: none is
    lost, none is stuck.
    """
    log = a_log()
    subscription = Subscription("s", kind, log, 0, durable=True)
    acked: set[int] = set()
    for action, number in steps:
        consumers = list(subscription.consumers)
        if action == "publish":
            log.append(b"x", 1 + number % 3)
        elif action == "join" and (kind is not EXCLUSIVE or not consumers):
            subscription.attach(Consumer(f"c{number}", permits=number), kind)
        elif action == "leave" and consumers:
            subscription.detach(consumers[number % len(consumers)])
        elif action == "deliver":
            for delivery in deliver(subscription, entries_max=number):
                assert delivery.entry.entry_id not in acked
        elif action in ("ack", "nack") and consumers:
            consumer = consumers[number % len(consumers)]
            pending = sorted(consumer.pending)
            if pending and action == "ack":
                subscription.ack(consumer, pending[number % len(pending)])
                acked.add(pending[number % len(pending)])
            elif pending:
                subscription.redeliver(consumer, pending[: number + 1])
    for consumer in list(subscription.consumers):
        subscription.detach(consumer)
    last = Consumer("last", permits=1 << 30)
    subscription.attach(last, kind)
    rest = ids(deliver(subscription, entries_max=1 << 30))
    assert sorted(rest) == sorted(set(range(log.end_id)) - acked)
    assert kind is SHARED or rest == sorted(rest)
    for entry_id in rest:
        subscription.ack(last, entry_id)
    assert (subscription.mark, subscription.backlog_messages, last.unacked_messages) == (
        log.end_id,
        0,
        0,
    )


def test_log_drops_from_the_front() -> None:
    """Consumed entries are dropped when the topic holds more than it retains; ids stay."""
    log = a_log(100)
    log.drop_until(50, 0)
    assert (log.first_id, log.end_id, log.get(49)) == (50, 100, None)
    entry = log.get(50)
    assert entry is not None
    assert entry.tail == b"50"
    assert log.bytes == 100
    assert log.messages_from(0) == 50


def a_topic(memory_bytes: int = 1 << 60, **settings: float) -> Topic:
    """A topic with small limits."""
    return Topic(
        "persistent://t/n/x", 7, Live(MessagingSettings(**settings)), TopicMemory(memory_bytes)
    )


def test_resent_messages_are_stored_once() -> None:
    """A producer that reconnects sends again what it does not know to be stored; the
    topic knows.
    """
    topic = a_topic()
    first = topic.attach_publisher("p", 0)
    for sequence_id in range(3):
        topic.publish(first, sequence_id, b"x", 1)
    topic.detach_publisher(first, 0.0, for_good=False)
    again = topic.attach_publisher("p", 1)
    assert again.resent_until == 2
    assert [topic.publish(again, sequence_id, b"x", 1) is None for sequence_id in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]
    assert topic.log.end_id == 5


def test_a_new_producer_of_the_same_name_begins_anew() -> None:
    """Sequence ids of an earlier producer that was closed, or of another life of the name, drop
    nothing.
    """
    topic = a_topic()
    first = topic.attach_publisher("p", 0)
    topic.publish(first, 41, b"x", 1)
    topic.detach_publisher(first, 0.0, for_good=False)
    second = topic.attach_publisher("p", 0)
    assert topic.publish(second, 0, b"x", 1) is not None


def test_names_and_exclusive_producers() -> None:
    """A name has one producer at a time; an exclusive producer is the only one of its topic."""
    topic = a_topic()
    topic.attach_publisher("p", 0)
    with pytest.raises(ConflictError):
        topic.attach_publisher("p", 0)
    assert topic.attach_publisher("p", 1).epoch == 1
    with pytest.raises(ConflictError):
        topic.attach_publisher("q", 0, access=ProducerAccessMode.EXCLUSIVE)


def test_backlog_limit() -> None:
    """A topic that holds as much as it may refuses more until consumers have acknowledged."""
    topic = a_topic(backlog_bytes_max=100, retention_mb=0)
    subscription = topic.subscribe("s", EXCLUSIVE, 0, durable=True)
    consumer = Consumer("c", permits=1000)
    subscription.attach(consumer, EXCLUSIVE)
    publisher = topic.attach_publisher("p", 0)
    for sequence_id in range(10):
        topic.publish(publisher, sequence_id, b"x" * 10, 1)
    with pytest.raises(QuotaExceededError):
        topic.publish(publisher, 10, b"x", 1)
    deliver(subscription)
    subscription.ack_cumulative(consumer, 4)
    assert topic.publish(publisher, 10, b"x", 1) is not None
    assert topic.log.first_id == 5


def test_limits_that_cut_turns_short_are_fair() -> None:
    """Rounds of a turn and a quarter: without going on with a turn, every other consumer would get
    four times as much as the others.
    """
    subscription, consumers = a_subscription(
        a_log(5_000), SHARED, *(f"c{index}" for index in range(10)), permits=10_000
    )
    for _ in range(160):
        for count, _ in enumerate(
            subscription.dispatch(entries_max=1000, round_robin_max=20, unacked_max=0, now_ms=0),
            start=1,
        ):
            if count == 25:
                break
    assert {consumer.delivered_messages for consumer in consumers} == {400}


def test_sequence_ids_of_producers_that_left_are_bounded() -> None:
    """The most recent few are remembered, for a time; attached producers are never forgotten."""
    topic = a_topic(producers_remembered_max=10, producers_remembered_minutes=1)
    stays = topic.attach_publisher("stays", 0)
    topic.publish(stays, 5, b"x", 1)
    for number in range(100):
        publisher = topic.attach_publisher(f"p{number}", 0)
        topic.publish(publisher, number, b"x", 1)
        topic.detach_publisher(publisher, float(number), for_good=False)
    assert len(topic._left) == 10
    assert topic.attach_publisher("p99", 1).resent_until == 99
    assert topic.attach_publisher("p89", 1).resent_until == -1
    topic.forget_producers(97.0 + 60.5)
    assert list(topic._left) == ["p98"]
    assert topic.attach_publisher("stays", 1).resent_until == 5


def test_an_exclusive_producer_may_leave_and_come_back() -> None:
    """An exclusive producer is found without looking at all producers."""
    topic = a_topic()
    exclusive = topic.attach_publisher("e", 0, access=ProducerAccessMode.EXCLUSIVE)
    with pytest.raises(ConflictError):
        topic.attach_publisher("p", 0)
    assert topic.attach_publisher("e", 1, access=ProducerAccessMode.EXCLUSIVE) is not exclusive
    topic.detach_publisher(exclusive, 0.0, for_good=True)  # long replaced: changes nothing
    with pytest.raises(ConflictError):
        topic.attach_publisher("p", 0)
    topic.detach_publisher(topic.publishers["e"], 0.0, for_good=True)
    topic.attach_publisher("p", 0)


def test_waiting_producers_are_bounded() -> None:
    """One more is refused, until one leaves; they do not count towards the maximum of producers."""
    topic = a_topic(producers_per_topic_max=1)
    wait = ProducerAccessMode.WAIT_FOR_EXCLUSIVE
    waiting = [topic.attach_publisher(f"p{n}", 0, access=wait) for n in range(WAITING_MAX + 1)]
    with pytest.raises(ConflictError, match="waiting producers"):
        topic.attach_publisher("more", 0, access=wait)
    topic.attach_publisher("p7", 1, access=wait)  # it comes back, in its own place
    topic.detach_publisher(waiting[8], 0.0, for_good=True)
    topic.attach_publisher("more", 0, access=wait)


def test_memory_counts_what_the_log_holds() -> None:
    """Every byte and entry is added once and subtracted once."""
    memory = TopicMemory(1 << 60)
    log = EntryLog(memory)
    for _ in range(100):
        log.append(b"x" * 10, 1)
    assert memory.used_bytes == 100 * (10 + ENTRY_OVERHEAD_BYTES)
    log.drop_until(60, 0)
    assert memory.used_bytes == 40 * (10 + ENTRY_OVERHEAD_BYTES)
    log.drop_until(log.end_id, -1)
    assert memory.used_bytes == 0


def test_retained_messages_give_way_before_producers_are_refused() -> None:
    """Entries that every subscription acknowledged are dropped when topics hold as much as they
    may.
    """
    topic = a_topic(memory_bytes=10_000, retention_mb=1)
    publisher = topic.attach_publisher("p", 0)
    for number in range(500):
        assert topic.publish(publisher, number, b"x" * 100, 1) is not None
    subscription = topic.subscribe("s", EXCLUSIVE, topic.log.end_id, durable=True)
    with pytest.raises(QuotaExceededError, match="topicsMemoryLimitMB"):
        [topic.publish(publisher, number, b"x" * 100, 1) for number in range(500, 600)]
    consumer = Consumer("c", permits=1000)
    topic.attach_consumer(subscription, consumer, EXCLUSIVE)
    subscription.ack_cumulative(consumer, topic.log.end_id - 1)
    assert topic.publish(publisher, 1 << 20, b"x", 1) is not None


def fastest(measured: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(20):
        began_s = time.perf_counter()
        measured()
        times.append(time.perf_counter() - began_s)
    return min(times)


@pytest.mark.slow
def test_nothing_that_is_asked_per_request_grows_with_the_backlog() -> None:
    """Backlog, an acknowledgement and a publish cost no more behind 200,000 entries than behind
    200.
    """
    costs = []
    for entries in (200, 200_000):
        topic = a_topic(retention_mb=0, backlog_bytes_max=-1)
        subscription = topic.subscribe("s", EXCLUSIVE, 0, durable=True)
        consumer = Consumer("c", permits=1 << 30)
        topic.attach_consumer(subscription, consumer, EXCLUSIVE)
        publisher = topic.attach_publisher("p", 0)
        for number in range(entries):
            topic.publish(publisher, number, b"x", 2)
        deliver(subscription, entries_max=1 << 30)
        for number in range(1, entries, 2):
            subscription.ack(consumer, number)
        assert subscription.backlog_messages == entries
        marks = iter(range(0, 1000, 4))
        costs.append(
            (
                fastest(lambda found=subscription: found.backlog_messages),
                fastest(
                    lambda found=subscription, who=consumer, at=marks: found.ack_cumulative(
                        who, next(at)
                    )
                ),
                fastest(lambda found=topic, who=publisher: found.publish(who, 1 << 40, b"x", 1)),
            )
        )
    few, many = costs
    assert all(after < 50 * before + 1e-4 for before, after in zip(few, many, strict=True)), costs


def test_cumulative_acknowledgements_of_shared_subscriptions_are_ignored() -> None:
    """As in Pulsar: entries of other consumers would be lost."""
    subscription, (a, b) = a_subscription(a_log(8), SHARED, "a", "b")
    deliver(subscription)
    subscription.ack_cumulative(a, 7)
    assert (subscription.mark, b.unacked_messages) == (0, 4)


def test_a_turn_ends_when_its_consumer_can_take_no_more() -> None:
    """A consumer of a shared subscription whose buffer fills up within its turn gets nothing more
    in it.
    """
    subscription, (a, b) = a_subscription(a_log(100), SHARED, "a", "b")
    names = []
    for delivery in subscription.dispatch(
        entries_max=100, round_robin_max=50, unacked_max=0, now_ms=0
    ):
        names.append(delivery.consumer.name)
        a.writable = False
    assert names == ["a"] + ["b"] * 99
    assert b.unacked_messages == 99


def test_delayed_entries_wait_and_others_pass_them() -> None:
    """A shared subscription delivers entries when they are due, the earliest first; other types at
    once and in order.
    """
    log = EntryLog(TopicMemory(1 << 60))
    for at_ms in (300, 0, 200, 100, 0):
        log.append(b"x", 1, at_ms)
    subscription, (consumer,) = a_subscription(log, SHARED, "a")
    assert ids(deliver(subscription, now_ms=50)) == [1, 4]
    assert (subscription.wake_ms, subscription.ready(0, 99), subscription.ready(0, 100)) == (
        100,
        False,
        True,
    )
    assert ids(deliver(subscription, now_ms=200)) == [3, 2]
    subscription.detach(consumer)
    exclusive = Consumer("b", permits=1000)
    subscription.attach(exclusive, EXCLUSIVE)
    assert ids(deliver(subscription, now_ms=200)) == [0, 1, 2, 3, 4]
    assert (log.memory.delayed_entries, subscription.wake_ms) == (0, None)


def test_what_waits_is_bounded() -> None:
    """When too many entries wait on the broker, reading stops at the next one until it is due, or
    there is room.
    """
    log = EntryLog(TopicMemory(1 << 60, delayed_entries_max=20, delayed_reserved=0))
    for at_ms in (100, 200, 300, 0):
        log.append(b"x", 1, at_ms)
    subscription, _ = a_subscription(log, SHARED, "a")
    assert deliver(subscription, now_ms=50) == []
    assert (subscription.wake_ms, subscription.ready(0, 60)) == (100, False)
    assert ids(deliver(subscription, now_ms=100)) == [0, 3]
    subscription.rewind_to(0)
    assert log.memory.delayed_entries == 0
    assert deliver(subscription, now_ms=50) == []
    subscription.close()
    assert log.memory.delayed_entries == 0


def test_what_waits_of_one_topic_does_not_delay_others() -> None:
    """A subscription holds a tenth of what the broker does; when others hold all, it has a part of
    its own, so that what is behind delayed entries is delivered at once.
    """
    memory = TopicMemory(1 << 60, delayed_entries_max=40, delayed_reserved=2)
    hoard = EntryLog(memory)
    for _ in range(10):
        hoard.append(b"x", 1, 1000)
    for name in "abcdefghijkl":
        hoarder, _ = a_subscription(hoard, SHARED, name)
        deliver(hoarder, now_ms=50)
        assert hoarder.delayed_entries in (4, 2)
    assert memory.delayed_entries == 40 + 2 * 2
    log = EntryLog(memory)
    for at_ms in (1000, 1000, 0):
        log.append(b"x", 1, at_ms)
    victim, _ = a_subscription(log, SHARED, "v")
    assert ids(deliver(victim, now_ms=50)) == [2]


def test_passing_over_many_entries_is_done_in_parts() -> None:
    """A turn is bounded, however many entries wait; `unfinished` asks for the next."""
    log = EntryLog(TopicMemory(1 << 60))
    for _ in range(PASSED_OVER_MAX + 10):
        log.append(b"x", 1, 100)
    log.append(b"x", 1)
    subscription, _ = a_subscription(log, SHARED, "a")
    assert (deliver(subscription), subscription.unfinished) == ([], True)
    assert ids(deliver(subscription)) == [PASSED_OVER_MAX + 10]
    assert not subscription.unfinished


def test_an_acknowledged_set_is_as_long_as_its_batch() -> None:
    """Words beyond the batch are not kept."""
    subscription, (consumer,) = a_subscription(a_log(1, messages=70), SHARED, "a")
    deliver(subscription)
    subscription.ack(consumer, 0, (1,) * 50_000)
    subscription.redeliver(consumer)
    assert [delivery.ack_set for delivery in deliver(subscription)] == [(1, 1)]


def test_the_best_priority_is_served_first() -> None:
    """Consumers of a worse priority get something only while none of a better one can take it."""
    subscription, (first, second) = a_subscription(a_log(10), SHARED, "a", "b", permits=0)
    worse = Consumer("c", priority=1, permits=1000)
    subscription.attach(worse, SHARED)
    subscription.flow(first, 2)
    subscription.flow(second, 1)
    got = [delivery.consumer.name for delivery in deliver(subscription, entries_max=6)]
    assert got == ["a", "a", "b", "c", "c", "c"]
    subscription.flow(second, 10)
    assert {delivery.consumer.name for delivery in deliver(subscription)} == {"b"}


class Looked(Consumer):
    """Counts how often somebody looks at whether it can take something."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "permits":
            Looked.looks += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("kind", [SHARED, FAILOVER])
def test_work_per_message_does_not_grow_with_the_consumers(kind: SubscriptionType) -> None:
    """A message to each of so many consumers, most of which can take nothing at any time, looks at
    each a few times.
    """
    costs = []
    for number in (100, 1_000):
        log = a_log()
        subscription = Subscription("s", kind, log, 0, durable=True)
        consumers = [Looked(str(index)) for index in range(number)]
        for consumer in consumers:
            subscription.attach(consumer, kind)
        Looked.looks = 0
        for consumer in consumers:
            subscription.flow(consumer, 1)
            log.append(b"x", 1)
            for delivery in deliver(subscription):
                subscription.ack(delivery.consumer, delivery.entry.entry_id)
            if kind is FAILOVER:
                subscription.detach(consumer)
        assert subscription.mark == number
        costs.append(Looked.looks / number)
    assert costs[1] < costs[0] * 1.2
