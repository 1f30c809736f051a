"""The token bucket (PIP-322, Pulsar's AsyncTokenBucket in its newest revision): integers only, no
lock, no scheduler, the clock passed in.

Two numbers carry it. `consumed` only ever grows; the rest (what was granted so far, when tokens
were added last, the fraction of a token carried over) is one immutable tuple that a refill replaces
as a whole, with copies of what the hot path reads. The balance is granted − consumed and may be
negative: that is debt.

Threads: a refill that races another one and overwrites it is consistent in itself, because it
started from the same tuple; tokens of a moment are granted once or a little later, never twice; a
stale copy is corrected by the next refill. The only step that must not be torn is `consumed += n`,
one line without a call: under CPython's GIL a thread is not switched inside it, so nothing consumed
is ever forgotten. On a free-threaded interpreter that is not so; there, a bucket belongs to one
thread (the protocol server consumes on its event loop only).

Where this differs from Pulsar: the carried remainder is an exact fraction of a token instead of
truncated nanoseconds, which drift by up to 1 ns a refill for rates that do not divide a second.
Where the rate does divide the period, every answer is Pulsar's to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable

from loadmanager.core.errors import BadInputError

SECOND_NS = 1_000_000_000
RESOLUTION_NS = 16_000_000
"""Tokens are added at most this often (Pulsar: 16 ms); 0 adds them at every look."""

Clock = Callable[[], int]
"""Nanoseconds of a monotonic clock."""


class TokenBucket:
    """A fixed rate of `rate` tokens per `period_ns`.

    `capacity` bounds what silence saves up, `initial_tokens` is the balance at construction (both
    default to one period's tokens, as Pulsar's do). While `waiters` is above zero somebody is held
    back by this bucket, and tokens that arrive late for them are kept up to one period's worth
    instead of being lost above a small capacity. Raises `BadInputError` for a rate or period below
    1.
    """

    __slots__ = (
        "_capacity",
        "_clock",
        "_consumed",
        "_granted",
        "_look_ns",
        "_period_ns",
        "_rate",
        "_resolution_ns",
        "_state",
        "waiters",
    )

    def __init__(
        self,
        rate: int,
        *,
        clock: Clock,
        period_ns: int = SECOND_NS,
        capacity: int | None = None,
        initial_tokens: int | None = None,
        resolution_ns: int = RESOLUTION_NS,
    ) -> None:
        if rate < 1 or period_ns < 1 or resolution_ns < 0:
            raise BadInputError(
                "a bucket needs a rate and a period of at least 1 and a resolution of at least "
                f"0, not {rate} per {period_ns} ns"
            )
        self._rate = rate
        self._period_ns = period_ns
        self._capacity = rate if capacity is None else capacity
        self._clock = clock
        self._resolution_ns = resolution_ns
        self._consumed = 0
        self.waiters = 0
        now_ns = clock()
        initial = rate if initial_tokens is None else initial_tokens
        self._set(initial, now_ns, 0, self._due_ns(now_ns, 0, rate, period_ns))

    @property
    def rate(self) -> int:
        """Tokens per period."""
        return self._rate

    @property
    def period_ns(self) -> int:
        """Nanoseconds of a period."""
        return self._period_ns

    @property
    def capacity(self) -> int:
        """What silence saves up at most."""
        return self._capacity

    def consume(self, tokens: int) -> None:
        """Take tokens, whatever the balance; the clock is not read."""
        if tokens < 0:
            raise BadInputError(f"cannot consume {tokens} tokens: 0 or more is allowed")
        self._consumed += tokens

    def consume_and_check(self, tokens: int) -> bool:
        """Take tokens, whatever the balance, and say whether any are left; zero counts as none."""
        if tokens < 0:
            raise BadInputError(f"cannot consume {tokens} tokens: 0 or more is allowed")
        if self._clock() > self._look_ns:
            self._refill()
        # one line, no call: not torn between threads (see the top)
        self._consumed = consumed = self._consumed + tokens
        return self._granted > consumed

    def contains(self) -> bool:
        """Whether tokens are left; zero counts as none."""
        return self.tokens() > 0

    def tokens(self) -> int:
        """The balance now; negative is debt."""
        if self._clock() > self._look_ns:
            self._refill()
        return self._granted - self._consumed

    def throttling_duration_ns(self, required: int = 1) -> int:
        """How long to wait until `required` tokens are there and, if it must wait at all, the
        target amount; 0 when they are there now.

        The target is 16 ms of tokens, so that whoever is let go can do more than one thing. Never
        earlier than tokens can appear at all.
        """
        balance = self.tokens()
        if balance >= required:
            return 0
        rate, period_ns, _ = self._limits(balance)
        granted, last_ns, carry = self._state
        now_ns = self._clock()
        if now_ns < last_ns:  # the clock went back: count from what it says now
            self._set(granted, now_ns, carry, self._due_ns(now_ns, carry, rate, period_ns))
            last_ns = now_ns
        need = max(required, self._target(rate, period_ns)) - balance
        return max(
            need * period_ns // rate, last_ns + max(period_ns // rate, self._resolution_ns) - now_ns
        )

    def forgive(self, floor: int) -> int:
        """Lift a balance below `floor` (a negative number) up to it; returns how many tokens were
        given.
        """
        missing = floor - self.tokens()
        if missing <= 0:
            return 0
        granted, last_ns, carry = self._state
        self._set(granted + missing, last_ns, carry, self._look_ns)
        return missing

    def _limits(self, balance: int) -> tuple[int, int, int]:
        """Rate, period and the capacity that holds at this balance."""
        capacity = self._capacity
        if self.waiters:
            capacity = max(capacity, self._rate)
        return self._rate, self._period_ns, max(capacity, balance)

    def _target(self, rate: int, period_ns: int) -> int:
        return max(self._resolution_ns * rate // period_ns, 1)

    def _due_ns(self, last_ns: int, carry: int, rate: int, period_ns: int) -> int:
        """Tokens are added strictly after this moment: the resolution, or for slow rates just
        before one whole token is due.
        """
        if period_ns // rate > self._resolution_ns:
            return last_ns - (carry - period_ns) // rate - 1
        return last_ns + self._resolution_ns

    def _refill(self) -> None:
        granted, last_ns, carry = self._state
        consumed, now_ns = self._consumed, self._clock()
        rate, period_ns, capacity = self._limits(granted - consumed)
        due_ns = self._due_ns(last_ns, carry, rate, period_ns)
        if now_ns > due_ns:
            new, carry = divmod((now_ns - last_ns) * rate + carry, period_ns)
            granted, last_ns = min(granted + new, capacity + consumed), now_ns
            due_ns = self._due_ns(now_ns, carry, rate, period_ns)
        self._set(granted, last_ns, carry, due_ns)

    def _set(self, granted: int, last_ns: int, carry: int, due_ns: int) -> None:
        self._state = (granted, last_ns, carry)
        self._granted = granted
        self._look_ns = due_ns


class DynamicTokenBucket(TokenBucket):
    """A bucket whose rate, period and capacity are looked up at every use.

    `rate_of` gives tokens per period (anything below 1 counts as 1). Capacity is rate ×
    `capacity_factor`, the initial balance rate × `initial_factor`, the target after throttling rate
    × `target_factor`, all truncated (Pulsar: 1.0, 1.0, 0.01).
    """

    __slots__ = ("_capacity_factor", "_period_of", "_rate_of", "_target_factor")

    def __init__(
        self,
        rate_of: Callable[[], int],
        *,
        clock: Clock,
        period_of: Callable[[], int] = lambda: SECOND_NS,
        capacity_factor: float = 1.0,
        initial_factor: float = 1.0,
        target_factor: float = 0.01,
        resolution_ns: int = RESOLUTION_NS,
    ) -> None:
        self._rate_of = rate_of
        self._period_of = period_of
        self._capacity_factor = capacity_factor
        self._target_factor = target_factor
        rate = self.rate
        super().__init__(
            rate,
            clock=clock,
            period_ns=period_of(),
            capacity=self.capacity,
            initial_tokens=max(int(rate * initial_factor), 1),
            resolution_ns=resolution_ns,
        )

    @property
    def rate(self) -> int:
        """Tokens per period at this moment."""
        return max(self._rate_of(), 1)

    @property
    def period_ns(self) -> int:
        """Nanoseconds of a period at this moment."""
        return max(self._period_of(), 1)

    @property
    def capacity(self) -> int:
        """What silence saves up at most, at this moment."""
        return max(int(self.rate * self._capacity_factor), 1)

    def _limits(self, balance: int) -> tuple[int, int, int]:
        rate = self.rate
        return rate, self.period_ns, max(rate, self.capacity) if self.waiters else self.capacity

    def _target(self, rate: int, period_ns: int) -> int:
        return max(int(rate * self._target_factor), 1)

    def _due_ns(self, last_ns: int, carry: int, rate: int, period_ns: int) -> int:
        """Looks once a resolution even at slow rates, because the rate may have risen meanwhile;
        the carry keeps fractions exact.
        """
        return last_ns + self._resolution_ns
