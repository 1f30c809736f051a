"""Entries of a shared subscription that wait for the moment their producer asked for
(`MessageMetadata.deliver_at_time`; Pulsar's InMemoryDelayedDeliveryTracker).
"""

from __future__ import annotations

import heapq

from loadmanager.broker.messaging.memory import Memory


class DelayedEntries:
    """Entry ids, the earliest first. All subscriptions of a broker share one bound for how many
    they hold, of which each has a part for itself.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._heap: list[tuple[int, int]] = []

    def add(self, entry_id: int, at_ms: int) -> bool:
        """Hold an entry until `at_ms` (ms since the epoch); False if too many are held."""
        if self.full:
            return False
        heapq.heappush(self._heap, (at_ms, entry_id))
        self._memory.delay(1)
        return True

    @property
    def full(self) -> bool:
        """True if no more can be held."""
        return self._memory.delayed_full(len(self._heap))

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """The time at which the earliest entry is due, in ms since the epoch."""
        return self._heap[0][0] if self._heap else None

    @property
    def first(self) -> int:
        """The entry id of the earliest, of which there is one."""
        return self._heap[0][1]

    def due(self, now_ms: int) -> bool:
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def pop(self) -> int:
        """Remove the earliest."""
        self._memory.delay(-1)
        return heapq.heappop(self._heap)[1]

    def clear(self) -> None:
        self._memory.delay(-len(self._heap))
        self._heap.clear()
