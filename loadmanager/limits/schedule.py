"""The answers of limits: who may go on (`Ready`), and when to ask again (`Schedule`).

Limits make no callbacks. The owner of the connections takes them from `Ready` and calls `go_on` of
each.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from loadmanager.limits.limit import Limit, Ticket
    from loadmanager.limits.stats import Counters


class Resumable(Protocol):
    """A connection or a subscription that limits hold. Limits hand it out and never call it."""

    def go_on(self) -> None:
        """No limit holds it any more: send, until one does."""
        ...


class Holdable(Protocol):
    """A `Resumable`, as limits see it."""

    announced: bool
    """Whether it is in `Ready`; written by `Ready` only."""

    @property
    def owner(self) -> Resumable:
        """The connection or consumer that may go on."""
        ...

    @property
    def may_go_on(self) -> bool:
        """True if nothing holds it and it still exists."""
        ...


class Ready:
    """The connections and consumers whose last hold ended, in order, each once."""

    def __init__(self) -> None:
        self._queue: deque[Holdable] = deque()

    def add(self, holdable: Holdable) -> None:
        """The last hold of `holdable` ended."""
        if not holdable.announced:
            holdable.announced = True
            self._queue.append(holdable)

    def take(self) -> Resumable | None:
        """The next one; those that are held again, or gone, are left out."""
        while self._queue:
            holdable = self._queue.popleft()
            holdable.announced = False
            if holdable.may_go_on:
                return holdable.owner
        return None


ENTRIES_SPARE = 64
"""Outdated entries that a heap may have, beside as many as there are valid ones."""
RECENT_NS = 10_000_000_000
"""Who joined a queue since, was held lately."""
REMEMBERED_NS = 60_000_000_000
RECENT_MAX = 2_000
"""Waiters that limits held and that are remembered, for this long."""


REMOVED_MAX = 2_000
"""Limits that lost their rates and are remembered, the last ones."""


@dataclass(frozen=True, slots=True)
class RatedTime:
    """A limit at the end of a time in which it had the same rates."""

    limit: Limit
    messages_per_s: float
    bytes_per_s: float
    began: Counters
    """When it was given these rates, and its counters then."""
    ended: Counters


class Schedule:
    """The moment at which to ask each limit again, in a heap; who was held lately; and which limits
    were removed.

    An entry whose moment is not its limit's `wakeup_ns` is outdated. Outdated entries are dropped
    once they are more than the others and `ENTRIES_SPARE`.

    Who waited while it had nothing to send was not held: it is not listed.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Limit]] = []
        self._sequence = 0
        self._waiting = 0
        """The number of limits that wait for a moment."""
        self._recent: dict[Ticket, None] = {}
        """The tickets that joined a queue lately, and those that wait, the oldest first."""
        self._removed: deque[RatedTime] = deque(maxlen=REMOVED_MAX)

    def remember(self, ticket: Ticket) -> None:
        """A ticket joined the queue of its limit just now."""
        recent = self._recent
        recent.pop(ticket, None)
        recent[ticket] = None
        oldest = next(iter(recent))
        if len(recent) > RECENT_MAX:
            del recent[oldest]
        elif ticket.since_ns - oldest.since_ns > REMEMBERED_NS:
            del recent[oldest]
            if oldest.place:
                recent[oldest] = None  # it waits still

    def forget(self, ticket: Ticket) -> None:
        """The ticket's waiter has left."""
        self._recent.pop(ticket, None)

    def left(self, ticket: Ticket, now_ns: int) -> None:
        """A ticket left its queue; its wait may have held up nothing."""
        if now_ns - ticket.held_ns > REMEMBERED_NS:
            self.forget(ticket)

    def held_lately(self, now_ns: int, ago_ns: int = RECENT_NS) -> list[Ticket]:
        """The tickets that hold something up now, or joined a queue in the last `ago_ns`, at most
        `REMEMBERED_NS`, and held something up there.
        """
        forgotten_ns, held_since_ns = now_ns - REMEMBERED_NS, now_ns - ago_ns
        over = [it for it in self._recent if not it.place and it.held_ns < forgotten_ns]
        for ticket in over:
            del self._recent[ticket]
        return [it for it in self._recent if it.held_ns >= held_since_ns or it.holds_up]

    def removed(self, last: RatedTime) -> None:
        """A limit has no rate any more."""
        self._removed.append(last)

    def take_removed(self, *, keep: bool = False) -> list[RatedTime]:
        """Those that were removed since the last call, in order; `keep`: the next call has them,
        too.
        """
        removed = list(self._removed)
        if not keep:
            self._removed.clear()
        return removed

    def set(self, limit: Limit, at_ns: int | None) -> None:
        """Replace the moment that a limit waits for; None: it waits for nothing."""
        if at_ns == limit.wakeup_ns:
            return
        self._waiting += (at_ns is not None) - (limit.wakeup_ns is not None)
        limit.wakeup_ns = at_ns
        if at_ns is not None:
            self._sequence += 1
            heapq.heappush(self._heap, (at_ns, self._sequence, limit))
        if len(self._heap) > 2 * self._waiting + ENTRIES_SPARE:
            entries = {entry[2]: entry for entry in self._heap if entry[2].wakeup_ns == entry[0]}
            self._heap = sorted(entries.values())

    def next_ns(self) -> int | None:
        """The earliest moment; None when no limit waits."""
        while self._heap:
            at_ns, _, limit = self._heap[0]
            if limit.wakeup_ns == at_ns:
                return at_ns
            heapq.heappop(self._heap)
        return None

    def due(self, now_ns: int) -> Limit | None:
        """The limit that waits for the earliest moment, if that has come."""
        at_ns = self.next_ns()
        return self._heap[0][2] if at_ns is not None and at_ns <= now_ns else None
