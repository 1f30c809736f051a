"""The toy broker: serves the topics of the bundles that it is told to open, over Pulsar's binary protocol. Implements `ports.hosting.Hosting`."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import structlog

from loadmanager.adapters.protocol.connection import Connection, Handler
from loadmanager.adapters.protocol.consumers import (
    announce_active,
    close_consumer,
    on_ack,
    on_close_consumer,
    on_consumer_stats,
    on_flow,
    on_get_last_message_id,
    on_redeliver,
    on_seek,
    on_subscribe,
    on_unsubscribe,
)
from loadmanager.adapters.protocol.hosted import AttachedConsumer, AttachedProducer, HostedTopic, stats_of
from loadmanager.adapters.protocol.lookups import (
    on_connect,
    on_get_or_create_schema,
    on_get_schema,
    on_get_topics,
    on_lookup,
    on_partition_metadata,
    on_ping,
    on_pong,
)
from loadmanager.adapters.protocol.producers import close_producer, on_close_producer, on_producer, on_send
from loadmanager.adapters.protocol.wake_timer import WakeTimer
from loadmanager.core.bundles.names import TopicName
from loadmanager.core.bundles.ranges import BundleRange, split_bundle_name, topic_hash
from loadmanager.core.conf import Live
from loadmanager.core.errors import ConflictError, OperationalError
from loadmanager.core.load.reports import NamespaceBundleStats
from loadmanager.core.messaging.settings import MessagingSettings
from loadmanager.core.messaging.subscription import Subscription, SubscriptionType
from loadmanager.core.messaging.topic import QuotaExceededError, Topic
from loadmanager.core.throttling.broker import BrokerThrottling
from loadmanager.core.throttling.dispatch import DispatchGate, DispatchPace
from loadmanager.core.throttling.settings import ThrottlingSettings
from loadmanager.core.wire import pulsar_pb2 as pb
from loadmanager.core.wire.frames import encode
from loadmanager.ports.control import TopicControl
from loadmanager.ports.hosting import BrokerAddress, HostUsage, TopicTraffic

MIB = 1024 * 1024
DELIVERY_BATCH = 1_000
"""Entries handed out per subscription before others, and the sockets, get their turn."""

CAUGHT_UP_ENTRIES = 1_000
"""A subscription with no more than this unread is caught up (Pulsar's managedLedgerCursorBackloggedThreshold)."""

HANDLERS: dict[int, Handler] = {
    2: on_connect,
    4: on_subscribe,
    5: on_producer,
    6: on_send,
    10: on_ack,
    11: on_flow,
    12: on_unsubscribe,
    15: on_close_producer,
    16: on_close_consumer,
    18: on_ping,
    19: on_pong,
    20: on_redeliver,
    21: on_partition_metadata,
    23: on_lookup,
    25: on_consumer_stats,
    28: on_seek,
    29: on_get_last_message_id,
    32: on_get_topics,
    34: on_get_schema,
    39: on_get_or_create_schema,
}
"""Command type → what serves it."""

log = structlog.get_logger("protocol")


@dataclass(slots=True)
class _OpenBundle:
    """One life of a bundle that is served here; see `ports.hosting`."""

    life: int
    fenced: bool = False
    topics: dict[str, HostedTopic] = field(default_factory=dict)


class BrokerServer:
    """Listens, hosts topics, and moves messages between connections."""

    control: TopicControl
    """Set by `start`: until then nothing asks."""

    def __init__(
        self,
        settings: MessagingSettings,
        *,
        spawn: Callable[[Coroutine[Any, Any, Any], str], object],
        throttling: BrokerThrottling | None = None,
    ) -> None:
        self.settings = settings
        self.throttling = throttling or BrokerThrottling(Live(ThrottlingSettings()), cluster="standalone", clock=time.monotonic_ns)
        self.spawn = spawn
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections: set[Connection] = set()
        self._bundles: dict[str, _OpenBundle] = {}
        self._topics: dict[str, HostedTopic] = {}
        self._opening: dict[str, asyncio.Future[None]] = {}
        self._dirty: dict[HostedTopic, None] = {}
        self._written: dict[Connection, None] = {}
        self._delivering = False
        self._names = count()
        self._server: asyncio.Server | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._measured_s = time.monotonic()
        self._wake_timer = WakeTimer(self.throttling.wakeups)

    # Life

    async def start(self, control: TopicControl, sock: socket.socket) -> None:
        """Listen on a bound socket."""
        self.control = control
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self, HANDLERS), sock=sock, backlog=1024)
        self._repeat(self.settings.stats_interval_s, self.measure)
        self._repeat(self.settings.keep_alive_s / 2, self._keep_alive)

    def _repeat(self, interval_s: float, step: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        slot = len(self._timers)

        def run() -> None:
            step()
            self._timers[slot] = loop.call_later(interval_s, run)

        self._timers.append(loop.call_later(interval_s, run))

    async def stop(self) -> None:
        """Stop listening and hang up on everybody."""
        for timer in self._timers:
            timer.cancel()
        self._wake_timer.stop()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close("the broker stops")

    def may_serve(self, now_s: float) -> bool:
        """Whether the session is proven. If it is not, everything is fenced before this returns."""
        if self.control.lease.held(now_s):
            return True
        self.fence_all()
        return False

    # Connections

    def opened(self, connection: Connection) -> None:
        """A connection was made; one too many is told so and closed."""
        self.connections.add(connection)
        limit = self.settings.connections_max
        if limit and len(self.connections) > limit:
            connection.error((1 << 64) - 1, pb.NotAllowedError, f"this broker has its maximum of {limit} connections")
            connection.close("too many connections")

    def closed(self, connection: Connection) -> None:
        """A connection is gone, and with it what was attached through it."""
        self.connections.discard(connection)
        for producer in list(connection.producers.values()):
            self.detach_producer(producer, for_good=False)
        for consumer in list(connection.consumers.values()):
            self.detach_consumer(consumer)
        connection.producers.clear()
        connection.consumers.clear()
        self.deliver()

    def next_producer_name(self) -> str:
        """A name that no producer of the cluster has."""
        return f"{self.control.self_address.broker_id.replace(':', '-')}-{int(time.monotonic() * 1000):x}-{next(self._names)}"

    def detach_producer(self, producer: AttachedProducer, *, for_good: bool) -> None:
        """A producer is gone."""
        producer.hosted.producers.discard(producer)
        producer.hosted.limits.leave(producer.sender)
        producer.hosted.core.detach_publisher(producer.core, for_good=for_good)

    def detach_consumer(self, consumer: AttachedConsumer) -> None:
        """A consumer is gone; what it had not acknowledged goes to others, or waits for it."""
        hosted, subscription = consumer.hosted, consumer.subscription
        if hosted.attached.pop(consumer.core, None) is None:
            return
        active = subscription.active
        subscription.detach(consumer.core)
        if not subscription.durable and not subscription.consumers:
            hosted.core.unsubscribe(subscription.name)
            hosted.limits.close_gate(subscription.name)
        announce_active(hosted, subscription, active)
        self.touch(hosted)

    def _keep_alive(self) -> None:
        """Probe what is silent; close what stays silent. A connection that we do not read may be silent."""
        now_s = time.monotonic()
        for connection in list(self.connections):
            silent_s = now_s - connection.last_heard_s
            if connection.held and silent_s >= self.settings.keep_alive_s / 2:
                # Its PING may be among what we do not read; unanswered, it would hang up. If it has hung up, writing shows it.
                connection.send(encode(19, pong=pb.CommandPong()))
                connection.flush()
            if connection.held or silent_s < self.settings.keep_alive_s:
                continue
            if connection.pinged and silent_s > 2 * self.settings.keep_alive_s:
                connection.close("no answer to PING")
            elif not connection.pinged:
                connection.pinged = True
                connection.send(encode(18, ping=pb.CommandPing()))
                connection.flush()

    # Topics

    def served(self, topic: str) -> HostedTopic | None:
        """The open topic of that full name, if it is served now."""
        hosted = self._topics.get(topic)
        return hosted if hosted is not None and not hosted.fenced else None

    async def host(self, topic: TopicName) -> HostedTopic:
        """The topic, opened if need be. Raises `OperationalError` when its bundle is not served here: the client must look it up again."""
        name = str(topic)
        hosted = self.served(name)
        if hosted is not None:
            return hosted
        opening = self._opening.get(name)
        if opening is not None:
            await asyncio.shield(opening)
        else:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._opening[name] = future
            try:
                await self._open(topic)
            finally:
                del self._opening[name]
                future.set_result(None)
        hosted = self.served(name)
        if hosted is None:
            raise OperationalError(f"Namespace bundle for topic ({topic}) not served by this instance. Please redo the lookup.")
        return hosted

    async def _open(self, topic: TopicName) -> None:
        bundle = await self.control.owned_bundle(topic)
        if bundle is None or not self._is_open(bundle):
            return
        subscriptions = await self.control.open_topic(topic)
        ledger_id = await self.control.next_ledger_id()
        # Meanwhile the bundle may have been unloaded, or have been split.
        bundle = self._bundle_of(topic)
        if bundle is None:
            return
        core = Topic(str(topic), ledger_id, self.settings, partition=topic.partition)
        for subscription in subscriptions:
            core.subscribe(subscription, SubscriptionType.EXCLUSIVE, 0, durable=True)
        hosted = HostedTopic(topic, bundle, core, self.throttling)
        self._bundles[bundle].topics[core.name] = self._topics[core.name] = hosted

    def _is_open(self, bundle: str) -> bool:
        opened = self._bundles.get(bundle)
        return opened is not None and not opened.fenced

    def _bundle_of(self, topic: TopicName) -> str | None:
        """The open bundle that a topic falls into."""
        prefix, value = f"{topic.namespace}/", topic_hash(str(topic))
        for bundle in self._bundles:
            if bundle.startswith(prefix) and self._is_open(bundle) and value in BundleRange.parse(split_bundle_name(bundle)[1]):
                return bundle
        return None

    def check_memory(self) -> None:
        """Raise `QuotaExceededError` when all topics together hold as much as they may."""
        limit = self.settings.topics_memory_mb * MIB
        if self._topic_bytes() >= limit:
            raise QuotaExceededError(f"the topics of this broker hold {limit} bytes, all that topicsMemoryLimitMB allows")

    def _topic_bytes(self) -> int:
        return sum(hosted.core.log.bytes for hosted in self._topics.values())

    # Delivery

    def touch(self, hosted: HostedTopic) -> None:
        """Something may now be deliverable."""
        self._dirty[hosted] = None

    def written(self, connection: Connection) -> None:
        """Frames were queued on a connection that may not be the one being processed."""
        self._written[connection] = None

    def deliver(self) -> None:
        """Hand out what can be handed out, and write to every connection that got something, once each."""
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
        settings, core = self.settings, hosted.core
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
                entries_max=DELIVERY_BATCH, round_robin_max=turn_max, unacked_max=settings.unacked_per_consumer_max
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
            if handed == DELIVERY_BATCH:
                self._dirty[hosted] = None

    def _gate(self, hosted: HostedTopic, subscription: Subscription) -> DispatchGate | None:
        """What limits a subscription now; None without limits, or when it is caught up and such ones are not limited."""
        gate = hosted.limits.gates.get(subscription.name)
        if gate is None:
            gate = hosted.limits.gate(subscription.name, lambda: self._resume(hosted))
        if not gate.limits:
            return None
        if not self.throttling.settings.dispatch_limits_caught_up and hosted.core.log.end_id - subscription.read_id <= CAUGHT_UP_ENTRIES:
            return None
        return gate

    def _resume(self, hosted: HostedTopic) -> None:
        """A dispatch limit let go of a subscription."""
        self.touch(hosted)
        self.deliver()

    # ports.hosting.Hosting

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Serve a bundle from now on. What is left of an older life is closed first: its clients come back by themselves."""
        older = self._bundles.get(bundle)
        if older is not None and older.life == life:
            return
        if older is not None:
            await self.close_bundle(bundle, older.life, destination=None, timeout_s=0)
        self._bundles.setdefault(bundle, _OpenBundle(life))

    def fence_bundle(self, bundle: str, life: int) -> None:
        """Serve nothing of a bundle from now on."""
        opened = self._bundles.get(bundle)
        if opened is None or opened.life != life:
            return
        opened.fenced = True
        for hosted in opened.topics.values():
            hosted.fence()

    async def close_bundle(self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float) -> int:
        """Tell the clients of a bundle and forget its topics."""
        opened = self._bundles.get(bundle)
        if opened is None or opened.life != life:
            return 0
        self.fence_bundle(bundle, life)
        topics = self._bundles.pop(bundle).topics
        deadline_s = time.monotonic() + timeout_s
        for index, hosted in enumerate(topics.values()):
            self._close_topic(hosted, destination)
            if index % 100 == 99:
                self.deliver()
                await asyncio.sleep(0)
                if time.monotonic() > deadline_s:
                    log.warning("closing topics takes too long; the rest is closed without telling clients", bundle=bundle)
                    break
        for name, hosted in topics.items():
            if self._topics.get(name) is hosted:
                del self._topics[name]
        self.deliver()
        return len(topics)

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """Tell the clients of one topic and forget it."""
        hosted = self.served(topic)
        if hosted is None:
            return False
        if not (hosted.idle or force):
            raise ConflictError(f"Topic {topic} has active producers or consumers; close them first, or use force=true")
        del self._topics[topic]
        self._bundles[hosted.bundle].topics.pop(topic, None)
        hosted.fence()
        self._close_topic(hosted, None)
        self.deliver()
        return True

    def _close_topic(self, hosted: HostedTopic, destination: BrokerAddress | None) -> None:
        for producer in list(hosted.producers):
            close_producer(producer, destination)
            self.written(producer.connection)
        for consumer in list(hosted.attached.values()):
            close_consumer(consumer, destination)

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """A bundle goes on as its children."""
        opened = self._bundles.get(parent)
        if opened is None or opened.life != life:
            return
        del self._bundles[parent]
        ranges = {child: BundleRange.parse(split_bundle_name(child)[1]) for child in children}
        for child in children:
            self._bundles[child] = _OpenBundle(children_life)
        for name, hosted in opened.topics.items():
            value = topic_hash(name)
            hosted.bundle = next(child for child, span in ranges.items() if value in span)
            self._bundles[hosted.bundle].topics[name] = hosted

    def fence_all(self) -> None:
        """Stop serving everything, at once: connections are dropped, topics forgotten."""
        topics = list(self._topics.values())
        for hosted in topics:
            hosted.fenced = True
        self._bundles.clear()
        self._topics.clear()
        self._dirty.clear()
        for connection in list(self.connections):
            connection.abort()
        for hosted in topics:
            hosted.fence()

    def measure(self) -> None:
        """End a stats period."""
        now_s = time.monotonic()
        elapsed_s = max(now_s - self._measured_s, 1e-3)
        self._measured_s = now_s
        for hosted in self._topics.values():
            hosted.measure(elapsed_s)
            hosted.core.trim()

    def bundle_stats(self) -> dict[str, NamespaceBundleStats]:
        """Traffic of each open bundle over the last stats period."""
        return {bundle: stats_of(opened.topics) for bundle, opened in self._bundles.items() if not opened.fenced}

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """Open topics of a bundle."""
        opened = self._bundles.get(bundle)
        return {} if opened is None else {name: hosted.traffic for name, hosted in opened.topics.items()}

    def usage(self) -> HostUsage:
        """Memory of topics and of unprocessed bytes, and bytes on the wire."""
        unprocessed = sum(connection.unprocessed_bytes for connection in self.connections)
        buffers = self.settings.publish_buffer_mb
        limit_mb = self.settings.topics_memory_mb + max(buffers, 0)
        return HostUsage(
            memory_used_bytes=self._topic_bytes() + unprocessed,
            memory_limit_bytes=limit_mb * MIB,
            bytes_in_total=self.bytes_in,
            bytes_out_total=self.bytes_out,
        )
