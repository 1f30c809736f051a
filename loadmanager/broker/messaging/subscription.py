"""One subscription: which entries are acknowledged, which consumer has which, and who gets the next
(Pulsar's cursors and dispatchers).

Positions are entry ids of the topic's log. All ids below `mark` are acknowledged (Pulsar's
mark-delete position + 1).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

from loadmanager.broker.messaging.acked import AckedIds, AckSets
from loadmanager.broker.messaging.consumers import Consumer, RankedConsumers, Rotation, able
from loadmanager.broker.messaging.cursor import Cursor
from loadmanager.broker.messaging.delayed import DelayedEntries
from loadmanager.broker.messaging.log import Entry, MessageLog
from loadmanager.kit.errors import ConflictError

PERMITS_MAX = (1 << 31) - 1
ACK_SET_WORD_BITS = 64
PASSED_OVER_MAX = 1_000
"""Entries that are acknowledged or wait for their time and are passed over at once."""


class SubscriptionType(IntEnum):
    """The way in which the consumers of a subscription share its messages
    (`CommandSubscribe.SubType`).
    """

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2


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
        log: MessageLog,
        start_id: int,
        *,
        durable: bool,
        partition: int = -1,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.entries_out = 0
        self.messages_out = 0
        self.bytes_out = 0
        self.messages_redelivered = 0
        self.entries_expired = 0
        """Entries that were dropped because they were too old, or too many."""
        self.consumers: dict[Consumer, None] = {}
        """In order of arrival."""
        self.active: Consumer | None = None
        """The consumer that gets the messages, if the type serves one at a time. The partitions of
        a topic are spread over its failover consumers.
        """
        self._log = log
        self._partition = partition
        self._ranked = RankedConsumers()
        self._rotation = Rotation()
        self._delayed = DelayedEntries(log.memory)
        self._ack_sets = AckSets(log.memory)
        self.unfinished = False
        self.changed = False
        """Whether its cursor has moved since it was last saved; the saver sets it back."""
        self.rewind_to(start_id)

    # Positions

    def rewind_to(self, entry_id: int) -> None:
        """Start at `entry_id`; forget all acknowledgements, deliveries and redeliveries (a seek, or
        a new subscription).
        """
        self.mark = max(entry_id, self._log.first_id)
        self.changed = True
        self._acked = AckedIds()
        """Entries at or above `mark` that are acknowledged."""
        self._redeliveries: dict[int, int] = {}
        self._ack_sets.clear()
        self._holders: dict[int, Consumer] = {}
        """Entry id → the consumer that has it, of a shared subscription."""
        for consumer in self.consumers:
            consumer.pending.clear()
            consumer.unacked_messages = 0
            self._offer(consumer)
        self._read_again()

    def _read_again(self) -> None:
        """Deliver what is not acknowledged from `mark` on. Nothing is with a consumer."""
        self.read_id = self.mark
        self._replay: list[int] = []
        self._replayed: set[int] = set()
        self._delayed.clear()
        self._waits_until_ms = 0
        """Until when reading may stop, because too many entries wait for their time."""

    def cursor(self, ranges_max: int) -> Cursor:
        """Its acknowledgements, with at most so many ranges above the mark and as many batches that
        are acknowledged in part.
        """
        ranges = self._acked.ranges(ranges_max + 1)
        whole = len(ranges) <= ranges_max and len(self._ack_sets) <= ranges_max
        ack_sets = self._ack_sets.oldest(ranges_max)
        return Cursor(self.mark, ranges[:ranges_max], ack_sets, whole=whole)

    def restore(self, cursor: Cursor) -> None:
        """Go on from a saved cursor; nothing has been delivered yet."""
        self.rewind_to(cursor.mark)
        for first, last in cursor.ranges:
            end_id = min(last + 1, self._log.end_id)
            self._acked.add_range(max(first, self.mark), end_id, self._log.messages_from)
        for entry_id, ack_set in cursor.ack_sets.items():
            if entry_id >= self.mark and entry_id not in self._acked:
                self._ack_sets.put(entry_id, ack_set)
        self._advance()
        self.changed = False

    def close(self) -> None:
        """The subscription is not served here any more."""
        self._delayed.clear()
        self._ack_sets.clear()

    @property
    def backlog_messages(self) -> int:
        """Messages that are not acknowledged."""
        return self._log.messages_from(self.mark) - self._acked.messages

    @property
    def backlog_entries(self) -> int:
        """Entries that are not acknowledged: what Pulsar calls the backlog of a subscription."""
        return self._log.end_id - self.mark - len(self._acked)

    @property
    def waiting_to_be_redelivered(self) -> int:
        """Entries that wait for a consumer that takes them again."""
        return len(self._replayed)

    @property
    def delayed_entries(self) -> int:
        """Entries that wait for the time that their producer asked for."""
        return len(self._delayed)

    # Consumers

    def attach(self, consumer: Consumer, kind: SubscriptionType) -> None:
        """Add a consumer. Raises `ConflictError` when the type does not admit it."""
        if self.consumers and kind is not self.kind:
            raise ConflictError(
                f"Subscription {self.name} is of type {self.kind.name.capitalize()}"
            )
        if self.consumers and kind is SubscriptionType.EXCLUSIVE:
            raise ConflictError("Exclusive consumer is already connected")
        if kind is not self.kind:
            self.kind = kind
            self._read_again()
        before = self.active
        self.consumers[consumer] = None
        self._ranked.add(consumer)
        self._choose_active()
        if before is not None and self.active is not before:
            self._take_back(before)
        self._offer(consumer)

    def detach(self, consumer: Consumer) -> None:
        """Remove a consumer; what it had not acknowledged is delivered again."""
        if consumer in self.consumers:
            del self.consumers[consumer]
            self._ranked.discard(consumer)
            self._choose_active()
            self._take_back(consumer)
            self._rotation.leave(consumer)

    def _choose_active(self) -> None:
        first = self._ranked.best
        if not first or self.kind is SubscriptionType.SHARED:
            self.active = None
        else:
            self.active = next(islice(first, max(self._partition, 0) % len(first), None))

    def flow(self, consumer: Consumer, permits: int) -> None:
        """A consumer takes so many messages more."""
        consumer.permits = min(consumer.permits + permits, PERMITS_MAX)
        self._offer(consumer)

    def written(self, consumer: Consumer) -> None:
        """A consumer's outbound buffer has room again."""
        consumer.writable = True
        self._offer(consumer)

    def _offer(self, consumer: Consumer) -> None:
        if self.kind is SubscriptionType.SHARED:
            self._rotation.offer(consumer)

    # Dispatch

    def ready(self, unacked_max: int, now_ms: int, consumer: Consumer | None = None) -> bool:
        """True if there may be an entry to deliver, and a consumer, or this one, that can take
        it.
        """
        if not (self._replay or self._delayed.due(now_ms) or self._readable(now_ms)):
            return False
        if self.kind is SubscriptionType.SHARED:
            first = self._rotation.first(unacked_max) if consumer is None else consumer
            return first is not None and able(first, unacked_max)
        active = self.active if consumer in (None, self.active) else None
        return active is not None and active.permits > 0 and active.writable

    def _readable(self, now_ms: int) -> bool:
        """True if new entries can be read; not while too many wait for their time."""
        waits = now_ms < self._waits_until_ms and self._delayed.full
        return self.read_id < self._log.end_id and not waits

    @property
    def wake_ms(self) -> int | None:
        """The time at which a delayed entry becomes deliverable, in ms since the epoch; or None."""
        due_ms = self._delayed.next_ms
        if self._waits_until_ms and self.read_id < self._log.end_id:
            return min(due_ms or self._waits_until_ms, self._waits_until_ms)
        return due_ms

    def dispatch(
        self, *, entries_max: int, round_robin_max: int, unacked_max: int, now_ms: int
    ) -> Iterator[Delivery]:
        """Deliver at most `entries_max` entries to consumers that have permits. Afterwards
        `unfinished` tells whether there may be more behind entries that were passed over.
        """
        self.unfinished = False
        if self.kind is not SubscriptionType.SHARED:
            active = self.active
            while entries_max > 0 and active is not None and active.permits > 0 and active.writable:
                entry = self._next_entry(now_ms)
                if entry is None:
                    return
                entries_max -= 1
                yield self._deliver(active, entry)
            return
        rotation = self._rotation
        while (
            entries_max > 0
            and (consumer := rotation.next(round_robin_max, unacked_max)) is not None
        ):
            while rotation.left > 0 and entries_max > 0 and able(consumer, unacked_max):
                entry = self._next_entry(now_ms)
                if entry is None:
                    return
                rotation.left -= 1
                entries_max -= 1
                yield self._deliver(consumer, entry)

    def _next_entry(self, now_ms: int) -> Entry | None:
        """The next entry to deliver: redeliveries first, in order, then entries whose time has
        come, then new entries. None if there is none, or too many had to be passed over.
        """
        for _ in range(PASSED_OVER_MAX):
            again, due = bool(self._replay), self._delayed.due(now_ms)
            if again:
                entry_id = self._replay[0]
            elif due:
                entry_id = self._delayed.first
            elif self._readable(now_ms):
                entry_id = self.read_id
            else:
                return None
            entry = None if self._is_acked(entry_id) else self._log.get(entry_id)
            if entry is None and self._absent(entry_id):
                return None
            if again:
                self._replayed.discard(heapq.heappop(self._replay))
            elif due:
                self._delayed.pop()
            elif entry is not None and self._waits(entry, now_ms):
                continue  # and no longer readable, if it stops reading
            else:
                self.read_id = max(self.read_id, entry_id + 1)
            if entry is not None:
                return entry
        self.unfinished = True
        return None

    def _absent(self, entry_id: int) -> bool:
        """True if an entry that is not in memory has to be read first. An entry that does not exist
        counts as acknowledged.
        """
        if self._is_acked(entry_id):
            return False
        if self._log.loading(entry_id):
            return True
        self._acked.add(entry_id, self._log.messages_of(entry_id))
        self._advance()
        return False

    def _waits(self, entry: Entry, now_ms: int) -> bool:
        """True if an entry must not be delivered yet. It is passed over, or stops reading."""
        self._waits_until_ms, at_ms = 0, entry.deliver_at_ms
        if at_ms <= now_ms or self.kind is not SubscriptionType.SHARED:
            return False
        if self._delayed.add(entry.entry_id, at_ms):
            self.read_id += 1
        else:
            self._waits_until_ms = at_ms
        return True

    def _deliver(self, consumer: Consumer, entry: Entry) -> Delivery:
        consumer.pending[entry.entry_id] = entry.messages
        if self.kind is SubscriptionType.SHARED:
            self._holders[entry.entry_id] = consumer
        consumer.permits -= entry.messages
        consumer.unacked_messages += entry.messages
        consumer.delivered_messages += entry.messages
        consumer.delivered_bytes += len(entry.tail)
        self.entries_out += 1
        self.messages_out += entry.messages
        self.bytes_out += len(entry.tail)
        redeliveries = self._redeliveries.get(entry.entry_id, 0)
        if redeliveries:
            self.messages_redelivered += entry.messages
        return Delivery(consumer, entry, redeliveries, self._ack_sets.get(entry.entry_id))

    # Acknowledgement

    def _is_acked(self, entry_id: int) -> bool:
        return entry_id < self.mark or entry_id in self._acked

    def ack(self, consumer: Consumer, entry_id: int, ack_set: tuple[int, ...] = ()) -> None:
        """Acknowledge one entry, or with `ack_set` (bit 1: not acknowledged) some messages of a
        batch.
        """
        if self._is_acked(entry_id) or entry_id >= self._log.end_id:
            return
        messages = self._log.messages_of(entry_id)
        if ack_set:
            words = ack_set[: -(-messages // ACK_SET_WORD_BITS)]
            before = self._ack_sets.get(entry_id, words)
            wanted = tuple(a & b for a, b in zip(words, before, strict=False))
            self.changed = True
            if any(wanted):
                self._ack_sets.put(entry_id, wanted)
                return
        holder = consumer if entry_id in consumer.pending else self._holder(entry_id)
        if holder is not None:
            self._release(holder, entry_id)
        if entry_id == self.mark:
            self.mark += 1
        else:
            self._acked.add(entry_id, messages)
        self._settle(entry_id)
        self._advance()

    def _holder(self, entry_id: int) -> Consumer | None:
        shared = self.kind is SubscriptionType.SHARED
        return self._holders.get(entry_id) if shared else self.active

    def _release(self, consumer: Consumer, entry_id: int) -> None:
        """An entry is no longer with a consumer, which may be able to take another."""
        consumer.forget(entry_id)
        self._holders.pop(entry_id, None)
        self._offer(consumer)

    def ack_cumulative(self, consumer: Consumer, entry_id: int) -> None:
        """Acknowledge everything up to and including `entry_id`.

        Ignored for ids outside the log (−1 as unsigned, say) and, as in Pulsar, on shared
        subscriptions.
        """
        if self.kind is SubscriptionType.SHARED or not self.mark <= entry_id < self._log.end_id:
            return
        for passed in _between(consumer.pending, self.mark, entry_id + 1):
            consumer.forget(passed)
        self._move_mark(entry_id + 1)

    def expire_until(self, entry_id: int) -> int:
        """Have everything below `entry_id` count as acknowledged; returns how many entries were
        not.
        """
        end_id, before = min(entry_id, self._log.end_id), self.backlog_entries
        if end_id <= self.mark:
            return 0
        for consumer in self.consumers:
            for passed in _between(consumer.pending, self.mark, end_id):
                self._release(consumer, passed)
        self._move_mark(end_id)
        expired = before - self.backlog_entries
        self.entries_expired += expired
        return expired

    def _move_mark(self, end_id: int) -> None:
        before, self.mark = self.mark, end_id
        self._acked.drop_below(before, self.mark, self._log.messages_of)
        self._ack_sets.drop_below(before, self.mark)
        for passed in _between(self._redeliveries, before, self.mark):
            del self._redeliveries[passed]
        self._advance()

    def _advance(self) -> None:
        """Move `mark` over acknowledged entries."""
        self.changed = True
        if self._acked and (end_id := self._acked.stretch_end(self.mark)) > self.mark:
            self._acked.drop_below(self.mark, end_id, self._log.messages_of)
            self.mark = end_id
        self.read_id = max(self.read_id, self.mark)

    def _settle(self, entry_id: int) -> None:
        self._redeliveries.pop(entry_id, None)
        self._ack_sets.pop(entry_id)

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
                self._release(consumer, entry_id)
                self._again(entry_id)

    def _take_back(self, consumer: Consumer) -> None:
        taken = sorted(consumer.pending)
        for entry_id in taken:
            self._release(consumer, entry_id)
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


def _between(by_id: Mapping[int, object], first: int, end: int) -> list[int]:
    """The keys of `held` below `end`; all keys are at least `first`.

    Takes time in the smaller one of the number of keys and the length of the range.
    """
    if end - first < len(by_id):
        return [key for key in range(first, end) if key in by_id]
    return [key for key in by_id if key < end]
