"""The token bucket: Pulsar's published vectors, exactness, clocks that misbehave, threads."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits.driven import MS, SECOND, DrivenClock

from loadmanager.kit.errors import BadInputError
from loadmanager.limits.bucket import RESOLUTION_NS, TokenBucket


def bucket(rate: int, clock: DrivenClock, **options: int) -> TokenBucket:
    """A bucket on a driven clock."""
    return TokenBucket(rate, now_ns=clock(), **options)


def test_silence_fills_to_the_capacity_and_not_above() -> None:
    """Rate 10 fills 50, 60, then stays at the capacity of 100; used up, a second brings 10."""
    clock = DrivenClock()
    tokens = bucket(10, clock, capacity=100, initial_tokens=0)
    balances = []
    for seconds in (5, 1, 4, 5):
        clock.forward_ms(seconds * 1000)
        balances.append(tokens.tokens(clock()))
    tokens.consume(100)
    balances.append(tokens.tokens(clock()))
    clock.forward_ms(1000)
    assert [*balances, tokens.tokens(clock())] == [50, 60, 100, 100, 0, 10]


@pytest.mark.parametrize("resolution_ns", [RESOLUTION_NS, 0])
def test_debt_is_paused_off(resolution_ns: int) -> None:
    """Fifty tokens of debt at 10/s pause for 5.1 s: the debt and one token to go on with."""
    clock = DrivenClock()
    tokens = bucket(10, clock, capacity=100, initial_tokens=0, resolution_ns=resolution_ns)
    clock.forward_ms(5000)
    tokens.consume(100)
    assert tokens.tokens(clock()) == -50
    assert tokens.throttling_duration_ns(clock()) == 5100 * MS
    clock.forward_ms(5000)
    assert tokens.tokens(clock()) == 0
    clock.forward_ms(100)
    assert tokens.tokens(clock()) == 1


@pytest.mark.parametrize("resolution_ns", [RESOLUTION_NS, 0])
def test_fractions_are_carried_from_look_to_look(resolution_ns: int) -> None:
    """At 10/s, 150 calls a millisecond apart grant one token, and keep the half for the next."""
    clock = DrivenClock()
    tokens = bucket(10, clock, capacity=100, initial_tokens=0, resolution_ns=resolution_ns)
    for _ in range(150):
        clock.forward_ms(1)
        tokens.tokens(clock())
    seen = [tokens.tokens(clock())]
    for ms in (150, 1, 99):
        clock.forward_ms(ms)
        seen.append(tokens.tokens(clock()))
    assert seen == [1, 3, 3, 4]


def test_leftovers_at_one_per_second() -> None:
    """At one per second, no token comes before the second is full, however often one looks."""
    clock = DrivenClock()
    tokens = bucket(1, clock, initial_tokens=0, capacity=100)
    for _ in range(150):
        clock.forward_ms(1)
        assert tokens.tokens(clock()) == 0
    seen = []
    for ms in (150, 699, 1, 1000):
        clock.forward_ms(ms)
        seen.append(tokens.tokens(clock()))
    assert seen == [0, 0, 1, 2]


def test_debt_and_refill_cancel_exactly() -> None:
    """Ten thousand rounds of 500 tokens of debt and 50 s of refill at 10/s leave nothing but the
    last nine seconds.
    """
    clock = DrivenClock()
    tokens = bucket(10, clock, capacity=100, initial_tokens=0)
    for _ in range(10_000):
        tokens.consume(500)
        clock.forward_ms(50_000)
        tokens.tokens(clock())
    clock.forward_ms(9000)
    assert tokens.tokens(clock()) == 90


def test_refill_after_debt_never_overfills() -> None:
    """A hundred rounds of debt with extra silence end below the capacity."""
    clock = DrivenClock()
    tokens = bucket(10, clock, capacity=100, initial_tokens=0)
    for round_number in range(100):
        tokens.consume(600)
        tokens.tokens(clock())
        clock.forward_ms(50_000)
        if (round_number + 1) % 10 == 0:
            clock.forward_ms(100_000)
        assert tokens.tokens(clock()) <= 100
    clock.forward_ms(9000)
    assert tokens.tokens(clock()) == 90


def test_equal_rates_in_and_out_leave_the_balance_alone() -> None:
    """A hundred thousand times one token per millisecond at 1000/s ends where it began."""
    clock = DrivenClock()
    tokens = bucket(1000, clock, capacity=100_000, initial_tokens=500)
    for _ in range(100_000):
        clock.forward_ms(1)
        tokens.consume_and_check(1, clock())
    clock.forward_ms(16)  # what the resolution still holds back
    assert tokens.tokens(clock()) == 516


RATES = st.sampled_from(
    [
        (1, 3600 * SECOND),
        (1, SECOND),
        (3, SECOND),
        (7, 60 * SECOND),
        (999_983, SECOND),
        (700_000_000, SECOND),
        (10**9, SECOND),
    ]
)


@given(
    rate=RATES,
    steps=st.lists(st.integers(1, 200 * MS), min_size=1, max_size=200),
    resolution_ns=st.sampled_from([0, RESOLUTION_NS]),
)
def test_no_drift_from_one_per_hour_to_a_billion_per_second(
    rate: tuple[int, int], steps: list[int], resolution_ns: int
) -> None:
    """However often the bucket is read, it has granted elapsed × rate: never more, and less only by
    the tokens of one resolution.
    """
    clock = DrivenClock()
    tokens = bucket(
        rate[0],
        clock,
        period_ns=rate[1],
        capacity=1 << 100,
        initial_tokens=0,
        resolution_ns=resolution_ns,
    )
    for step in steps:
        clock.now_ns += step
        exact = (clock.now_ns - 100 * SECOND) * rate[0] // rate[1]
        assert exact - resolution_ns * rate[0] // rate[1] - 1 <= tokens.tokens(clock()) <= exact
    clock.now_ns += 3600 * SECOND
    assert tokens.tokens(clock()) == (clock.now_ns - 100 * SECOND) * rate[0] // rate[1]


class Reference:
    """Revision R3 of Pulsar's bucket, restated step by step."""

    def __init__(
        self, rate: int, capacity: int, initial: int, resolution_ns: int, now_ns: int
    ) -> None:
        self.rate, self.capacity, self.balance, self.resolution_ns = (
            rate,
            capacity,
            initial,
            resolution_ns,
        )
        self.last_ns, self.remainder_ns, self.pending = now_ns, 0, 0

    def new_tokens(self, now_ns: int) -> int:
        one = SECOND // self.rate
        least = one - self.remainder_ns - 1 if one > self.resolution_ns else self.resolution_ns
        if not now_ns > self.last_ns + least:
            return 0
        duration = now_ns - self.last_ns + self.remainder_ns
        self.last_ns = now_ns
        new = duration * self.rate // SECOND
        self.remainder_ns = max(0, duration - new * SECOND // self.rate)
        return new

    def consume(self, tokens: int, now_ns: int) -> int:
        new = self.new_tokens(now_ns)
        if not new:
            self.pending += tokens
            return self.balance - self.pending
        self.balance = min(self.balance + new - self.pending, self.capacity) - tokens
        self.pending = 0
        return self.balance


@given(
    rate=st.sampled_from([1, 2, 10, 50, 100, 1000, 12_500, 10**6, 10**9]),
    steps=st.lists(st.tuples(st.integers(0, 400 * MS), st.integers(0, 50)), max_size=150),
    resolution_ns=st.sampled_from([0, MS, RESOLUTION_NS]),
    capacity_factor=st.integers(1, 10),
)
def test_every_balance_is_that_of_revision_r3(
    rate: int, steps: list[tuple[int, int]], resolution_ns: int, capacity_factor: int
) -> None:
    """Where the rate divides the second, every balance after every step is Pulsar's."""
    clock = DrivenClock()
    ours = bucket(rate, clock, capacity=rate * capacity_factor, resolution_ns=resolution_ns)
    theirs = Reference(rate, rate * capacity_factor, rate, resolution_ns, clock())
    for step_ns, tokens in steps:
        clock.now_ns += step_ns
        expected = theirs.consume(tokens, clock())
        assert ours.consume_and_check(tokens, clock()) == (expected > 0)
        assert ours.tokens(clock()) == expected


@given(
    rate=st.integers(1, 10**9),
    moves=st.lists(st.integers(-10 * SECOND, 1000 * SECOND), min_size=1, max_size=50),
    taken=st.integers(0, 10**9),
)
def test_a_clock_that_stalls_jumps_or_goes_back_is_survived(
    rate: int, moves: list[int], taken: int
) -> None:
    """Whatever the clock does, the balance never exceeds the capacity, and waiting the told time
    brings tokens.
    """
    clock = DrivenClock(10**6 * SECOND)
    tokens = bucket(rate, clock)
    for move in moves:
        clock.now_ns += move
        tokens.consume(taken)
        assert tokens.tokens(clock()) <= rate
    for _ in range(3):
        clock.now_ns += tokens.throttling_duration_ns(clock())
    assert tokens.tokens(clock()) > 0


def test_tokens_for_those_who_wait_outlive_a_late_timer() -> None:
    """A small capacity loses the tokens of a long silence, unless somebody waits for them."""
    clock = DrivenClock()
    tokens = bucket(1000, clock, capacity=25, initial_tokens=0)
    clock.forward_ms(500)
    idle = tokens.tokens(clock())
    tokens.consume(25)
    tokens.waiters = 1
    clock.forward_ms(500)
    awaited = tokens.tokens(clock())
    tokens.waiters = 0
    clock.forward_ms(500)
    assert (idle, awaited, tokens.tokens(clock())) == (25, 500, 500)


def test_forgiveness_lifts_debt_to_the_floor_and_says_how_much() -> None:
    """Debt beyond the floor is given back once; a balance above it is left alone."""
    clock = DrivenClock()
    tokens = bucket(10, clock)
    tokens.consume(100_000)
    assert (
        tokens.forgive(-200, clock()),
        tokens.tokens(clock()),
        tokens.forgive(-200, clock()),
    ) == (99_790, -200, 0)


def test_a_changed_rate_holds_from_that_moment() -> None:
    """Time before the change grants at the old rate, time after it at the new one; a lower capacity
    cuts the balance.
    """
    clock = DrivenClock()
    tokens = bucket(10, clock, initial_tokens=0, capacity=1000)
    balances = []
    for rate in (1000, 10, 1):
        clock.forward_ms(500)
        tokens.set_rate(rate, capacity=rate, now_ns=clock())
        balances.append(tokens.tokens(clock()))
    clock.forward_ms(1500)
    assert [*balances, tokens.tokens(clock())] == [5, 10, 1, 1]


def test_a_changed_rate_keeps_debt_and_the_tokens_of_those_who_wait() -> None:
    """A lower rate does not forgive debt, and takes no tokens from waiters."""
    clock = DrivenClock()
    debtor, awaited = (bucket(100, clock, initial_tokens=0) for _ in range(2))
    debtor.consume(500)
    awaited.waiters = 1
    clock.forward_ms(1000)
    for tokens in (debtor, awaited):
        tokens.set_rate(60, capacity=1, now_ns=clock())
    assert (debtor.tokens(clock()), awaited.tokens(clock())) == (-400, 60)
    assert debtor.throttling_duration_ns(clock()) == 401 * SECOND // 60


@pytest.mark.parametrize(
    "arguments", [{"rate": 0}, {"rate": 1, "period_ns": 0}, {"rate": 1, "resolution_ns": -1}]
)
def test_nonsense_is_refused_at_construction(arguments: dict[str, int]) -> None:
    """A rate or period below one, or a negative resolution, is the caller's fault."""
    with pytest.raises(BadInputError):
        TokenBucket(**arguments, now_ns=0)


def test_negative_consumption_is_refused() -> None:
    """A negative number of tokens is the caller's fault."""
    tokens = bucket(10, DrivenClock())
    with pytest.raises(BadInputError):
        tokens.consume(-1)
    with pytest.raises(BadInputError):
        tokens.consume_and_check(-1, 0)


def test_nothing_consumed_by_several_threads_is_forgotten() -> None:
    """Eight threads consume with the interpreter switching between them as often as it can; the
    balance accounts for every token.
    """
    clock = time.monotonic_ns
    started = clock()
    tokens = TokenBucket(1, now_ns=started, period_ns=10**6 * SECOND, capacity=0, initial_tokens=0)
    fast = TokenBucket(10**9, now_ns=started, capacity=10**15, initial_tokens=0, resolution_ns=0)

    def work() -> None:
        for _ in range(20_000):
            tokens.consume_and_check(3, clock())
            tokens.consume(2)
            fast.consume_and_check(1, clock())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert tokens.tokens(clock()) == -8 * 20_000 * 5
    # nothing granted twice
    assert fast.tokens(clock()) + 8 * 20_000 <= (clock() - started) + SECOND
