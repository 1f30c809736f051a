"""The topics of the bundles that this broker serves, and the connections of their clients.
Implements `member.ports.hosting.Hosting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import structlog

from loadmanager.broker.messaging.memory import TopicMemory
from loadmanager.broker.messaging.rules import MessageRules
from loadmanager.broker.messaging.settings import MessagingSettings, StorageSettings
from loadmanager.broker.messaging.subscription import SubscriptionType
from loadmanager.broker.messaging.topic import Topic, check_memory
from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.ports.log import Storage
from loadmanager.broker.protocol.admission import Admission
from loadmanager.broker.protocol.dispatcher import Dispatcher
from loadmanager.broker.protocol.exclusive import promote
from loadmanager.broker.protocol.failures import Failures
from loadmanager.broker.protocol.hosted import (
    AttachedConsumer,
    AttachedProducer,
    BundleStats,
    Client,
    HostedTopic,
    OpenBundle,
    clients_of,
    divide,
    tell_where,
    unite,
)
from loadmanager.broker.protocol.open_topics import OpenTopics
from loadmanager.broker.protocol.resumer import Resumer
from loadmanager.broker.protocol.storing import Storing
from loadmanager.broker.protocol.topic_telemetry import ConnectionCounts
from loadmanager.broker.protocol.totals import NamespaceTotals
from loadmanager.broker.protocol.turns import LoopTurns
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import REQUEST_ID_NONE, encode
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.names import TopicName
from loadmanager.kit.units import MIB
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.member.ports.hosting import HostUsage, TopicTraffic

MEASURED_AT_ONCE = 100
RELIEVE_INTERVAL_S = 1.0
"""How often retained messages are dropped at most, while topics hold all that they may."""

log = structlog.get_logger("protocol")


class TopicRegistry:
    """Opens, fences and closes bundles and their topics, and knows every connection.

    `connections_cap`: how many connections the process can serve at most, 0 for any number.
    """

    directory: Directory
    """What the runtime answers. Set before the first connection (`BrokerServer.begin`)."""

    def __init__(
        self,
        settings: Live[MessagingSettings],
        *,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]],
        throttling: BrokerThrottling,
        connections_cap: int = 0,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.spawn = spawn
        self.throttling = throttling
        self.failures = Failures()
        self.resumer = Resumer(throttling, clock, self.failures.report)
        self.dispatcher = Dispatcher(
            settings,
            throttling,
            self.resumer,
            clock=clock,
            failed=self.failures.report,
            may_serve=lambda: self.may_deliver(clock.monotonic_s()),
        )
        self.turns = LoopTurns(settings, clock, self.failures.report)
        self.rules = MessageRules(settings)
        self.memory = TopicMemory(settings.value.topics_memory_mb * MIB)
        self.admission = Admission(settings, clock, connections_cap)
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections: dict[Client, None] = {}
        self.connected = ConnectionCounts()
        self.storing: Storing | None = None
        """Opens stored topics; None: topics are in memory."""
        self._totals = NamespaceTotals()
        self._bundles: dict[str, OpenBundle] = {}
        self._topics = OpenTopics()
        self._opening: dict[str, asyncio.Future[None]] = {}
        self._names = count()
        self._relieved_s = float("-inf")
        self._measured_s = clock.monotonic_s()
        self._apply(settings.value)
        settings.listen(self._apply)

    def _apply(self, settings: MessagingSettings) -> None:
        limit_bytes = settings.publish_buffer_mb * MIB
        self.throttling.publish_buffer.set_limit(limit_bytes, self.clock.monotonic_ns())
        self.resumer.settle()
        self.memory.set_limits(settings.topics_memory_mb * MIB, settings.topics_max)

    def store_in(self, storage: Storage, settings: Live[StorageSettings]) -> None:
        """Store persistent topics from now on; called before the first connection."""
        self.storing = Storing(
            storage,
            settings,
            messaging=self.settings,
            memory=self.memory,
            dispatcher=self.dispatcher,
            directory=lambda: self.directory,
            clock=self.clock,
            spawn=self.spawn,
            failures=self.failures,
            may_serve=lambda: self.may_serve(self.clock.monotonic_s()),
            close_topic=lambda topic: self.close_topic(topic, force=True),
        )

    def may_serve(self, now_s: float) -> bool:
        """True if the session is proven. If it is not, all that has no fence of its own is fenced
        before this returns; True if something is left.
        """
        if self.directory.lease.held(now_s):
            return True
        self.directory.fence()
        return bool(self._bundles)

    def may_deliver(self, now_s: float) -> bool:
        """True if the session is proven, or the storage has proven the topics that are left."""
        if not self.may_serve(now_s):
            return False
        leased = self.directory.lease.held(now_s)
        return leased or (self.storing is not None and self.storing.proof.holds(now_s))

    # Connections

    def opened(self, connection: Client) -> None:
        """Count a new connection; beyond the limits, it or another one is closed."""
        self.connections[connection] = None
        self.connected.created += 1
        self.admission.enter(connection)

    def closed(self, connection: Client) -> None:
        """A connection is gone, and with it what was attached through it."""
        if connection in self.connections:
            del self.connections[connection]
            self.admission.leave(connection)
            self.connected.closed += 1
            self.connected.failed += not connection.connected
        for producer in list(connection.producers.values()):
            self.detach_producer(producer, for_good=False)
        for consumer in list(connection.consumers.values()):
            self.detach_consumer(consumer)
        connection.producers.clear()
        connection.consumers.clear()
        self.dispatcher.deliver()

    def next_producer_name(self) -> str:
        """A name that no producer of the cluster has."""
        broker = self.directory.self_address.broker_id.replace(":", "-")
        return f"{broker}-{self.clock.now_ms():x}-{next(self._names)}"

    def detach_producer(self, producer: AttachedProducer, *, for_good: bool) -> None:
        """A producer is gone."""
        hosted = producer.hosted
        if hosted.producers.get(producer.core.name) is producer:
            del hosted.producers[producer.core.name]
            self.dispatcher.touch(hosted)
        hosted.limits.leave(producer.sender, self.clock.monotonic_ns())
        promoted = hosted.core.detach_publisher(
            producer.core, self.clock.monotonic_s(), for_good=for_good
        )
        if promoted is not None and not hosted.fenced:
            running = self._promote(hosted.producers[promoted.name])
            try:
                self.spawn(running, "exclusive-producer")
            except RuntimeError:  # the broker is stopping: no task is started any more
                running.close()

    async def _promote(self, producer: AttachedProducer) -> None:
        await promote(self.directory, producer)
        self.dispatcher.written(producer.connection)
        self.dispatcher.deliver()

    def detach_consumer(self, consumer: AttachedConsumer) -> None:
        """A consumer is gone; what it had not acknowledged goes to others, or waits for it."""
        hosted, subscription = consumer.hosted, consumer.subscription
        if hosted.attached.pop(consumer.core, None) is None:
            return
        active = subscription.active
        hosted.core.detach_consumer(subscription, consumer.core)
        if not subscription.durable and not subscription.consumers:
            hosted.core.unsubscribe(subscription.name)
            hosted.limits.close_gate(subscription.name, self.clock.monotonic_ns())
        self.dispatcher.announce_active(hosted, subscription, active)
        self.dispatcher.touch(hosted, subscription)

    def close_producer(self, producer: AttachedProducer, destination: BrokerAddress | None) -> None:
        """CLOSE_PRODUCER by the broker: the client reconnects, to `destination` if it is given."""
        connection = producer.connection
        if connection.producers.get(producer.producer_id) is producer:
            connection.close_producer(producer.producer_id)
        self.detach_producer(producer, for_good=False)
        command = pb.CommandCloseProducer(
            producer_id=producer.producer_id, request_id=REQUEST_ID_NONE
        )
        tell_where(command, connection, destination)
        connection.send(encode(close_producer=command))
        self.dispatcher.written(connection)

    def close_consumer(self, consumer: AttachedConsumer, destination: BrokerAddress | None) -> None:
        """CLOSE_CONSUMER by the broker: the client reconnects, to `destination` if it is given."""
        connection = consumer.connection
        if connection.consumers.get(consumer.consumer_id) is consumer:
            del connection.consumers[consumer.consumer_id]
        self.detach_consumer(consumer)
        command = pb.CommandCloseConsumer(
            consumer_id=consumer.consumer_id, request_id=REQUEST_ID_NONE
        )
        tell_where(command, connection, destination)
        connection.send(encode(close_consumer=command))
        self.dispatcher.written(connection)

    # Topics

    def served(self, topic: str) -> HostedTopic | None:
        """The open topic of that full name, if it is served now."""
        hosted = self._topics.get(topic)
        return hosted if hosted is not None and not hosted.fenced else None

    async def host(self, topic: TopicName) -> HostedTopic:
        """The topic, opened if need be.

        Raises `OperationalError` when its bundle is not served here: the client must look it up
        again.
        """
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
            raise OperationalError(
                f"Namespace bundle for topic ({topic}) not served by this instance. Please "
                "redo the lookup."
            )
        return hosted

    async def _open(self, topic: TopicName) -> None:
        bundle = await self.directory.owned_bundle(topic)
        opened = None if bundle is None else self._bundles.get(bundle)
        if opened is None or opened.fenced:
            return
        records = await self.directory.open_topic(topic)
        stored = None
        if self.storing is not None and topic.persistent:
            stored = await self.storing.open(topic, opened.life, records)
            ledger_id = stored.record.log_id
        else:
            ledger_id = await self.directory.next_ledger_id()
        # Meanwhile the bundle may have been unloaded or split: what was read is of an older life.
        # Without the lease, nothing is opened.
        leased = self.directory.lease.held(self.clock.monotonic_s())
        if bundle is None or not leased or self._bundles.get(bundle) is not opened or opened.fenced:
            if stored is not None:
                stored.log.close()
            return
        core = Topic(
            str(topic),
            ledger_id,
            self.settings,
            self.memory.part(str(topic.namespace)),
            partition=topic.partition,
            log=None if stored is None else stored.log,
            rules=self.rules.of(str(topic.namespace)),
        )
        for subscription in records.subscriptions:
            core.subscribe(subscription, SubscriptionType.EXCLUSIVE, 0, durable=True)
        now_ns = self.clock.monotonic_ns()
        hosted = HostedTopic(topic, bundle, core, self.throttling.topic(topic, now_ns))
        if stored is not None:
            stored.begin(hosted)
        opened.topics[core.name] = self._topics[core.name] = hosted
        self.dispatcher.touch(hosted)

    def check_room(self, topic: TopicName) -> None:
        """Raise `QuotaExceededError` when all topics together, or those of its namespace, hold as
        much as they may, retained messages left out; `StorageFullError` when the topic cannot be
        stored.
        """
        now_s, memory = self.clock.monotonic_s(), self.memory.part(str(topic.namespace))
        if memory.full and now_s >= self._relieved_s + RELIEVE_INTERVAL_S:
            self._relieved_s = now_s
            for hosted in self._topics.values():
                hosted.core.trim(0)
        check_memory(memory)
        if self.storing is not None and topic.persistent:
            self.storing.check_writable()

    # ports.hosting.Hosting

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Serve a bundle from now on.

        What is left of an older life is closed first: its clients come back by themselves.
        """
        older = self._bundles.get(bundle)
        if older is not None and older.life >= life:
            return
        if older is not None:
            await self.close_bundle(bundle, older.life, destination=None, timeout_s=0)
        self._bundles.setdefault(bundle, OpenBundle(life))

    def fence_bundle(self, bundle: str, life: int) -> None:
        """Serve nothing of a bundle from now on."""
        opened = self._bundles.get(bundle)
        if opened is None or opened.life != life:
            return
        opened.fenced = True
        for hosted in opened.topics.values():
            hosted.fence(self.clock.monotonic_ns())
        self.resumer.settle()

    async def settle_bundle(self, bundle: str, life: int) -> None:
        """Answer what was sent before a bundle was fenced, and save its cursors."""
        opened = self._bundles.get(bundle)
        if self.storing is not None and opened is not None and opened.life == life:
            await self.storing.settle(list(opened.topics.values()))

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Tell the clients of a bundle and forget its topics."""
        opened = self._bundles.get(bundle)
        if opened is None or opened.life != life:
            return 0
        self.fence_bundle(bundle, life)
        topics = self._bundles.pop(bundle).topics
        deadline_s = self.clock.monotonic_s() + timeout_s
        for index, hosted in enumerate(topics.values()):
            self._close_topic(hosted, destination)
            if index % 100 == 99:
                self.dispatcher.deliver()
                await asyncio.sleep(0)
                if self.clock.monotonic_s() > deadline_s:
                    log.warning(
                        "closing topics takes too long; the connections of the rest are closed",
                        bundle=bundle,
                    )
                    for rest in list(topics.values())[index + 1 :]:
                        rest.abort_clients()
                    break
        for name, hosted in topics.items():
            if self._topics.get(name) is hosted:
                del self._topics[name]
            self._forget(hosted)
        self.dispatcher.deliver()
        return len(topics)

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """Tell the clients of one topic and forget it."""
        hosted = self.served(topic)
        if hosted is None:
            return False
        if not (hosted.idle or force):
            raise ConflictError(
                f"Topic {topic} has active producers or consumers; close them first, or "
                "use force=true"
            )
        del self._topics[topic]
        self._bundles[hosted.bundle].topics.pop(topic, None)
        hosted.fence(self.clock.monotonic_ns())
        self._close_topic(hosted, None)
        self._forget(hosted)
        self.dispatcher.deliver()
        return True

    def _forget(self, hosted: HostedTopic) -> None:
        self._totals.count(hosted.figures, hosted.counts())
        self._totals.leave(hosted.figures)
        self.dispatcher.changed.pop(hosted, None)
        hosted.close(self.clock.monotonic_ns())

    def _close_topic(self, hosted: HostedTopic, destination: BrokerAddress | None) -> None:
        for producer in list(hosted.producers.values()):
            self.close_producer(producer, destination)
        for consumer in list(hosted.attached.values()):
            self.close_consumer(consumer, destination)

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """A bundle goes on as its children."""
        divide(self._bundles, parent, life, children, children_life)

    def merge_bundles(self, parts: dict[str, int], merged: str, merged_life: int) -> None:
        """Bundles go on as one."""
        unite(self._bundles, parts, merged, merged_life)

    def fence_all(self) -> None:
        """Stop serving everything, at once: connections are dropped, topics forgotten."""
        topics = list(self._topics.values())
        for hosted in topics:
            hosted.fenced = hosted.silent = True
        self._bundles.clear()
        self._topics.clear()
        self.dispatcher.clear()
        for connection in list(self.connections):
            connection.abort()
        for hosted in topics:
            self._forget(hosted)
        self.resumer.settle()

    async def measure(self) -> None:
        """End a stats period, in slices; clients are served between them."""
        now_s = self.clock.monotonic_s()
        elapsed_s, self._measured_s = max(now_s - self._measured_s, 1e-3), now_s
        self.dispatcher.changed.clear()
        for number, hosted in enumerate(list(self._topics.values()), 1):
            if self._topics.get(hosted.core.name) is hosted:
                self._measure(hosted, elapsed_s)
            if number % MEASURED_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._totals.measure(hosted.figures for hosted in self._topics.values())
        self.resumer.settle()

    def _measure(self, hosted: HostedTopic, elapsed_s: float) -> None:
        now_s, now_ns = self.clock.monotonic_s(), self.clock.monotonic_ns()
        hosted.measure(elapsed_s, now_ns)
        hosted.core.trim()
        hosted.core.forget_producers(now_s)
        hosted.forget_sought(now_s, now_ns)
        if self.storing is not None:
            self.storing.trim(hosted)
        self._totals.count(hosted.figures, hosted.counts())

    def limits_changed(self) -> None:
        """Limits were changed: resume the clients that may go on now; if they are many, the rest
        follows by the timer.
        """
        self.resumer.release()

    def bundle_stats(self) -> BundleStats:
        """Traffic of each open bundle over the last stats period."""
        return BundleStats(self._bundles)

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """Open topics of a bundle."""
        opened = self._bundles.get(bundle)
        topics = {} if opened is None else opened.topics
        return {name: hosted.traffic for name, hosted in topics.items()}

    def clients(self, bundle: str) -> int:
        """Producers and consumers of a bundle."""
        opened = self._bundles.get(bundle)
        return 0 if opened is None else clients_of(opened.topics)

    def usage(self) -> HostUsage:
        """Memory of topics, of unprocessed and unread bytes, and bytes on the wire."""
        unprocessed = sum(connection.unprocessed_bytes for connection in self.connections)
        buffers = self.settings.value.publish_buffer_mb
        outbound = self.admission.outbound
        cached = 0 if self.storing is None else self.storing.cached_bytes
        limit_mb = self.settings.value.topics_memory_mb + max(buffers, 0)
        return HostUsage(
            memory_used_bytes=self.memory.used_bytes + unprocessed + cached + outbound.used_bytes,
            memory_limit_bytes=limit_mb * MIB + outbound.limit_bytes,
            bytes_in_total=self.bytes_in,
            bytes_out_total=self.bytes_out,
            failures=self.failures.count,
            refused_connections=self.admission.refused,
        )
