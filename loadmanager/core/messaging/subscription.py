"""One subscription: which entries are acknowledged, which consumer has which, and who gets the next
(Pulsar's cursors and dispatchers).

Positions are entry ids of the topic's log. All ids below `mark` are acknowledged (Pulsar's
mark-delete position + 1).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from loadmanager.core.errors import ConflictError
from loadmanager.core.messaging.log import Entry, EntryLog


class SubscriptionType(IntEnum):
    """How the consumers of a subscription share its messages (`CommandSubscribe.SubType`)."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2


@dataclass(slots=True, eq=False)
class Consumer:
    """One attached consumer. `permits`: how many messages it takes; below 0 after a batch."""

    name: str
    priority: int = 0
    permits: int = 0
    pending: dict[int, int] = field(default_factory=dict)
    """Entry id → messages, delivered and not acknowledged."""
    unacked_messages: int = 0
    delivered_messages: int = 0
    writable: bool = True
    """False while its connection's outbound buffer is full."""
    address: str = ""
    """The client's address, without port."""

    def forget(self, entry_id: int) -> None:
        """An entry is no longer with this consumer."""
        self.unacked_messages -= self.pending.pop(entry_id, 0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One entry for one consumer.

    `ack_set`: the batch indexes that are still wanted, as Pulsar's bit words; empty for all.
    """

    consumer: Consumer
    entry: Entry
    redelivery_count: int
    ack_set: tuple[int, ...]


class Subscription:
    """A cursor with its consumers."""

    def __init__(
        self,
        name: str,
        kind: SubscriptionType,
        log: EntryLog,
        start_id: int,
        *,
        durable: bool,
        partition: int = -1,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.consumers: list[Consumer] = []
        self._log = log
        self._partition = partition
        self._turn = -1
        self._turn_left = 0
        self.rewind_to(start_id)

    # Positions

    def rewind_to(self, entry_id: int) -> None:
        """Start at `entry_id`; forget all acknowledgements, deliveries and redeliveries (a seek, or
        a new subscription).
        """
        self.mark = max(entry_id, self._log.first_id)
        self.read_id = self.mark
        self._acked: dict[int, int] = {}
        """Entries at or above `mark` that are acknowledged → their messages."""
        self._acked_messages = 0
        self._replay: list[int] = []
        self._replayed: set[int] = set()
        self._redeliveries: dict[int, int] = {}
        self._ack_sets: dict[int, tuple[int, ...]] = {}
        for consumer in self.consumers:
            consumer.pending.clear()
            consumer.unacked_messages = 0

    @property
    def backlog_messages(self) -> int:
        """Messages that are not acknowledged."""
        return self._log.messages_from(self.mark) - self._acked_messages

    # Consumers

    def attach(self, consumer: Consumer, kind: SubscriptionType) -> None:
        """Add a consumer. Raises `ConflictError` when the type does not admit it."""
        if self.consumers and kind is not self.kind:
            raise ConflictError(
                f"Subscription {self.name} is of type {self.kind.name.capitalize()}"
            )
        if self.consumers and kind is SubscriptionType.EXCLUSIVE:
            raise ConflictError("Exclusive consumer is already connected")
        self.kind = kind
        before = self.active
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda consumer: consumer.priority)  # stable: order of arrival
        if before is not None and self.active is not before:
            self._take_back(before)

    def detach(self, consumer: Consumer) -> None:
        """Remove a consumer; what it had not acknowledged is delivered again."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._take_back(consumer)

    @property
    def active(self) -> Consumer | None:
        """The consumer that gets the messages, if the type serves one at a time. The partitions of
        a topic are spread over its failover consumers.
        """
        if not self.consumers or self.kind is SubscriptionType.SHARED:
            return None
        first = [
            consumer
            for consumer in self.consumers
            if consumer.priority == self.consumers[0].priority
        ]
        return first[max(self._partition, 0) % len(first)]

    # Dispatch

    def ready(self, unacked_max: int) -> bool:
        """Whether there may be an entry to deliver, and a consumer that can take it."""
        if not self._replay and self.read_id >= self._log.end_id:
            return False
        if self.kind is SubscriptionType.SHARED:
            return any(_able(consumer, unacked_max) for consumer in self.consumers)
        active = self.active
        return active is not None and active.permits > 0 and active.writable

    def dispatch(
        self, *, entries_max: int, round_robin_max: int, unacked_max: int
    ) -> Iterator[Delivery]:
        """Deliver at most `entries_max` entries to consumers that have permits."""
        if self.kind is not SubscriptionType.SHARED:
            active = self.active
            while entries_max > 0 and active is not None and active.permits > 0 and active.writable:
                entry = self._next_entry()
                if entry is None:
                    return
                entries_max -= 1
                yield self._deliver(active, entry)
            return
        while (
            entries_max > 0
            and (consumer := self._next_consumer(round_robin_max, unacked_max)) is not None
        ):
            while self._turn_left > 0 and entries_max > 0 and _able(consumer, unacked_max):
                entry = self._next_entry()
                if entry is None:
                    return
                self._turn_left -= 1
                entries_max -= 1
                yield self._deliver(consumer, entry)
            if not _able(consumer, unacked_max):
                self._turn_left = 0

    def _next_consumer(self, round_robin_max: int, unacked_max: int) -> Consumer | None:
        """Whose turn it is, among the consumers of the best priority that can take something.

        A turn that a limit ended early goes on the next time. Otherwise limits and turns may fall
        into step, so that some consumers get all the long turns.
        """
        count = len(self.consumers)
        able: Consumer | None = None
        chosen = -1
        first = self._turn if self._turn_left > 0 else self._turn + 1
        for step in range(count):
            index = (first + step) % count
            consumer = self.consumers[index]
            if not _able(consumer, unacked_max):
                continue
            if able is None or consumer.priority < able.priority:
                able, chosen = consumer, index
        if able is not None and not (chosen == self._turn and self._turn_left > 0):
            self._turn, self._turn_left = chosen, round_robin_max
        return able

    def _next_entry(self) -> Entry | None:
        """The next entry to deliver: redeliveries first, in order, then new entries."""
        while self._replay:
            entry_id = heapq.heappop(self._replay)
            self._replayed.discard(entry_id)
            entry = self._log.get(entry_id)
            if entry is not None and not self._is_acked(entry_id):
                return entry
        while self.read_id < self._log.end_id:
            entry_id = self.read_id
            self.read_id += 1
            entry = self._log.get(entry_id)
            if entry is not None and not self._is_acked(entry_id):
                return entry
        return None

    def _deliver(self, consumer: Consumer, entry: Entry) -> Delivery:
        consumer.pending[entry.entry_id] = entry.messages
        consumer.permits -= entry.messages
        consumer.unacked_messages += entry.messages
        consumer.delivered_messages += entry.messages
        return Delivery(
            consumer,
            entry,
            self._redeliveries.get(entry.entry_id, 0),
            self._ack_sets.get(entry.entry_id, ()),
        )

    # Acknowledgement

    def _is_acked(self, entry_id: int) -> bool:
        return entry_id < self.mark or entry_id in self._acked

    def ack(self, consumer: Consumer, entry_id: int, ack_set: tuple[int, ...] = ()) -> None:
        """Acknowledge one entry, or with `ack_set` (bit 1: not acknowledged) some messages of a
        batch.
        """
        if self._is_acked(entry_id) or entry_id >= self._log.end_id:
            return
        if ack_set:
            before = self._ack_sets.get(entry_id, ack_set)
            wanted = tuple(a & b for a, b in zip(ack_set, before, strict=False))
            if any(wanted):
                self._ack_sets[entry_id] = wanted
                return
        if entry_id in consumer.pending:
            consumer.forget(entry_id)
        else:
            for holder in self.consumers:
                holder.forget(entry_id)
        entry = self._log.get(entry_id)
        messages = 0 if entry is None else entry.messages
        self._acked[entry_id] = messages
        self._acked_messages += messages
        self._settle(entry_id)
        self._advance()

    def ack_cumulative(self, consumer: Consumer, entry_id: int) -> None:
        """Acknowledge everything up to and including `entry_id`.

        Ignored for ids outside the log (−1 as unsigned, say) and, as in Pulsar, on shared
        subscriptions.
        """
        if self.kind is SubscriptionType.SHARED or not self.mark <= entry_id < self._log.end_id:
            return
        before, self.mark = self.mark, entry_id + 1
        for passed in _between(consumer.pending, before, self.mark):
            consumer.forget(passed)
        for passed in _between(self._acked, before, self.mark):
            self._acked_messages -= self._acked.pop(passed)
        for passed in _between(self._redeliveries, before, self.mark):
            del self._redeliveries[passed]
        for passed in _between(self._ack_sets, before, self.mark):
            del self._ack_sets[passed]
        self._advance()

    def _advance(self) -> None:
        """Move `mark` over acknowledged entries."""
        while (messages := self._acked.pop(self.mark, None)) is not None:
            self._acked_messages -= messages
            self.mark += 1
        self.read_id = max(self.read_id, self.mark)

    def _settle(self, entry_id: int) -> None:
        self._redeliveries.pop(entry_id, None)
        self._ack_sets.pop(entry_id, None)

    # Redelivery

    def redeliver(self, consumer: Consumer, entry_ids: Iterable[int] | None = None) -> None:
        """Deliver again what this consumer has not acknowledged; of a shared subscription, only
        `entry_ids` if they are given.
        """
        if entry_ids is None or self.kind is not SubscriptionType.SHARED:
            self._take_back(consumer)
            return
        for entry_id in entry_ids:
            if entry_id in consumer.pending:
                consumer.forget(entry_id)
                self._again(entry_id)

    def _take_back(self, consumer: Consumer) -> None:
        taken = sorted(consumer.pending)
        for entry_id in taken:
            consumer.forget(entry_id)
            if self.kind is SubscriptionType.SHARED:
                self._again(entry_id)
            else:
                self._redeliveries[entry_id] = self._redeliveries.get(entry_id, 0) + 1
        if taken and self.kind is not SubscriptionType.SHARED:
            # One consumer at a time: order matters, so delivery goes back to the first entry that
            # is not acknowledged.
            self.read_id = min(self.read_id, taken[0])

    def _again(self, entry_id: int) -> None:
        self._redeliveries[entry_id] = self._redeliveries.get(entry_id, 0) + 1
        if entry_id not in self._replayed:
            self._replayed.add(entry_id)
            heapq.heappush(self._replay, entry_id)


def _able(consumer: Consumer, unacked_max: int) -> bool:
    """Whether a consumer of a shared subscription can take something."""
    return (
        consumer.permits > 0
        and consumer.writable
        and not 0 < unacked_max <= consumer.unacked_messages
    )


def _between(held: Mapping[int, object], first: int, end: int) -> list[int]:
    """The keys of `held` below `end`; all keys are at least `first`.

    Takes time in the smaller one of the number of keys and the length of the range.
    """
    if end - first < len(held):
        return [key for key in range(first, end) if key in held]
    return [key for key in held if key < end]
