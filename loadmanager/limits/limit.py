"""One limit: messages and bytes per second, and the fair queue of those who must wait for it.

A waiter is a producer, or the dispatcher of a subscription. Its account at one limit is a `Ticket`.
A limit reads no clock and sets no timer. Every call is told the time (`now_ns`, monotonic); the
limit answers who may go on (`release`), whom the caller tells, and when to ask again (`wakeup_ns`).
Only when its rates are taken away does it tell all waiters itself (`set_buckets`).

How a waiter uses a limit
    A producer sends first and is charged for it (`charge`), so the balance may become negative. A
    subscription asks first (`must_wait`, `turn`), sends, and is charged, too. A waiter that may not
    go on joins the queue (`hold`) and leaves it through `release`.

Who goes first
    Every charge costs time: the time in which the limit grants what was sent, by messages or by
    bytes, whichever is longer. A ticket adds up its costs in `used_ns`, and the waiter with the
    least `used_ns` goes first; equal ones go in order of arrival. So all waiters get equal parts
    of the limit, whatever the sizes of their frames (start-time fair queueing).

    Nobody can save up a large claim: `used_ns` is never more than `CREDIT_NS` behind the limit's
    own progress, `virtual_ns`. A new ticket starts exactly there.

    While others wait, a turn ends after `TURN_NS` of costs, and the waiter joins the queue again.

    An endless stream of new tickets could always be ahead of an old one. Therefore a waiter goes
    first, whatever it used, once it has waited longer than `WAIT_MAX_NS` and longer than twice its
    fair wait, which is the cost of its last frame times the number of waiters.

How the rate stays exact
    `release` sets tokens aside for the waiter, as many as its last frame took, until it is charged
    again or `RESERVED_NS` passed. So a hundred waiters that go on together do not all count on the
    same tokens. A limit saves up little (`Tuning.burst_ns`), so that the first second grants what
    every second grants. While somebody waits it saves up a second's worth, so that a late timer
    loses no tokens.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import ClassVar, Protocol

from loadmanager.limits.bucket import SECOND_NS, TokenBucket
from loadmanager.limits.levels import Level, Reservation, Tuning
from loadmanager.limits.schedule import ENTRIES_SPARE, REMEMBERED_NS, RatedTime, Schedule
from loadmanager.limits.stats import LimitSnapshot, LimitStats

TURN_NS = 1_000_000
CREDIT_NS = 250_000_000
WAIT_MAX_NS = 1_000_000_000
RESERVED_NS = 50_000_000
NEVER_NS = -(1 << 62)
STRETCH_GAP_NS = REMEMBERED_NS
"""A producer that publishes in long runs, beside others of its connection, waits in some of the
minutes only.
"""
WINDOW_TURNS_MIN = 20
"""A window of fewer turns is too short to compare the delivered with the configured rate."""


class Waiter(Protocol):
    """A producer, or a subscription's dispatcher."""

    @property
    def name(self) -> str:
        """The name of the producer or the subscription."""
        ...

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether it has something to send now that waits for the limit."""
        ...

    def released(self, limit: Limit, now_ns: int) -> None:
        """`limit` does not hold it any more: its ticket was taken out of the queue."""
        ...


class Ticket:
    """One waiter's account at one limit."""

    __slots__ = (
        "discarded_bytes",
        "discarded_messages",
        "held_ns",
        "last_bytes",
        "last_messages",
        "left_ns",
        "limit",
        "paused_ns",
        "place",
        "reserved",
        "since_ns",
        "stretch_ns",
        "turn_ns",
        "used_ns",
        "waiter",
    )

    def __init__(self, limit: Limit, waiter: Waiter) -> None:
        self.limit = limit
        self.waiter = waiter
        self.used_ns = limit.virtual_ns
        self.turn_ns = 0
        """Costs since it was released."""
        self.last_messages = 1
        self.last_bytes = 1
        self.place = 0
        """Number of its arrival in the queue; 0 while it does not wait."""
        self.since_ns = 0
        """When it joined the queue."""
        self.held_ns = NEVER_NS
        """When it joined the queue the last time that its waiter had something to send when it
        left.
        """
        self.stretch_ns = self.left_ns = NEVER_NS
        """When such waits began, of which none came more than `STRETCH_GAP_NS` after the one
        before; when the last of them ended.
        """
        self.reserved: Reservation | None = None
        self.paused_ns = 0
        """For how long the waiter's connection had been paused, all in all, when it last used or
        left the limit; and what the buckets had discarded then.
        """
        self.discarded_messages = self.discarded_bytes = 0

    @property
    def held_up(self) -> bool:
        """Whether something waited for it at the end of its last wait."""
        return self.held_ns == self.since_ns

    @property
    def holds_up(self) -> bool:
        """Whether it waits and something waits for it."""
        return bool(self.place) and self.waiter.has_more

    @property
    def held_again_since_ns(self) -> int:
        """When the waits began that held something up, again and again since, with one that lasts;
        `NEVER_NS`: there was none.
        """
        return self._begun_ns() if self.holds_up else self.stretch_ns

    def ended(self, now_ns: int) -> None:
        """A wait has ended that held something up."""
        self.held_ns = self.since_ns
        self.stretch_ns, self.left_ns = self._begun_ns(), now_ns

    def _begun_ns(self) -> int:
        near = self.since_ns - self.left_ns <= STRETCH_GAP_NS
        return self.stretch_ns if near else self.since_ns

    @property
    def last_ns(self) -> int:
        """When the last wait began that held something up."""
        return self.since_ns if self.holds_up else self.held_ns


class Limit:
    """A limit with its queue. Without buckets it is inactive and holds nobody."""

    __slots__ = (
        "_byte_cost_ns",
        "_bytes",
        "_heap",
        "_last_cost_ns",
        "_message_cost_ns",
        "_messages",
        "_outstanding",
        "_queue",
        "_reserved_bytes",
        "_reserved_messages",
        "_schedule",
        "_sequence",
        "length",
        "level",
        "name",
        "stats",
        "tuning",
        "virtual_ns",
        "wakeup_ns",
    )

    forgives_debt: ClassVar[bool] = False
    """Whether debt beyond `Tuning.debt_max_ns` is forgiven."""

    def __init__(
        self, level: Level, name: str, *, schedule: Schedule, tuning: Tuning, now_ns: int
    ) -> None:
        self.level = level
        self.name = name
        self.tuning = tuning
        self.length = 0
        """How many wait."""
        self.wakeup_ns: int | None = None
        """When to call `release` next; None while nobody waits. Written by `Schedule`."""
        self.virtual_ns = 0
        """The greatest `used_ns` at which a charge began: where new tickets start."""
        self.stats = LimitStats(now_ns)
        self._schedule = schedule
        self._messages: TokenBucket | None = None
        self._bytes: TokenBucket | None = None
        self._message_cost_ns = self._byte_cost_ns = 0.0
        self._last_cost_ns = 0
        self._queue: OrderedDict[int, Ticket] = OrderedDict()
        """The tickets that wait, by place: in order of arrival."""
        self._heap: list[tuple[int, int]] = []
        """The queue as (used_ns, place). A ticket that left keeps its entry, which names a place
        that is not in `_queue`, until there are too many such entries.
        """
        self._sequence = 0
        self._outstanding: OrderedDict[Ticket, Reservation] = OrderedDict()
        """What is set aside, in the order in which it expires."""
        self._reserved_messages = self._reserved_bytes = 0

    # Rates

    @property
    def active(self) -> bool:
        """True if there is any rate."""
        return self._messages is not None or self._bytes is not None

    def message_rate(self) -> float:
        """Configured messages per second; −1 when unlimited."""
        return _per_second(self._messages)

    def byte_rate(self) -> float:
        """Configured bytes per second; −1 when unlimited."""
        return _per_second(self._bytes)

    def set_buckets(
        self, messages: TokenBucket | None, size: TokenBucket | None, now_ns: int
    ) -> None:
        """Replace both buckets (None: unlimited), forget all debt; without a bucket, all go on."""
        was_active, rates = self.active, (self.message_rate(), self.byte_rate())
        began = self.stats.began
        self._messages, self._bytes = messages, size
        self._set_costs()
        for ticket in self._outstanding:
            ticket.reserved = None
        self._outstanding.clear()
        self._reserved_messages = self._reserved_bytes = 0
        self.stats.restart(now_ns)
        waiting = self._waiting()
        for ticket in waiting:
            ticket.turn_ns = 0
            if not self.active:
                self._remove(ticket, now_ns)
        self._set_waiters()
        self._reschedule(now_ns)
        if not self.active:
            if was_active:
                ended = self.stats.counters(now_ns)
                self._schedule.removed(RatedTime(self, *rates, began, ended))
            for ticket in waiting:
                ticket.waiter.released(self, now_ns)

    def set_rates(self, messages: int, size: int, now_ns: int) -> None:
        """Change the rates of the buckets that there are, per period; balances and debt stay."""
        for bucket, rate in ((self._messages, messages), (self._bytes, size)):
            if bucket is not None:
                capacity = rate * self.tuning.burst_ns // bucket.period_ns
                bucket.set_rate(rate, capacity=capacity, now_ns=now_ns)
        self._set_costs()
        self._reschedule(now_ns)

    def new_bucket(self, rate: int, period_ns: int, now_ns: int) -> TokenBucket | None:
        """A bucket that starts with, and saves up, no more than `Tuning.burst_ns`; None for rates
        below 1.

        Differs from Pulsar, whose buckets start with and save up a whole second.
        """
        if rate < 1:
            return None
        burst = max(rate * self.tuning.burst_ns // period_ns, 1)
        return TokenBucket(
            rate,
            now_ns=now_ns,
            period_ns=period_ns,
            capacity=burst,
            initial_tokens=burst,
            resolution_ns=self.tuning.resolution_ns,
        )

    # Using tokens

    def charge(self, ticket: Ticket, messages: int, size_bytes: int, now_ns: int) -> bool:
        """Account for what was sent; True when the ticket must wait before it sends again."""
        over = False
        if self._messages is not None and not self._messages.consume_and_check(messages, now_ns):
            over = True
        if self._bytes is not None and not self._bytes.consume_and_check(size_bytes, now_ns):
            over = True
        stats = self.stats
        stats.messages += messages
        stats.size_bytes += size_bytes
        ticket.last_messages, ticket.last_bytes = messages, size_bytes
        cost_ns = self._last_cost_ns = self._cost_ns(messages, size_bytes)
        start_ns = max(ticket.used_ns, self.virtual_ns - CREDIT_NS)
        self.virtual_ns = max(self.virtual_ns, start_ns)
        ticket.used_ns = start_ns + cost_ns
        ticket.turn_ns += cost_ns
        if ticket.reserved is not None:
            self._give_back(ticket)
        if over and self.forgives_debt:
            self._bound_debt(now_ns)
        return over or (bool(self.length or self._outstanding) and self.must_wait(ticket, now_ns))

    def regain(self, ticket: Ticket, paused_ns: int, now_ns: int) -> None:
        """The ticket's waiter comes back, `paused_ns` after its connection was first paused, all in
        all. What the limit did not save up for it while other limits paused it, is granted now.
        """
        held_ns = paused_ns - ticket.paused_ns
        for bucket, since in (
            (self._messages, ticket.discarded_messages),
            (self._bytes, ticket.discarded_bytes),
        ):
            if bucket is not None:
                bucket.regain(since, held_ns * bucket.rate // bucket.period_ns + 1, now_ns)
        self.regain_from_now(ticket, paused_ns)

    def regain_from_now(self, ticket: Ticket, paused_ns: int) -> None:
        """Regain nothing for the time before now."""
        ticket.paused_ns = paused_ns
        ticket.discarded_messages = 0 if self._messages is None else self._messages.discarded
        ticket.discarded_bytes = 0 if self._bytes is None else self._bytes.discarded

    def must_wait(self, ticket: Ticket, now_ns: int) -> bool:
        """True if the ticket may not send now: all tokens are used or set aside for others, or its
        turn is over while others wait.
        """
        if self.length and ticket.turn_ns > TURN_NS:
            return True
        return 0 in self.available(now_ns, ticket)

    def available(self, now_ns: int, ticket: Ticket | None = None) -> tuple[int, int]:
        """Messages and bytes that may be sent now, by this ticket or by a new one; not negative,
        −1 when unlimited.
        """
        others_messages, others_bytes = self._reserved_messages, self._reserved_bytes
        if ticket is not None and ticket.reserved is not None:
            others_messages -= ticket.reserved.messages
            others_bytes -= ticket.reserved.size_bytes
        messages = size = -1
        if self._messages is not None:
            messages = max(self._messages.tokens(now_ns) - others_messages, 0)
        if self._bytes is not None:
            size = max(self._bytes.tokens(now_ns) - others_bytes, 0)
        return messages, size

    def turn(self, ticket: Ticket, now_ns: int) -> tuple[int, int]:
        """The messages and bytes that the ticket may send (see `available`); while others wait, at
        most what is left of its turn, but at least 1.
        """
        messages, size = self.available(now_ns, ticket)
        if not self.length:
            return messages, size
        left_ns = max(TURN_NS - ticket.turn_ns, 0)
        if messages > 0:
            messages = min(messages, max(int(left_ns // self._message_cost_ns), 1))
        if size > 0:
            size = min(size, max(int(left_ns // self._byte_cost_ns), 1))
        return messages, size

    # The queue

    def hold(self, ticket: Ticket, now_ns: int) -> bool:
        """Put the ticket into the queue; False if it is there already or the limit is inactive."""
        if ticket.place or not self.active:
            return False
        if ticket.reserved is not None:
            self._give_back(ticket)
        self._sequence += 1
        ticket.place = self._sequence
        ticket.since_ns = now_ns
        self._schedule.remember(ticket)
        self._queue[ticket.place] = ticket
        used_ns = max(ticket.used_ns, self.virtual_ns - CREDIT_NS)
        heapq.heappush(self._heap, (used_ns, ticket.place))
        self.stats.mark(now_ns)
        self.length += 1
        self._set_waiters()
        if self.wakeup_ns is None or self.wakeup_ns > now_ns:
            self._reschedule(now_ns)
        return True

    def leave(self, ticket: Ticket, now_ns: int, *, for_good: bool = False) -> None:
        """The ticket's waiter needs this limit no more: take it out of the queue, and give back
        what was set aside for it; `for_good` keeps nothing of it.
        """
        if ticket.place:
            self._remove(ticket, now_ns)
        if ticket.reserved is not None:
            self._give_back(ticket)
        if for_good:
            self._schedule.forget(ticket)
        self._reschedule(now_ns)

    def release(self, now_ns: int) -> Ticket | None:
        """Take the next ticket out of the queue, with tokens set aside for it; None when no token
        is left, or nobody waits. Then `wakeup_ns` says when to ask again.
        """
        self._expire_reservations(now_ns)
        if not self.length or 0 in self.available(now_ns):
            self.stats.wakeups += 1
            self.stats.mark(now_ns)
            self._reschedule(now_ns)
            return None
        ticket = self._first(now_ns)
        self._remove(ticket, now_ns)
        ticket.turn_ns = 0
        reserved = ticket.reserved = Reservation(
            max(ticket.last_messages, 1), max(ticket.last_bytes, 1), now_ns + RESERVED_NS
        )
        self._reserved_messages += reserved.messages
        self._reserved_bytes += reserved.size_bytes
        self._outstanding[ticket] = reserved
        return ticket

    def places(self) -> dict[Ticket, int]:
        """The number of tickets before each one that waits."""
        return {ticket: place for place, ticket in enumerate(self._waiting())}

    def _waiting(self) -> list[Ticket]:
        """The tickets that wait, in the order that they go."""
        return [self._queue[place] for _, place in sorted(self._heap) if place in self._queue]

    def _first(self, now_ns: int) -> Ticket:
        """The ticket that goes first. There must be one."""
        oldest = next(iter(self._queue.values()))
        fair_ns = self._cost_ns(oldest.last_messages, oldest.last_bytes) * self.length
        if now_ns - oldest.since_ns > max(WAIT_MAX_NS, 2 * fair_ns):
            return oldest
        while True:
            used_ns, place = heapq.heappop(self._heap)
            ticket = self._queue.get(place)
            if ticket is not None:
                self.virtual_ns = max(self.virtual_ns, used_ns)
                return ticket

    def _remove(self, ticket: Ticket, now_ns: int) -> None:
        del self._queue[ticket.place]
        ticket.place = 0
        self.length -= 1
        if ticket.waiter.has_more:
            ticket.ended(now_ns)
            self.stats.waited(ticket.since_ns, now_ns)
        self._schedule.left(ticket, now_ns)
        if len(self._heap) > 2 * self.length + ENTRIES_SPARE:
            self._heap = [entry for entry in self._heap if entry[1] in self._queue]
            heapq.heapify(self._heap)
        self._set_waiters()

    def _set_waiters(self) -> None:
        if self._messages is not None:
            self._messages.waiters = self.length
        if self._bytes is not None:
            self._bytes.waiters = self.length

    def _reschedule(self, now_ns: int) -> None:
        """Ask again when there are tokens that are not set aside, or a reservation expires."""
        if not self.length:
            self._schedule.set(self, None)
            return
        at_ns = now_ns + self._duration_ns(
            now_ns, self._reserved_messages + 1, self._reserved_bytes + 1
        )
        if self._outstanding:
            at_ns = min(at_ns, next(iter(self._outstanding.values())).expires_ns)
        self._schedule.set(self, at_ns)

    def _duration_ns(self, now_ns: int, messages: int, size_bytes: int) -> int:
        duration_ns = 0
        if self._messages is not None:
            duration_ns = self._messages.throttling_duration_ns(now_ns, messages)
        if self._bytes is not None:
            duration_ns = max(duration_ns, self._bytes.throttling_duration_ns(now_ns, size_bytes))
        return duration_ns

    # Costs, debt and reservations

    def _cost_ns(self, messages: int, size_bytes: int) -> int:
        return int(max(messages * self._message_cost_ns, size_bytes * self._byte_cost_ns))

    def _set_costs(self) -> None:
        messages, size = self._messages, self._bytes
        self._message_cost_ns = 0.0 if messages is None else messages.period_ns / messages.rate
        self._byte_cost_ns = 0.0 if size is None else size.period_ns / size.rate

    def _bound_debt(self, now_ns: int) -> None:
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                debt_max = self.tuning.debt_max_ns * bucket.rate // bucket.period_ns
                self.stats.forgiven += bucket.forgive(-max(debt_max, 1), now_ns)

    def _give_back(self, ticket: Ticket) -> None:
        reserved = self._outstanding.pop(ticket)
        self._reserved_messages -= reserved.messages
        self._reserved_bytes -= reserved.size_bytes
        ticket.reserved = None

    def _expire_reservations(self, now_ns: int) -> None:
        while self._outstanding:
            ticket, reserved = next(iter(self._outstanding.items()))
            if reserved.expires_ns > now_ns:
                return
            self._give_back(ticket)

    # Figures

    def snapshot(self, now_ns: int) -> LimitSnapshot:
        """Tell what was configured, what was delivered, and who waits."""
        stats = self.stats
        messages, size, window_s, binding = stats.rates(now_ns)
        stats.mark(now_ns)
        waiting = sum(ticket.holds_up for ticket in self._queue.values())
        ratios = [
            delivered / rate
            for delivered, rate in ((messages, self.message_rate()), (size, self.byte_rate()))
            if rate > 0
        ]
        comparable = bool(ratios) and window_s * SECOND_NS >= WINDOW_TURNS_MIN * self._last_cost_ns
        if self.wakeup_ns is None:
            next_ns = self._duration_ns(now_ns, 1, 1)
        else:
            next_ns = max(self.wakeup_ns - now_ns, 0)
        return LimitSnapshot(
            name=self.name,
            level=self.level,
            configured_messages_per_s=self.message_rate(),
            configured_bytes_per_s=self.byte_rate(),
            delivered_messages_per_s=messages,
            delivered_bytes_per_s=size,
            window_s=window_s,
            error=max(ratios) - 1 if comparable and (binding or waiting) else None,
            queue_length=waiting,
            next_ms=next_ns / 1e6,
            messages=stats.messages,
            size_bytes=stats.size_bytes,
            held=stats.holds + waiting,
            waited_ms=stats.waited_ns / 1e6,
            wakeups=stats.wakeups,
            forgiven_tokens=stats.forgiven,
        )


def _per_second(bucket: TokenBucket | None) -> float:
    return -1.0 if bucket is None else bucket.rate * SECOND_NS / bucket.period_ns
