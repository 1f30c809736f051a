"""The consumers of a subscription, and whose turn it is to get messages. No step looks at all of
them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field


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
    delivered_bytes: int = 0
    writable: bool = True
    """False while its connection's outbound buffer is full."""
    address: str = ""
    """The client's address, without port."""

    def forget(self, entry_id: int) -> None:
        """An entry is no longer with this consumer."""
        self.unacked_messages -= self.pending.pop(entry_id, 0)


class RankedConsumers:
    """Consumers by priority (the lowest number first), then in order of arrival."""

    def __init__(self) -> None:
        self._groups: dict[int, OrderedDict[Consumer, None]] = {}
        self._priorities: list[int] = []

    def add(self, consumer: Consumer) -> None:
        """Add a consumer as the last of its priority, unless it is there."""
        if consumer.priority not in self._groups:
            self._groups[consumer.priority] = OrderedDict()
            insort(self._priorities, consumer.priority)
        self._groups[consumer.priority].setdefault(consumer)

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer if it is there."""
        group = self._groups.get(consumer.priority)
        if group is not None and consumer in group:
            del group[consumer]
            if not group:
                del self._groups[consumer.priority]
                del self._priorities[bisect_left(self._priorities, consumer.priority)]

    @property
    def best(self) -> OrderedDict[Consumer, None]:
        """The consumers of the best priority."""
        return self._groups[self._priorities[0]] if self._priorities else OrderedDict()


class Rotation:
    """Turns among the consumers of a shared subscription that can take something.

    They stand in a queue. One that can take nothing leaves it when it is first; whatever may change
    that must `offer` the consumer again.
    """

    def __init__(self) -> None:
        self._queue = RankedConsumers()
        self._turn: Consumer | None = None
        self.left = 0
        """How many entries are left of the present turn."""

    def offer(self, consumer: Consumer) -> None:
        """A consumer may be able to take something."""
        self._queue.add(consumer)

    def leave(self, consumer: Consumer) -> None:
        """A consumer is gone."""
        self._queue.discard(consumer)
        if self._turn is consumer:
            self._turn, self.left = None, 0

    def first(self, unacked_max: int) -> Consumer | None:
        """The first in the queue that can take something."""
        while queue := self._queue.best:
            consumer = next(iter(queue))
            if able(consumer, unacked_max):
                return consumer
            self._queue.discard(consumer)
        return None

    def next(self, turn_max: int, unacked_max: int) -> Consumer | None:
        """Whose turn it is: one of `turn_max` entries, of which `left` are left.

        A turn that a limit ended early goes on the next time. Otherwise limits and turns may fall
        into step, so that some consumers get all the long turns.
        """
        if self.left <= 0 and self._turn is not None and self._turn in self._queue.best:
            self._queue.best.move_to_end(self._turn)
        consumer = self.first(unacked_max)
        if consumer is not self._turn or self.left <= 0:
            self._turn, self.left = consumer, turn_max
        return consumer


def able(consumer: Consumer, unacked_max: int) -> bool:
    """True if a consumer of a shared subscription can take something."""
    return (
        consumer.permits > 0
        and consumer.writable
        and not 0 < unacked_max <= consumer.unacked_messages
    )
