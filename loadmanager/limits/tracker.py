"""Why a connection is not read from (Pulsar's ServerCnxThrottleTracker): a count per cause. The
connection is paused while any count is above zero.

The three rate limits are counted: each producer that is held adds one. The other causes are states
of the connection or of the process: a second hold by the same cause changes nothing. In Pulsar the
broker's rate is such a state, too, because its queue may hold a producer many times; here a queue
holds a producer once, so counting is exact.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from loadmanager.limits.schedule import Ready, Resumable


class HoldCause(enum.StrEnum):
    """A cause that can hold a connection."""

    TOPIC_PUBLISH_RATE = "topic publish rate"
    BROKER_PUBLISH_RATE = "broker publish rate"
    RESOURCE_GROUP_PUBLISH_RATE = "resource group publish rate"
    PENDING_PUBLISH_REQUESTS = "pending publish requests of the connection"
    PUBLISH_BUFFER = "publish buffer memory of the broker"
    OUTBOUND_BUFFER = "outbound buffer of the connection"
    REQUESTS_IN_PROGRESS = "requests of the connection in progress"


COUNTED = frozenset(
    {
        HoldCause.TOPIC_PUBLISH_RATE,
        HoldCause.BROKER_PUBLISH_RATE,
        HoldCause.RESOURCE_GROUP_PUBLISH_RATE,
    }
)
"""Causes that are counted, one for each producer that is held; the others are on or off."""


HOLDERS_MAX = 3

AGAIN_NS = 10_000_000_000
"""Holds by limits with less than this between them are one stretch: a connection at its limit is
held for a moment many times a second.
"""


class Holder(Protocol):
    """A producer that a limit holds, and with it all others of its connection."""

    @property
    def name(self) -> str:
        """Of the producer."""
        ...

    @property
    def topic(self) -> str:
        """Where it publishes."""
        ...

    @property
    def held_again_since_ns(self) -> int:
        """When limits began to hold it, again and again since; far in the past: they never did."""
        ...


@dataclass(slots=True)
class HoldTotals:
    """The number and duration of one cause's holds; `connections`: those that it holds now."""

    connections: int = 0
    times: int = 0
    held_ns: int = 0
    """Time of holds that are over and held something up."""


@dataclass(slots=True)
class PauseTotals:
    """Counters over all connections of a broker."""

    paused_connections: int = 0
    pauses: int = 0
    resumes: int = 0
    by_cause: dict[HoldCause, HoldTotals] = field(
        default_factory=lambda: {cause: HoldTotals() for cause in HoldCause}
    )


@dataclass(frozen=True, slots=True)
class Hold:
    """One cause that holds a connection now."""

    cause: HoldCause
    count: int
    for_ns: int
    """How long it has held so far."""
    holders: tuple[Holder, ...] = ()
    """Of a counted cause: the producers whose limits hold it, at most `HOLDERS_MAX`."""


class Readable(Resumable, Protocol):
    """A client's connection. Throttling hands it out and never calls it."""

    peer: str
    """The client's address and port."""

    def waits(self, holder: Holder | None = None) -> bool:
        """Whether something waits now that the client sent, because it is paused: a publish (of
        this producer), or, when that lasts, anything that its client waits for.
        """
        ...

    def stop_reading(self) -> None:
        """It is paused now, from outside of its own turn: read nothing more."""
        ...

    def topics(self) -> Collection[str]:
        """Those of its producers and consumers."""
        ...

    def subscriptions(self, topic: str) -> Collection[str]:
        """Those of a topic that its consumers are attached to."""
        ...


class ConnectionThrottle:
    """Keeps what holds one connection; `owner` is handed out (`Ready`) when its last hold ended.

    The caller of `hold` must stop reading if `paused` is True afterwards.
    """

    __slots__ = (
        "_counts",
        "_holders",
        "_last_limited_ns",
        "_limited_since_ns",
        "_paused_since_ns",
        "_ready",
        "_since_ns",
        "_totals",
        "announced",
        "closed",
        "last_holder",
        "limited",
        "owner",
        "paused",
        "paused_ns",
        "throttled_ns",
        "throttled_times",
        "waited_ns",
    )

    def __init__(self, owner: Readable, totals: PauseTotals, ready: Ready) -> None:
        self.owner = owner
        self.announced = False
        self.paused = False
        self.closed = False
        self.limited = False
        """Whether a publish limit ever held it."""
        self.last_holder: tuple[HoldCause, Holder] | None = None
        """The producer that a limit held last, and by which cause."""
        self._limited_since_ns = self._last_limited_ns = -AGAIN_NS
        """Since when limits hold it again and again; when the last of these holds ended. Without
        the holds in which nothing had to wait (`Readable.waits`).
        """
        self.paused_ns = 0
        """Time of pauses that are over."""
        self.waited_ns = 0
        """The same, without the pauses in which nothing had to wait."""
        self._paused_since_ns = 0
        self.throttled_times = 0
        """How often it was paused."""
        self.throttled_ns: dict[HoldCause, int] = {}
        """Time held by each cause, in holds that are over and held something up."""
        self._totals = totals
        self._ready = ready
        self._counts: dict[HoldCause, int] = {}
        self._since_ns: dict[HoldCause, int] = {}
        self._holders: dict[HoldCause, dict[Holder, int]] = {}
        """Of each counted cause: who is held by it, by how many limits."""

    @property
    def may_go_on(self) -> bool:
        """True if nothing holds it and it is not closed."""
        return not self.paused and not self.closed

    def hold(self, cause: HoldCause, now_ns: int, holder: Holder | None = None) -> None:
        """A cause begins to hold, or a counted one holds once more. Ignored once closed."""
        if self.closed:
            return
        if holder is not None:
            holders = self._holders.setdefault(cause, {})
            holders[holder] = holders.get(holder, 0) + 1
            self.last_holder = cause, holder
        count = self._counts.get(cause, 0)
        if count and cause not in COUNTED:
            return
        if count:
            self._counts[cause] = count + 1
            return
        if cause in COUNTED:
            self.limited = True
        self._counts[cause] = 1
        self._since_ns[cause] = now_ns
        totals = self._totals.by_cause[cause]
        totals.connections += 1
        totals.times += 1
        if not self.paused:
            self.paused = True
            self._paused_since_ns = now_ns
            self.throttled_times += 1
            self._totals.pauses += 1
            self._totals.paused_connections += 1

    @property
    def by_limits_only(self) -> bool:
        """Whether nothing but limits holds it."""
        return self._counts.keys() <= COUNTED

    @property
    def holders(self) -> set[Holder]:
        """The producers whose limits hold it."""
        return {holder for holders in self._holders.values() for holder in holders}

    def paused_for_ns(self, now_ns: int) -> int:
        """For how long it is paused at once; 0 if it is not."""
        return now_ns - self._paused_since_ns if self.paused else 0

    def release(
        self,
        cause: HoldCause,
        now_ns: int,
        holder: Holder | None = None,
        *,
        idle: bool = False,
    ) -> None:
        """A cause ends, or a counted one holds once less. Ignored when it does not hold. `idle`:
        nothing had to wait for it.
        """
        if holder is not None and holder in (holders := self._holders.get(cause, {})):
            holders[holder] -= 1
            if not holders[holder]:
                del holders[holder]
        count = self._counts.get(cause, 0)
        if count > 1:
            self._counts[cause] = count - 1
            return
        if not count:
            return
        self._end(cause, now_ns, idle=idle)
        if not self._counts:
            self.paused_ns = self.paused_until(now_ns)
            self.waited_ns += 0 if idle else now_ns - self._paused_since_ns
            self.paused = False
            self._totals.resumes += 1
            self._totals.paused_connections -= 1
            self._ready.add(self)

    def paused_until(self, now_ns: int) -> int:
        """For how long it was paused, all in all."""
        return self.paused_ns + self.paused_for_ns(now_ns)

    def waited_until(self, now_ns: int) -> int:
        """The same, without the pauses in which nothing had to wait."""
        waits = self.paused and self.owner.waits()
        return self.waited_ns + (now_ns - self._paused_since_ns if waits else 0)

    def close(self, now_ns: int) -> None:
        """The connection is gone: nothing holds it now or later, and it is not handed out."""
        self.closed = True
        idle = self.paused and not self.owner.waits()
        for cause in list(self._counts):
            self._end(cause, now_ns, idle=idle)
        if self.paused:
            self.paused = False
            self._totals.paused_connections -= 1

    def limited_since_ns(self, now_ns: int) -> int | None:
        """Since when limits hold it, or held it again and again until less than `AGAIN_NS` ago;
        None: they do not, or nothing had to wait meanwhile.
        """
        if not self.limited or self.closed:
            return None
        begun = [self._since_ns[cause] for cause in self._counts if cause in COUNTED]
        if begun and self.owner.waits():
            return self._stretch_ns(min(begun))
        return self._limited_since_ns if now_ns - self._last_limited_ns <= AGAIN_NS else None

    def _stretch_ns(self, since_ns: int) -> int:
        """When the stretch began that a hold since `since_ns` belongs to."""
        if since_ns - self._last_limited_ns > AGAIN_NS:
            return since_ns
        return min(since_ns, self._limited_since_ns)

    def holds(self, now_ns: int) -> list[Hold]:
        """The present holds of the connection, in the order of `HoldCause`."""
        return [
            Hold(
                cause,
                self._counts[cause],
                now_ns - self._since_ns[cause],
                tuple(islice(self._holders.get(cause, ()), HOLDERS_MAX)),
            )
            for cause in HoldCause
            if cause in self._counts
        ]

    def _end(self, cause: HoldCause, now_ns: int, *, idle: bool) -> None:
        del self._counts[cause]
        self._holders.pop(cause, None)
        since_ns = self._since_ns.pop(cause)
        if cause in COUNTED and not idle:
            self._limited_since_ns = self._stretch_ns(since_ns)
            self._last_limited_ns = now_ns
        held_ns = 0 if idle else now_ns - since_ns
        self.throttled_ns[cause] = self.throttled_ns.get(cause, 0) + held_ns
        totals = self._totals.by_cause[cause]
        totals.connections -= 1
        totals.held_ns += held_ns


class PublishBuffer:
    """Bytes that were received and wait because publish limits hold their connections, over all
    connections (Pulsar's maxMessagePublishBufferSizeInMB, which stops every connection).

    Above `limit_bytes`, connections that met a limit before and have nothing waiting are paused,
    too, because they could only add to it. Those that have something waiting go on at the pace of
    their limits, so the buffer always empties. At half of the limit all are released. Connections
    that never met a limit are left alone. A limit of 0 or less pauses nobody.
    """

    __slots__ = ("_bytes", "exceeded", "limit_bytes", "pending_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.pending_bytes = 0
        self.exceeded = False
        self._bytes: dict[ConnectionThrottle, int] = {}

    def set_limit(self, limit_bytes: int, now_ns: int) -> None:
        self.limit_bytes = limit_bytes
        self._settle(now_ns)

    def waiting(
        self, throttle: ConnectionThrottle, size_bytes: int, now_ns: int
    ) -> list[ConnectionThrottle]:
        """A connection that is, or was, held by a publish limit has `size_bytes` waiting now.

        Returns the connections that were paused by this and must stop reading.
        """
        self.pending_bytes += size_bytes - self._bytes.get(throttle, 0)
        self._bytes[throttle] = size_bytes
        empty: list[ConnectionThrottle] = []
        if not self.exceeded and 0 < self.limit_bytes < self.pending_bytes:
            self.exceeded = True
            empty = [other for other, waiting_bytes in self._bytes.items() if not waiting_bytes]
        elif self.exceeded and not size_bytes:
            empty = [throttle]
        for other in empty:
            other.hold(HoldCause.PUBLISH_BUFFER, now_ns)
        self._settle(now_ns)
        return empty

    def leave(self, throttle: ConnectionThrottle, now_ns: int) -> None:
        """A connection is gone with what it had waiting."""
        self.pending_bytes -= self._bytes.pop(throttle, 0)
        self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        if self.exceeded and (self.limit_bytes <= 0 or self.pending_bytes <= self.limit_bytes // 2):
            self.exceeded = False
            for throttle in self._bytes:
                throttle.release(HoldCause.PUBLISH_BUFFER, now_ns)
