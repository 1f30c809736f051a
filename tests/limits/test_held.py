"""The list of who was held lately, for operators."""

from __future__ import annotations

from limits.driven import MS, SECOND, TOPIC, Client, DrivenClock, a_broker, run_until

from loadmanager.kit.names import TopicName
from loadmanager.limits.held_connection import may_wait_text
from loadmanager.limits.held_connections import held_consumers
from loadmanager.limits.policies import ResourceGroup
from loadmanager.limits.report import held_report, topic_report
from loadmanager.limits.schedule import RECENT_MAX

OTHER = TopicName.parse("persistent://public/default/others")
POLICIES = {"publishRate": {"publishThrottlingRateInMsg": 100}}


def test_held_between_two_moments() -> None:
    """A producer at its limit is held a hundred times a second for a moment: it is shown, also
    when nobody looks at that moment, and no longer ten seconds after it stopped.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    broker.set_topic_policies(TOPIC, POLICIES, clock())
    topic, free = broker.topic(TOPIC, clock()), broker.topic(OTHER, clock())
    client, other = Client(clock, broker, topic, 1, 10, cap=300), Client(clock, broker, free, 1, 10)
    other.sender.charge(free.publish, 1, 10, clock())
    client.go_on()
    run_until(broker, clock, clock() + 4 * SECOND)
    assert not client.throttle.paused
    report = held_report(broker, clock(), 5)
    (limit,) = report.limits
    assert (limit.name, limit.configured_messages_per_s) == (f"{TOPIC} publish", 100)
    assert (limit.topics, limit.waiters_total) == ([str(TOPIC)], 1)
    (waiter,) = limit.waiters
    assert (waiter.kind, waiter.name, waiter.waits) == ("producer", "p", False)
    assert waiter.client == client.peer
    assert limit.waited_lately_ms is not None
    assert 0 < limit.waited_lately_ms <= 4_000
    clock.forward_ms(10_000)
    assert held_report(broker, clock(), 5).limits == []


def test_a_hold_in_which_its_client_sends_nothing_holds_nobody_up() -> None:
    """A producer that waits for each receipt and sends 20 messages a second, of 30 that it may, is
    paused after each, and again free when it sends the next: it never waited. It did once that it
    sends sooner; this counts in full.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    policies = {"publishRate": {"publishThrottlingRateInMsg": 30}}
    broker.set_topic_policies(TOPIC, policies, clock())
    client = Client(clock, broker, broker.topic(TOPIC, clock()), 1, 10, cap=0)
    (limit,) = broker.limits()
    times = 0
    for _ in range(300):
        client.left = 1
        client.go_on()
        times += client.throttle.paused
        assert held_report(broker, clock(), 5).limits == []
        assert limit.snapshot(clock()).queue_length == 0
        run_until(broker, clock, clock() + 50 * MS, late_ms=1)
    assert client.left == 0, "no message was late"
    assert times > 200
    figures = limit.snapshot(clock())
    assert (figures.held, figures.waited_ms, figures.error) == (0, 0, None)
    assert client.throttle.limited_since_ns(clock()) is None
    assert held_report(broker, clock(), 5).connections == []
    (producer,) = topic_report(broker, client.topic, clock())["producers"]
    assert (producer["heldSeconds"], producer["heldSecondsByCause"]) == (0, {})
    assert producer["why"] == "no limit of this broker slows it down"
    began_ns = clock()
    client.left = 31
    client.go_on()
    run_until(broker, clock, clock() + SECOND)
    (shown,) = held_report(broker, clock(), 5).limits
    assert shown.waited_lately_ms is not None
    assert 900 < shown.waited_lately_ms <= 1_000
    assert shown.held_ago_ms is not None
    assert shown.held_ago_ms <= (clock() - began_ns) / MS
    assert limit.snapshot(clock()).held > 0
    assert limit.snapshot(clock()).error is not None
    assert client.throttle.limited_since_ns(clock()) is not None


def test_for_how_long_a_limit_holds_again_and_again() -> None:
    """Since its first hold after ten seconds without one, however short each is."""
    clock = DrivenClock()
    broker = a_broker(clock)
    broker.set_topic_policies(TOPIC, POLICIES, clock())
    client = Client(clock, broker, broker.topic(TOPIC, clock()), 1, 10)
    client.go_on()
    run_until(broker, clock, clock() + 60 * SECOND)
    (limit,) = held_report(broker, clock(), 5).limits
    assert limit.held_ago_ms is not None
    assert 58_000 < limit.held_ago_ms <= 60_000
    client.left = 0
    run_until(broker, clock, clock() + 11 * SECOND)
    Client(clock, broker, broker.topic(TOPIC, clock()), 200, 10).go_on()
    run_until(broker, clock, clock() + 5 * SECOND)
    (limit,) = held_report(broker, clock(), 5).limits
    assert limit.held_ago_ms is not None
    assert limit.held_ago_ms <= 5_000, "there was a time without one"


def test_a_burst_below_the_rate_is_told_by_how_little_it_waited() -> None:
    """A limit far above what a topic sends on the mean holds a burst for a moment: the time tells
    that from a limit that really slows somebody.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    fast = {"publishRate": {"publishThrottlingRateInMsg": 1_000}}
    broker.set_topic_policies(TOPIC, fast, clock())
    topic = broker.topic(TOPIC, clock())
    clock.forward_ms(60_000)
    Client(clock, broker, topic, 1, 10, cap=60).go_on()
    run_until(broker, clock, clock() + 9 * SECOND)
    (limit,) = held_report(broker, clock(), 5).limits
    assert limit.delivered_messages_per_s < 10
    assert limit.waited_lately_ms is not None
    assert 0 < limit.waited_lately_ms < 100


def test_a_shared_limit_names_the_topics_that_it_holds() -> None:
    """A resource group holds producers of several topics; one that waits long is still shown."""
    clock = DrivenClock()
    broker = a_broker(clock)
    broker.set_resource_group("gold", ResourceGroup(publish_messages=1), clock())
    broker.set_namespace_policies("public/default", {"resource_group_name": "gold"}, clock())
    for name in (TOPIC, OTHER):
        Client(clock, broker, broker.topic(name, clock()), 100, 10, cap=2).go_on()
    clock.forward_ms(15_000)
    (limit,) = held_report(broker, clock(), 1).limits
    assert limit.level == "resource group"
    assert (limit.waiters_total, len(limit.waiters), len(limit.topics)) == (2, 1, 1)
    assert limit.waiters[0].waits
    assert limit.waited_lately_ms == 20_000, "two, for all of the window"
    assert held_report(broker, clock(), 1).causes == {"resource group publish rate": 2}


def test_a_crowd_is_not_remembered() -> None:
    """Of more waiters than can be remembered, the last ones are."""
    clock = DrivenClock()
    broker = a_broker(clock)
    broker.set_topic_policies(TOPIC, POLICIES, clock())
    topic = broker.topic(TOPIC, clock())
    for _ in range(RECENT_MAX + 50):
        clock.now_ns += MS // 1000
        Client(clock, broker, topic, 1000, 10, cap=2).go_on()
    (limit,) = held_report(broker, clock(), 20).limits
    assert (limit.waiters_total, len(limit.waiters)) == (RECENT_MAX, 20)


def test_the_limits_of_a_connection_have_times_of_their_own() -> None:
    """Two topics of a connection are published to in turns, for half a minute each, the second from
    later on: both are named, each with when its limit began to hold the connection.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    for name in (TOPIC, OTHER):
        broker.set_topic_policies(name, POLICIES, clock())
    client = Client(clock, broker, broker.topic(TOPIC, clock()), 1, 10)
    first = client.sender, client.topic
    second_topic = broker.topic(OTHER, clock())
    second = second_topic.sender("q", client.throttle), second_topic
    client.go_on()
    began_ns = clock()
    for turns in (second, first, second, first):
        run_until(broker, clock, clock() + 30 * SECOND)
        client.sender, client.topic = turns
    run_until(broker, clock, clock() + 25 * SECOND)
    (held,) = held_report(broker, clock(), 5).connections
    assert held.topics == sorted([str(TOPIC), str(OTHER)])
    ago_ms = held.limits_held_ago_ms
    assert held.limits == sorted(ago_ms) == sorted([f"{TOPIC} publish", f"{OTHER} publish"])
    of_first, of_second = ago_ms[f"{TOPIC} publish"], ago_ms[f"{OTHER} publish"]
    total_ms = (clock() - began_ns) / MS
    assert total_ms - 1_500 < of_first <= total_ms
    assert total_ms - 31_500 < of_second <= total_ms - 30_000 + 100
    assert held.limits_text == (
        f"{TOPIC} publish and {OTHER} publish (for the last {of_second / 1000:.0f} s)"
    )
    client.left = 0
    run_until(broker, clock, clock() + 11 * SECOND)
    assert held_report(broker, clock(), 5).connections == []


def test_a_connection_that_is_held_again_and_again() -> None:
    """Since its first hold, however short each is, with the topics that wait on it; a topic that
    has no limit is told which of its connections wait, and one that is on none that others do.
    """
    clock = DrivenClock()
    broker = a_broker(clock)
    broker.set_topic_policies(TOPIC, POLICIES, clock())
    topic, other = broker.topic(TOPIC, clock()), broker.topic(OTHER, clock())
    third = broker.topic(TopicName.parse("persistent://public/default/third"), clock())
    client = Client(clock, broker, topic, 1, 10)
    client.beside = {str(OTHER)}
    client.reads = {str(TOPIC): {"own"}, str(OTHER): {"beside"}}
    began_ns = clock()
    client.go_on()
    run_until(broker, clock, clock() + 60 * SECOND)
    (held,) = held_report(broker, clock(), 5).connections
    assert (held.client, held.limits, held.topics) == (
        client.peer,
        [f"{TOPIC} publish"],
        [str(TOPIC)],
    )
    assert (held.others, held.others_total) == ([str(OTHER)], 1)
    assert 59_000 < held.held_ago_ms <= (clock() - began_ns) / MS
    assert topic_report(broker, topic, clock())["heldForOthers"] == []
    holds = held_report(broker, clock(), 5).subscriptions
    limits = [f"{TOPIC} publish"]
    assert [(it.topic, it.subscription, it.limits) for it in holds] == [
        (str(TOPIC), "own", limits),
        (str(OTHER), "beside", limits),
    ]
    for name, subscription in ((TOPIC, "own"), (OTHER, "beside")):
        assert held_consumers(broker, str(name), clock()) == {subscription: [client.peer]}
    for beside, uses in ((other, True), (third, False)):
        (connection,) = topic_report(broker, beside, clock())["heldForOthers"]
        assert connection.uses_topic == uses
        text = may_wait_text([connection])
        assert f"limits hold 1 connection, {client.peer} for 60.0 s until now" in text
    client.left = 0
    run_until(broker, clock, clock() + 11 * SECOND)
    assert held_report(broker, clock(), 5).connections == []
    assert held_consumers(broker, str(TOPIC), clock()) == {}
    assert topic_report(broker, other, clock())["heldForOthers"] == []
    client.left = None
    client.go_on()
    run_until(broker, clock, clock() + 2 * SECOND)
    (again,) = held_report(broker, clock(), 5).connections
    assert again.held_ago_ms <= 2_000, "the stretch before is over"
