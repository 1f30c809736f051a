"""Hands entries of open topics to consumers, and writes what was queued on connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loadmanager.adapters.protocol.hosted import HostedTopic
from loadmanager.core.conf import Live
from loadmanager.core.messaging.settings import MessagingSettings
from loadmanager.core.messaging.subscription import Subscription
from loadmanager.core.throttling.broker import BrokerThrottling
from loadmanager.core.throttling.dispatch import DispatchGate, DispatchPace

if TYPE_CHECKING:
    from loadmanager.adapters.protocol.connection import Connection

DELIVERY_ENTRIES_MAX = 1_000
"""Entries handed out per subscription before others, and the sockets, get their turn."""

CAUGHT_UP_ENTRIES = 1_000
"""A subscription with at most this many unread entries is caught up
(Pulsar's managedLedgerCursorBackloggedThreshold)."""


class Dispatcher:
    """Remembers which topics may have something to deliver and which connections have something to write."""

    def __init__(self, settings: Live[MessagingSettings], throttling: BrokerThrottling) -> None:
        self._settings = settings
        self._throttling = throttling
        self._dirty: dict[HostedTopic, None] = {}
        self._written: dict[Connection, None] = {}
        self._delivering = False

    def touch(self, hosted: HostedTopic) -> None:
        """Something may now be deliverable."""
        self._dirty[hosted] = None

    def written(self, connection: Connection) -> None:
        """Frames were queued on a connection that may not be the one being processed."""
        self._written[connection] = None

    def clear(self) -> None:
        """Nothing is deliverable any more: no topic is served."""
        self._dirty.clear()

    def deliver(self) -> None:
        """Deliver what can be delivered; write to every connection that got something, once each."""
        if self._delivering:
            return
        self._delivering = True
        try:
            if self._dirty:
                dirty, self._dirty = self._dirty, {}
                for hosted in dirty:
                    if not hosted.fenced:
                        self._deliver_topic(hosted)
            written, self._written = self._written, {}
            for connection in written:
                connection.flush()
        finally:
            self._delivering = False
        if self._dirty:
            asyncio.get_running_loop().call_soon(self.deliver)

    def _deliver_topic(self, hosted: HostedTopic) -> None:
        settings, core = self._settings.value, hosted.core
        for subscription in list(core.subscriptions.values()):
            gate = self._gate(hosted, subscription)
            if gate is not None and not subscription.ready(settings.unacked_per_consumer_max):
                gate.withdraw()
                continue
            pace = None if gate is None else DispatchPace(gate)
            if pace is not None and pace.exhausted:
                continue
            handed, turn_max = 0, settings.round_robin_entries_max
            if gate is not None:
                turn_max = min(turn_max, gate.turn_max(len(subscription.consumers)))
            deliveries = subscription.dispatch(
                entries_max=DELIVERY_ENTRIES_MAX,
                round_robin_max=turn_max,
                unacked_max=settings.unacked_per_consumer_max,
            )
            for delivery in deliveries:
                handed += 1
                consumer = hosted.attached[delivery.consumer]
                entry = delivery.entry
                head = consumer.messages.head(entry.entry_id, len(entry.tail), delivery.redelivery_count, delivery.ack_set)
                consumer.connection.send_parts(head, entry.tail)
                self._written[consumer.connection] = None
                core.messages_out += entry.messages
                core.bytes_out += len(entry.tail)
                if pace is not None and pace.sent(entry.messages, len(entry.tail)):
                    break
            if pace is not None and gate is not None:
                pace.settle()
                if gate.blocked and not subscription.ready(settings.unacked_per_consumer_max):
                    gate.withdraw()  # what it was held for was its last
            if handed == DELIVERY_ENTRIES_MAX:
                self._dirty[hosted] = None

    def _gate(self, hosted: HostedTopic, subscription: Subscription) -> DispatchGate | None:
        """What limits a subscription now; None without limits, or when it is caught up and such ones are not limited."""
        gate = hosted.limits.gates.get(subscription.name)
        if gate is None:
            gate = hosted.limits.gate(subscription.name, lambda: self._resume(hosted))
        if not gate.limits:
            return None
        caught_up = hosted.core.log.end_id - subscription.read_id <= CAUGHT_UP_ENTRIES
        if caught_up and not self._throttling.settings.dispatch_limits_caught_up:
            return None
        return gate

    def _resume(self, hosted: HostedTopic) -> None:
        """A dispatch limit let go of a subscription."""
        self.touch(hosted)
        self.deliver()
