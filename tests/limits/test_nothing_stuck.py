"""No client waits for ever, in any order of sends, clock steps, changes of limits, and of producers
and topics that come and go.
"""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from limits.driven import MS, SECOND, TOPIC, DrivenClock, a_broker, resume_ready, run_until, settle

from loadmanager.kit.names import TopicName
from loadmanager.limits.broker import TopicThrottling
from loadmanager.limits.dispatch import DispatchPace
from loadmanager.limits.policies import DispatchRate, PublishRate, ResourceGroup, plain
from loadmanager.limits.publish import Sender
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.limits.tracker import HoldCause, Holder

NAMES = [TOPIC, TopicName.parse("persistent://public/default/other")]
RATES = st.builds(
    PublishRate,
    messages_per_s=st.sampled_from([-1, 0, 1, 10, 1000]),
    bytes_per_s=st.sampled_from([-1, 100, 100_000]),
)


class Link:
    """A connection with several producers, which sends its frames as soon as it may."""

    def __init__(self, machine: Throttled) -> None:
        self.machine = machine
        self.throttle = machine.broker.connection(self)
        self.producers: list[tuple[TopicThrottling, Sender]] = []
        self.wanted: list[tuple[int, int, int]] = []
        self.reading = True

    def topics(self) -> set[str]:
        return set()

    def subscriptions(self, _topic: str) -> set[str]:
        return set()

    def stop_reading(self) -> None:
        raise AssertionError("no publish buffer is limited here")

    def waits(self, _holder: Holder | None = None) -> bool:
        return bool(self.wanted)

    def go_on(self) -> None:
        assert not self.reading, "resumed twice"
        self.drain()

    def drain(self) -> None:
        while self.wanted and not self.throttle.paused:
            which, messages, size = self.wanted.pop(0)
            if not self.producers:
                continue
            topic, sender = self.producers[which % len(self.producers)]
            if not topic.closed:
                sender.charge(topic.publish, messages, size, self.machine.clock())
        self.reading = not self.throttle.paused


class Throttled(RuleBasedStateMachine):
    """The limits of one broker under all events."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = DrivenClock()
        self.broker = a_broker(self.clock, debt_max_ms=5000)
        self.topics = [self.broker.topic(name, self.clock()) for name in NAMES]
        self.links: list[Link] = []

    @rule(topics=st.lists(st.integers(0, 1), min_size=1, max_size=3))
    @precondition(lambda self: len(self.links) < 5)
    def connect(self, topics: list[int]) -> None:
        link = Link(self)
        link.producers = [
            (self.topics[i], self.topics[i].sender(f"p{i}", link.throttle)) for i in topics
        ]
        self.links.append(link)

    @rule(
        which=st.integers(0, 9),
        frames=st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, 100), st.integers(1, 50_000)), max_size=5
        ),
    )
    @precondition(lambda self: self.links)
    def send(self, which: int, frames: list[tuple[int, int, int]]) -> None:
        link = self.links[which % len(self.links)]
        link.wanted += frames
        link.drain()
        resume_ready(self.broker)

    @rule(ms=st.integers(0, 3000))
    def time_passes(self, ms: int) -> None:
        run_until(self.broker, self.clock, self.clock.now_ns + ms * MS)

    @rule(ms=st.integers(0, 3000))
    def the_timer_is_late(self, ms: int) -> None:
        self.clock.forward_ms(ms)

    @rule(which=st.integers(0, 1), rate=RATES)
    def set_topic_limit(self, which: int, rate: PublishRate) -> None:
        self.broker.set_topic_policies(NAMES[which], {"publishRate": plain(rate)}, self.clock())
        settle(self.broker, self.clock)

    @rule(messages=st.sampled_from([0, 1, 50]), size=st.sampled_from([0, 1000]))
    def set_broker_limit(self, messages: int, size: int) -> None:
        self.broker.set_settings(
            ThrottlingSettings(
                broker_publish_messages_per_s=messages,
                broker_publish_bytes_per_s=size,
                debt_max_ms=5000,
            ),
            self.clock(),
        )
        settle(self.broker, self.clock)

    @rule(rate=st.sampled_from([None, 0, 5]), attached=st.booleans())
    def set_group(self, rate: int | None, attached: bool) -> None:
        self.broker.set_resource_group(
            "g",
            None if rate is None else ResourceGroup(publish_messages=rate),
            self.clock(),
        )
        self.broker.set_namespace_policies(
            "public/default", {"resource_group_name": "g"} if attached else {}, self.clock()
        )
        settle(self.broker, self.clock)

    @rule(which=st.integers(0, 9))
    @precondition(lambda self: any(link.producers for link in self.links))
    def producer_closes(self, which: int) -> None:
        links = [link for link in self.links if link.producers]
        topic, sender = links[which % len(links)].producers.pop()
        topic.leave(sender, self.clock())
        resume_ready(self.broker)

    @rule(which=st.integers(0, 9))
    @precondition(lambda self: self.links)
    def disconnect(self, which: int) -> None:
        link = self.links.pop(which % len(self.links))
        link.wanted.clear()
        for topic, sender in link.producers:
            topic.leave(sender, self.clock())
        self.broker.disconnect(link.throttle, self.clock())
        resume_ready(self.broker)

    @rule(which=st.integers(0, 1))
    def unload(self, which: int) -> None:
        self.topics[which].close(self.clock())
        self.topics[which] = self.broker.topic(NAMES[which], self.clock())
        resume_ready(self.broker)

    @invariant()
    def who_is_paused_is_awaited(self) -> None:
        for link in self.links:
            assert link.throttle.paused == (not link.reading) == bool(link.throttle.holds(0))
            waiting = [ticket for _, sender in link.producers for ticket in sender.waiting()]
            assert link.throttle.paused == bool(waiting)
            assert sum(hold.count for hold in link.throttle.holds(0)) == len(waiting)
            for ticket in waiting:
                assert ticket.limit.active
                assert ticket.limit.wakeup_ns is not None, "held by a limit that nobody wakes"
                assert ticket.limit.wakeup_ns <= self.clock() + 10 * SECOND
        paused = sum(link.throttle.paused for link in self.links)
        assert self.broker.pauses.paused_connections == paused
        assert (self.broker.next_wakeup_ns() is not None) == (paused > 0)
        for cause in HoldCause:
            held = sum(
                any(hold.cause is cause for hold in link.throttle.holds(0)) for link in self.links
            )
            assert self.broker.pauses.by_cause[cause].connections == held

    @invariant()
    def queue_lengths_are_right(self) -> None:
        waiting = [
            ticket.limit
            for link in self.links
            for _, sender in link.producers
            for ticket in sender.waiting()
        ]
        for limit in self.broker.limits():
            assert limit.length == waiting.count(limit)

    def teardown(self) -> None:
        run_until(self.broker, self.clock, self.clock.now_ns + 100_000 * SECOND)
        assert not any(link.throttle.paused or link.wanted for link in self.links), (
            "still held after a day"
        )


class Reader:
    """A subscription whose backlog is sent while it has a consumer, as the protocol server does."""

    def __init__(self, topic: TopicThrottling, name: str, clock: DrivenClock) -> None:
        self.clock = clock
        self.gate = topic.gate(name, self, clock())
        self.backlog = 0
        self.attached = False

    def go_on(self) -> None:
        if not self.gate.limits:
            self.backlog = 0 if self.attached else self.backlog
        elif not (self.attached and self.backlog):
            self.gate.withdraw(self.clock())
        else:
            pace = DispatchPace(self.gate, self.clock())
            while self.backlog and not pace.exhausted:
                self.backlog -= 1
                if pace.sent(1, 100):
                    break
            pace.settle()
            if not self.backlog:
                self.gate.withdraw(self.clock())


class Dispatched(RuleBasedStateMachine):
    """Dispatch limits of broker, topic, subscription and resource group under all events."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = DrivenClock()
        self.broker = a_broker(self.clock)
        self.topic = self.broker.topic(TOPIC, self.clock())
        self.readers = [Reader(self.topic, f"s{number}", self.clock) for number in range(4)]

    def everybody_looks(self) -> None:
        for reader in self.readers:
            reader.go_on()
        resume_ready(self.broker)

    @rule(which=st.integers(0, 3), count=st.integers(1, 200))
    def publish(self, which: int, count: int) -> None:
        self.readers[which].backlog += count
        self.everybody_looks()

    @rule(which=st.integers(0, 3), attached=st.booleans())
    def consumer_comes_or_goes(self, which: int, attached: bool) -> None:
        self.readers[which].attached = attached
        self.everybody_looks()

    @rule(ms=st.integers(0, 3000))
    def time_passes(self, ms: int) -> None:
        run_until(self.broker, self.clock, self.clock.now_ns + ms * MS)

    @rule(ms=st.integers(0, 3000))
    def the_timer_is_late(self, ms: int) -> None:
        self.clock.forward_ms(ms)

    @rule(
        field=st.sampled_from(["dispatchRate", "subscriptionDispatchRate"]),
        messages=st.sampled_from([-1, 1, 10, 1000]),
    )
    def set_topic_limit(self, field: str, messages: int) -> None:
        rate = plain(DispatchRate(messages=messages))
        self.broker.set_topic_policies(TOPIC, {field: rate}, self.clock())
        settle(self.broker, self.clock)

    @rule(messages=st.sampled_from([0, 1, 50]))
    def set_broker_limit(self, messages: int) -> None:
        settings = ThrottlingSettings(broker_dispatch_messages_per_s=messages)
        self.broker.set_settings(settings, self.clock())
        settle(self.broker, self.clock)

    @rule(rate=st.sampled_from([None, 0, 5]), attached=st.booleans())
    def set_group(self, rate: int | None, attached: bool) -> None:
        self.broker.set_resource_group(
            "g",
            None if rate is None else ResourceGroup(dispatch_messages=rate),
            self.clock(),
        )
        self.broker.set_namespace_policies(
            "public/default", {"resource_group_name": "g"} if attached else {}, self.clock()
        )
        settle(self.broker, self.clock)

    @rule(which=st.integers(0, 3))
    def reopen(self, which: int) -> None:
        self.topic.close_gate(f"s{which}", self.clock())
        self.readers[which] = Reader(self.topic, f"s{which}", self.clock)
        resume_ready(self.broker)

    @invariant()
    def only_who_has_something_to_send_waits(self) -> None:
        for reader in self.readers:
            wanting = reader.attached and reader.backlog > 0
            assert wanting or not reader.gate.blocked
            assert not wanting or reader.gate.blocked, "neither sent nor waiting"
        assert (self.broker.next_wakeup_ns() is not None) == any(
            reader.gate.blocked for reader in self.readers
        )

    def teardown(self) -> None:
        run_until(self.broker, self.clock, self.clock.now_ns + 100_000 * SECOND)
        assert not any(reader.attached and reader.backlog for reader in self.readers), (
            "still held after a day"
        )


TestDispatchNothingStuck = pytest.mark.slow(Dispatched.TestCase)
TestDispatchNothingStuck.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
TestNothingStuck = pytest.mark.slow(Throttled.TestCase)
TestNothingStuck.settings = hypothesis_settings(
    max_examples=200, stateful_step_count=40, deadline=None
)
