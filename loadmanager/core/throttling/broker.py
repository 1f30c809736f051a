"""All limits of one broker: who makes them, who changes them, who is asked about them.

Policies come in from outside (`set_namespace_policies`, `set_topic_policies`, `set_resource_group`,
and the live settings) and act at once on open topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loadmanager.core.bundles.names import TopicName
from loadmanager.core.conf import Live
from loadmanager.core.throttling import policies
from loadmanager.core.throttling.bucket import Clock
from loadmanager.core.throttling.dispatch import (
    DispatchGate,
    DispatchLimiter,
    PublishRates,
    SubscribeLimiter,
)
from loadmanager.core.throttling.limit import Level, Limit, Tuning
from loadmanager.core.throttling.policies import DispatchRate, PublishRate, ResourceGroup
from loadmanager.core.throttling.publish import PublishLimiter, Sender
from loadmanager.core.throttling.settings import ThrottlingSettings
from loadmanager.core.throttling.tracker import ConnectionThrottle, PauseTotals, PublishBuffer
from loadmanager.core.throttling.wakeups import Wakeups

NOTHING: Mapping[str, Any] = {}


class BrokerThrottling:
    """The limits of one broker.

    `clock` gives monotonic nanoseconds; `publish_buffer_bytes` as for `PublishBuffer`.
    """

    def __init__(
        self,
        settings: Live[ThrottlingSettings],
        *,
        cluster: str,
        clock: Clock,
        publish_buffer_bytes: int = 0,
    ) -> None:
        self.live_settings = settings
        self._in_force = settings.value
        self.cluster = cluster
        self.clock = clock
        self.wakeups = Wakeups(clock)
        self.pauses = PauseTotals()
        self.topics: dict[str, TopicThrottling] = {}
        tuned = settings.value
        self.tuning = Tuning(
            tuned.burst_ms * 1_000_000,
            tuned.debt_max_ms * 1_000_000,
            tuned.resolution_ms * 1_000_000,
        )
        self.publish = PublishLimiter(
            Level.BROKER, "broker publish", wakeups=self.wakeups, tuning=self.tuning
        )
        self.dispatch = DispatchLimiter(
            Level.BROKER, "broker dispatch", wakeups=self.wakeups, tuning=self.tuning
        )
        self.groups: dict[str, GroupLimits] = {}
        self.publish_buffer = PublishBuffer(publish_buffer_bytes)
        self._namespaces: dict[str, Mapping[str, Any]] = {}
        self._topic_policies: dict[str, Mapping[str, Any]] = {}
        self._update_broker()
        settings.listen(self._on_settings)

    @property
    def settings(self) -> ThrottlingSettings:
        """The settings in force."""
        return self.live_settings.value

    def connection(
        self, pause: Callable[[], None], resume: Callable[[], None]
    ) -> ConnectionThrottle:
        """The throttle of a new connection. When the connection closes, call `disconnect`."""
        return ConnectionThrottle(pause, resume, clock=self.clock, totals=self.pauses)

    def disconnect(self, throttle: ConnectionThrottle) -> None:
        """A connection is gone; close its senders before or after."""
        throttle.close()
        self.publish_buffer.leave(throttle)

    def topic(
        self, name: TopicName, *, published: Callable[[], PublishRates] = lambda: PublishRates(0, 0)
    ) -> TopicThrottling:
        """The limits of a topic that opens here.

        When it closes, or its bundle is fenced, call `TopicThrottling.close`.
        """
        topic = TopicThrottling(self, name, published)
        self.topics[str(name)] = topic
        return topic

    def namespace_policies(self, namespace: str) -> Mapping[str, Any]:
        """What was last set for a namespace."""
        return self._namespaces.get(namespace, NOTHING)

    def topic_policies(self, name: TopicName) -> Mapping[str, Any]:
        """What was last set for a topic; a partition has those of its partitioned topic."""
        return self._topic_policies.get(str(name.partitioned_topic), NOTHING)

    def set_namespace_policies(self, namespace: str, found: Mapping[str, Any]) -> None:
        """A namespace's policies were read or changed (Pulsar's Policies object)."""
        _keep(self._namespaces, namespace, found)
        self._update_topics(lambda topic: str(topic.name.namespace) == namespace)

    def set_topic_policies(self, name: TopicName, found: Mapping[str, Any]) -> None:
        """A topic's policies were read or changed (`publishRate`, `dispatchRate`,
        `subscriptionDispatchRate`, `subscribeRate`, `subscriptionPolicies`).
        """
        _keep(self._topic_policies, str(name), found)
        self._update_topics(lambda topic: name in (topic.name, topic.name.partitioned_topic))

    def set_resource_group(self, name: str, group: ResourceGroup | None) -> None:
        """A resource group was read, changed or (None) deleted."""
        limits = self.groups.get(name)
        if limits is None:
            if group is None:
                return
            limits = self.groups[name] = GroupLimits(self, name)
        limits.update(group or ResourceGroup())
        if group is None:
            del self.groups[name]
        self._update_topics(lambda topic: topic.group_name == name)

    def _on_settings(self, settings: ThrottlingSettings) -> None:
        """broker.conf keys changed on the running broker."""
        exempt = settings.dispatch_limits_caught_up != self._in_force.dispatch_limits_caught_up
        self._in_force = settings
        self._update_broker()
        self._update_topics(lambda topic: True)
        # the server asks before each dispatch who is exempt: whoever waits must ask again
        if exempt:
            for topic in list(self.topics.values()):
                for gate in list(topic.gates.values()):
                    gate.restart()

    def limits(self) -> Iterator[Limit]:
        """Every limit that has a rate now."""
        candidates: list[Limit] = [self.publish, self.dispatch]
        for group in self.groups.values():
            candidates += [group.publish, group.dispatch]
        for topic in self.topics.values():
            candidates += topic.own_limits()
        return (limit for limit in candidates if limit.active)

    def forget(self, topic: TopicThrottling) -> None:
        """A topic closed (called by it)."""
        if self.topics.get(str(topic.name)) is topic:
            del self.topics[str(topic.name)]

    def _update_broker(self) -> None:
        settings = self.settings
        self.publish.update(
            PublishRate(
                messages_per_s=settings.broker_publish_messages_per_s,
                bytes_per_s=settings.broker_publish_bytes_per_s,
            )
        )
        self.dispatch.update(
            DispatchRate(
                messages=settings.broker_dispatch_messages_per_s,
                bytes=settings.broker_dispatch_bytes_per_s,
                relative=settings.dispatch_relative_to_publish,
            )
        )

    def _update_topics(self, chosen: Callable[[TopicThrottling], bool]) -> None:
        for topic in list(self.topics.values()):
            if chosen(topic):
                topic.update()


def _keep(known: dict[str, Mapping[str, Any]], name: str, found: Mapping[str, Any]) -> None:
    """Remember policies; forget a name that has none, because names come and go."""
    if found:
        known[name] = found
    else:
        known.pop(name, None)


class GroupLimits:
    """The limits of one resource group, shared by its topics on this broker."""

    def __init__(self, broker: BrokerThrottling, name: str) -> None:
        self.publish = PublishLimiter(
            Level.RESOURCE_GROUP,
            f"resource group {name} publish",
            wakeups=broker.wakeups,
            tuning=broker.tuning,
        )
        self.dispatch = DispatchLimiter(
            Level.RESOURCE_GROUP,
            f"resource group {name} dispatch",
            wakeups=broker.wakeups,
            tuning=broker.tuning,
        )

    def update(self, group: ResourceGroup) -> None:
        """Change the limits at once."""
        self.publish.update(group.publish())
        self.dispatch.update(group.dispatch())


class TopicThrottling:
    """The limits of one open topic.

    `publish` is what `Sender.charge` takes: only limits that have a rate, so an empty tuple means
    that nothing need be done for a SEND.
    """

    def __init__(
        self, broker: BrokerThrottling, name: TopicName, published: Callable[[], PublishRates]
    ) -> None:
        self.name = name
        self.publish: tuple[PublishLimiter, ...] = ()
        self.subscribe = SubscribeLimiter(broker.clock)
        self.group_name: str | None = None
        self.closed = False
        self._held_times = 0
        self.senders: dict[Sender, None] = {}
        self.gates: dict[str, DispatchGate] = {}
        self._broker = broker
        self._published = published
        self._publish = PublishLimiter(
            Level.TOPIC, f"{name} publish", wakeups=broker.wakeups, tuning=broker.tuning
        )
        self._dispatch = self._dispatch_limiter(Level.TOPIC, f"{name} dispatch")
        self._subscriptions: dict[str, DispatchLimiter] = {}
        self.update()

    def sender(self, producer_name: str, throttle: ConnectionThrottle) -> Sender:
        """A producer connected. When it closes, or its connection does, call `leave`."""
        sender = Sender(producer_name, throttle)
        self.senders[sender] = None
        return sender

    def leave(self, sender: Sender) -> None:
        """A producer is gone; may resume its connection before this returns."""
        if sender in self.senders:
            del self.senders[sender]
            self._held_times += sender.times_held
        sender.close()

    def gate(self, subscription: str, resume: Callable[[], None]) -> DispatchGate:
        """A subscription's dispatcher opens. When it closes, call `close_gate`."""
        gate = DispatchGate(resume, charge_entries=self._broker.settings.dispatch_charges_entries)
        self.gates[subscription] = gate
        self._subscriptions[subscription] = self._dispatch_limiter(
            Level.SUBSCRIPTION, f"{self.name} {subscription} dispatch"
        )
        self._update_gate(subscription)
        return gate

    def close_gate(self, subscription: str) -> None:
        """A subscription's dispatcher is gone: its limit is closed."""
        gate = self.gates.pop(subscription, None)
        if gate is not None:
            gate.close()
            self._subscriptions.pop(subscription).close()

    def close(self) -> None:
        """The topic is not served here any more: nobody waits for its limits, and its senders wait
        for nothing. Idempotent.
        """
        self.closed = True
        self._broker.forget(self)
        self.publish = ()
        for sender in list(self.senders):
            self.leave(sender)
        for subscription in list(self.gates):
            self.close_gate(subscription)
        self._publish.close()
        self._dispatch.close()

    def update(self) -> None:
        """Resolve all limits anew; what changed acts before this returns."""
        broker, policy = self._broker, self._broker.topic_policies(self.name)
        shared = broker.namespace_policies(str(self.name.namespace))
        group_name = shared.get("resource_group_name")
        self.group_name = group_name if isinstance(group_name, str) else None
        group = broker.groups.get(self.group_name) if self.group_name is not None else None
        self._publish.update(policies.publish_rate(policy, shared, broker.cluster, broker.settings))
        self._dispatch.update(
            policies.topic_dispatch_rate(policy, shared, broker.cluster, broker.settings)
        )
        self.subscribe.update(
            policies.subscribe_rate(policy, shared, broker.cluster, broker.settings)
        )
        candidates = [self._publish, broker.publish, *([group.publish] if group else [])]
        self.publish = tuple(limit for limit in candidates if limit.active)
        for sender in list(self.senders):
            sender.keep(self.publish)
        for subscription in list(self.gates):
            self._update_gate(subscription)

    @property
    def held_times(self) -> int:
        """How often producers of this topic were held (Pulsar's publishRateLimitedTimes)."""
        return self._held_times + sum(sender.times_held for sender in self.senders)

    def all_limits(self) -> list[Limit]:
        """Every limit with a rate that this topic is under, those of the broker and the group
        included.
        """
        shared: list[Limit] = [self._broker.publish, self._broker.dispatch]
        group = self._broker.groups.get(self.group_name) if self.group_name is not None else None
        if group is not None:
            shared += [group.publish, group.dispatch]
        return [limit for limit in (*self.own_limits(), *shared) if limit.active]

    def own_limits(self) -> list[Limit]:
        """The topic's and its subscriptions' limits, with or without rates."""
        return [self._publish, self._dispatch, *self._subscriptions.values()]

    def _update_gate(self, subscription: str) -> None:
        broker, own = self._broker, self._subscriptions[subscription]
        policy, shared = (
            broker.topic_policies(self.name),
            broker.namespace_policies(str(self.name.namespace)),
        )
        own.update(
            policies.subscription_dispatch_rate(
                policy, shared, broker.cluster, subscription, broker.settings
            )
        )
        group = broker.groups.get(self.group_name) if self.group_name is not None else None
        self.gates[subscription].keep(
            [broker.dispatch, self._dispatch, own, *([group.dispatch] if group else [])]
        )

    def _dispatch_limiter(self, level: Level, name: str) -> DispatchLimiter:
        return DispatchLimiter(
            level,
            name,
            wakeups=self._broker.wakeups,
            tuning=self._broker.tuning,
            published=self._published,
        )
