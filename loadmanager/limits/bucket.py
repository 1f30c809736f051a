"""The token bucket (PIP-322, Pulsar's AsyncTokenBucket in its newest revision): integers only, no
lock, no timer; every call is told the time.

Two numbers carry it. `consumed` only ever grows. Everything else (the tokens granted so far, the
time of the last grant, the fraction of a token carried over) is one immutable tuple that a refill
replaces as a whole, with copies of what the hot path reads. The balance is granted − consumed; a
negative balance is debt.

Threads: a refill that races with another one and overwrites it is consistent in itself, because it
started from the same tuple. Tokens of a moment are granted once or a little later, never twice, and
the next refill corrects a stale copy. The only step that must not be torn is `consumed += n`, one
line without a call: under CPython's GIL no thread is switched inside it, so no consumption is lost.
A free-threaded interpreter gives no such guarantee; there, a bucket belongs to one thread (the
protocol server consumes on its event loop only).

Differs from Pulsar: the carried remainder is an exact fraction of a token instead of truncated
nanoseconds, which drift by up to 1 ns a refill for rates that do not divide a second. For rates
that divide the period, every balance is Pulsar's to the nanosecond.
"""

from __future__ import annotations

from loadmanager.kit.errors import BadInputError

SECOND_NS = 1_000_000_000
RESOLUTION_NS = 16_000_000
"""Tokens are added at most this often (Pulsar: 16 ms); 0 adds them at every call."""


class TokenBucket:
    """Grants `rate` tokens per `period_ns`; `now_ns` is always monotonic nanoseconds.

    `capacity` bounds what an idle bucket saves up, `initial_tokens` is the first balance; both
    default to the tokens of one period, as in Pulsar. While `waiters` is above zero, the capacity
    is at least the tokens of one period, so that a late timer loses no tokens. Raises
    `BadInputError` for a rate or period below 1.
    """

    __slots__ = (
        "_consumed",
        "_granted",
        "_look_ns",
        "_resolution_ns",
        "_state",
        "capacity",
        "discarded",
        "period_ns",
        "rate",
        "waiters",
    )

    def __init__(
        self,
        rate: int,
        *,
        now_ns: int,
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
        self.rate = rate
        self.period_ns = period_ns
        self.capacity = rate if capacity is None else capacity
        self.waiters = 0
        self.discarded = 0
        """Tokens that the capacity kept from being saved up, and `regain` did not grant."""
        self._resolution_ns = resolution_ns
        self._consumed = 0
        self._set(rate if initial_tokens is None else initial_tokens, now_ns, 0)

    def set_rate(self, rate: int, *, capacity: int, now_ns: int) -> None:
        """Grant the tokens up to now at the old rate, and from now on `rate` per period.

        A balance above the new capacity is cut to it, unless somebody waits.
        """
        self.tokens(now_ns)
        granted, last_ns, carry = self._state
        self.rate, self.capacity = max(rate, 1), max(capacity, 1)
        self._set(min(granted, self._consumed + self._capacity_now()), last_ns, carry)

    def consume(self, tokens: int) -> None:
        """Take tokens, whatever the balance."""
        if tokens < 0:
            raise BadInputError(f"cannot consume {tokens} tokens: 0 or more is allowed")
        self._consumed += tokens

    def consume_and_check(self, tokens: int, now_ns: int) -> bool:
        """Take tokens, whatever the balance; True when at least one token is left."""
        if tokens < 0:
            raise BadInputError(f"cannot consume {tokens} tokens: 0 or more is allowed")
        if now_ns > self._look_ns:
            self._refill(now_ns)
        # one line, no call: not torn between threads (see the top)
        self._consumed = consumed = self._consumed + tokens
        return self._granted > consumed

    def tokens(self, now_ns: int) -> int:
        """The balance now; negative is debt."""
        if now_ns > self._look_ns:
            self._refill(now_ns)
        return self._granted - self._consumed

    def throttling_duration_ns(self, now_ns: int, required: int = 1) -> int:
        """The time until `required` tokens are there, in ns; 0 when they are there now.

        A wait never ends before the next grant, and lasts until the tokens of one resolution are
        there, so that a waiter can send more than one frame.
        """
        balance = self.tokens(now_ns)
        if balance >= required:
            return 0
        granted, last_ns, carry = self._state
        if now_ns < last_ns:  # the clock went back: count from its present time
            self._set(granted, now_ns, carry)
            last_ns = now_ns
        rate, period_ns, resolution_ns = self.rate, self.period_ns, self._resolution_ns
        missing = max(required, resolution_ns * rate // period_ns, 1) - balance
        return max(
            missing * period_ns // rate, last_ns + max(period_ns // rate, resolution_ns) - now_ns
        )

    def forgive(self, floor: int, now_ns: int) -> int:
        """Lift a balance below `floor` (a negative number) up to it; returns the tokens given."""
        missing = floor - self.tokens(now_ns)
        if missing <= 0:
            return 0
        granted, last_ns, carry = self._state
        self._set(granted + missing, last_ns, carry)
        return missing

    def regain(self, since: int, tokens_max: int, now_ns: int) -> None:
        """Grant what was discarded since `discarded` was `since`, but not more than `tokens_max`,
        and up to a balance of a period's tokens.
        """
        room = max(self.capacity, self.rate) - self.tokens(now_ns)
        again = min(self.discarded - since, tokens_max, room)
        if again > 0:
            self.discarded -= again
            granted, last_ns, carry = self._state
            self._set(granted + again, last_ns, carry)

    def _refill(self, now_ns: int) -> None:
        granted, last_ns, carry = self._state
        if now_ns > last_ns:  # not so when another thread granted them meanwhile
            most = max(self._consumed + self._capacity_now(), granted)
            new, carry = divmod((now_ns - last_ns) * self.rate + carry, self.period_ns)
            granted, last_ns = granted + new, now_ns
            if granted > most:
                self.discarded += granted - most
                granted = most
        self._set(granted, last_ns, carry)

    def _capacity_now(self) -> int:
        return max(self.capacity, self.rate) if self.waiters else self.capacity

    def _set(self, granted: int, last_ns: int, carry: int) -> None:
        """`_look_ns`: tokens are added strictly after this moment. It is one resolution after the
        last grant, or for slow rates just before the next whole token.
        """
        rate, period_ns = self.rate, self.period_ns
        self._state = (granted, last_ns, carry)
        self._granted = granted
        if period_ns // rate > self._resolution_ns:
            self._look_ns = last_ns - (carry - period_ns) // rate - 1
        else:
            self._look_ns = last_ns + self._resolution_ns
