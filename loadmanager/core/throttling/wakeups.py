"""One timer for everything that waits: who is to be woken when.

The adapter owns the timer. It is told through `on_earlier` when the earliest moment moved forward,
calls `run` when that moment has come, and asks `next_ns` for the next one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

from loadmanager.core.throttling.bucket import Clock

SLICE_NS = 20_000
"""After this much work whoever else uses the event loop has its turn: a throttled topic must not be
felt beside it.
"""


class Sleeper(Protocol):
    """Something with at most one moment at which it wants to be woken."""

    wakeup_ns: int | None
    """Written by `Wakeups` only."""

    def wake(self, now_ns: int) -> None:
        """The moment has come; may ask for another one."""
        ...


class Wakeups:
    """Sleepers by the time of their wake-up, in nanoseconds of `clock`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.on_earlier: Callable[[int], None] = lambda at_ns: None
        """Called with the new earliest moment when it is earlier than all that were asked for
        before.
        """
        self.count = 0
        """Sleepers woken since start."""
        self._heap: list[tuple[int, int, Sleeper]] = []
        self._sequence = 0
        self._run_ns: int | None = None

    def set(self, sleeper: Sleeper, at_ns: int | None) -> None:
        """Ask for one wake-up, replacing the sleeper's earlier wish; None takes it back."""
        if at_ns is not None and self._run_ns is not None:
            at_ns = max(at_ns, self._run_ns + 1)
        if at_ns == sleeper.wakeup_ns:
            return
        sleeper.wakeup_ns = at_ns
        if at_ns is None:
            return
        earliest = not self._heap or at_ns < self._heap[0][0]
        self._sequence += 1
        heapq.heappush(self._heap, (at_ns, self._sequence, sleeper))
        if earliest and self._run_ns is None:
            self.on_earlier(at_ns)

    def next_ns(self) -> int | None:
        """The earliest moment that somebody waits for; None when nobody waits."""
        while self._heap:
            at_ns, _, sleeper = self._heap[0]
            if sleeper.wakeup_ns == at_ns:
                return at_ns
            heapq.heappop(self._heap)
        return None

    def run(self) -> None:
        """Wake those whose moment has come, for `SLICE_NS` or so; nobody twice in one run.

        Those left over are due at once (`next_ns`).
        """
        self._run_ns = now_ns = self.clock()
        try:
            while (at_ns := self.next_ns()) is not None and at_ns <= now_ns:
                sleeper = heapq.heappop(self._heap)[2]
                sleeper.wakeup_ns = None
                self.count += 1
                sleeper.wake(now_ns)
                if self.clock() - now_ns > SLICE_NS:
                    break
        finally:
            self._run_ns = None
