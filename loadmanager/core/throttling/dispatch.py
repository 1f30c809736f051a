"""Dispatch limits of broker, topic, subscription and resource group: all at once, the tightest
wins. And the limit on SUBSCRIBE.

A subscription looks at its limits before it reads (`DispatchGate.allowance`) and is charged after
it sent (`charge`). More than allowed may be sent, because an entry cannot be cut: that is debt,
paid back exactly. At 10 a second, 11 now leave 9 for the next second; 30 leave none for the next
two.

Differs from Pulsar in pace: Pulsar adds a whole period's tokens at once; here they come evenly, so
any second of a 10-second limit is alike and a period's first moments bring no burst. Over each
period the sums are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from loadmanager.core.throttling.bucket import SECOND_NS, Clock, DynamicTokenBucket, TokenBucket
from loadmanager.core.throttling.limit import Level, Limit, Ticket, Tuning
from loadmanager.core.throttling.policies import DispatchRate, SubscribeRate
from loadmanager.core.throttling.publish import bucket
from loadmanager.core.throttling.wakeups import Wakeups

NO_LIMIT = 1 << 62
TURNS_PER_S = 10


class PublishRates(NamedTuple):
    """Recent publish rate of a topic."""

    messages_per_s: int
    bytes_per_s: int


class Charge(NamedTuple):
    """What was handed to consumers."""

    entries: int
    messages: int
    size_bytes: int


class DispatchLimiter(Limit):
    """A dispatch limit.

    `published` tells the topic's publish rate for limits relative to it (PIP-52); a broker's limit
    has none and counts from 0.
    """

    __slots__ = ("_published", "rate")

    def __init__(
        self,
        level: Level,
        name: str,
        *,
        wakeups: Wakeups,
        tuning: Tuning,
        published: Callable[[], PublishRates] = lambda: PublishRates(0, 0),
    ) -> None:
        super().__init__(level, name, wakeups=wakeups, tuning=tuning)
        self.rate = DispatchRate()
        self._published = published

    def update(self, rate: DispatchRate) -> None:
        """Change the limit at once: new buckets, debt forgotten, everybody let go.

        The same rate again changes nothing.
        """
        if rate == self.rate:
            return
        self.rate = rate
        self.set_buckets(
            self._bucket(rate.messages, lambda: self._published().messages_per_s),
            self._bucket(rate.bytes, lambda: self._published().bytes_per_s),
        )

    def close(self) -> None:
        """The topic or subscription is gone: no limit any more (its rates read −1), everybody let
        go.
        """
        self.update(DispatchRate())

    def _bucket(self, rate: int, published_per_s: Callable[[], int]) -> TokenBucket | None:
        period_s = max(self.rate.period_s, 1)
        if rate < 1:
            return None
        if not self.rate.relative:
            return bucket(
                rate, period_ns=period_s * SECOND_NS, wakeups=self._wakeups, tuning=self._tuning
            )
        burst = self._tuning.burst_ns / (period_s * SECOND_NS)
        return DynamicTokenBucket(
            lambda: rate + published_per_s() * period_s,
            clock=self._clock,
            period_of=lambda: period_s * SECOND_NS,
            capacity_factor=burst,
            initial_factor=burst,
            resolution_ns=self._tuning.resolution_ns,
        )


class DispatchGate:
    """One subscription's dispatcher at its limits.

    `resume` is called once the last limit that holds it lets go.

    Set `limits` whenever they change (`keep`); without any, `allowance` and `charge` need not be
    called.
    """

    __slots__ = ("_holding", "_resume", "_tickets", "charges_entries", "limits", "throttled_by")

    def __init__(self, resume: Callable[[], None], *, charge_entries: bool) -> None:
        self._resume = resume
        self.charges_entries = charge_entries
        self._tickets: dict[Limit, Ticket] = {}
        self._holding = 0
        self.limits: tuple[DispatchLimiter, ...] = ()
        self.throttled_by: dict[tuple[Level, str], int] = {}
        """How often this subscription was held, by level and by what ran out
        (`messages`, `bytes`).
        """

    @property
    def blocked(self) -> bool:
        """Whether it waits for a limit."""
        return self._holding > 0

    def turn_max(self, consumers: int) -> int:
        """Messages that one consumer of several may get before the next has its turn: at least ten
        turns each a second, as far as the limits go.
        """
        rates = [rate for limit in self.limits if (rate := limit.message_rate()) > 0]
        return max(int(min(rates) / (TURNS_PER_S * max(consumers, 1))), 1) if rates else NO_LIMIT

    def allowance(self) -> tuple[int, int]:
        """Messages (entries, where entries are charged) and bytes that may be sent now; `NO_LIMIT`
        without a limit.

        To be asked by a subscription that has something to send only: it may be queued, and
        `withdraw`s when it has nothing any more. (0, 0) when held: `resume` will be called. Charge
        what was sent before asking again.
        """
        if self._holding:
            return 0, 0
        messages = size = NO_LIMIT
        for limit in self.limits:
            ticket = self._ticket(limit)
            if limit.must_wait(ticket):
                self._count(limit)
                limit.hold(ticket)
                continue
            allowed_messages, allowed_bytes = limit.turn(ticket)
            messages = messages if allowed_messages < 0 else min(messages, allowed_messages)
            size = size if allowed_bytes < 0 else min(size, allowed_bytes)
        return (0, 0) if self._holding else (messages, size)

    def charge(self, sent: Charge) -> None:
        """Account for what was handed to consumers."""
        messages = sent.entries if self.charges_entries else sent.messages
        for limit in self.limits:
            limit.charge(self._ticket(limit), messages, sent.size_bytes)

    def withdraw(self) -> None:
        """There is nothing to send: leave every queue, and give back what was set aside.

        A subscription without need must not keep others waiting.
        """
        for limit, ticket in self._tickets.items():
            if ticket.queued:
                self._holding -= 1
                limit.leave(ticket)
            elif ticket.reserved is not None:
                limit.leave(ticket)

    def restart(self) -> None:
        """What applies has changed: whoever waits looks again."""
        self.withdraw()
        self._resume()

    def keep(self, limits: Iterable[DispatchLimiter]) -> None:
        """From now on these limits apply; the others let go at once."""
        self.limits = tuple(limit for limit in limits if limit.active)
        for limit in [limit for limit in self._tickets if limit not in self.limits]:
            # letting go may resume the dispatcher, and that may close this very gate
            ticket = self._tickets.pop(limit, None)
            if ticket is None or (ticket.queued and limit.lifted):
                continue
            waiting = bool(ticket.queued)
            limit.leave(ticket)
            if waiting:
                self.released(limit)

    def close(self) -> None:
        """The subscription is gone: leave every queue; `resume` is not called any more."""
        self._resume = lambda: None
        self.keep(())

    def held(self, limit: Limit) -> None:
        """A limit holds this dispatcher from now on."""
        self._holding += 1

    def released(self, limit: Limit) -> None:
        """A limit lets go."""
        self._holding -= 1
        if not self._holding:
            self._resume()

    def _ticket(self, limit: Limit) -> Ticket:
        ticket = self._tickets.get(limit)
        if ticket is None:
            ticket = self._tickets[limit] = Ticket(limit, self)
        return ticket

    def _count(self, limit: Limit) -> None:
        messages, size = limit.available()
        for what, left in (("messages", messages), ("bytes", size)):
            if not left:
                self.throttled_by[limit.level, what] = (
                    self.throttled_by.get((limit.level, what), 0) + 1
                )


class DispatchPace:
    """One round of dispatching through a gate: how much may be sent, charged in as few steps as
    possible.
    """

    __slots__ = ("_bytes_left", "_entries", "_gate", "_messages", "_messages_left", "_size_bytes")

    def __init__(self, gate: DispatchGate) -> None:
        self._gate = gate
        self._messages_left, self._bytes_left = gate.allowance()
        self._entries = self._messages = self._size_bytes = 0

    @property
    def exhausted(self) -> bool:
        """Whether nothing may be sent now."""
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
        self._messages_left, self._bytes_left = self._gate.allowance()
        return self.exhausted

    def settle(self) -> None:
        """Charge what was sent since the last charge."""
        if self._entries:
            self._gate.charge(Charge(self._entries, self._messages, self._size_bytes))
            self._entries = self._messages = self._size_bytes = 0


class SubscribeLimiter:
    """SUBSCRIBE requests per consumer of one topic: `rate.subscribes` in each window of
    `rate.period_s` (Pulsar's SubscribeRateLimiter).

    A window begins with the first request after the last one ended.
    """

    __slots__ = ("_clock", "_counts", "_window_ends_ns", "rate")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, str, int], int] = {}
        self._window_ends_ns = 0
        self.rate = SubscribeRate()

    def update(self, rate: SubscribeRate) -> None:
        """Change the limit at once; a different rate starts a new window."""
        if rate != self.rate:
            self.rate = rate
            self._counts.clear()

    def try_subscribe(self, host: str, consumer_name: str, consumer_id: int) -> bool:
        """Count one SUBSCRIBE; False when the consumer used up its window."""
        if self.rate.subscribes <= 0:
            return True
        now_ns = self._clock()
        if not self._counts or now_ns >= self._window_ends_ns:
            self._counts.clear()
            self._window_ends_ns = now_ns + max(self.rate.period_s, 1) * SECOND_NS
        key = (host, consumer_name, consumer_id)
        count = self._counts.get(key, 0)
        if count >= self.rate.subscribes:
            return False
        self._counts[key] = count + 1
        return True
