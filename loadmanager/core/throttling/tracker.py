"""Why a connection is not read from (Pulsar's ServerCnxThrottleTracker): a count per cause, reading
paused while any of them is above zero.

The three rate limits are counted: each held producer is one, and reading resumes when the last of
them is let go. The other causes are states of the connection or the process: setting one twice is
the same as once. In Pulsar the broker's rate is such a state, too, because its queue may hold a
producer many times; here a queue holds a producer once, so counting is exact and no producer is
forgotten.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from loadmanager.core.throttling.bucket import Clock


class Cause(enum.StrEnum):
    """What can pause a connection."""

    TOPIC_PUBLISH_RATE = "topic publish rate"
    BROKER_PUBLISH_RATE = "broker publish rate"
    RESOURCE_GROUP_PUBLISH_RATE = "resource group publish rate"
    PENDING_PUBLISH_REQUESTS = "pending publish requests of the connection"
    PUBLISH_BUFFER = "publish buffer memory of the broker"
    OUTBOUND_BUFFER = "outbound buffer of the connection"
    REQUESTS_IN_PROGRESS = "requests of the connection in progress"


COUNTED = frozenset(
    {Cause.TOPIC_PUBLISH_RATE, Cause.BROKER_PUBLISH_RATE, Cause.RESOURCE_GROUP_PUBLISH_RATE}
)
"""Causes that are counted; the others are on or off."""


@dataclass(slots=True)
class CauseTotals:
    """How often and how long one cause paused connections; `connections` are those it holds now."""

    connections: int = 0
    times: int = 0
    held_ns: int = 0
    """Time of pauses that are over."""


@dataclass(slots=True)
class PauseTotals:
    """What every connection of a broker has in common: plain counters for metrics."""

    paused_connections: int = 0
    pauses: int = 0
    resumes: int = 0
    by_cause: dict[Cause, CauseTotals] = field(
        default_factory=lambda: {cause: CauseTotals() for cause in Cause}
    )


@dataclass(frozen=True, slots=True)
class Hold:
    """One cause that holds a connection now."""

    cause: Cause
    count: int
    for_ns: int
    """How long it has held so far."""


class ConnectionThrottle:
    """The causes of one connection.

    `pause` and `resume` are called on transitions only, never twice in a row.

    `resume` runs last and may hold the connection again before it returns.
    """

    __slots__ = (
        "_clock",
        "_counts",
        "_pause",
        "_resume",
        "_since_ns",
        "_totals",
        "closed",
        "limited",
        "paused",
        "throttled_ns",
        "throttled_times",
    )

    def __init__(
        self,
        pause: Callable[[], None],
        resume: Callable[[], None],
        *,
        clock: Clock,
        totals: PauseTotals,
    ) -> None:
        self._pause = pause
        self._resume = resume
        self._clock = clock
        self._totals = totals
        self._counts: dict[Cause, int] = {}
        self._since_ns: dict[Cause, int] = {}
        self.paused = False
        self.closed = False
        self.limited = False
        """Whether a publish limit ever held it."""
        self.throttled_times = 0
        """How often reading was paused."""
        self.throttled_ns: dict[Cause, int] = {}
        """Time held by each cause in pauses that are over."""

    def hold(self, cause: Cause) -> None:
        """A cause begins, or for a counted one: holds once more. Ignored on a closed connection."""
        if self.closed:
            return
        count = self._counts.get(cause, 0)
        if count and cause not in COUNTED:
            return
        self._counts[cause] = count + 1
        if count:
            return
        self.limited = self.limited or cause in COUNTED
        self._since_ns[cause] = self._clock()
        totals = self._totals.by_cause[cause]
        totals.connections += 1
        totals.times += 1
        if not self.paused:
            self.paused = True
            self.throttled_times += 1
            self._totals.pauses += 1
            self._totals.paused_connections += 1
            self._pause()

    def release(self, cause: Cause) -> None:
        """A cause ends, or for a counted one: holds once less. Ignored when it does not hold."""
        count = self._counts.get(cause, 0)
        if count > 1:
            self._counts[cause] = count - 1
            return
        if not count:
            return
        self._end(cause)
        if self.paused and not self._counts:
            self.paused = False
            self._totals.resumes += 1
            self._totals.paused_connections -= 1
            self._resume()

    def close(self) -> None:
        """The connection is gone: nothing holds it any more and nothing will; neither callback is
        called.
        """
        self.closed = True
        for cause in list(self._counts):
            self._end(cause)
        if self.paused:
            self.paused = False
            self._totals.paused_connections -= 1

    def holds(self) -> list[Hold]:
        """What holds the connection now, in the order of `Cause`."""
        now_ns = self._clock()
        return [
            Hold(cause, self._counts[cause], now_ns - self._since_ns[cause])
            for cause in Cause
            if cause in self._counts
        ]

    def _end(self, cause: Cause) -> None:
        del self._counts[cause]
        held_ns = self._clock() - self._since_ns.pop(cause)
        self.throttled_ns[cause] = self.throttled_ns.get(cause, 0) + held_ns
        totals = self._totals.by_cause[cause]
        totals.connections -= 1
        totals.held_ns += held_ns


class PublishBuffer:
    """Bytes that were received and wait because their connections are held by publish limits, over
    all connections.

    Above `limit_bytes`, connections that met a limit before and have nothing waiting are not read
    from either, lest they add to it; those that have something waiting go on at their limits' pace,
    so the buffer always empties. At half of the limit all are let go. Connections that never met a
    limit are left alone. A limit of 0 or less never holds (Pulsar's
    maxMessagePublishBufferSizeInMB, which stops every connection).
    """

    __slots__ = ("_bytes", "exceeded", "limit_bytes", "pending_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.pending_bytes = 0
        self.exceeded = False
        self._bytes: dict[ConnectionThrottle, int] = {}

    def set_limit(self, limit_bytes: int) -> None:
        """Change the limit; may resume connections."""
        self.limit_bytes = limit_bytes
        self._settle()

    def waiting(self, throttle: ConnectionThrottle, size_bytes: int) -> None:
        """A connection that is, or was, held by a publish limit has so many bytes waiting now.

        May hold or resume connections.
        """
        self.pending_bytes += size_bytes - self._bytes.get(throttle, 0)
        self._bytes[throttle] = size_bytes
        if not self.exceeded and 0 < self.limit_bytes < self.pending_bytes:
            self.exceeded = True
            for other, waiting_bytes in list(self._bytes.items()):
                if not waiting_bytes:
                    other.hold(Cause.PUBLISH_BUFFER)
        elif self.exceeded and not size_bytes:
            throttle.hold(Cause.PUBLISH_BUFFER)
        self._settle()

    def leave(self, throttle: ConnectionThrottle) -> None:
        """A connection is gone with what it had waiting."""
        self.pending_bytes -= self._bytes.pop(throttle, 0)
        self._settle()

    def _settle(self) -> None:
        if self.exceeded and (self.limit_bytes <= 0 or self.pending_bytes <= self.limit_bytes // 2):
            self.exceeded = False
            for throttle in list(self._bytes):
                if not self.exceeded:  # unless whoever was let go first filled it again
                    throttle.release(Cause.PUBLISH_BUFFER)
