"""All limits of one broker: who creates them, who changes them, who is held by them.

Nothing here reads a clock, sets a timer or calls a connection. Every call is told the time
(`now_ns`, monotonic nanoseconds), and may change who may go on and when to ask again:

    next_ready()       the next connection or subscription whose last hold ended
    release(now_ns)    the same, after releasing those for whom there are tokens now
    next_wakeup_ns()   when to call `release` next

So a protocol server calls, where `limits` is the broker's `BrokerThrottling`:

    connection made    self.throttle = limits.connection(self)
    topic opens        topic.limits = limits.topic(name, now_ns)
    PRODUCER           producer.sender = topic.limits.sender(name, self.throttle)
    SEND               if topic.limits.publish: producer.sender.charge(topic.limits.publish, …)
                       store it; if self.throttle.paused: stop parsing, keep the unparsed bytes
    SUBSCRIBE          topic.limits.subscribe.try_subscribe(…); False: NotAllowedError
    first consumer     gate = topic.limits.gate(subscription, owner, now_ns)
    dispatch           if gate.limits: messages, size = gate.allowance(now_ns); (0, 0): held; else
                       send at most that (one entry may exceed it), then gate.charge(…)
    producer gone      topic.limits.leave(producer.sender, now_ns)
    disconnect         limits.disconnect(self.throttle, now_ns), after its producers left
    topic closes       topic.limits.close(now_ns)                  # when its bundle is fenced

    after each event   next_ready() until None, calling `go_on` of each; then set the timer
    timer, policies    release(now_ns) until None, likewise
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from loadmanager.kit.names import TopicName
from loadmanager.limits import policies
from loadmanager.limits.dispatch import (
    DispatchGate,
    DispatchLimiter,
    PublishRates,
    SubscribeLimiter,
)
from loadmanager.limits.levels import Level, Tuning
from loadmanager.limits.limit import Limit
from loadmanager.limits.policies import DispatchRate, PublishRate, ResourceGroup
from loadmanager.limits.publish import PublishLimiter, Sender
from loadmanager.limits.schedule import Ready, Resumable, Schedule
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.limits.tracker import ConnectionThrottle, PauseTotals, PublishBuffer, Readable

NO_POLICIES: Mapping[str, Any] = {}


class LimitPair:
    """The publish and the dispatch limit of a broker, a topic or a resource group."""

    def __init__(
        self, level: Level, name: str, *, schedule: Schedule, tuning: Tuning, now_ns: int
    ) -> None:
        self.publish = PublishLimiter(
            level, f"{name} publish", schedule=schedule, tuning=tuning, now_ns=now_ns
        )
        self.dispatch = DispatchLimiter(
            level, f"{name} dispatch", schedule=schedule, tuning=tuning, now_ns=now_ns
        )

    def update(self, publish: PublishRate, dispatch: DispatchRate, now_ns: int) -> None:
        """Change both limits."""
        self.publish.update(publish, now_ns)
        self.dispatch.update(dispatch, now_ns)

    def close(self, now_ns: int) -> None:
        """Both are unlimited from now on, everybody released."""
        self.publish.close(now_ns)
        self.dispatch.close(now_ns)


class BrokerThrottling:
    """The limits of one broker. `publish_buffer_bytes` as for `PublishBuffer`.

    Changes of policies and settings act on open topics within the call.
    """

    def __init__(
        self,
        settings: ThrottlingSettings,
        *,
        cluster: str,
        now_ns: int,
        publish_buffer_bytes: int = 0,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.pauses = PauseTotals()
        self.topics: dict[str, TopicThrottling] = {}
        self.groups: dict[str, LimitPair] = {}
        self.publish_buffer = PublishBuffer(publish_buffer_bytes)
        self.wakeups = 0
        """How often a due limit released its waiters as far as its tokens went, since start."""
        self.schedule = Schedule()
        self.ready = Ready()
        self.tuning = Tuning(
            settings.burst_ms * 1_000_000,
            settings.debt_max_ms * 1_000_000,
            settings.resolution_ms * 1_000_000,
        )
        self._namespaces: dict[str, Mapping[str, Any]] = {}
        self._topic_policies: dict[str, Mapping[str, Any]] = {}
        self.own = self.pair(Level.BROKER, "broker", now_ns)
        self._update_own(now_ns)

    # Who may go on, and when to ask again

    def next_ready(self) -> Resumable | None:
        """The next connection or subscription that nothing holds any more."""
        return self.ready.take()

    def release(self, now_ns: int) -> Resumable | None:
        """The next one that may go on, released from its limits if there are tokens for it."""
        while True:
            resumable = self.ready.take()
            if resumable is not None:
                return resumable
            limit = self.schedule.due(now_ns)
            if limit is None:
                return None
            ticket = limit.release(now_ns)
            if ticket is not None:
                ticket.waiter.released(limit, now_ns)
            else:
                self.wakeups += 1

    def next_wakeup_ns(self) -> int | None:
        """The time at which to call `release` next; None while nobody waits."""
        return self.schedule.next_ns()

    # Connections and topics

    def connection(self, owner: Readable) -> ConnectionThrottle:
        """The throttle of a new connection. When the connection closes, call `disconnect`."""
        return ConnectionThrottle(owner, self.pauses, self.ready)

    def disconnect(self, throttle: ConnectionThrottle, now_ns: int) -> None:
        throttle.close(now_ns)
        self.publish_buffer.leave(throttle, now_ns)

    def topic(self, name: TopicName, now_ns: int) -> TopicThrottling:
        """The limits of a topic that opens here.

        When it closes, or its bundle is fenced, call `TopicThrottling.close`.
        """
        topic = TopicThrottling(self, name, now_ns)
        self.topics[str(name)] = topic
        return topic

    def forget(self, topic: TopicThrottling) -> None:
        """A topic closed (called by it)."""
        if self.topics.get(str(topic.name)) is topic:
            del self.topics[str(topic.name)]

    def pair(self, level: Level, name: str, now_ns: int) -> LimitPair:
        """New limits of this broker, without rates."""
        return LimitPair(level, name, schedule=self.schedule, tuning=self.tuning, now_ns=now_ns)

    def limits(self, topics_max: int | None = None) -> Iterator[Limit]:
        """Every limit that has a rate now; of at most `topics_max` topics, at most as many."""
        limits: list[Limit] = [self.own.publish, self.own.dispatch]
        for group in self.groups.values():
            limits += [group.publish, group.dispatch]
        own = [
            limit
            for topic in islice(self.topics.values(), topics_max)
            for limit in topic.own_limits()
            if limit.active
        ]
        return (limit for limit in (*limits, *own[:topics_max]) if limit.active)

    # Policies and settings

    def namespace_policies(self, namespace: str) -> Mapping[str, Any]:
        """The policies that were last set for a namespace."""
        return self._namespaces.get(namespace, NO_POLICIES)

    def topic_policies(self, name: TopicName) -> Mapping[str, Any]:
        """The policies that were last set for a topic; a partition has those of its partitioned
        topic.
        """
        return self._topic_policies.get(str(name.partitioned_topic), NO_POLICIES)

    def set_namespace_policies(
        self, namespace: str, document: Mapping[str, Any], now_ns: int
    ) -> None:
        """A namespace's policies were read or changed (Pulsar's Policies object)."""
        _store(self._namespaces, namespace, document)
        self._update_topics(lambda topic: str(topic.name.namespace) == namespace, now_ns)

    def set_topic_policies(self, name: TopicName, document: Mapping[str, Any], now_ns: int) -> None:
        """A topic's policies were read or changed (`publishRate`, `dispatchRate`,
        `subscriptionDispatchRate`, `subscribeRate`, `subscriptionPolicies`).
        """
        _store(self._topic_policies, str(name), document)
        self._update_topics(
            lambda topic: name in (topic.name, topic.name.partitioned_topic), now_ns
        )

    def set_resource_group(self, name: str, group: ResourceGroup | None, now_ns: int) -> None:
        """A resource group was read, changed or (None) deleted."""
        limits = self.groups.get(name)
        if group is not None:
            if limits is None:
                limits = self.groups[name] = self.pair(
                    Level.RESOURCE_GROUP, f"resource group {name}", now_ns
                )
            limits.update(group.publish(), group.dispatch(), now_ns)
        elif limits is not None:
            limits.close(now_ns)
            del self.groups[name]
        self._update_topics(lambda topic: topic.group_name == name, now_ns)

    def set_settings(self, settings: ThrottlingSettings, now_ns: int) -> None:
        """broker.conf keys changed on the running broker."""
        exempt = settings.dispatch_limits_caught_up != self.settings.dispatch_limits_caught_up
        self.settings = settings
        self._update_own(now_ns)
        self._update_topics(lambda topic: True, now_ns)
        if exempt:  # the server decides before each dispatch which subscriptions are limited
            for topic in self.topics.values():
                for gate in topic.gates.values():
                    gate.restart(now_ns)

    def _update_own(self, now_ns: int) -> None:
        settings = self.settings
        self.own.update(
            PublishRate(
                messages_per_s=settings.broker_publish_messages_per_s,
                bytes_per_s=settings.broker_publish_bytes_per_s,
            ),
            DispatchRate(
                messages=settings.broker_dispatch_messages_per_s,
                bytes=settings.broker_dispatch_bytes_per_s,
                relative=settings.dispatch_relative_to_publish,
            ),
            now_ns,
        )

    def _update_topics(self, chosen: Callable[[TopicThrottling], bool], now_ns: int) -> None:
        for topic in self.topics.values():
            if chosen(topic):
                topic.update(now_ns)


def _store(documents: dict[str, Mapping[str, Any]], name: str, document: Mapping[str, Any]) -> None:
    """Remember policies; forget a name without any, because names come and go."""
    if document:
        documents[name] = document
    else:
        documents.pop(name, None)


class TopicThrottling:
    """The limits of one open topic.

    `publish` is what `Sender.charge` takes: only limits that have a rate, so a SEND needs no charge
    while it is empty.
    """

    def __init__(self, broker: BrokerThrottling, name: TopicName, now_ns: int) -> None:
        self.name = name
        self.publish: tuple[PublishLimiter, ...] = ()
        self.subscribe = SubscribeLimiter()
        self.group_name: str | None = None
        self.closed = False
        self.senders: dict[Sender, None] = {}
        self.gates: dict[str, DispatchGate] = {}
        self._broker = broker
        self._held_times = 0
        self._published = PublishRates(0, 0)
        self._own = broker.pair(Level.TOPIC, str(name), now_ns)
        self._subscriptions: dict[str, DispatchLimiter] = {}
        self.update(now_ns)

    def sender(self, producer_name: str, throttle: ConnectionThrottle) -> Sender:
        """A producer connected. When it closes, or its connection does, call `leave`."""
        sender = Sender(producer_name, throttle, str(self.name))
        self.senders[sender] = None
        return sender

    def leave(self, sender: Sender, now_ns: int) -> None:
        """A producer is gone: no limit holds it any more."""
        if sender in self.senders:
            del self.senders[sender]
            self._held_times += sender.times_held
        sender.keep((), now_ns)

    def gate(self, subscription: str, owner: Resumable, now_ns: int) -> DispatchGate:
        """A subscription's dispatcher opens. When it closes, call `close_gate`."""
        broker = self._broker
        gate = self.gates[subscription] = DispatchGate(
            owner,
            broker.ready,
            charges_entries=broker.settings.dispatch_charges_entries,
            topic=str(self.name),
            name=subscription,
        )
        limiter = self._subscriptions[subscription] = DispatchLimiter(
            Level.SUBSCRIPTION,
            f"{self.name} {subscription} dispatch",
            schedule=broker.schedule,
            tuning=broker.tuning,
            now_ns=now_ns,
        )
        limiter.follow(self._published, now_ns)
        self._update_gate(subscription, now_ns)
        return gate

    def close_gate(self, subscription: str, now_ns: int) -> None:
        """A subscription's dispatcher is gone."""
        gate = self.gates.pop(subscription, None)
        if gate is not None:
            gate.close(now_ns)
            self._subscriptions.pop(subscription).close(now_ns)

    def close(self, now_ns: int) -> None:
        """The topic is not served here any more: none of its limits holds anybody, and no limit
        holds its producers. Idempotent.
        """
        self.closed = True
        self._broker.forget(self)
        self.publish = ()
        for sender in list(self.senders):
            self.leave(sender, now_ns)
        for subscription in list(self.gates):
            self.close_gate(subscription, now_ns)
        self._own.close(now_ns)

    def set_published(self, published: PublishRates, now_ns: int) -> None:
        """The topic's publish rate was measured; limits relative to it follow."""
        self._published = published
        for limiter in (self._own.dispatch, *self._subscriptions.values()):
            limiter.follow(published, now_ns)

    def update(self, now_ns: int) -> None:
        """Find out which limits apply; a change acts before this returns."""
        broker, own_policies, shared_policies = self._broker, *self._policies()
        group_name = shared_policies.get("resource_group_name")
        self.group_name = group_name if isinstance(group_name, str) else None
        rates = (own_policies, shared_policies, broker.cluster, broker.settings)
        self._own.update(
            policies.publish_rate(*rates), policies.topic_dispatch_rate(*rates), now_ns
        )
        self.subscribe.update(policies.subscribe_rate(*rates))
        self.publish = tuple(
            pair.publish for pair in (self._own, *self._shared()) if pair.publish.active
        )
        for sender in self.senders:
            sender.keep(self.publish, now_ns)
        for subscription in self.gates:
            self._update_gate(subscription, now_ns)

    @property
    def held_times(self) -> int:
        """The number of times that producers of this topic were held (Pulsar's
        publishRateLimitedTimes).
        """
        return self._held_times + sum(sender.times_held for sender in self.senders)

    def all_limits(self) -> list[Limit]:
        """Every limit with a rate that this topic is under, also those of the broker and of the
        resource group.
        """
        shared = (limit for pair in self._shared() for limit in (pair.publish, pair.dispatch))
        return [limit for limit in (*self.own_limits(), *shared) if limit.active]

    def own_limits(self) -> list[Limit]:
        """The topic's and its subscriptions' limits, with or without rates."""
        return [self._own.publish, self._own.dispatch, *self._subscriptions.values()]

    def _policies(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The topic's own policies and its namespace's."""
        broker = self._broker
        return (
            broker.topic_policies(self.name),
            broker.namespace_policies(str(self.name.namespace)),
        )

    def _shared(self) -> list[LimitPair]:
        """The limits of the broker and of the resource group."""
        broker = self._broker
        group = broker.groups.get(self.group_name) if self.group_name is not None else None
        return [broker.own] if group is None else [broker.own, group]

    def _update_gate(self, subscription: str, now_ns: int) -> None:
        broker, limiter = self._broker, self._subscriptions[subscription]
        limiter.update(
            policies.subscription_dispatch_rate(
                *self._policies(), broker.cluster, subscription, broker.settings
            ),
            now_ns,
        )
        shared = (pair.dispatch for pair in self._shared())
        self.gates[subscription].keep([self._own.dispatch, limiter, *shared], now_ns)
