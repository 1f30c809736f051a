"""Hands entries of open topics to consumers, and writes what was queued on connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.messaging.subscription import Delivery, Subscription, SubscriptionType
from loadmanager.broker.protocol.hosted import Client, HostedTopic
from loadmanager.broker.protocol.resumer import Resumer
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import encode
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.dispatch import DispatchGate, DispatchPace

DELIVERY_ENTRIES_MAX = 1_000
DELIVERY_BYTES_MAX = 1024 * 1024
"""Entries and bytes sent for one subscription before other subscriptions and the sockets have their
turn.
"""

ACTIVE_CHANGE_PROTOCOL_VERSION = 12
"""Older clients do not understand ACTIVE_CONSUMER_CHANGE."""
ALARM_MS_MAX = 60_000
"""A subscription is looked at again after this time at the latest: the wall clock may be set."""
CAUGHT_UP_ENTRIES = 1_000
"""A subscription with at most this many unread entries is caught up
(Pulsar's managedLedgerCursorBackloggedThreshold)."""


class Dispatcher:
    """Remembers which topics may have something to deliver and which connections have something to
    write.

    When a topic or a connection fails, its connections are closed and `failed` is told. Nothing is
    delivered unless `may_serve`: a limit may release a subscription after the lease ran out. What
    waits then is delivered with the first `deliver` that may.
    """

    def __init__(
        self,
        settings: Live[MessagingSettings],
        throttling: BrokerThrottling,
        resumer: Resumer,
        *,
        clock: Clock,
        failed: Callable[[str, Exception], None],
        may_serve: Callable[[], bool],
    ) -> None:
        self._may_serve = may_serve
        self._settings = settings
        self._throttling = throttling
        self._resumer = resumer
        self._clock = clock
        self._failed = failed
        self._dirty: dict[HostedTopic, dict[Subscription, None] | None] = {}
        """Topics that may have something to deliver, to these subscriptions; None: to any."""
        self._alarms: dict[Subscription, int] = {}
        """When a subscription is looked at again, in ms since the epoch."""
        self.changed: dict[HostedTopic, None] = {}
        """Topics in which something may have changed; whoever counts them takes them away."""
        self._written: dict[Client, None] = {}
        self._delivering = False

    def touch(self, hosted: HostedTopic, subscription: Subscription | None = None) -> None:
        """A topic may have something to deliver; if it is given, to this subscription only."""
        if subscription is None:
            self._dirty[hosted] = None
        elif (touched := self._dirty.setdefault(hosted, {})) is not None:
            touched[subscription] = None

    def written(self, connection: Client) -> None:
        """Frames were queued on a connection, perhaps not the one that is being processed."""
        self._written[connection] = None

    def announce_active(
        self,
        hosted: HostedTopic,
        subscription: Subscription,
        before: Consumer | None,
        new: Consumer | None = None,
    ) -> None:
        """Tell the consumers of a failover subscription that became active or inactive, and a new
        one what it is.
        """
        if subscription.kind is not SubscriptionType.FAILOVER:
            return
        active = subscription.active
        concerned = (new,) if active is before else (before, active, new)
        for core in dict.fromkeys(concerned):
            consumer = None if core is None else hosted.attached.get(core)
            if consumer is None:
                continue
            connection = consumer.connection
            if connection.protocol_version >= ACTIVE_CHANGE_PROTOCOL_VERSION:
                change = pb.CommandActiveConsumerChange(
                    consumer_id=consumer.consumer_id, is_active=core is active
                )
                connection.send(encode(active_consumer_change=change))
                self.written(connection)

    def clear(self) -> None:
        """No topic is served any more."""
        self._dirty.clear()
        self.changed.clear()

    def deliver(self) -> None:
        """The end of every event: deliver what can be delivered, write to every connection that got
        something, once each, and resume those whose last hold ended.
        """
        if self._delivering:
            return
        self._delivering = served = True
        try:
            if self._dirty and (served := self._may_serve()):
                dirty, self._dirty = self._dirty, {}
                self.changed |= dict.fromkeys(dirty)
                for hosted, touched in dirty.items():
                    if not hosted.fenced:
                        self._try_topic(hosted, touched)
            written, self._written = self._written, {}
            for connection in written:
                self._try_flush(connection)
        finally:
            self._delivering = False
        if self._dirty and served:
            asyncio.get_running_loop().call_soon(self.deliver)
        self._resumer.settle()

    def _try_topic(self, hosted: HostedTopic, touched: dict[Subscription, None] | None) -> None:
        try:
            present = hosted.core.subscriptions
            for subscription in list(present.values() if touched is None else touched):
                if present.get(subscription.name) is subscription:
                    self._deliver_subscription(hosted, subscription)
        except Exception as error:  # noqa: BLE001 - contained: other topics are delivered
            self._failed(f"the delivery of {hosted.name} failed; its consumers are closed", error)
            for consumer in list(hosted.attached.values()):
                consumer.connection.abort()

    def _try_flush(self, connection: Client) -> None:
        try:
            connection.flush()
        except Exception as error:  # noqa: BLE001 - contained: it costs this connection only
            self._failed(f"writing to {connection.peer} failed; its connection is closed", error)
            connection.abort()

    def _deliver_subscription(self, hosted: HostedTopic, subscription: Subscription) -> None:
        now_ns, now_ms = self._clock.monotonic_ns(), self._clock.now_ms()
        unacked_max = self._settings.value.unacked_per_consumer_max
        gate = self._gate(hosted, subscription, now_ns)
        if gate is not None and not subscription.ready(unacked_max, now_ms):
            gate.withdraw(now_ns)
            return
        pace = None if gate is None else DispatchPace(gate, now_ns)
        if pace is not None and pace.exhausted:
            return
        turn_max = self._settings.value.round_robin_entries_max
        if gate is not None:
            turn_max = min(turn_max, gate.turn_max(len(subscription.consumers)))
        deliveries = subscription.dispatch(
            entries_max=DELIVERY_ENTRIES_MAX,
            round_robin_max=turn_max,
            unacked_max=unacked_max,
            now_ms=now_ms,
        )
        if self._hand_out(hosted, deliveries, pace, now_ms) or subscription.unfinished:
            self.touch(hosted, subscription)
        self._set_alarm(hosted, subscription, now_ms)
        if pace is not None and gate is not None:
            pace.settle()
            if gate.blocked and not subscription.ready(unacked_max, now_ms):
                gate.withdraw(now_ns)  # its last entry was sent

    def _set_alarm(self, hosted: HostedTopic, subscription: Subscription, now_ms: int) -> None:
        """Look at a subscription again when an entry is due that waits for its time."""
        wake_ms = subscription.wake_ms
        if wake_ms is None or wake_ms <= now_ms:
            return
        wake_ms = min(wake_ms, now_ms + ALARM_MS_MAX)
        if self._alarms.get(subscription, wake_ms + 1) > wake_ms:
            self._alarms[subscription] = wake_ms
            asyncio.get_running_loop().call_later(
                (wake_ms - now_ms) / 1000, self._wake, hosted, subscription, wake_ms
            )

    def _wake(self, hosted: HostedTopic, subscription: Subscription, wake_ms: int) -> None:
        if self._alarms.get(subscription) != wake_ms:
            return  # an earlier alarm took its place
        del self._alarms[subscription]
        if not hosted.fenced:
            self.touch(hosted, subscription)
            self.deliver()

    def _hand_out(
        self,
        hosted: HostedTopic,
        deliveries: Iterator[Delivery],
        pace: DispatchPace | None,
        now_ms: int,
    ) -> bool:
        """Queue deliveries until a limit is reached; True when there may be more to deliver at
        once.
        """
        core, handed, handed_bytes = hosted.core, 0, 0
        for delivery in deliveries:
            consumer, entry = hosted.attached[delivery.consumer], delivery.entry
            size = len(entry.tail)
            head = consumer.messages.head(
                entry.entry_id, size, delivery.redelivery_count, delivery.ack_set
            )
            self._written[consumer.connection] = None
            consumer.delivered_ms = now_ms
            consumer.served_ms = consumer.served_ms or now_ms
            consumer.connection.send_message(head, entry.tail)
            core.messages_out += entry.messages
            core.bytes_out += size
            handed += 1
            handed_bytes += size
            if pace is not None and pace.sent(entry.messages, size):
                return False
            if handed_bytes >= DELIVERY_BYTES_MAX:
                return True
        return handed >= DELIVERY_ENTRIES_MAX

    def _gate(
        self, hosted: HostedTopic, subscription: Subscription, now_ns: int
    ) -> DispatchGate | None:
        """The gate of a subscription; None without limits, or when it is caught up and the limits
        exempt subscriptions that are.
        """
        gate = hosted.limits.gates.get(subscription.name)
        if gate is None:
            released = _Released(self, hosted, subscription)
            gate = hosted.limits.gate(subscription.name, released, now_ns)
        if not gate.limits:
            return None
        caught_up = hosted.core.log.end_id - subscription.read_id <= CAUGHT_UP_ENTRIES
        if caught_up and not self._throttling.settings.dispatch_limits_caught_up:
            return None
        return gate


@dataclass(frozen=True, slots=True)
class _Released:
    """A subscription, for the moment when dispatch limits release it."""

    dispatcher: Dispatcher
    hosted: HostedTopic
    subscription: Subscription

    def go_on(self) -> None:
        """Deliver what the subscription has."""
        self.dispatcher.touch(self.hosted, self.subscription)
        self.dispatcher.deliver()
