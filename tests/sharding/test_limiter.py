"""The rate limit for coroutines."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

from loadmanager import AsyncLimiter
from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.testing import virtual


def now_ns() -> int:
    """The loop's time."""
    return round(asyncio.get_running_loop().time() * 1e9)


def a_limiter(rate: int, **fields: object) -> AsyncLimiter:
    """One on the loop's time."""
    return AsyncLimiter(rate, clock_ns=now_ns, **fields)  # type: ignore[arg-type]


async def pass_for_ever(limiter: AsyncLimiter, who: str, amount: int, passed: Counter[str]) -> None:
    """A greedy caller."""
    while True:
        async with limiter(who, amount):
            passed[who] += amount


@virtual
async def test_callers_get_equal_parts_whatever_they_ask_for() -> None:
    """One with fifty requests at once, one with large requests, one with a single one at a time."""
    limiter, passed = a_limiter(100), Counter[str]()
    callers = [("many", 1)] * 50 + [("large", 10), ("small", 1)]
    tasks = [
        asyncio.ensure_future(pass_for_ever(limiter, who, amount, passed))
        for who, amount in callers
    ]
    await asyncio.sleep(60)
    for task in tasks:
        task.cancel()
    assert sum(passed.values()) == pytest.approx(6_000, abs=25)
    for count in passed.values():
        assert count == pytest.approx(2_000, rel=0.02)
    assert len(passed) == 3


@virtual
async def test_the_rate_is_exact_and_idle_time_is_saved_up_to_the_burst() -> None:
    """Five pass at once, the others as tokens come."""
    limiter, times = a_limiter(10, burst=5), []
    await asyncio.sleep(100)
    began_s = asyncio.get_running_loop().time()
    for _ in range(25):
        await limiter.acquire()
        times.append(asyncio.get_running_loop().time() - began_s)
    assert times[:5] == [0.0] * 5
    waits = [later - earlier for earlier, later in pairwise(times[4:])]
    assert waits == pytest.approx([0.1] * 20, abs=1e-6)


@virtual
async def test_who_asks_for_a_large_amount_waits_for_it() -> None:
    """Until all of it has passed, and the next one for its own part only."""
    limiter = a_limiter(10, per_s=2, burst=1)
    began_s = asyncio.get_running_loop().time()
    await limiter.acquire("a", 21)
    waited_s = asyncio.get_running_loop().time() - began_s
    assert waited_s == pytest.approx(4.0, abs=0.21)  # a timer may be early
    await limiter.acquire("b")
    assert asyncio.get_running_loop().time() - began_s < waited_s + 0.41


@pytest.mark.parametrize("amount", [300, 1_000_000_000])
@virtual
async def test_nobody_waits_for_the_large_amounts_of_others(amount: int) -> None:
    """They get their equal part all the same; who is cancelled gives his place to others."""
    limiter, passed = a_limiter(100), Counter[str]()
    large = asyncio.ensure_future(pass_for_ever(limiter, "large", amount, passed))
    await asyncio.sleep(1)
    loop, longest_s, count = asyncio.get_running_loop(), 0.0, 0
    until_s = loop.time() + 20
    while loop.time() < until_s:
        began_s = loop.time()
        await limiter.acquire("small")
        longest_s, count = max(longest_s, loop.time() - began_s), count + 1
        await asyncio.sleep(0.05)
    assert longest_s < 0.25
    assert count > 50
    large.cancel()
    began_s = loop.time()
    for _ in range(100):
        await limiter.acquire("small")
    assert loop.time() - began_s == pytest.approx(1, abs=0.2)


@virtual
async def test_what_is_no_amount_is_refused() -> None:
    """And costs nobody anything."""
    limiter = a_limiter(100)
    for amount in (math.nan, math.inf, -math.inf, -1, 1_000_000_001, 10**5_000):
        with pytest.raises(BadInputError, match="0 to 1000000000 is expected"):
            await limiter.acquire("a", amount)  # type: ignore[arg-type]
    await asyncio.wait_for(limiter.acquire("b", 10), 0.01)


@virtual
async def test_those_who_give_up_cost_nobody_anything() -> None:
    """And leave nothing behind; too many waiters are refused."""
    limiter = a_limiter(10, burst=1, waiters_max=20)
    await limiter.acquire()
    waiting = [asyncio.ensure_future(limiter.acquire(str(number))) for number in range(20)]
    await asyncio.sleep(0)
    with pytest.raises(OperationalError, match="20 callers wait"):
        await limiter.acquire("late")
    for task in waiting[:19]:
        task.cancel()
    began_s = asyncio.get_running_loop().time()
    await waiting[19]
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(0.1, abs=0.01)
    assert limiter.waiting == 0


@virtual
async def test_callers_who_came_once_are_forgotten() -> None:
    """However many there were."""
    limiter = a_limiter(1_000_000, burst=1)
    tasks: list[asyncio.Future[None]] = []
    for number in range(20_000):
        tasks.append(asyncio.ensure_future(limiter.acquire(f"caller {number}")))
        if number % 100 == 0:
            await asyncio.gather(*tasks)
            tasks.clear()
    await asyncio.gather(*tasks)
    assert len(limiter._ends) <= 1_200


@pytest.mark.parametrize("fields", [{"rate": 0}, {"per_s": 0}, {"burst": 0}, {"waiters_max": -1}])
def test_what_cannot_be_is_refused(fields: dict[str, int]) -> None:
    """At once."""
    with pytest.raises(BadInputError):
        partial(AsyncLimiter, **{"rate": 1, **fields})()
