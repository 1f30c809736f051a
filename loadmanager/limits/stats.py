"""Counters of a limit: what it delivered, what was configured, and how long waiters waited; for
metrics and for "why is this producer slow?".
"""

from __future__ import annotations

from collections import deque

from loadmanager.kit.model import Shape
from loadmanager.limits.bucket import SECOND_NS

Counters = tuple[int, int, int, int, int]
"""The time, messages, bytes, waits that are over, and how long they took in ns."""

WINDOW_NS = 10 * SECOND_NS
_MARK_NS = SECOND_NS


class LimitSnapshot(Shape):
    """One limit at one moment. Rates are per second, −1 when unlimited."""

    name: str
    level: str
    configured_messages_per_s: float
    configured_bytes_per_s: float
    delivered_messages_per_s: float
    delivered_bytes_per_s: float
    window_s: float
    """The delivered rates are averages over this time: at least ten seconds for a limit that is as
    old.
    """
    error: float | None
    """Delivered / configured − 1, of messages or of bytes, whichever is closer to its limit; None
    when nobody was held in the window, or it is too short for a comparison.
    """
    queue_length: int
    """Those who wait now and have something to send."""
    next_ms: float
    """How long until tokens are there again; 0 when there are some."""
    messages: int
    size_bytes: int
    held: int
    """How often a waiter waited that had something to send, with the waits that last."""
    waited_ms: float
    """Sum of all finished waits of those who had something to send."""
    wakeups: int
    forgiven_tokens: int
    """Debt beyond the configured maximum, in messages or bytes."""


class LimitStats:
    """Counters of one limit since it was created, with their values over the last `WINDOW_NS`.

    A wait counts when it is over, and only if the waiter had something to send at its end.
    """

    __slots__ = (
        "_held_until_ns",
        "_marks",
        "began",
        "forgiven",
        "held_since_ns",
        "holds",
        "messages",
        "size_bytes",
        "waited_ns",
        "wakeups",
    )

    def __init__(self, now_ns: int) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.holds = 0
        self.waited_ns = 0
        self.wakeups = 0
        self.forgiven = 0
        self.held_since_ns = now_ns
        """When it began to hold somebody, again and again since, never less often than each
        `WINDOW_NS`; without the waits that last.
        """
        self._held_until_ns = now_ns - WINDOW_NS - 1
        self._marks: deque[Counters] = deque()
        self.restart(now_ns)

    def restart(self, now_ns: int) -> None:
        """The limit changed: measure from here."""
        self.began = self.counters(now_ns)
        """When it was given its rates, and its counters then."""
        self._marks.clear()
        self._marks.append(self.counters(now_ns))

    def counters(self, now_ns: int) -> Counters:
        return now_ns, self.messages, self.size_bytes, self.holds, self.waited_ns

    def mark(self, now_ns: int) -> None:
        """Remember the counters, at most once a second, for `WINDOW_NS`."""
        if now_ns - self._marks[-1][0] < _MARK_NS:
            return
        self._marks.append(self.counters(now_ns))
        # keep one mark that is at least as old as the window
        while len(self._marks) > 1 and now_ns - self._marks[1][0] >= WINDOW_NS:
            self._marks.popleft()

    def waited(self, since_ns: int, now_ns: int) -> None:
        """A waiter that had something to send left the queue."""
        self.holds += 1
        self.waited_ns += now_ns - since_ns
        self.held_since_ns = self.stretch_ns(since_ns)
        self._held_until_ns = now_ns

    def stretch_ns(self, since_ns: int) -> int:
        """When the stretch began that a wait since `since_ns` belongs to."""
        if since_ns - self._held_until_ns > WINDOW_NS:
            return since_ns
        return min(since_ns, self.held_since_ns)

    def rates(self, now_ns: int) -> tuple[float, float, float, bool]:
        """Messages/s, bytes/s, the seconds of the window, and whether a wait ended in it."""
        then_ns, messages, size_bytes, holds, _ = self._then(now_ns)
        window_s = (now_ns - then_ns) / SECOND_NS
        if window_s <= 0:
            return 0.0, 0.0, 0.0, False
        return (
            (self.messages - messages) / window_s,
            (self.size_bytes - size_bytes) / window_s,
            window_s,
            self.holds > holds,
        )

    def waited_lately_ns(self, now_ns: int) -> int:
        """The sum of the waits that ended in the window."""
        return self.waited_ns - self._then(now_ns)[-1]

    def _then(self, now_ns: int) -> Counters:
        """The counters when the window began."""
        before = [mark for mark in self._marks if now_ns - mark[0] >= WINDOW_NS]
        return before[-1] if before else self._marks[0]
