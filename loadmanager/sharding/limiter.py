"""A rate limit for coroutines, fair between those who use it."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from loadmanager.kit.errors import BadInputError, OperationalError, short
from loadmanager.limits.bucket import SECOND_NS, TokenBucket

WAITERS_MAX = 10_000
AMOUNT_MAX = 1_000_000_000
REMEMBERED_MIN = 1_000

_Waiting = tuple[float, int, int, "asyncio.Future[None]"]


class AsyncLimiter:
    """Lets `rate` pass in `per_s` seconds; `burst` may be saved up, by default a tenth of a
    second's. Callers who wait get equal parts of it, whatever the number and size of their requests
    (start-time fair queueing; see `limits.limit`), and one who came first is not kept waiting by a
    stream of new ones.

        limiter = AsyncLimiter(100)
        async with limiter("alice"):
            await answer()

    An amount above the burst passes in parts of a burst, or of what passes in a hundredth of a
    second, between which others have their turns: who asks for much waits for it, and nobody else
    does. `waiters_max`: how many may wait; one more gets an `OperationalError` at once. For one
    event loop.
    """

    def __init__(
        self,
        rate: int,
        *,
        per_s: float = 1.0,
        burst: int | None = None,
        waiters_max: int = WAITERS_MAX,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Raises `BadInputError`."""
        if burst is None:
            burst = max(1, round(rate / per_s / 10)) if per_s > 0 else 0
        if not (rate >= 1 and per_s > 0 and burst >= 1 and waiters_max >= 0):
            raise BadInputError("a limiter needs a rate, a time and a burst above 0")
        self._clock_ns, self._waiters_max = clock_ns, waiters_max
        self._part = max(burst, round(rate / per_s / 100))
        self._bucket = TokenBucket(
            rate,
            now_ns=clock_ns(),
            period_ns=round(per_s * SECOND_NS),
            capacity=burst,
            initial_tokens=burst,
            resolution_ns=0,
        )
        self._queue: list[_Waiting] = []
        self._arrivals = 0
        self._virtual = 0.0
        """How far the fair order has come: the beginning of the last request that passed."""
        self._ends: dict[str, float] = {}
        """Caller → where its last request ends in the fair order."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return sum(not place[3].done() for place in self._queue)

    def __call__(self, who: str = "", amount: int = 1) -> AbstractAsyncContextManager[None]:
        """`acquire` in an `async with`; nothing is given back at its end."""
        return self._entered(who, amount)

    @asynccontextmanager
    async def _entered(self, who: str, amount: int) -> AsyncIterator[None]:
        await self.acquire(who, amount)
        yield

    async def acquire(self, who: str = "", amount: int = 1) -> None:
        """Wait until this caller's turn has come. Raises `OperationalError` if too many wait, and
        `BadInputError` for what is no amount from 0 to a billion. If it is cancelled, what has
        passed of the amount is gone.
        """
        if not 0 <= amount <= AMOUNT_MAX:
            raise BadInputError(f"0 to {AMOUNT_MAX} is expected, not {short(amount)}")
        if not self._passes(min(amount, self._part)):
            self._check_waiting()
            await self._turn(who, min(amount, self._part))
        while (amount := amount - self._part) > 0:
            if not self._passes(min(amount, self._part)):
                await self._turn(who, min(amount, self._part))

    def _passes(self, amount: int) -> bool:
        """True if nobody waits, and it has passed."""
        if self._queue or self._bucket.tokens(self._clock_ns()) <= 0:
            return False
        self._bucket.consume(amount)
        return True

    def _check_waiting(self) -> None:
        if len(self._queue) >= self._waiters_max and self.waiting >= self._waiters_max:
            raise OperationalError(f"{self._waiters_max} callers wait already")

    async def _turn(self, who: str, amount: int) -> None:
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begin = max(self._virtual, self._ends.get(who, 0.0))
        self._ends[who] = begin + max(amount, 1)
        self._arrivals += 1
        heapq.heappush(self._queue, (begin, self._arrivals, amount, passed))
        self._forget()
        self._wake()
        await passed

    def _wake(self) -> None:
        if self._timer is None and self._queue:
            wait_ns = self._bucket.throttling_duration_ns(self._clock_ns())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ns / SECOND_NS, self._release)

    def _release(self) -> None:
        self._timer = None
        while self._queue:
            begin, _, amount, passed = self._queue[0]
            if not passed.done():
                if self._bucket.tokens(self._clock_ns()) <= 0:
                    break
                self._bucket.consume(amount)
                self._virtual = begin
                passed.set_result(None)
            heapq.heappop(self._queue)
        if not self._queue:  # nobody is behind anybody
            self._ends.clear()
            self._virtual = 0.0
        self._wake()

    def _forget(self) -> None:
        """Callers who are not ahead of the fair order begin as new ones do."""
        if len(self._ends) > max(REMEMBERED_MIN, 2 * len(self._queue)):
            self._ends = {who: end for who, end in self._ends.items() if end > self._virtual}
