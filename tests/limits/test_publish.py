"""Publish limits end to end on a driven clock: accuracy, fairness, and nothing stuck."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from limits.driven import (
    MS,
    SECOND,
    TOPIC,
    Client,
    DrivenClock,
    Sharing,
    a_broker,
    jain,
    run_until,
    settle,
)

from loadmanager.kit.names import TopicName
from loadmanager.limits.policies import PublishRate, ResourceGroup, plain
from loadmanager.limits.report import topic_report
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.limits.tracker import HoldCause

START = 100 * SECOND


def policy(messages: int = -1, size: int = -1) -> dict[str, object]:
    """Topic policies with a publish rate."""
    return {"publishRate": plain(PublishRate(messages_per_s=messages, bytes_per_s=size))}


@pytest.mark.parametrize("producers", [1, 10, 50])
@pytest.mark.parametrize("rate", [100, 1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("late_ms", [0.0, 3.0, 60.0])
def test_every_second_the_first_included_grants_the_limit(
    rate: int, producers: int, late_ms: float
) -> None:
    """Flat-out producers on connections of their own get the limit within 5 % in each second and
    0.5 % over ten, though the timer is late.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(rate), clock())
    clients = [Client(clock, broker, topic, 1, 100) for _ in range(producers)]
    for client in clients:
        client.go_on()
    run_until(broker, clock, START + 20 * SECOND, late_ms=late_ms)
    seconds = [
        sum(c.messages(START + i * SECOND, START + (i + 1) * SECOND) for c in clients)
        for i in range(20)
    ]
    assert all(
        abs(got - rate) <= 0.05 * rate + rate * late_ms / 1000 + (late_ms > 0) for got in seconds
    ), seconds
    assert abs(sum(seconds[:10]) - 10 * rate) <= 0.005 * 10 * rate + rate * late_ms / 1000
    assert abs(sum(seconds[10:]) - 10 * rate) <= 0.005 * 10 * rate + (late_ms > 0)
    assert jain([c.messages() for c in clients]) >= 0.99


def test_sizes_that_differ_tenfold_share_bytes_fairly() -> None:
    """Under a byte limit, producers of 100-byte and of 1000-byte messages get the same number of
    bytes.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(size=1024 * 1024), clock())
    clients = [Client(clock, broker, topic, 1, 100 if i % 2 else 1000) for i in range(10)]
    for client in clients:
        client.go_on()
    run_until(broker, clock, START + 10 * SECOND)
    assert jain([c.size() for c in clients]) >= 0.99
    assert sum(c.size() for c in clients) == pytest.approx(10 * 1024 * 1024, rel=0.005)


def test_batches_that_differ_tenfold_share_messages_fairly() -> None:
    """Under a message limit, producers of batches of 2 and of 20 get the same number
    of messages.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=1000), clock())
    clients = [Client(clock, broker, topic, 2 if i % 2 else 20, 500) for i in range(10)]
    for client in clients:
        client.go_on()
    run_until(broker, clock, START + 10 * SECOND)
    assert jain([c.messages() for c in clients]) >= 0.99


def test_newcomers_do_not_starve_a_steady_producer() -> None:
    """Beside twenty clients that connect, send one message and leave, again and again, a steady
    producer still gets its part.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=50), clock())
    steady = Client(clock, broker, topic, 1, 100)
    steady.go_on()
    churning: list[Client] = []
    for _ in range(30 * 1000):
        clock_ns = clock.now_ns + 1_000_000
        for client in [
            client for client in churning if client.left == 0 and not client.throttle.paused
        ]:
            topic.leave(client.sender, clock())
            broker.disconnect(client.throttle, clock())
            churning.remove(client)
        while len(churning) < 20:
            churning.append(Client(clock, broker, topic, 1, 100, cap=1))
            churning[-1].go_on()
        run_until(broker, clock, clock_ns)
    late = steady.messages(since_ns=START + 10 * SECOND)
    assert late >= 20 * 50 / 21 / 3, late


def test_unloading_while_the_next_frame_closes_the_producer() -> None:
    """The close releases a held producer; its connection goes on, and the next frame closes that
    producer.
    """

    class Closing(Client):
        def go_on(self) -> None:
            self.topic.leave(self.sender, self.clock())

    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_settings(ThrottlingSettings(broker_publish_messages_per_s=100_000), clock())
    broker.set_topic_policies(TOPIC, policy(messages=1), clock())
    client = Closing(clock, broker, topic, 1, 100, cap=50)
    client.sender.charge(topic.publish, 5, 100, clock())
    assert client.throttle.paused
    topic.close(clock())
    settle(broker, clock)
    assert not client.throttle.paused
    assert topic.senders == {}


def test_many_producers_on_one_connection_do_not_lose_to_one_on_another() -> None:
    """A connection that carries nine producers in turn gets nine times what a connection with one
    gets.
    """

    class Crowd(Client):
        def go_on(self) -> None:
            while not self.throttle.paused:
                turn = sum(sent) % 9
                sent[turn] += 1
                senders[turn].charge(self.topic.publish, 1, 100, self.clock())

    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=1000), clock())
    alone, crowd = Client(clock, broker, topic, 1, 100), Crowd(clock, broker, topic, 1, 100)
    senders = [topic.sender(f"p{i}", crowd.throttle) for i in range(9)]
    sent = [0] * 9
    alone.go_on()
    crowd.go_on()
    run_until(broker, clock, START + 10 * SECOND)
    assert jain([alone.messages(), *sent]) >= 0.99


@pytest.mark.parametrize("rate", [20, 1000])
@pytest.mark.parametrize("topics", [2, 4, 12])
@pytest.mark.parametrize("late_ms", [0.0, 3.0])
def test_topics_of_one_connection_get_their_limits_each(
    topics: int, rate: int, late_ms: float
) -> None:
    """While one topic's limit pauses the connection, the others save up what they would have
    granted: in every second, the first included, each grants its limit.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    names = [TopicName.parse(f"{TOPIC}-{number}") for number in range(topics)]
    limited = [broker.topic(name, clock()) for name in names]
    for name in names:
        broker.set_topic_policies(name, policy(rate), clock())
    client = Sharing(clock, broker, limited)
    client.go_on()
    run_until(broker, clock, START + 20 * SECOND, late_ms=late_ms)
    for second in range(20):
        got = client.counts(START + second * SECOND, START + (second + 1) * SECOND)
        assert max(got) <= 1.05 * rate + rate * late_ms / 1000 + 1, (second, got)
    for got in client.counts(START + 10 * SECOND, START + 20 * SECOND):
        assert abs(got - 10 * rate) <= 0.02 * 10 * rate + 2


def test_a_victim_of_its_connection_hears_whose_limit_holds_it() -> None:
    """The topic and the producer, as long as that limit holds; its own topic has no limit."""
    clock = DrivenClock()
    broker = a_broker(clock)
    slow, free = (broker.topic(TopicName.parse(f"{TOPIC}-{name}"), clock()) for name in "ab")
    broker.set_topic_policies(slow.name, policy(10), clock())
    client = Sharing(clock, broker, [slow])
    free.sender("victim", client.throttle)
    client.go_on()
    (producer,) = topic_report(broker, free, clock())["producers"]
    name = client.senders[0].name
    wanted = f"which is held by topic publish rate of {slow.name} (producer {name}) since 0 ms"
    assert producer["why"] == f"held by its connection, {wanted}"
    (hold,) = client.throttle.holds(clock())
    assert list(hold.holders) == client.senders
    broker.set_topic_policies(slow.name, {}, clock())
    assert client.throttle.holds(clock()) == []
    assert topic_report(broker, free, clock())["producers"][0]["why"].startswith("no limit of this")


def test_a_producer_that_came_later_was_not_held_before() -> None:
    """It is told for how long its connection is held since it was attached, once where several
    causes hold it at once.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    slow, free = (broker.topic(TopicName.parse(f"{TOPIC}-{name}"), clock()) for name in "ab")
    broker.set_topic_policies(slow.name, policy(10), clock())
    client = Sharing(clock, broker, [slow])
    client.go_on()
    run_until(broker, clock, START + 20 * SECOND)
    free.sender("late", client.throttle)
    began_ns, before_ns = clock(), client.throttle.paused_until(clock())
    (early,) = topic_report(broker, slow, clock())["producers"]
    assert early["heldSeconds"] == before_ns / SECOND > 5
    client.throttle.hold(HoldCause.OUTBOUND_BUFFER, clock())
    clock.now_ns += 2 * SECOND
    client.throttle.release(HoldCause.OUTBOUND_BUFFER, clock())
    (late,) = topic_report(broker, free, clock())["producers"]
    assert 2 <= late["heldSeconds"] <= (clock() - began_ns) / SECOND + 0.2
    assert late["heldSecondsByCause"]["outbound buffer of the connection"] == 2


def test_a_topic_that_was_idle_grants_no_more_after_a_pause() -> None:
    """Only what was discarded during the pauses of others is granted."""
    clock = DrivenClock()
    broker = a_broker(clock)
    names = [TopicName.parse(f"{TOPIC}-{number}") for number in range(2)]
    idle, busy = (broker.topic(name, clock()) for name in names)
    for name in names:
        broker.set_topic_policies(name, policy(100), clock())
    client = Sharing(clock, broker, [busy])
    client.senders.append(idle.sender("q", client.throttle))
    client.go_on()
    run_until(broker, clock, START + 10 * SECOND)
    client.topics_of.append(idle)
    client.sent.append([])
    run_until(broker, clock, START + 30 * SECOND)
    assert client.counts(START + 10 * SECOND, START + 11 * SECOND)[1] <= 105
    assert client.counts(START + 10 * SECOND, START + 20 * SECOND)[1] <= 1_010


def test_a_huge_batch_freezes_no_longer_than_the_configured_maximum() -> None:
    """A batch worth a thousand seconds is forgiven down to throttlingMaxDebtMillis, and the
    forgiven tokens are counted.
    """
    clock = DrivenClock()
    broker = a_broker(clock, debt_max_ms=5000)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=100), clock())
    client = Client(clock, broker, topic, 100_000, 100, cap=2)
    client.go_on()
    run_until(broker, clock, START + 6 * SECOND)
    assert [at for at, _, _ in client.sent][1] - START == pytest.approx(5 * SECOND, abs=50 * MS)
    assert topic.own_limits()[0].stats.forgiven > 99_000


def test_raising_or_removing_a_limit_releases_at_once() -> None:
    """Producers in deep debt go on the moment their limit changes; lifting only the byte limit is
    enough.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(size=1), clock())
    client = Client(clock, broker, topic, 1, 100_000, cap=5)
    client.go_on()
    assert client.throttle.paused
    assert len(client.sent) == 1
    broker.set_topic_policies(TOPIC, policy(size=1_000_000_000), clock())
    settle(broker, clock)
    assert not client.throttle.paused
    assert len(client.sent) == 5
    assert broker.next_wakeup_ns() is None


def test_topic_and_broker_limit_hold_together() -> None:
    """With 1000/s on the topic and 400/s on the broker, 400/s are delivered; without the broker's
    limit the topic's holds.
    """
    clock = DrivenClock()
    broker = a_broker(clock, broker_publish_messages_per_s=400)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=1000), clock())
    clients = [Client(clock, broker, topic, 1, 100) for _ in range(4)]
    for client in clients:
        client.go_on()
    run_until(broker, clock, START + 10 * SECOND)
    assert sum(c.messages() for c in clients) == pytest.approx(4000, rel=0.01)
    broker.set_settings(ThrottlingSettings(), clock())
    run_until(broker, clock, START + 20 * SECOND)
    assert sum(c.messages(START + 10 * SECOND) for c in clients) == pytest.approx(10_000, rel=0.01)


def test_a_resource_group_is_shared_and_lets_go_when_deleted() -> None:
    """Two topics of a namespace share its group's limit; deleting the group frees them at once."""
    clock = DrivenClock()
    broker = a_broker(clock)
    broker.set_resource_group("g", ResourceGroup(publish_messages=100), clock())
    broker.set_namespace_policies("public/default", {"resource_group_name": "g"}, clock())
    topics = [broker.topic(TOPIC, clock()), broker.topic(TOPIC.partition_name(1), clock())]
    clients = [Client(clock, broker, topic, 1, 100, cap=2000) for topic in topics]
    for client in clients:
        client.go_on()
    run_until(broker, clock, START + 5 * SECOND)
    assert sum(c.messages() for c in clients) == pytest.approx(500, abs=5)
    assert {hold.cause for c in clients for hold in c.throttle.holds(clock())} == {
        HoldCause.RESOURCE_GROUP_PUBLISH_RATE
    }
    broker.set_resource_group("g", None, clock())
    settle(broker, clock)
    assert [c.messages() for c in clients] == [2000, 2000]


def test_closing_the_topic_lets_its_connections_go_on() -> None:
    """A bundle that is unloaded in the middle leaves no connection paused and no wake-up behind."""
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=1), clock())
    clients = [Client(clock, broker, topic, 1000, 100, cap=3) for _ in range(3)]
    for client in clients:
        client.go_on()
    topic.close(clock())
    settle(broker, clock)
    assert not any(c.throttle.paused for c in clients)
    assert broker.next_wakeup_ns() is None
    assert broker.pauses.paused_connections == 0
    assert list(broker.limits()) == []


def test_without_limits_nothing_is_asked_of_a_send() -> None:
    """A topic without limits has an empty tuple of them, and a removed limit leaves
    it empty again.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    assert topic.publish == ()
    broker.set_topic_policies(TOPIC, policy(messages=5), clock())
    assert len(topic.publish) == 1
    broker.set_topic_policies(TOPIC, {}, clock())
    assert topic.publish == ()


def test_partitions_have_the_policies_of_their_topic_each_for_itself() -> None:
    """A topic policy set on the partitioned topic holds for every partition separately."""
    clock = DrivenClock()
    broker = a_broker(clock)
    first, second = (broker.topic(TOPIC.partition_name(i), clock()) for i in range(2))
    broker.set_topic_policies(TOPIC, policy(messages=5), clock())
    assert first.publish[0].message_rate() == second.publish[0].message_rate() == 5
    assert first.publish[0] is not second.publish[0]


def test_the_vectors_of_pulsars_limiter() -> None:
    """At 10 msg/s and 100 B/s: 5 msg/50 B pass, a second later 11 msg/100 B hold, after another 9
    msg/110 B hold, as in Pulsar's test.
    """
    clock = DrivenClock()
    broker = a_broker(clock, burst_ms=1000)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(10, 100), clock())
    client = Client(clock, broker, topic, 0, 0, cap=0)
    held = []
    for messages, size in ((5, 50), (11, 100), (9, 110)):
        settle(broker, clock)
        client.sender.charge(topic.publish, messages, size, clock())
        held.append(client.throttle.paused)
        clock.forward_ms(1000)
    assert held == [False, True, True]


def test_a_snapshot_has_rates_queue_and_places() -> None:
    """A limit's snapshot has configured and delivered rate, their error, the queue, and a
    producer's place and cause.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages=1000), clock())
    clients = [Client(clock, broker, topic, 1, 100) for _ in range(3)]
    for client in clients:
        client.go_on()
    run_until(broker, clock, START + 15 * SECOND)
    (limit,) = broker.limits()
    figures = limit.snapshot(clock())
    assert figures.configured_messages_per_s == 1000
    assert figures.delivered_messages_per_s == pytest.approx(1000, rel=0.005)
    assert figures.error == pytest.approx(0.0, abs=0.005)
    assert figures.queue_length == 3
    assert sorted(limit.places()[ticket] for c in clients for ticket in c.sender.waiting()) == [
        0,
        1,
        2,
    ]
    assert broker.pauses.by_cause[HoldCause.TOPIC_PUBLISH_RATE].connections == 3
    assert figures.wakeups <= 15 * 70


@pytest.mark.slow
@example(sizes=[(1, 1453), (1, 1736), (37, 1)], messages=17, size=10_000)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), min_size=1, max_size=8),
    messages=st.integers(10, 5000),
    size=st.one_of(st.just(-1), st.integers(10_000, 10_000_000)),
)
def test_any_mix_of_frames_is_granted_the_limit_and_no_more(
    sizes: list[tuple[int, int]], messages: int, size: int
) -> None:
    """Whatever the producers send, over ten seconds neither limit is exceeded by more than one
    frame of each, and one of them is used up, to within one in a hundred where both hold producers.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    topic = broker.topic(TOPIC, clock())
    broker.set_topic_policies(TOPIC, policy(messages, size), clock())
    clients = [Client(clock, broker, topic, *frame) for frame in sizes]
    for client in clients:
        client.go_on()
    run_until(broker, clock, START + 10 * SECOND)
    sent_messages, sent_bytes = sum(c.messages() for c in clients), sum(c.size() for c in clients)
    frame_messages, frame_bytes = sum(m for m, _ in sizes), sum(b for _, b in sizes)
    assert sent_messages <= 10.03 * messages + frame_messages
    least = 9.95 if size <= 0 else 9.9
    used = sent_messages >= least * messages - frame_messages - 1
    if size > 0:
        assert sent_bytes <= 10.03 * size + frame_bytes
        used = used or sent_bytes >= least * size - frame_bytes - 1
    assert used
