"""Dispatch limits of broker, topic, subscription and resource group, and the limit on SUBSCRIBE.

A subscription is under all its dispatch limits at once; the tightest governs. It asks before it
reads (`DispatchGate.allowance`) and is charged after it sent (`charge`). An entry cannot be split,
so more than the allowance may be sent. That is debt, and the next seconds pay it back exactly: at
10 messages a second, 11 leave 9 for the next second, and 30 leave none for the next two.

Differs from Pulsar: Pulsar grants the tokens of a period at once; here they come evenly, so that a
period does not begin with a burst. The sums over each period are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from loadmanager.limits.bucket import SECOND_NS
from loadmanager.limits.levels import Level, Tuning
from loadmanager.limits.limit import Limit, Ticket
from loadmanager.limits.policies import DispatchRate, SubscribeRate
from loadmanager.limits.schedule import Ready, Resumable, Schedule

NO_LIMIT = 1 << 62
TURNS_PER_S = 10
"""Turns that each consumer of a subscription gets per second, as far as the limits allow."""


class PublishRates(NamedTuple):
    """Recent publish rate of a topic."""

    messages_per_s: int
    bytes_per_s: int


class Charge(NamedTuple):
    """The amount that was sent to consumers."""

    entries: int
    messages: int
    size_bytes: int


class DispatchLimiter(Limit):
    """A dispatch limit, which may be relative to its topic's publish rate (PIP-52, `follow`)."""

    __slots__ = ("_published", "rate")

    def __init__(
        self, level: Level, name: str, *, schedule: Schedule, tuning: Tuning, now_ns: int
    ) -> None:
        super().__init__(level, name, schedule=schedule, tuning=tuning, now_ns=now_ns)
        self.rate = DispatchRate()
        self._published = PublishRates(0, 0)

    def update(self, rate: DispatchRate, now_ns: int) -> None:
        """Change the limit: new buckets, debt forgotten. The same rate again changes nothing."""
        if rate == self.rate:
            return
        self.rate = rate
        period_ns = max(rate.period_s, 1) * SECOND_NS
        messages, size = self._rates()
        self.set_buckets(
            self.new_bucket(messages, period_ns, now_ns),
            self.new_bucket(size, period_ns, now_ns),
            now_ns,
        )

    def follow(self, published: PublishRates, now_ns: int) -> None:
        """The topic's publish rate is now `published`."""
        if published == self._published:
            return
        self._published = published
        if self.rate.relative:
            self.set_rates(*self._rates(), now_ns)

    def close(self, now_ns: int) -> None:
        """The topic or subscription is gone: unlimited, everybody released."""
        self.update(DispatchRate(), now_ns)

    def _rates(self) -> tuple[int, int]:
        """Messages and bytes per period; below 1: unlimited."""
        rate, published, period_s = self.rate, self._published, max(self.rate.period_s, 1)
        messages, size = rate.messages, rate.bytes
        if rate.relative and messages > 0:
            messages += published.messages_per_s * period_s
        if rate.relative and size > 0:
            size += published.bytes_per_s * period_s
        return messages, size


class DispatchGate:
    """One subscription's dispatcher at its limits; `owner` is handed out when the last limit that
    held it released it.

    While `limits` is empty, `allowance` and `charge` need not be called.
    """

    __slots__ = (
        "_closed",
        "_held_by",
        "_holding",
        "_ready",
        "_tickets",
        "announced",
        "charges_entries",
        "has_more",
        "limits",
        "name",
        "owner",
        "throttled_by",
        "topic",
    )

    def __init__(
        self, owner: Resumable, ready: Ready, *, charges_entries: bool, topic: str, name: str
    ) -> None:
        """`name`: that of the subscription."""
        self.owner = owner
        self.topic = topic
        self.name = name
        self.announced = False
        self.charges_entries = charges_entries
        """Whether a batch counts as one message."""
        self.limits: tuple[DispatchLimiter, ...] = ()
        self.throttled_by: dict[tuple[Level, str], int] = {}
        """How often this subscription was held, by level and by what was used up
        (`messages`, `bytes`).
        """
        self._held_by: dict[Limit, tuple[tuple[Level, str], ...]] = {}
        """What of `throttled_by` the present or last wait for each limit is."""
        self._ready = ready
        self._tickets: dict[Limit, Ticket] = {}
        self._holding = 0
        self._closed = False
        self.has_more = True
        """See `Waiter.has_more`: one that has nothing to send does not ask, or withdraws."""

    @property
    def blocked(self) -> bool:
        """True if a limit holds it."""
        return self._holding > 0

    @property
    def may_go_on(self) -> bool:
        """True if no limit holds it and it is not closed."""
        return not self._holding and not self._closed

    def turn_max(self, consumers: int) -> int:
        """Messages that one of several consumers may get before the next one has its turn, so that
        each has `TURNS_PER_S`.
        """
        rates = [rate for limit in self.limits if (rate := limit.message_rate()) > 0]
        return max(int(min(rates) / (TURNS_PER_S * max(consumers, 1))), 1) if rates else NO_LIMIT

    def allowance(self, now_ns: int) -> tuple[int, int]:
        """Messages (entries, if those are charged) and bytes that may be sent now; `NO_LIMIT`
        without a limit, (0, 0) while it is held.

        Only for a subscription that has something to send, because this may put it into queues.
        One that has nothing to send any more must `withdraw`. Charge what was sent before the next
        call.
        """
        if self._holding:
            return 0, 0
        messages = size = NO_LIMIT
        for limit in self.limits:
            ticket = self._ticket(limit)
            if limit.must_wait(ticket, now_ns):
                self._count(limit, now_ns)
                self._holding += limit.hold(ticket, now_ns)
                continue
            allowed_messages, allowed_bytes = limit.turn(ticket, now_ns)
            messages = messages if allowed_messages < 0 else min(messages, allowed_messages)
            size = size if allowed_bytes < 0 else min(size, allowed_bytes)
        return (0, 0) if self._holding else (messages, size)

    def charge(self, sent: Charge, now_ns: int) -> None:
        """Account for what was sent to consumers."""
        messages = sent.entries if self.charges_entries else sent.messages
        for limit in self.limits:
            limit.charge(self._ticket(limit), messages, sent.size_bytes, now_ns)

    def withdraw(self, now_ns: int) -> None:
        """There is nothing to send: leave every queue, and give back what was set aside, so that
        nobody waits for this subscription.
        """
        self.has_more = False
        for limit, ticket in self._tickets.items():
            for key in self._held_by.get(limit, ()) if ticket.place else ():
                self.throttled_by[key] -= 1
        self._leave_all(now_ns)
        self.has_more = True

    def restart(self, now_ns: int) -> None:
        """Other rules apply: leave every queue and ask again."""
        self._leave_all(now_ns)
        self._ready.add(self)

    def _leave_all(self, now_ns: int) -> None:
        for limit, ticket in self._tickets.items():
            if ticket.place or ticket.reserved is not None:
                self._holding -= bool(ticket.place)
                limit.leave(ticket, now_ns)

    def keep(self, limits: Iterable[DispatchLimiter], now_ns: int) -> None:
        """From now on `limits` apply, as far as they are active: leave the queues of all others."""
        self.limits = tuple(limit for limit in limits if limit.active)
        for limit in [limit for limit in self._tickets if limit not in self.limits]:
            ticket = self._tickets.pop(limit)
            self._held_by.pop(limit, None)
            waiting = bool(ticket.place)
            limit.leave(ticket, now_ns, for_good=True)
            if waiting:
                self.released(limit, now_ns)

    def close(self, now_ns: int) -> None:
        """The subscription is gone: leave every queue for good."""
        self._closed = True
        self.keep((), now_ns)

    def released(self, limit: Limit, now_ns: int) -> None:
        """A limit holds it no more."""
        self._holding -= 1
        if not self._holding:
            self._ready.add(self)

    def _ticket(self, limit: Limit) -> Ticket:
        ticket = self._tickets.get(limit)
        if ticket is None:
            ticket = self._tickets[limit] = Ticket(limit, self)
        return ticket

    def _count(self, limit: Limit, now_ns: int) -> None:
        available = zip(("messages", "bytes"), limit.available(now_ns), strict=True)
        self._held_by[limit] = tuple((limit.level, what) for what, left in available if not left)
        for key in self._held_by[limit]:
            self.throttled_by[key] = self.throttled_by.get(key, 0) + 1


class DispatchPace:
    """One round of sending through a gate at one moment, charged in as few steps as possible."""

    __slots__ = (
        "_bytes_left",
        "_entries",
        "_gate",
        "_messages",
        "_messages_left",
        "_now_ns",
        "_size_bytes",
    )

    def __init__(self, gate: DispatchGate, now_ns: int) -> None:
        self._gate = gate
        self._now_ns = now_ns
        self._messages_left, self._bytes_left = gate.allowance(now_ns)
        self._entries = self._messages = self._size_bytes = 0

    @property
    def exhausted(self) -> bool:
        """True if nothing may be sent now."""
        return not self._messages_left or not self._bytes_left

    def sent(self, messages: int, size_bytes: int) -> bool:
        """One entry was sent; True when the round must end."""
        self._entries += 1
        self._messages += messages
        self._size_bytes += size_bytes
        used = self._entries if self._gate.charges_entries else self._messages
        if used < self._messages_left and self._size_bytes < self._bytes_left:
            return False
        self.settle()
        self._messages_left, self._bytes_left = self._gate.allowance(self._now_ns)
        return self.exhausted

    def settle(self) -> None:
        """Charge what was sent since the last charge."""
        if self._entries:
            sent = Charge(self._entries, self._messages, self._size_bytes)
            self._gate.charge(sent, self._now_ns)
            self._entries = self._messages = self._size_bytes = 0


class SubscribeLimiter:
    """SUBSCRIBE requests per consumer of one topic: `rate.subscribes` in each window of
    `rate.period_s` (Pulsar's SubscribeRateLimiter).

    A window begins with the first request after the end of the last one.
    """

    __slots__ = ("_counts", "_window_ends_ns", "rate")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._window_ends_ns = 0
        self.rate = SubscribeRate()

    def update(self, rate: SubscribeRate) -> None:
        """Change the limit at once; a different rate starts a new window."""
        if rate != self.rate:
            self.rate = rate
            self._counts.clear()

    def try_subscribe(self, host: str, consumer_name: str, consumer_id: int, now_ns: int) -> bool:
        """Count one SUBSCRIBE; False when the consumer has no more in this window."""
        if self.rate.subscribes <= 0:
            return True
        if not self._counts or now_ns >= self._window_ends_ns:
            self._counts.clear()
            self._window_ends_ns = now_ns + max(self.rate.period_s, 1) * SECOND_NS
        key = (host, consumer_name, consumer_id)
        count = self._counts.get(key, 0)
        if count >= self.rate.subscribes:
            return False
        self._counts[key] = count + 1
        return True
