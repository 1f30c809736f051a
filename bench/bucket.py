"""Speed of the token bucket against the floor and against six packages of PyPI, interleaved in one
run.

Every candidate takes one token from a limit that is never reached, in turns of a few thousand
calls; the best turn of each is shown. The bucket is told the time: once with a clock that is read
for every call, as a publish does, once with a time that is read once a turn of an event loop. The
packages come with the extra `bench` (pip install -c constraints.txt -e '.[bench]'); a missing one
is left out. `asynciolimiter` and `aiolimiter` have only an asynchronous call and are awaited inside
a running event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from loadmanager.limits.bucket import TokenBucket

PLENTY = 10**9
Turn = Callable[[int], float]


class Floor:
    """The floor: an empty method."""

    __slots__ = ("_clock",)

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def nothing(self, tokens: int) -> None:
        """Return at once."""

    def read_clock(self, tokens: int) -> int:
        """Only read the clock."""
        return self._clock()


def called(call: Callable[[int], object]) -> Turn:
    """Nanoseconds per call of `call(1)`."""

    def turn(times: int) -> float:
        started = time.perf_counter_ns()
        for _ in range(times):
            call(1)
        return (time.perf_counter_ns() - started) / times

    return turn


def timed(call: Callable[[int, int], object]) -> Turn:
    """Nanoseconds per `call(1, now)`, the reading of the clock included."""
    clock = time.monotonic_ns

    def turn(times: int) -> float:
        started = time.perf_counter_ns()
        for _ in range(times):
            call(1, clock())
        return (time.perf_counter_ns() - started) / times

    return turn


def timed_once(call: Callable[[int, int], object]) -> Turn:
    """Nanoseconds per `call(1, now)` at one moment."""

    def turn(times: int) -> float:
        started, now_ns = time.perf_counter_ns(), time.monotonic_ns()
        for _ in range(times):
            call(1, now_ns)
        return (time.perf_counter_ns() - started) / times

    return turn


def awaited(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[object]]) -> Turn:
    """Nanoseconds per awaited `call()`."""

    async def turn_async(times: int) -> float:
        started = time.perf_counter_ns()
        for _ in range(times):
            await call()
        return (time.perf_counter_ns() - started) / times

    return lambda times: loop.run_until_complete(turn_async(times))


def candidates(loop: asyncio.AbstractEventLoop) -> dict[str, Turn]:
    """Everything that can be measured here, the floor first."""
    floor = Floor(time.monotonic_ns)
    bucket = TokenBucket(PLENTY, now_ns=time.monotonic_ns())
    turns = {
        "empty method": called(floor.nothing),
        "method that reads the clock": called(floor.read_clock),
        "TokenBucket.consume_and_check": timed(bucket.consume_and_check),
        "TokenBucket, clock of a loop turn": timed_once(bucket.consume_and_check),
        "TokenBucket.consume": called(bucket.consume),
    }
    for name, make in (
        ("token-bucket", _token_bucket),
        ("limits, fixed window", _limits),
        ("throttled-py, token bucket", _throttled),
        ("pyrate-limiter, token bucket", _pyrate),
    ):
        try:
            turns[name] = called(make())
        except ImportError:
            print(f"{name}: not installed, left out", file=sys.stderr)
    for name, make_async in (
        ("asynciolimiter, leaky bucket", _asynciolimiter),
        ("aiolimiter", _aiolimiter),
    ):
        try:
            turns[name] = awaited(loop, make_async())
        except ImportError:
            print(f"{name}: not installed, left out", file=sys.stderr)
    return turns


def _token_bucket() -> Callable[[int], object]:
    import token_bucket

    limiter = token_bucket.Limiter(PLENTY, PLENTY, token_bucket.MemoryStorage())
    return lambda _: limiter.consume("key")


def _limits() -> Callable[[int], object]:
    import limits

    limiter, item = (
        limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage()),
        limits.RateLimitItemPerSecond(PLENTY),
    )
    return lambda _: limiter.hit(item, "key")


def _throttled() -> Callable[[int], object]:
    import throttled

    limiter = throttled.Throttled(
        key="key", using="token_bucket", quota=throttled.per_sec(PLENTY, burst=PLENTY), timeout=-1
    )
    return lambda _: limiter.limit()


def _pyrate() -> Callable[[int], object]:
    import pyrate_limiter

    rates = [pyrate_limiter.Rate(PLENTY, pyrate_limiter.Duration.SECOND)]
    bucket = pyrate_limiter.StateBucket(rates, algorithm=pyrate_limiter.TokenBucket())
    limiter = pyrate_limiter.Limiter(bucket)
    return lambda _: limiter.try_acquire("key", blocking=False)


def _asynciolimiter() -> Callable[[], Awaitable[object]]:
    import asynciolimiter

    return asynciolimiter.LeakyBucketLimiter(PLENTY, capacity=PLENTY).wait


def _aiolimiter() -> Callable[[], Awaitable[object]]:
    import aiolimiter

    return aiolimiter.AsyncLimiter(PLENTY, 1).acquire


def main(argv: list[str]) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench bucket", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=5000, help="calls of each candidate per round")
    args = parser.parse_args(argv)
    loop = asyncio.new_event_loop()
    turns = candidates(loop)
    figures: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(args.rounds):
        for name, turn in turns.items():
            figures[name].append(turn(args.calls))
    loop.close()
    clock_ns = min(figures["method that reads the clock"])
    print(f"{'ns per call':34} {'best':>8} {'median':>8} {'best / clock':>13}")
    for name, costs_ns in figures.items():
        print(
            f"{name:34} {min(costs_ns):8.0f} {statistics.median(costs_ns):8.0f} "
            f"{min(costs_ns) / clock_ns:13.2f}"
        )
    return 0
