"""A topic that this broker serves, with the connections that are attached to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import sub
from typing import Protocol

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.messaging.log import Entry
from loadmanager.broker.messaging.subscription import Subscription, SubscriptionType
from loadmanager.broker.messaging.topic import Publisher, Topic
from loadmanager.broker.protocol.reading import EntryReader
from loadmanager.broker.protocol.totals import Figures
from loadmanager.broker.wire import pulsar_pb2 as pb
from loadmanager.broker.wire.frames import MessageEncoder, ReceiptEncoder, publish_time_of
from loadmanager.engine.bundles.ranges import BundleRange, split_bundle_name, topic_hash
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.names import TopicName
from loadmanager.kit.security.identity import Identity
from loadmanager.limits.broker import TopicThrottling
from loadmanager.limits.dispatch import PublishRates
from loadmanager.limits.publish import Sender
from loadmanager.limits.tracker import ConnectionThrottle
from loadmanager.member.ports.hosting import (
    CountedTraffic,
    Returns,
    SubscriptionBacklog,
    TopicTraffic,
)

GREAT_BACKLOG = 1_000
"""Of a backlog of so many messages that nobody takes, the oldest is looked at."""
GREAT_LATELY_NS = 600_000_000_000
"""That one was so great is known for so long after it was."""
SEEK_S = 30.0
"""How long the consumer of a subscription that is not durable may take to come back from a seek."""


class Client(Protocol):
    """A client's connection as the topics and the dispatcher know it."""

    address: str
    """The client's address, without port."""
    peer: str
    client_version: str
    listener: str
    """The advertised listener whose addresses the client is given; empty: not known."""
    last_heard_s: float
    """When something came last, on the monotonic clock."""
    identity: Identity | None
    """The client's identity; None without authentication, and before CONNECT."""
    roles: tuple[str, ...]
    """The client's role, and the one for which a proxy asks; empty without authentication."""
    connected: bool
    """Whether the client introduced itself."""
    ended: str
    """Why the connection ended; of one that lives, that its client ended it."""
    protocol_version: int
    throttle: ConnectionThrottle
    producers: dict[int, AttachedProducer]
    consumers: dict[int, AttachedConsumer]

    @property
    def unprocessed_bytes(self) -> int:
        """Bytes that were received and wait, because the connection is held."""
        ...

    def send(self, frame: bytes) -> None:
        """Queue a frame."""
        ...

    def send_message(self, head: bytes, tail: bytes) -> None:
        """Queue a MESSAGE in two parts."""
        ...

    def error(self, request_id: int, code: pb.ServerError.ValueType, text: str) -> None:
        """Queue an ERROR."""
        ...

    def owe(self, receipts: int) -> None:
        """Add to the receipts that wait for the storage; a negative number takes some away."""
        ...

    def flush(self) -> None:
        """Write what is queued."""
        ...

    def lost(self) -> bool:
        """True if the client is gone, though nothing was read that shows it."""
        ...

    def keep_alive(self, now_s: float, keep_alive_s: float) -> None:
        """Probe the client when it is silent; close the connection when it stays silent."""
        ...

    def close_producer(self, producer_id: int) -> None:
        """The broker closed a producer: forget it, and ignore what its client still sends."""
        ...

    def close(self, reason: str) -> None:
        """Write what is queued and hang up."""
        ...

    def abort(self) -> None:
        """Hang up at once."""
        ...


@dataclass(slots=True)
class Rates:
    """The traffic of one client over the last stats period."""

    messages_per_s: float = 0.0
    bytes_per_s: float = 0.0
    _counted: tuple[int, int] = (0, 0)

    def measure(self, messages: int, size_bytes: int, elapsed_s: float) -> None:
        """End a period with these totals."""
        before_messages, before_bytes = self._counted
        self.messages_per_s = (messages - before_messages) / elapsed_s
        self.bytes_per_s = (size_bytes - before_bytes) / elapsed_s
        self._counted = (messages, size_bytes)


class TopicStorage(Protocol):
    """The storage of a topic; see `storing.StoredTopic`."""

    reader: EntryReader

    def owe(
        self, producer: AttachedProducer, sequence_id: int, entry: Entry | None, chunk_id: int = 0
    ) -> None:
        """A message, or this chunk of one, was appended, or was there before (None): send its
        receipt when it is durable.
        """
        ...

    def answer_later(self, producer: AttachedProducer, answer: bytes) -> bool:
        """Send this answer to a client that closes a producer after the receipts that it is still
        to get. Returns False, and sends nothing, if no receipt is due: the caller answers.
        """
        ...

    def moved(self) -> None:
        """A cursor may have moved: it is saved soon."""
        ...

    async def save(self) -> None:
        """Save the cursors that moved."""
        ...

    async def trim(self) -> None:
        """Delete the segments that the log has dropped."""
        ...

    def close(self) -> None:
        """The topic is not served here any more."""
        ...


class HostedTopic:
    """One served topic. `fenced`: it is being unloaded, and what clients send is ignored."""

    def __init__(self, name: TopicName, bundle: str, core: Topic, limits: TopicThrottling) -> None:
        self.name = name
        self.bundle = bundle
        self.core = core
        self.fenced = self.silent = False
        """`silent`: no receipts are sent any more; a topic that is being unloaded still sends those
        for what it has stored.
        """
        self.fenced_ns: int | None = None
        """When it was fenced, on the monotonic clock."""
        self.stored: TopicStorage | None = None
        """None: the topic is in memory."""
        self.producers: dict[str, AttachedProducer] = {}
        """Attached producers by name."""
        self.attached: dict[Consumer, AttachedConsumer] = {}
        self.creating: dict[str, None] = {}
        """Durable subscriptions that are being recorded."""
        self.sought: dict[Subscription, float] = {}
        """Subscriptions that are not durable → when a consumer moved them, which may come back."""
        self.traffic = TopicTraffic()
        self.figures = Figures(str(name.namespace))
        self.limits = limits
        self.published_ms = 0
        """When the last message came; 0: none did since the topic was opened."""
        self._counted = (0, 0, 0, 0)
        self._taken = CountedTraffic()
        self._great: dict[str, int] = {}
        """Subscription whose backlog was great lately → when it was at the last measure."""
        self._oldest: dict[str, tuple[int, int]] = {}
        """Subscription without a consumer → its first entry, and when that was published."""
        self._searching = asyncio.Lock()

    @property
    def last_published_ms(self) -> int:
        """When the last message came; of one that came before the topic was opened here, its
        publish time by its client's clock. 0: not known.
        """
        return self.published_ms or self.core.last_published_ms

    def measure(self, elapsed_s: float, now_ns: int) -> None:
        """Turn what was counted since the last call into rates."""
        core = self.core
        counted = (core.messages_in, core.messages_out, core.bytes_in, core.bytes_out)
        rates = [
            (now - before) / elapsed_s for now, before in zip(counted, self._counted, strict=True)
        ]
        self._counted = counted
        self.figures.measure(core, tuple(rates), elapsed_s)
        backlogs = self._backlogs(now_ns)
        self.traffic = TopicTraffic(
            msg_rate_in=rates[0],
            msg_rate_out=rates[1],
            msg_throughput_in=rates[2],
            msg_throughput_out=rates[3],
            producers=len(self.producers),
            consumers=len(self.attached),
            backlog_messages=sum(it.messages for it in backlogs),
            backlogs=backlogs,
            publish_limited_times=self.limits.held_times,
            subscriptions=len(core.subscriptions),
            stored_bytes=core.log.bytes,
            published_ms=self.last_published_ms or None,
        )
        for producer in self.producers.values():
            producer.rates.measure(producer.core.messages_in, producer.core.bytes_in, elapsed_s)
        for consumer in self.attached.values():
            served = consumer.core
            consumer.rates.measure(served.delivered_messages, served.delivered_bytes, elapsed_s)
        self.limits.set_published(PublishRates(int(rates[0]), int(rates[2])), now_ns)

    def take_carried(self) -> CountedTraffic:
        """What it carried since this was called before."""
        core = self.core
        counted = CountedTraffic(core.messages_in, core.messages_out, core.bytes_in, core.bytes_out)
        carried = CountedTraffic(*map(sub, counted, self._taken))
        self._taken = counted
        return carried

    def _backlogs(self, now_ns: int) -> tuple[SubscriptionBacklog, ...]:
        """What subscriptions have not acknowledged; also that one has nothing left, if its backlog
        was great lately: of one that is not listed, nobody can tell whether it has.
        """
        subscriptions, great = self.core.subscriptions, self._great
        self._great = {
            name: at_ns
            for name, at_ns in great.items()
            if name in subscriptions and now_ns - at_ns <= GREAT_LATELY_NS
        }
        backlogs = []
        for name, subscription in subscriptions.items():
            messages = subscription.backlog_messages
            if messages >= GREAT_BACKLOG:
                self._great[name] = now_ns
            if messages or name in self._great:
                oldest_ms = self._oldest_ms(subscription, messages)
                consumers = len(subscription.consumers)
                backlogs.append(SubscriptionBacklog(name, messages, consumers, oldest_ms))
        return tuple(backlogs)

    def _oldest_ms(self, subscription: Subscription, messages: int) -> int | None:
        """When the oldest message was published that nobody takes of a great backlog; None: it has
        a consumer, or is small, or is being read.
        """
        if subscription.consumers or messages < GREAT_BACKLOG:
            self._oldest.pop(subscription.name, None)
            return None
        log = self.core.log
        entry_id = max(subscription.mark, log.first_id)
        of_id, oldest_ms = self._oldest.get(subscription.name, (-1, 0))
        if of_id == entry_id:
            return oldest_ms
        entry = log.get(entry_id)
        if entry is None:
            log.loading(entry_id)  # it is there the next time
            return None
        published_ms = publish_time_of(entry.tail)
        if not published_ms:
            return None
        self._oldest[subscription.name] = entry_id, published_ms
        return published_ms

    def counts(self) -> tuple[int, ...]:
        """The topic's part of the totals, in the order of `totals.COUNTS`."""
        core = self.core
        subscriptions = core.subscriptions.values()
        return (
            1,
            len(subscriptions),
            len(self.producers),
            len(self.attached),
            sum(subscription.backlog_entries for subscription in subscriptions),
            core.log.bytes,
            core.messages_in,
            core.bytes_in,
            core.messages_out,
            core.bytes_out,
        )

    def fence(self, now_ns: int) -> None:
        """Serve nothing of the topic from now on; its limits hold nobody any more."""
        self.fenced = self.silent = True
        if self.fenced_ns is None:
            self.fenced_ns = now_ns
        self.limits.close(now_ns)

    def close(self, now_ns: int) -> None:
        """Forget the topic. Its clients were told, or their connections are aborted."""
        self.fence(now_ns)
        if self.stored is not None:
            self.stored.close()
        self.core.close()

    def abort_clients(self) -> None:
        """Abort the connections of all attached clients: they come back by themselves."""
        for producer in list(self.producers.values()):
            producer.connection.abort()
        for consumer in list(self.attached.values()):
            consumer.connection.abort()

    async def fetch(self, entry_id: int) -> Entry | None:
        """An entry of its log, in memory or stored; None if there is none."""
        return self.core.log.get(entry_id) or (
            await self.stored.reader.fetch(entry_id) if self.stored is not None else None
        )

    async def _tail_start(self, entry_id: int) -> bytes | None:
        entry = self.core.log.get(entry_id)
        if entry is not None or self.stored is None:
            return None if entry is None else entry.tail
        return await self.stored.reader.tail_start(entry_id)

    async def published_since(
        self, time_ms: int, wanted: Callable[[], bool] = lambda: True
    ) -> int | None:
        """The id of the first entry that was published at that time or later; None once nobody
        wants it any more. Binary search, one at a time for each topic.
        """
        async with self._searching:
            low, high = self.core.log.first_id, self.core.log.end_id
            while low < high:
                if not wanted():
                    return None
                middle = (low + high) // 2
                start = await self._tail_start(middle)
                if start is not None and publish_time_of(start) >= time_ms:
                    high = middle
                else:
                    low = middle + 1
            return low

    def forget_sought(self, now_s: float, now_ns: int) -> None:
        """Forget subscriptions that are not durable and whose consumers did not come back after a
        seek.
        """
        for subscription, since_s in list(self.sought.items()):
            if now_s < since_s + SEEK_S:
                continue
            del self.sought[subscription]
            if (
                not subscription.consumers
                and self.core.subscriptions.get(subscription.name) is subscription
            ):
                self.core.unsubscribe(subscription.name)
                self.limits.close_gate(subscription.name, now_ns)

    @property
    def idle(self) -> bool:
        """True if no client is attached."""
        return not self.producers and not self.attached


@dataclass(slots=True)
class OpenBundle:
    """One life of a bundle that is served here; see `member.ports.hosting`."""

    life: int
    since_ms: int = 0
    """When it began to be served here; 0 for one that came of others."""
    fenced: bool = False
    topics: dict[str, HostedTopic] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class AttachedProducer:
    """A producer of one connection."""

    connection: Client
    producer_id: int
    hosted: HostedTopic
    core: Publisher
    receipts: ReceiptEncoder
    sender: Sender
    request: pb.CommandProducer
    """What it asked for."""
    schema_version: bytes
    since_ms: int
    """When it was attached."""
    sent_ms: int = 0
    """When its first message came, or had waited for a connection that was held; 0 before."""
    receipt_ms: int = 0
    """When it got its first receipt; 0 before."""
    is_closed: bool = False
    """Whether its client was told to close it: it gets no receipt any more, and sends again what it
    has none for.
    """
    paused_ns: int = field(init=False, default=0)
    """For how long its connection had been held when it was attached; so of a consumer."""
    rates: Rates = field(default_factory=Rates)


@dataclass(slots=True, eq=False)
class AttachedConsumer:
    """A consumer of one connection."""

    connection: Client
    consumer_id: int
    hosted: HostedTopic
    subscription: Subscription
    core: Consumer
    messages: MessageEncoder
    since_ms: int
    """When it was attached; the others: when it last did so, 0 before."""
    flow_ms: int = 0
    delivered_ms: int = 0
    acked_ms: int = 0
    wanted_ms: int = field(init=False, default=0)
    """When it first took messages and there was one for it; 0: not before its first delivery."""
    served_ms: int = field(init=False, default=0)
    """When its first delivery was sent; 0 before."""
    paused_ns: int = field(init=False, default=0)
    rates: Rates = field(default_factory=Rates)

    def blocked(self, unacked_max: int) -> bool:
        """True if the consumer gets nothing until it acknowledges: that many messages are
        unacknowledged, as `maxUnackedMessagesPerConsumer` allows.
        """
        return (
            self.subscription.kind is SubscriptionType.SHARED
            and 0 < unacked_max <= self.core.unacked_messages
        )


def stats_of(topics: dict[str, HostedTopic]) -> NamespaceBundleStats:
    """The sum of the traffic of some topics."""
    stats = NamespaceBundleStats(topics=len(topics))
    for hosted in topics.values():
        traffic = hosted.traffic
        stats.msg_rate_in += traffic.msg_rate_in
        stats.msg_rate_out += traffic.msg_rate_out
        stats.msg_throughput_in += traffic.msg_throughput_in
        stats.msg_throughput_out += traffic.msg_throughput_out
        stats.producer_count += len(hosted.producers)
        stats.consumer_count += len(hosted.attached)
        stats.cache_size += hosted.core.log.bytes
    return stats


class BundleStats(Mapping[str, NamespaceBundleStats]):
    """Bundle → the traffic of its topics, computed for one bundle when it is taken."""

    def __init__(self, bundles: dict[str, OpenBundle]) -> None:
        self._bundles = bundles

    def __getitem__(self, bundle: str) -> NamespaceBundleStats:
        opened = self._bundles[bundle]
        if opened.fenced:
            raise KeyError(bundle)
        return stats_of(opened.topics)

    def __iter__(self) -> Iterator[str]:
        return iter([bundle for bundle, opened in self._bundles.items() if not opened.fenced])

    def __len__(self) -> int:
        return sum(not opened.fenced for opened in self._bundles.values())


def clients_of(topics: dict[str, HostedTopic]) -> int:
    """Producers and consumers of some topics, now."""
    return sum(len(hosted.producers) + len(hosted.attached) for hosted in topics.values())


def held_since_attached_ms(client: AttachedProducer | AttachedConsumer, now_ns: int) -> int:
    """For how long its connection was held since it was attached: nothing was read from it then."""
    return (client.connection.throttle.paused_until(now_ns) - client.paused_ns) // 1_000_000


def _receipt_after_ms(producer: AttachedProducer) -> int | None:
    """How long its first message waited for the receipt, also unread in a connection that is held;
    0 without a message; None: it waits, or may have sent one that is not read.
    """
    if not producer.sent_ms:
        return None if producer.connection.throttle.paused else 0
    return max(0, producer.receipt_ms - producer.sent_ms) if producer.receipt_ms else None


def _delivery_after_ms(consumer: AttachedConsumer, now_ms: int) -> int | None:
    """How long it waited for its first delivery; 0 if nothing was there for it; None: it waits, or
    what it asks for is not read, because its connection is held.
    """
    if consumer.served_ms:
        return max(0, consumer.served_ms - consumer.wanted_ms) if consumer.wanted_ms else 0
    if not consumer.flow_ms and consumer.connection.throttle.paused:
        return None
    return None if consumer.subscription.ready(0, now_ms, consumer.core) else 0


def returns(opened: OpenBundle | None, now_ms: int) -> Returns:
    """When the clients of a bundle came to it; None: it is not served here."""
    if opened is None or not opened.since_ms:
        return Returns()
    returned_ms, unserved = list[int](), 0
    for hosted in opened.topics.values():
        clients = [(it.since_ms, _receipt_after_ms(it)) for it in hosted.producers.values()]
        clients += [
            (it.since_ms, _delivery_after_ms(it, now_ms)) for it in hosted.attached.values()
        ]
        for since_ms, after_ms in clients:
            if after_ms is None:
                unserved += 1
            else:
                returned_ms.append(max(0, since_ms - opened.since_ms) + after_ms)
    return Returns(returned_ms, unserved, max(0, now_ms - opened.since_ms))


def divide(
    bundles: dict[str, OpenBundle], parent: str, life: int, children: list[str], children_life: int
) -> None:
    """Replace a bundle by its children: each topic goes to the one whose range has its hash."""
    opened = bundles.get(parent)
    if opened is None or opened.life != life:
        return
    del bundles[parent]
    ranges = {child: BundleRange.parse(split_bundle_name(child)[1]) for child in children}
    for child in children:
        bundles[child] = OpenBundle(children_life)
    for name, hosted in opened.topics.items():
        value = topic_hash(name)
        hosted.bundle = next(child for child, span in ranges.items() if value in span)
        bundles[hosted.bundle].topics[name] = hosted


def unite(
    bundles: dict[str, OpenBundle], parts: dict[str, int], merged: str, merged_life: int
) -> None:
    """Replace bundles, each with its life, by one."""
    opened = {bundle: bundles.get(bundle) for bundle in parts}
    if any(item is None or item.life != parts[bundle] for bundle, item in opened.items()):
        return
    bundles[merged] = OpenBundle(merged_life)
    for bundle in parts:
        for name, hosted in bundles.pop(bundle).topics.items():
            hosted.bundle = merged
            bundles[merged].topics[name] = hosted


def topics_of(client: Client) -> set[str]:
    """The topics of its producers and consumers."""
    producers = {str(producer.hosted.name) for producer in client.producers.values()}
    return producers | {str(consumer.hosted.name) for consumer in client.consumers.values()}


def subscriptions_of(client: Client, topic: str) -> set[str]:
    """The subscriptions of a topic that its consumers are attached to."""
    consumers = client.consumers.values()
    return {it.subscription.name for it in consumers if str(it.hosted.name) == topic}


def tell_where(
    command: pb.CommandCloseProducer | pb.CommandCloseConsumer,
    client: Client,
    destination: BrokerAddress | None,
) -> None:
    """Name the broker to which the client of a closed producer or consumer shall go, if the broker
    can tell; else the client looks the topic up.

    A broker with several listeners does not know which one a client uses that named none.
    """
    if destination is None or (len(destination.listeners) > 1 and not client.listener):
        return
    if client.listener and client.listener not in destination.listeners:
        return
    broker = destination.of(client.listener)
    if broker.service_url:
        command.assignedBrokerServiceUrl = broker.service_url
    if broker.service_url_tls:
        command.assignedBrokerServiceUrlTls = broker.service_url_tls
