"""One limit, messages and bytes per second, and the fair queue of those who wait for it.

Publishing: what a producer sent is charged after the fact, so a balance may become negative; the
producer is then held and waits here. Dispatching: a subscription looks before it sends
(`must_wait`), is charged for what it sent, and waits here, too.

Fairness. Everybody's use is measured in nanoseconds of the limit (the larger of messages over the
message rate and bytes over the byte rate), summed per ticket as in start-time fair queueing; who
has used least is let go first, ties in order of arrival. So producers with frames of different
sizes get the same share of whatever is scarce. While others wait, a turn ends after `QUANTUM_NS` of
use. Whoever was idle, or stuck behind others of its connection, is at most `CREDIT_NS` of use ahead
of the rest; whoever is new is not ahead at all. An endless row of newcomers would still starve
those who have used something: so whoever has waited twice as long as a fair share lets it wait (and
`PATIENT_NS`) goes first.

Accuracy. Who is let go has tokens set aside until it used them (or `PATIENCE_NS` passed), so that a
hundred connections woken together do not all spend the same tokens. The capacity is small, so that
the first second grants what every second grants; while somebody waits it is one second's worth, so
that tokens are not lost to a timer that comes late.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from loadmanager.core.throttling.bucket import SECOND_NS, TokenBucket
from loadmanager.core.throttling.stats import LimitSnapshot, LimitStats
from loadmanager.core.throttling.wakeups import SLICE_NS, Wakeups

QUANTUM_NS = 1_000_000
CREDIT_NS = 250_000_000
PATIENCE_NS = 50_000_000
TURNS_MIN = 20
"""In a window of fewer turns delivered over configured says more about when one looks."""
PATIENT_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Tuning:
    """How limits behave (see `ThrottlingSettings`)."""

    burst_ns: int
    """What an idle limit saves up, as time of its rate; at least one token."""
    debt_max_ns: int
    """Publish debt beyond this much time of the rate is forgiven."""
    resolution_ns: int


class Level(enum.StrEnum):
    """What a limit belongs to."""

    BROKER = "broker"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    RESOURCE_GROUP = "resource group"


class Waiter(Protocol):
    """Somebody who can be held by limits: a producer, or a subscription's dispatcher."""

    def held(self, limit: Limit) -> None:
        """Must wait for `limit` from now on."""
        ...

    def released(self, limit: Limit) -> None:
        """Need not wait for `limit` any more; may go on at once, and may be held again before this
        returns.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Tokens set aside for a ticket that was let go."""

    messages: int
    size_bytes: int
    expires_ns: int


class Ticket:
    """One waiter's account at one limit."""

    __slots__ = (
        "last_bytes",
        "last_messages",
        "limit",
        "queued",
        "reserved",
        "since_ns",
        "turn_ns",
        "used_ns",
        "waiter",
    )

    def __init__(self, limit: Limit, waiter: Waiter) -> None:
        self.limit = limit
        self.waiter = waiter
        self.used_ns = limit.virtual_ns
        self.turn_ns = 0
        self.last_messages = 1
        self.last_bytes = 1
        self.queued = 0
        """Number of its place in the queue; 0 when it does not wait."""
        self.reserved: Reservation | None = None
        self.since_ns = 0


class Limit:
    """A limit with its queue.

    Without rates it holds nobody; `set_buckets` changes it at once for everybody who waits.
    """

    __slots__ = (
        "_arrivals",
        "_byte_cost_ns",
        "_bytes",
        "_clock",
        "_debt_max_ns",
        "_heap",
        "_message_cost_ns",
        "_messages",
        "_outstanding",
        "_releasing",
        "_reserved_bytes",
        "_reserved_messages",
        "_sequence",
        "_tuning",
        "_turn_ns",
        "_wakeups",
        "length",
        "level",
        "name",
        "stats",
        "virtual_ns",
        "wakeup_ns",
    )

    def __init__(self, level: Level, name: str, *, wakeups: Wakeups, tuning: Tuning) -> None:
        self.level = level
        self.name = name
        self.length = 0
        """How many wait."""
        self.wakeup_ns: int | None = None
        self._wakeups = wakeups
        self._clock = wakeups.clock
        self._tuning = tuning
        self._debt_max_ns: int | None = None
        self._messages: TokenBucket | None = None
        self._bytes: TokenBucket | None = None
        self._message_cost_ns = self._byte_cost_ns = 0.0
        self._heap: list[tuple[int, int, Ticket]] = []
        self._arrivals: deque[tuple[int, Ticket]] = deque()
        """Who waits, in order of arrival; like the heap it may hold some who left."""
        self._sequence = 0
        self._turn_ns = 0
        self.virtual_ns = 0
        """The least that anybody had used who was let go lately: where newcomers begin."""
        self._outstanding: deque[tuple[Ticket, Reservation]] = deque()
        self._reserved_messages = self._reserved_bytes = 0
        self._releasing = False
        self.stats = LimitStats(self._clock())

    @property
    def active(self) -> bool:
        """Whether there is any limit."""
        return self._messages is not None or self._bytes is not None

    def message_rate(self) -> float:
        """Messages per second that are configured; −1 when unlimited."""
        return _per_second(self._messages)

    def byte_rate(self) -> float:
        """Bytes per second that are configured; −1 when unlimited."""
        return _per_second(self._bytes)

    def available(self, ticket: Ticket | None = None) -> tuple[int, int]:
        """Messages and bytes that may be sent now, by this ticket or anybody; not negative, −1 when
        unlimited.
        """
        others_messages, others_bytes = self._reserved_for_others(ticket)
        messages = (
            -1 if self._messages is None else max(self._messages.tokens() - others_messages, 0)
        )
        size = -1 if self._bytes is None else max(self._bytes.tokens() - others_bytes, 0)
        return messages, size

    def turn(self, ticket: Ticket) -> tuple[int, int]:
        """As `available`; while others wait, no more than what is left of the ticket's turn, but at
        least one.
        """
        messages, size = self.available(ticket)
        if not self.length:
            return messages, size
        left_ns = max(QUANTUM_NS - ticket.turn_ns, 0)
        if messages > 0:
            messages = min(messages, max(int(left_ns // self._message_cost_ns), 1))
        if size > 0:
            size = min(size, max(int(left_ns // self._byte_cost_ns), 1))
        return messages, size

    @property
    def lifted(self) -> bool:
        """Whether there is no limit any more, and those who waited for it are being let go, a few
        at a time.
        """
        return not self.active and self.length > 0

    def snapshot(self) -> LimitSnapshot:
        """What was configured, what was delivered, who waits."""
        now_ns = self._clock()
        stats = self.stats
        messages, size, window_s, binding = stats.rates(now_ns)
        stats.mark(now_ns)
        nearness = [
            done / limit
            for done, limit in ((messages, self.message_rate()), (size, self.byte_rate()))
            if limit > 0
        ]
        return LimitSnapshot(
            name=self.name,
            level=self.level,
            configured_messages_per_s=self.message_rate(),
            configured_bytes_per_s=self.byte_rate(),
            delivered_messages_per_s=messages,
            delivered_bytes_per_s=size,
            window_s=window_s,
            error=max(nearness) - 1
            if (binding or self.length)
            and nearness
            and window_s * SECOND_NS >= TURNS_MIN * self._turn_ns
            else None,
            queue_length=self.length,
            next_ms=(self.debt_ns() if self.wakeup_ns is None else max(self.wakeup_ns - now_ns, 0))
            / 1e6,
            messages=stats.messages,
            size_bytes=stats.size_bytes,
            held=stats.held,
            waited_ms=stats.waited_ns / 1e6,
            wakeups=stats.wakeups,
            forgiven_tokens=stats.forgiven,
        )

    def debt_ns(self) -> int:
        """How long until tokens are there again; 0 when there are some."""
        return self._duration_ns(1, 1)

    def set_buckets(self, messages: TokenBucket | None, size: TokenBucket | None) -> None:
        """Replace both buckets (None: unlimited).

        Debt is forgotten, and who waits is let go as far as tokens go, in slices if they are many.
        """
        self._messages, self._bytes = messages, size
        self._set_costs()
        self._forget_reservations()
        now_ns = self._clock()
        self.stats.restart(now_ns)
        for _, place, ticket in self._heap:
            if ticket.queued == place:
                ticket.turn_ns = 0
        self.wake(now_ns)

    def charge(self, ticket: Ticket, messages: int, size_bytes: int) -> bool:
        """Account for something that was sent; True when the ticket must wait before its next."""
        over = False
        if self._messages is not None and not self._messages.consume_and_check(messages):
            over = True
        if self._bytes is not None and not self._bytes.consume_and_check(size_bytes):
            over = True
        stats = self.stats
        stats.messages += messages
        stats.size_bytes += size_bytes
        ticket.last_messages, ticket.last_bytes = messages, size_bytes
        cost_ns = self._turn_ns = self._cost_ns(messages, size_bytes)
        start_ns = max(ticket.used_ns, self.virtual_ns - CREDIT_NS)
        self.virtual_ns = max(self.virtual_ns, start_ns)
        ticket.used_ns = start_ns + cost_ns
        ticket.turn_ns += cost_ns
        if ticket.reserved is not None:
            self._give_back(ticket)
        if over and self._debt_max_ns is not None:
            self._bound_debt(self._debt_max_ns)
        return over or (bool(self.length or self._outstanding) and self.must_wait(ticket))

    def must_wait(self, ticket: Ticket) -> bool:
        """Whether the ticket may not send now: nothing left that is not set aside for others, or
        its turn is over while others wait.
        """
        if self.length and ticket.turn_ns > QUANTUM_NS:
            return True
        return 0 in self.available(ticket)

    def hold(self, ticket: Ticket) -> None:
        """Put the ticket in the queue, unless it is in it or there is no limit any more."""
        if ticket.queued or not self.active:
            return
        if ticket.reserved is not None:
            self._give_back(ticket)
        self._sequence += 1
        ticket.queued = self._sequence
        ticket.since_ns = self._clock()
        self.stats.mark(ticket.since_ns)
        self._arrivals.append((self._sequence, ticket))
        heapq.heappush(
            self._heap, (max(ticket.used_ns, self.virtual_ns - CREDIT_NS), self._sequence, ticket)
        )
        self.length += 1
        self.stats.held += 1
        self._set_waiters()
        ticket.waiter.held(self)
        if not self._releasing:
            self._schedule()

    def leave(self, ticket: Ticket) -> None:
        """The waiter is gone: forget it. It is not told that it is released."""
        if ticket.queued:
            self._dequeue(ticket)
        if ticket.reserved is not None:
            self._give_back(ticket)
        self._schedule()

    def wake(self, now_ns: int) -> None:
        """Let go as many as there are tokens for, for `SLICE_NS` or so, and ask for the next
        wake-up.
        """
        self.stats.wakeups += 1
        self.stats.mark(now_ns)
        self._set_costs()
        self._expire_reservations(now_ns)
        self._releasing = True
        try:
            while self.length and self._spare():
                self._release_first(now_ns)
                if self._clock() - now_ns > SLICE_NS:
                    break
        finally:
            self._releasing = False
            self._schedule()

    def places(self) -> dict[Ticket, int]:
        """How many are let go before each ticket that waits."""
        waiting = sorted(
            (entry for entry in self._heap if entry[2].queued == entry[1]),
            key=lambda entry: entry[:2],
        )
        return {ticket: place for place, (_, _, ticket) in enumerate(waiting)}

    def _reserved_for_others(self, ticket: Ticket | None) -> tuple[int, int]:
        if ticket is None or ticket.reserved is None:
            return self._reserved_messages, self._reserved_bytes
        return (
            self._reserved_messages - ticket.reserved.messages,
            self._reserved_bytes - ticket.reserved.size_bytes,
        )

    def _release_first(self, now_ns: int) -> None:
        ticket = self._pop()
        ticket.turn_ns = 0
        reserved = Reservation(
            max(ticket.last_messages, 1), max(ticket.last_bytes, 1), now_ns + PATIENCE_NS
        )
        ticket.reserved = reserved
        self._reserved_messages += reserved.messages
        self._reserved_bytes += reserved.size_bytes
        self._outstanding.append((ticket, reserved))
        ticket.waiter.released(self)

    def _pop(self) -> Ticket:
        longest = self._longest_waiting()
        if longest is not None:
            self._dequeue(longest)
            return longest
        while True:
            key_ns, place, ticket = heapq.heappop(self._heap)
            if ticket.queued == place:
                self.virtual_ns = max(self.virtual_ns, key_ns)
                self._dequeue(ticket)
                return ticket

    def _longest_waiting(self) -> Ticket | None:
        """Who has waited too long, whatever it used."""
        while self._arrivals[0][1].queued != self._arrivals[0][0]:
            self._arrivals.popleft()
        ticket = self._arrivals[0][1]
        fair_ns = self._cost_ns(ticket.last_messages, ticket.last_bytes) * self.length
        return ticket if self._clock() - ticket.since_ns > max(PATIENT_NS, 2 * fair_ns) else None

    def _dequeue(self, ticket: Ticket) -> None:
        ticket.queued = 0
        self.length -= 1
        self.stats.waited_ns += self._clock() - ticket.since_ns
        if not self.length:
            self._heap.clear()
            self._arrivals.clear()
        self._set_waiters()

    def _set_waiters(self) -> None:
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                bucket.waiters = self.length

    def _spare(self) -> bool:
        """Whether there are tokens that are not set aside."""
        return 0 not in self.available()

    def _schedule(self) -> None:
        if not self.length:
            self._wakeups.set(self, None)
            return
        now_ns = self._clock()
        at_ns = now_ns + self._duration_ns(self._reserved_messages + 1, self._reserved_bytes + 1)
        if self._outstanding:
            at_ns = min(at_ns, self._outstanding[0][1].expires_ns)
        self._wakeups.set(self, at_ns)

    def _duration_ns(self, messages: int, size_bytes: int) -> int:
        first = 0 if self._messages is None else self._messages.throttling_duration_ns(messages)
        second = 0 if self._bytes is None else self._bytes.throttling_duration_ns(size_bytes)
        return max(first, second)

    def _cost_ns(self, messages: int, size_bytes: int) -> int:
        return int(max(messages * self._message_cost_ns, size_bytes * self._byte_cost_ns))

    def _set_costs(self) -> None:
        """What one message and one byte use of the limit; looked up now and then, because a rate
        may depend on the publish rate.
        """
        self._message_cost_ns = (
            0.0 if self._messages is None else self._messages.period_ns / self._messages.rate
        )
        self._byte_cost_ns = (
            0.0 if self._bytes is None else self._bytes.period_ns / self._bytes.rate
        )

    def _bound_debt(self, debt_max_ns: int) -> None:
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                self.stats.forgiven += bucket.forgive(
                    -max(debt_max_ns * bucket.rate // bucket.period_ns, 1)
                )

    def _give_back(self, ticket: Ticket) -> None:
        assert ticket.reserved is not None
        self._reserved_messages -= ticket.reserved.messages
        self._reserved_bytes -= ticket.reserved.size_bytes
        ticket.reserved = None
        self._expire_reservations(0)

    def _expire_reservations(self, now_ns: int) -> None:
        while self._outstanding:
            ticket, reserved = self._outstanding[0]
            if ticket.reserved is reserved:
                if reserved.expires_ns > now_ns:
                    return
                self._reserved_messages -= reserved.messages
                self._reserved_bytes -= reserved.size_bytes
                ticket.reserved = None
            self._outstanding.popleft()

    def _forget_reservations(self) -> None:
        for ticket, reserved in self._outstanding:
            if ticket.reserved is reserved:
                ticket.reserved = None
        self._outstanding.clear()
        self._reserved_messages = self._reserved_bytes = 0


def _per_second(bucket: TokenBucket | None) -> float:
    return -1.0 if bucket is None else bucket.rate * SECOND_NS / bucket.period_ns
