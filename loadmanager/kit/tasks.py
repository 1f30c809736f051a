"""Creates every task, and decides what a failure costs.

Every task has a name and belongs to a scope. There are three kinds of work:

- *Essential* work, such as fencing, runs as a task of a scope (`Scope.spawn`). Its failure ends the
  scope, and with it the broker process, which systemd restarts: what protects ownership must never
  stop silently.
- *Optional* work, such as load reports, runs as a step (`Steps`, `every`). Its failure is logged
  and counted, and the next turn runs.
- *Required* work, such as registering, runs in `retrying` until it succeeds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from types import TracebackType
from typing import Any, Generic, TypeVar

from loadmanager.kit.conf import Live
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger

T = TypeVar("T")
R = TypeVar("R")

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 15.0
LOG_INTERVAL_S = 60.0
"""How often a failure that persists is logged."""

log = get_logger("tasks")


class Scope:
    """A named group of tasks, as an asynchronous context manager.

    Leaving it waits for the tasks. It cancels all of them when one fails.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[Any], None] = {}

    async def __aenter__(self) -> Scope:
        """Open the scope."""
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for all tasks; raises their errors as an `ExceptionGroup`."""
        await self._group.__aexit__(kind, error, trace)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = self._group.create_task(coroutine, name=f"{self._name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def finish(
        self, name: str, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any
    ) -> T:
        """Run `work(*arguments)` to its end, even if the caller is cancelled meanwhile.

        The caller gets its result or error; an error does not end the scope. If the scope ends
        before, even before the work has begun, the caller gets a `CancelledError`.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                value = await work(*arguments)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                result.set_exception(error)
                result.exception()  # a caller that was cancelled never retrieves it
            else:
                result.set_result(value)

        self.spawn(run(), name).add_done_callback(lambda _: result.cancel())
        return await asyncio.shield(result)

    def cancel(self) -> None:
        """Ask every task to end; the scope then ends without error."""
        for task in list(self._tasks):
            task.cancel()


class Steps:
    """Runs steps, and contains their failures.

    A failure is logged once for each step, type and line of code, with its traceback unless it is
    an `OperationalError`: the outside world fails. A failure that persists or comes again is logged
    once a minute, and so is its end. `on_failure` is called for every failure.
    """

    def __init__(
        self,
        on_failure: Callable[[str, Exception], None] | None = None,
        in_a_row: Counter[str] | None = None,
    ) -> None:
        self.failures: Counter[str] = Counter()
        """Step → failures so far."""
        self.in_a_row: Counter[str] = Counter() if in_a_row is None else in_a_row
        """Step → failures since it last succeeded; the leader's outlive a term."""
        self._on_failure = on_failure
        self._places_logged: set[tuple[str, str, str]] = set()
        """Step, type of the error, and line of code: as many as the code has."""
        self._last_logged_s: dict[str, float] = {}
        self._unlogged: set[str] = set()
        """Steps whose present failures in a row the log does not have."""

    async def run(self, name: str, step: Callable[[], Awaitable[object]]) -> bool:
        """Run a step; False when it failed."""
        try:
            await step()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled this task: letting the error pass would end the task silently.
            failure = RuntimeError("a task or future that the step awaited was cancelled")
            failure.__cause__ = error
            self.failed(name, failure)
            return False
        except Exception as error:
            self.failed(name, error)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from error  # it failed as it was cancelled
            return False
        self.succeeded(name)
        return True

    @contextmanager
    def contained(self, name: str) -> Iterator[None]:
        """Contain the failure of a block that awaits nothing; the block ends."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - contained, as `run` does
            self.failed(name, error)
        else:
            self.succeeded(name)

    def succeeded(self, name: str) -> None:
        """Forget the failures in a row; `run` and `contained` do it."""
        failures = self.in_a_row.pop(name, 0)
        if failures and name not in self._unlogged:
            log.info("the step succeeds again", step=name, failures=failures)
        self._unlogged.discard(name)

    def failed(self, name: str, error: Exception) -> None:
        """Count and log a failure."""
        self.failures[name] += 1
        self.in_a_row[name] += 1
        text = f"{type(error).__name__}: {error}"
        place = (name, type(error).__name__, _line_of(error))
        seen_before = place in self._places_logged
        self._places_logged.add(place)
        now_s = asyncio.get_running_loop().time()
        last_s = self._last_logged_s.get(name, float("-inf"))
        if seen_before and now_s - last_s < LOG_INTERVAL_S:
            if self.in_a_row[name] == 1:
                self._unlogged.add(name)
        else:
            self._last_logged_s[name] = now_s
            self._unlogged.discard(name)
            log.warning(
                "a step failed; the next turn runs",
                step=name,
                error=text,
                exc_info=None if seen_before or isinstance(error, OperationalError) else error,
                in_a_row=self.in_a_row[name],
            )
        if self._on_failure is not None:
            self._on_failure(name, error)


def _line_of(error: Exception) -> str:
    """File and line where an error was raised; texts of errors may differ each time."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


class Interval(Generic[T]):
    """An interval for `every` that is read from live settings, even during a wait."""

    def __init__(self, live: Live[T], seconds: Callable[[T], float]) -> None:
        self._live = live
        self._seconds = seconds

    def __call__(self) -> float:
        """The interval in force, in seconds."""
        return self._seconds(self._live.value)

    async def passed(self, since_s: float) -> None:
        """Return when the interval has passed since `since_s` on the loop's clock."""
        changed = asyncio.Event()
        stop_listening = self._live.listen(lambda _: changed.set())
        try:
            while asyncio.get_running_loop().time() < (until_s := since_s + self()):
                changed.clear()
                try:
                    async with asyncio.timeout_at(until_s):
                        await changed.wait()
                except TimeoutError:
                    return  # a loop may end a wait within its clock's resolution before the moment
        finally:
            stop_listening()


async def every(
    interval_s: Callable[[], float],
    step: Callable[[], Awaitable[object]],
    name: str,
    steps: Steps,
    *,
    first_after_s: float | None = 0.0,
) -> None:
    """Run `step` at a fixed rate, forever; `steps` contains its failures.

    The interval is read before each wait; an `Interval` applies a changed setting to the present
    wait, too. A step that takes longer than the interval is followed by the next turn at once, and
    missed turns are not made up for. The first turn begins after `first_after_s`, by default at
    once; None means after one interval.
    """
    steps.failures.setdefault(name, 0)  # a metric of 0, not none
    if first_after_s is None:
        await _wait(interval_s, asyncio.get_running_loop().time())
    else:
        await asyncio.sleep(first_after_s)
    while True:
        started_s = asyncio.get_running_loop().time()
        await steps.run(name, step)
        await _wait(interval_s, started_s)


async def _wait(interval_s: Callable[[], float], since_s: float) -> None:
    """Wait until the interval has passed since `since_s`, for at least one turn of the loop."""
    await asyncio.sleep(0)
    if isinstance(interval_s, Interval):
        await interval_s.passed(since_s)
    else:
        await asyncio.sleep(max(0.0, since_s + interval_s() - asyncio.get_running_loop().time()))


async def retrying(
    step: Callable[[], Awaitable[T]],
    name: str,
    *,
    first_s: float = BACKOFF_FIRST_S,
    max_s: float = BACKOFF_MAX_S,
    on: type[LoadManagerError] = LoadManagerError,
    within_s: float = inf,
) -> T:
    """Run `step` until it raises no error of the kind `on`, and return its result. Raises the last
    error once it has failed for `within_s`.

    The waits between the attempts double from `first_s` to `max_s`. The log has the first failure,
    then one failure a minute, and the success after failures.
    """
    wait_s, tries, failing_since_s = first_s, 0, 0.0
    last_logged_s = float("-inf")
    while True:
        tries += 1
        try:
            result = await step()
        except on as error:
            now_s = asyncio.get_running_loop().time()
            failing_since_s = failing_since_s or now_s
            if now_s - failing_since_s >= within_s:
                raise
            if now_s - last_logged_s >= LOG_INTERVAL_S:
                last_logged_s = now_s
                log.warning("failed; trying again", task=name, error=str(error), tries=tries)
        else:
            if tries > 1:
                failed_s = round(asyncio.get_running_loop().time() - failing_since_s, 1)
                log.info("succeeded after failures", task=name, tries=tries, after_s=failed_s)
            return result
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, max_s)


async def within(limit_s: float, work: Coroutine[Any, Any, T], name: str) -> T:
    """Do the work, in a task of its own. Raises `TimeoutError` after `limit_s`, also if the work
    goes on in spite of being cancelled, and `RuntimeError` if it is cancelled by somebody else:
    a `CancelledError` would end the caller, whom nobody cancelled.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not done:
        _abandon(task)
        raise TimeoutError(f"{name} took longer than {limit_s:g} s")
    try:
        return task.result()
    except asyncio.CancelledError as error:
        raise RuntimeError("a task or future that it awaited was cancelled") from error


async def until_stopped(work: Coroutine[Any, Any, None], stop_s: float, name: str) -> None:
    """Do the work, in a task of its own, until it ends or this is cancelled, and has ended within
    `stop_s` then. Raises `TimeoutError` if it goes on all the same, and `RuntimeError` as `within`.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        try:
            task.cancel()
            await asyncio.wait({task}, timeout=stop_s)
        finally:
            _abandon(task)
        if not task.done():
            raise TimeoutError(f"{name} went on for {stop_s:g} s") from None
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise
    if task.cancelled():
        raise RuntimeError("a task or future that it awaited was cancelled")
    task.result()


def _abandon(task: asyncio.Task[Any]) -> None:
    task.cancel()
    task.add_done_callback(lambda late: late.cancelled() or late.exception())


async def sleep(seconds: float) -> None:
    """Sleep; ruff forbids the runtime any other sleep."""
    await asyncio.sleep(seconds)


async def for_each(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], at_once_max: int, name: str = "for-each"
) -> list[R]:
    """Do the work for every item, `at_once_max` at once, in named tasks; returns the results.

    A failure does not stop the work for the other items. Afterwards the error of the first item
    that failed is raised.
    """
    waiting = iter(enumerate(items))
    results: dict[int, R] = {}
    errors: dict[int, Exception] = {}

    async def run() -> None:
        for number, item in waiting:
            try:
                results[number] = await work(item)
            except Exception as error:  # noqa: BLE001 - raised below, after the other items
                errors[number] = error

    async with asyncio.TaskGroup() as group:
        for number in range(min(at_once_max, len(items))):
            group.create_task(run(), name=f"{name}-{number}")
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in sorted(results)]


async def in_pieces(work: Generator[None, None, T]) -> T:
    """Do work that yields every few milliseconds; the event loop does other things in between."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


async def both(first: Awaitable[T], second: Awaitable[R]) -> tuple[T, R]:
    """Wait for two things that go on at once. Raises the first one's error, else the second's."""
    outcome, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(outcome, BaseException):
        raise outcome
    if isinstance(other, BaseException):
        raise other
    return outcome, other


async def guarded(work: Coroutine[Any, Any, T], guard: Coroutine[Any, Any, Any]) -> T:
    """Do the work; the guard runs meanwhile, and ends it by raising an error, which is raised."""
    doing = asyncio.get_running_loop().create_task(work, name="guarded")
    guarding = asyncio.get_running_loop().create_task(guard, name="guard")
    try:
        await asyncio.wait({doing, guarding}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            guarding.result()
        return await doing
    finally:
        for task in (doing, guarding):
            _abandon(task)


async def forever() -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


class LoopBusy:
    """The share of the last seconds that the event loop's thread worked: 0.0 idle, 1.0 saturated.

    Measured as the thread's CPU time over wall time. `lag_s` is how late the last timer was. It is
    no measure of work, because other processes on a crowded machine delay timers, too.
    """

    INTERVAL_S = 0.25
    LATE_S = 2.0

    def __init__(self) -> None:
        self.fraction = 0.0
        self.lag_s = 0.0
        self.on_late: Callable[[float], None] = lambda _seconds: None
        """Called with how late a timer was, if that is `LATE_S` or more: the process was frozen,
        got no CPU, or was busy with one thing.
        """

    async def run(self) -> None:
        """Measure, forever."""
        loop = asyncio.get_running_loop()
        while True:
            wall_s, cpu_s = loop.time(), time.thread_time()
            await asyncio.sleep(self.INTERVAL_S)
            spent_s = loop.time() - wall_s
            self.lag_s = max(0.0, spent_s - self.INTERVAL_S)
            if self.lag_s >= self.LATE_S:
                self.on_late(self.lag_s)
            # Averages over about two seconds, so that one garbage collection is not an overload.
            self.fraction += 0.12 * (
                min(1.0, (time.thread_time() - cpu_s) / spent_s) - self.fraction
            )
