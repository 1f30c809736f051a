"""A topic in memory: its log, its producers, its subscriptions and their limits."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.core.conf import Live
from loadmanager.core.errors import ConflictError, LoadManagerError
from loadmanager.core.messaging.log import Entry, EntryLog
from loadmanager.core.messaging.settings import MessagingSettings
from loadmanager.core.messaging.subscription import Subscription, SubscriptionType


class QuotaExceededError(LoadManagerError):
    """The topic holds as much as it may: producers must wait until consumers acknowledge."""


@dataclass(slots=True, eq=False)
class Publisher:
    """One attached producer."""

    name: str
    epoch: int
    exclusive: bool = False
    resent_until: int = -1
    """Sequence ids up to this one were stored before the producer reconnected: they are duplicates, until a greater one comes."""


class Topic:
    """One open topic. `ledger_id` is new each time that a topic is opened, so that message ids are never reused."""

    def __init__(self, name: str, ledger_id: int, settings: Live[MessagingSettings], *, partition: int = -1) -> None:
        self.name = name
        self.ledger_id = ledger_id
        self.partition = partition
        self.log = EntryLog()
        self.publishers: dict[str, Publisher] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.schemas: list[bytes] = []
        """Schemas as serialised, in the order that they came; a schema's version is its index."""
        self.messages_in = 0
        self.bytes_in = 0
        self.messages_out = 0
        self.bytes_out = 0
        self._settings = settings
        self._last_sequence_ids: dict[str, int] = {}

    # Producers

    def attach_publisher(self, name: str, epoch: int, *, exclusive: bool) -> Publisher:
        """Add a producer. A greater epoch of the same name takes over from the one that is still attached (its client reconnected).

        Raises `ConflictError` when the name is taken, or an exclusive producer stands in the way.
        """
        present = self.publishers.get(name)
        if present is not None and present.epoch >= epoch:
            raise ConflictError(f"Producer with name '{name}' is already connected to topic")
        others = [item for item in self.publishers.values() if item is not present]
        if others and (exclusive or any(item.exclusive for item in others)):
            raise ConflictError(f"Topic {self.name} has an exclusive producer, or the new one would be exclusive among others")
        limit = self._settings.value.producers_per_topic_max
        if limit and present is None and len(self.publishers) >= limit:
            raise ConflictError(f"Topic {self.name} has its maximum of {limit} producers")
        if epoch == 0:
            self._last_sequence_ids.pop(name, None)  # a new producer that happens to have the name begins anew
        publisher = Publisher(name, epoch, exclusive, self._last_sequence_ids.get(name, -1))
        self.publishers[name] = publisher
        return publisher

    def detach_publisher(self, publisher: Publisher, *, for_good: bool) -> None:
        """Remove a producer; for good when its client closed it, so that nothing of it will be sent again."""
        if self.publishers.get(publisher.name) is publisher:
            del self.publishers[publisher.name]
            if for_good:
                self._last_sequence_ids.pop(publisher.name, None)

    def last_sequence_id(self, name: str) -> int:
        """The last sequence id stored of a producer that may reconnect, −1 if none is remembered."""
        return self._last_sequence_ids.get(name, -1)

    def check_quota(self) -> None:
        """Raise `QuotaExceededError` when the topic is full."""
        limit = self._settings.value.backlog_bytes_max
        if limit >= 0 and self.log.bytes >= limit:
            raise QuotaExceededError(f"Topic {self.name} holds {self.log.bytes} bytes of {limit} allowed: consumers must acknowledge first")

    def publish(self, publisher: Publisher, sequence_id: int, tail: bytes, messages: int) -> Entry | None:
        """Store what one SEND brought; None for a duplicate. Raises `QuotaExceededError`."""
        if sequence_id <= publisher.resent_until:
            return None
        if publisher.resent_until >= 0:
            publisher.resent_until = -1
        log = self.log
        if log.bytes > self.retention_bytes:
            self.trim()
            self.check_quota()
        entry = log.append(tail, messages)
        self._last_sequence_ids[publisher.name] = sequence_id
        self.messages_in += messages
        self.bytes_in += len(tail)
        return entry

    @property
    def retention_bytes(self) -> int:
        """How much of what every subscription has acknowledged is kept."""
        return int(self._settings.value.retention_mb * 1024 * 1024)

    def trim(self) -> None:
        """Drop what every subscription has acknowledged, beyond what is retained."""
        consumed = min((item.mark for item in self.subscriptions.values()), default=self.log.end_id)
        self.log.drop_until(consumed, self.retention_bytes)

    # Subscriptions

    def subscribe(self, name: str, kind: SubscriptionType, start_id: int, *, durable: bool) -> Subscription:
        """The subscription of that name, created at `start_id` if there is none."""
        found = self.subscriptions.get(name)
        if found is None:
            found = Subscription(name, kind, self.log, start_id, durable=durable, partition=self.partition)
            self.subscriptions[name] = found
        return found

    def check_consumers(self) -> None:
        """Raise `ConflictError` when the topic has its maximum of consumers."""
        limit = self._settings.value.consumers_per_topic_max
        if limit and self.consumers >= limit:
            raise ConflictError(f"Topic {self.name} has its maximum of {limit} consumers")

    def unsubscribe(self, name: str) -> None:
        """Forget a subscription."""
        self.subscriptions.pop(name, None)

    @property
    def consumers(self) -> int:
        """How many consumers are attached."""
        return sum(len(item.consumers) for item in self.subscriptions.values())

    def register_schema(self, schema: bytes) -> int:
        """Version of a schema, which is new if it was never seen."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema)
