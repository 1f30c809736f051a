"""The one place that creates tasks.

Every task has a name and belongs to a scope. Any task of a scope that fails ends the scope, and with it the daemon (systemd restarts it): a broker that
lost one of its loops must not look alive. `OperationalError` is the exception: `retrying` backs off and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

import structlog

from loadmanager.core.conf import Live
from loadmanager.core.errors import OperationalError

T = TypeVar("T")

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 15.0

log = structlog.get_logger("tasks")


class Scope:
    """A named group of tasks: an asynchronous context manager that waits for its tasks, and cancels them all when one fails or it is told to."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Scope:
        """Open the scope."""
        await self._group.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Wait for all tasks; raises what ended them (an `ExceptionGroup`)."""
        await self._group.__aexit__(kind, error, trace)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task in this scope."""
        task = self._group.create_task(coroutine, name=f"{self._name}/{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Ask every task to end; the scope then ends without error."""
        for task in list(self._tasks):
            task.cancel()


class Interval(Generic[T]):
    """An interval that live settings give, for `every`: a wait in progress follows a changed setting."""

    def __init__(self, live: Live[T], seconds: Callable[[T], float]) -> None:
        self._live = live
        self._seconds = seconds

    def __call__(self) -> float:
        """Seconds, as they are set now."""
        return self._seconds(self._live.value)

    async def passed(self, since_s: float) -> None:
        """Return when the interval has passed since `since_s` (on the loop's clock)."""
        changed = asyncio.Event()
        forget = self._live.listen(lambda _: changed.set())
        try:
            while (left_s := since_s + self() - asyncio.get_running_loop().time()) > 0:
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await changed.wait()
        finally:
            forget()


async def every(
    interval_s: Callable[[], float], step: Callable[[], Awaitable[object]], name: str, *, first_after_s: float | None = 0.0
) -> None:
    """Run `step` at a fixed rate, forever; an `OperationalError` is logged and the next turn tries again.

    The interval is asked before each wait, so that a changed setting acts from the next turn on; with an `Interval` it acts on the present
    wait, too. A step that takes longer than the interval is followed at once by the next; turns are never stacked up.
    `first_after_s`: when the first turn begins; None: after one interval.
    """
    if first_after_s is None:
        await _wait(interval_s, asyncio.get_running_loop().time())
    else:
        await asyncio.sleep(first_after_s)
    while True:
        started_s = asyncio.get_running_loop().time()
        try:
            await step()
        except OperationalError as error:
            log.warning("a periodic step failed and is tried again", task=name, error=str(error))
        await _wait(interval_s, started_s)


async def _wait(interval_s: Callable[[], float], since_s: float) -> None:
    """Until the interval has passed since `since_s`; at least one turn of the loop."""
    await asyncio.sleep(0)
    if isinstance(interval_s, Interval):
        await interval_s.passed(since_s)
    else:
        await asyncio.sleep(max(0.0, since_s + interval_s() - asyncio.get_running_loop().time()))


async def retrying(step: Callable[[], Awaitable[T]], name: str, *, first_s: float = BACKOFF_FIRST_S, max_s: float = BACKOFF_MAX_S) -> T:
    """Run `step` until it succeeds; after each `OperationalError` wait, doubling from `first_s` to `max_s`."""
    wait_s = first_s
    while True:
        try:
            return await step()
        except OperationalError as error:
            log.warning("failed and is tried again", task=name, error=str(error), wait_s=wait_s)
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, max_s)


async def sleep(seconds: float) -> None:
    """Wait; the only sleep that the runtime uses."""
    await asyncio.sleep(seconds)


class LoopBusy:
    """How much of the last seconds the event loop's thread spent working: 0.0 idle, 1.0 saturated.

    Measured as the thread's CPU time over wall time. The delay of a timer is kept beside it but does not count as work: on a crowded machine it is the
    neighbours' doing.
    """

    INTERVAL_S = 0.25

    def __init__(self) -> None:
        self.fraction = 0.0
        self.lag_s = 0.0

    async def run(self) -> None:
        """Measure, forever."""
        loop = asyncio.get_running_loop()
        while True:
            wall_s, cpu_s = loop.time(), time.thread_time()
            await asyncio.sleep(self.INTERVAL_S)
            spent_s = loop.time() - wall_s
            self.lag_s = max(0.0, spent_s - self.INTERVAL_S)
            # An average over about two seconds: one long garbage collection is not an overload.
            self.fraction += 0.12 * (min(1.0, (time.thread_time() - cpu_s) / spent_s) - self.fraction)
