"""A topic in memory: its log, its producers, its subscriptions and their limits."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.messaging.log import Entry, EntryLog, MessageLog
from loadmanager.broker.messaging.memory import Memory
from loadmanager.broker.messaging.rules import NamespaceRules, Rules
from loadmanager.broker.messaging.segments import ANY_TIME, Sent, latest
from loadmanager.broker.messaging.settings import CONSUMER_EVICTION, REQUEST_HOLD, MessagingSettings
from loadmanager.broker.messaging.stored_log import StoredLog
from loadmanager.broker.messaging.subscription import Subscription, SubscriptionType
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError, ConflictError, LoadManagerError

TRIM_STEP_BYTES = 64 * 1024
"""A growing topic looks at its subscriptions' positions at most once in this many bytes."""


EVICTED_TO = 0.9
"""Eviction leaves so much of a backlog quota, as in Pulsar."""
QUOTA_STEP_BYTES = 4 * 1024
"""A topic whose backlog is full looks at it at most once in this many bytes."""
WAITING_MAX = 1_000
"""Producers of a topic that wait to be exclusive. As in Pulsar, they do not count towards
`maxProducersPerTopic`: one producer and its stand-ins are within a limit of 1.
"""
SUBSCRIPTIONS_MAX = 10_000
"""Subscriptions of a topic without maxSubscriptionsPerTopic."""


class QuotaExceededError(LoadManagerError):
    """A topic is full, or all topics together are: producers must wait until consumers
    acknowledge. `hold`: they are asked to wait (`producer_request_hold`).
    """

    def __init__(self, problem: str, *, hold: bool = False) -> None:
        super().__init__(problem)
        self.hold = hold


class ProducerFencedError(ConflictError):
    """An exclusive producer finds others on the topic, or another was exclusive since it was: it
    must not come back by itself.
    """


class ProducerAccessMode(IntEnum):
    """The way in which a producer shares its topic (`CommandProducer.producer_access_mode`, PIP
    68).
    """

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


@dataclass(slots=True, eq=False)
class Publisher:
    """One attached producer."""

    name: str
    epoch: int
    access: ProducerAccessMode = ProducerAccessMode.SHARED
    address: str = ""
    """The client's address, without port."""
    last_sequence_id: int = -1
    resent_until: int = -1
    """Sequence ids up to this one were stored before the producer reconnected. They are duplicates
    until a greater one arrives, or without de-duplication a later message.
    """
    published_ms: int = 0
    """The latest publish time of its messages."""
    messages_in: int = 0
    bytes_in: int = 0
    ready: bool = True
    """Whether it may send: an exclusive one, after it was given its topic epoch."""


class Topic:
    """One open topic. In memory, its `ledger_id` is new each time that it is opened; with a stored
    `log`, ledger and entry ids go on. So no message id is used twice.

    `memory` counts topics and their bytes; `close` subtracts this one.
    """

    def __init__(
        self,
        name: str,
        ledger_id: int,
        settings: Live[MessagingSettings],
        memory: Memory,
        *,
        partition: int = -1,
        log: StoredLog | None = None,
        rules: NamespaceRules | None = None,
    ) -> None:
        self.name = name
        self.ledger_id = ledger_id
        self.partition = partition
        self.log: MessageLog = EntryLog(memory) if log is None else log
        self._stored = log is not None
        self._rules = rules or NamespaceRules(settings)
        self.too_old = False
        """Whether the oldest message that is not acknowledged is older than its quota allows."""
        self.publishers: dict[str, Publisher] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consumers = 0
        """How many consumers are attached."""
        self.messages_in = 0
        self.bytes_in = 0
        self.messages_out = 0
        self.bytes_out = 0
        self._settings = settings
        self._memory = memory
        memory.open(1)
        self._closed = False
        self.epoch: int | None = None
        """Topic epoch of the last exclusive producer, 0 if there was none; None before it was read
        from the metadata store.
        """
        self._exclusive: Publisher | None = None
        self._waiting: OrderedDict[str, Publisher] = OrderedDict()
        """Producers that wait to be exclusive, in order of arrival."""
        self._producers_at: Counter[str] = Counter()
        self._consumers_at: Counter[str] = Counter()
        self._left: OrderedDict[str, tuple[Sent, float]] = OrderedDict()
        """Producers that may come back: last message and when they left, in that order."""
        self._look_at_bytes = 0
        """When the log holds this much, `publish` makes room first."""
        self._set_look_at()

    def close(self) -> None:
        """Forget the messages: the topic is not served here any more."""
        if not self._closed:
            self._closed = True
            self._memory.open(-1)
        self.log.close()
        for subscription in self.subscriptions.values():
            subscription.close()

    # Producers

    def attach_publisher(
        self,
        name: str,
        epoch: int,
        *,
        access: ProducerAccessMode = ProducerAccessMode.SHARED,
        address: str = "",
    ) -> Publisher:
        """Add a producer, or let it wait to be exclusive. With a greater epoch it replaces a
        producer of its name, whose client reconnected. One with fencing must be alone already.

        Raises `ConflictError` when the name is taken, the topic has an exclusive producer, or the
        maximum of producers, or of those that wait, is reached; `ProducerFencedError` for an
        exclusive one among others.
        """
        present = self.publishers.get(name) or self._waiting.get(name)
        if present is not None and present.epoch >= epoch:
            raise ConflictError(f"Producer with name '{name}' is already connected to topic")
        waits = self._must_wait(name, access)
        last = Sent()
        if present is not None:
            last = Sent(present.last_sequence_id, present.published_ms)
            self._remove(present)
        elif not waits:
            self._check_producers(address)
        publisher = Publisher(
            name, epoch, access, address, ready=access is ProducerAccessMode.SHARED
        )
        if waits:
            self._waiting[name] = publisher
        else:
            self._add(publisher, last)
        return publisher

    def _must_wait(self, name: str, access: ProducerAccessMode) -> bool:
        """True if a producer must wait to be exclusive. Raises as `attach_publisher` does."""
        ahead = [self._exclusive] if self._exclusive else list(islice(self._waiting.values(), 2))
        blocking = next((producer.name for producer in ahead if producer.name != name), None)
        others = len(self.publishers) - (name in self.publishers)
        if access is ProducerAccessMode.WAIT_FOR_EXCLUSIVE:
            waits = blocking is not None or others > 0
            if waits and name not in self._waiting and len(self._waiting) >= WAITING_MAX:
                raise ConflictError(f"Topic has {WAITING_MAX} waiting producers, the limit")
            return waits
        if blocking is not None:
            error = ConflictError if access is ProducerAccessMode.SHARED else ProducerFencedError
            raise error(f"Topic has an existing exclusive producer: {blocking}")
        if others and access is not ProducerAccessMode.SHARED:
            raise ProducerFencedError("Topic has existing shared producers")
        return False

    def check_epoch(self, epoch: int) -> None:
        """Raise `ProducerFencedError` when another was exclusive since a producer had `epoch`."""
        if self.epoch is not None and epoch < self.epoch:
            raise ProducerFencedError(
                f"Topic epoch has already moved. Current epoch: {self.epoch}, "
                f"Producer epoch: {epoch}"
            )

    def _add(self, publisher: Publisher, last: Sent) -> None:
        """Have a producer publish. `last`: the last message on the connection that it replaces."""
        left, _ = self._left.pop(publisher.name, (Sent(), 0.0))
        if publisher.epoch > 0 or self.rules.deduplicates:  # not a new one with an old name
            last = max(last, left)
            publisher.last_sequence_id = publisher.resent_until = last.sequence_id
            publisher.published_ms = last.published_ms
        self.publishers[publisher.name] = publisher
        self._producers_at[publisher.address] += 1
        if publisher.access is not ProducerAccessMode.SHARED:
            self._exclusive = publisher

    def _check_producers(self, address: str) -> None:
        settings = self._settings.value
        if 0 < settings.producers_per_topic_max <= len(self.publishers):
            raise _reached(
                "Topic reached max producers limit",
                settings.producers_per_topic_max,
                "maxProducersPerTopic",
            )
        if 0 < settings.producers_per_address_max <= self._producers_at[address]:
            raise _reached(
                "Topic reached max same address producers limit",
                settings.producers_per_address_max,
                "maxSameAddressProducersPerTopic",
            )

    def _remove(self, publisher: Publisher) -> None:
        if self._waiting.get(publisher.name) is publisher:
            del self._waiting[publisher.name]
            return
        del self.publishers[publisher.name]
        _count_out(self._producers_at, publisher.address)
        if self._exclusive is publisher:
            self._exclusive = None

    def detach_publisher(
        self, publisher: Publisher, now_s: float, *, for_good: bool
    ) -> Publisher | None:
        """Remove a producer; returns the one that waited and is the exclusive one now, if any.

        `for_good`: its client closed it, and will not repeat messages.
        """
        name = publisher.name
        if publisher not in (self.publishers.get(name), self._waiting.get(name)):
            return None
        self._remove(publisher)
        if publisher.last_sequence_id >= 0 and (not for_good or self.rules.deduplicates):
            last = Sent(publisher.last_sequence_id, publisher.published_ms)
            self.remember(name, last, now_s)
        if self.publishers or not self._waiting:
            return None
        _, promoted = self._waiting.popitem(last=False)
        self._add(promoted, Sent())
        return promoted

    def remember(self, name: str, last: Sent, now_s: float) -> None:
        """A producer may come back and repeat messages up to that one."""
        self._left[name] = (last, now_s)
        self.forget_producers(now_s)

    def forget_producers(self, now_s: float) -> None:
        """Forget the sequence ids of producers that left long ago; of too many, the oldest."""
        settings = self._settings.value
        since_s = now_s - settings.producers_remembered_minutes * 60
        while self._left:
            name, (_, left_s) = next(iter(self._left.items()))
            if len(self._left) <= settings.producers_remembered_max and left_s >= since_s:
                return
            del self._left[name]

    @property
    def last_published_ms(self) -> int:
        """The latest publish time of messages of its producers, as their clients say it, also of
        those that left and may come back; 0: not known.
        """
        times = [it.published_ms for it in self.publishers.values()]
        times += [last.published_ms for last, _ in self._left.values()]
        return max((it for it in times if it < ANY_TIME), default=0)

    # Messages

    def check_quota(self) -> None:
        """Raise `QuotaExceededError` when the topic is full, or its backlog too old. With
        `consumer_backlog_eviction`, the oldest messages of a full topic go instead.
        """
        rules = self.rules
        if self.too_old and rules.age_policy != CONSUMER_EVICTION:
            raise QuotaExceededError(
                f"Topic {self.name} has unacknowledged messages older than {rules.quota_s} s",
                hold=rules.age_policy == REQUEST_HOLD,
            )
        limit = rules.quota_bytes
        if limit >= 0 and self.backlog_bytes >= limit:
            if rules.evicts:
                self.evict(int(limit * EVICTED_TO))
                return
            raise QuotaExceededError(
                f"Topic {self.name} holds {self.backlog_bytes} bytes of {limit} allowed: consumers "
                "must acknowledge first",
                hold=rules.holds,
            )

    @property
    def rules(self) -> Rules:
        """The rules for how long its messages are kept, and how many may wait."""
        return self._rules.of(stored=self._stored)

    @property
    def quota_bytes(self) -> int:
        """The most bytes that may wait in it; −1: any."""
        return self.rules.quota_bytes

    @property
    def slowest(self) -> int:
        """The first entry that some durable subscription has not acknowledged."""
        marks = [each.mark for each in self.subscriptions.values() if each.durable]
        return min(marks, default=self.log.end_id)

    @property
    def backlog_bytes(self) -> int:
        """The bytes that count towards the quota: those that wait for a durable subscription; of a
        topic in memory, all that it holds.
        """
        return self.log.bytes_from(self.slowest) if self._stored else self.log.bytes

    def evict(self, bytes_max: int) -> int:
        """Have the oldest messages count as acknowledged until so many bytes wait; returns the
        first entry that still waits.
        """
        low, high = self.log.first_id, self.log.end_id
        while low < high:
            middle = (low + high) // 2
            if self.log.bytes_from(middle) > bytes_max:
                low = middle + 1
            else:
                high = middle
        for subscription in self.subscriptions.values():
            subscription.expire_until(low)
        self.trim()
        return low

    def publish(
        self,
        publisher: Publisher,
        sequence_id: int,
        tail: bytes,
        messages: int,
        deliver_at_ms: int = 0,
        *,
        continued: bool = False,
        highest_id: int = -1,
        published_ms: int = 0,
    ) -> Entry | None:
        """Store the tail of a SEND; None for a duplicate. Raises `QuotaExceededError`.

        In a stored log, the entry is durable only later. `continued`: a chunk of a message that
        others follow. They have its sequence id, which counts once the last one is stored.
        `highest_id`: the sequence id of the last message of a batch, if its client tells it.

        A client may number messages as it likes. So without de-duplication, a message is a repeated
        one only if it is not published later than those that are stored.
        """
        if sequence_id <= publisher.resent_until and (
            published_ms <= publisher.published_ms or self.rules.deduplicates
        ):
            return None
        log, memory = self.log, self._memory
        if log.bytes >= self._look_at_bytes or memory.full:
            self._make_room()
        if not continued:
            publisher.last_sequence_id = max(sequence_id, highest_id)
        whole_id = publisher.last_sequence_id
        latest_ms = publisher.published_ms = latest(publisher.published_ms, published_ms)
        entry = log.append(
            tail, messages, deliver_at_ms, publisher.name, whole_id, published_ms=latest_ms
        )
        publisher.resent_until = whole_id if self.rules.deduplicates else -1
        publisher.messages_in += messages
        publisher.bytes_in += len(tail)
        self.messages_in += messages
        self.bytes_in += len(tail)
        return entry

    def _make_room(self) -> None:
        self.trim()
        if self._memory.full:
            self.trim(0)  # drop what is retained only
            check_memory(self._memory)
        self.check_quota()
        self._set_look_at()

    def _set_look_at(self) -> None:
        quota, retention_bytes = self.quota_bytes, self.retention_bytes
        look_at = max(self.log.bytes, retention_bytes) + max(retention_bytes // 8, TRIM_STEP_BYTES)
        if quota >= 0 and self._stored:
            room = quota - self.backlog_bytes
            look_at = min(look_at, self.log.bytes + max(room, QUOTA_STEP_BYTES))
        self._look_at_bytes = look_at if self._stored or quota < 0 else min(look_at, quota)

    @property
    def retention_bytes(self) -> int:
        """The bytes that are kept after every subscription acknowledged them; −1: all."""
        return self.rules.retention_bytes

    def trim(self, retention_bytes: int | None = None) -> None:
        """Drop entries that every subscription has acknowledged, except the newest
        `retention_bytes` (by default as configured).
        """
        retained_bytes = self.retention_bytes if retention_bytes is None else retention_bytes
        if 0 <= retained_bytes < self.log.bytes:
            self.log.drop_until(self._acknowledged, retained_bytes)

    def drop_older(self, entry_id: int) -> None:
        """Drop entries below `entry_id` that every subscription has acknowledged."""
        self.log.drop_until(min(self._acknowledged, entry_id), 0)

    @property
    def _acknowledged(self) -> int:
        """Every subscription has acknowledged the entries below this one."""
        marks = (subscription.mark for subscription in self.subscriptions.values())
        return min(marks, default=self.log.end_id)

    # Subscriptions

    def subscribe(
        self, name: str, kind: SubscriptionType, start_id: int, *, durable: bool
    ) -> Subscription:
        """The subscription of that name; a new one starts at `start_id`."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            subscription = self.subscriptions[name] = Subscription(
                name, kind, self.log, start_id, durable=durable, partition=self.partition
            )
        return subscription

    def unsubscribe(self, name: str) -> None:
        """Forget a subscription."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is not None:
            subscription.close()

    def check_subscription(self, name: str, *, creating: int = 0) -> None:
        """Raise `BadInputError` when the subscription is absent and the topic has its maximum of
        them. `creating` other subscriptions are being created and count, too.
        """
        limit = self._settings.value.subscriptions_per_topic_max
        if limit <= 0:
            limit = SUBSCRIPTIONS_MAX
        if name not in self.subscriptions and limit <= len(self.subscriptions) + creating:
            raise BadInputError(
                f"Exceed the maximum number of subscriptions of the topic: {self.name}"
            )

    def check_consumer(self, subscription: str, address: str) -> None:
        """Raise `ConflictError` when the topic or the subscription has its maximum of consumers,
        and `BadInputError` when the topic has its maximum of subscriptions.
        """
        settings, present = self._settings.value, self.subscriptions.get(subscription)
        if 0 < settings.consumers_per_topic_max <= self.consumers:
            raise _reached(
                "Topic reached max consumers limit",
                settings.consumers_per_topic_max,
                "maxConsumersPerTopic",
            )
        if 0 < settings.consumers_per_address_max <= self._consumers_at[address]:
            raise _reached(
                "Topic reached max same address consumers limit",
                settings.consumers_per_address_max,
                "maxSameAddressConsumersPerTopic",
            )
        self.check_subscription(subscription)
        if present is not None and 0 < settings.consumers_per_subscription_max <= len(
            present.consumers
        ):
            raise _reached(
                "Subscription reached max consumers limit",
                settings.consumers_per_subscription_max,
                "maxConsumersPerSubscription",
            )

    def attach_consumer(
        self, subscription: Subscription, consumer: Consumer, kind: SubscriptionType
    ) -> None:
        """Add a consumer. Raises `ConflictError` when the subscription's type refuses it."""
        subscription.attach(consumer, kind)
        self.consumers += 1
        self._consumers_at[consumer.address] += 1

    def detach_consumer(self, subscription: Subscription, consumer: Consumer) -> None:
        """Remove an attached consumer."""
        subscription.detach(consumer)
        self.consumers -= 1
        _count_out(self._consumers_at, consumer.address)


def _reached(text: str, limit: int, key: str) -> ConflictError:
    """Pulsar's words, then the limit and the key that sets it."""
    return ConflictError(f"{text} (limit {limit}, {key})")


def check_memory(memory: Memory) -> None:
    """Raise `QuotaExceededError` when all topics together, or the namespace's, are full."""
    if memory.full:
        raise QuotaExceededError(memory.refusal)


def _count_out(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
