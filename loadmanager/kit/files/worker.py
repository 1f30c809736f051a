"""A thread for calls that may block on a disk or on another machine."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
WAITING_MAX = 10_000

_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Worker:
    """Runs one call after the other.

    A daemon thread: unlike those of the loop's executor, one that hangs does not keep the process
    from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call in the thread; returns its result. A call whose caller was cancelled before
        it began is left out; one that runs is not ended. Raises `OSError` when too many wait.
        """
        if self._jobs.qsize() >= WAITING_MAX:
            raise OSError(errno.EBUSY, f"{WAITING_MAX} calls wait for one that does not end")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((call, loop, done))
        return await done

    def close(self) -> None:
        """End the thread after the calls that it was given."""
        self._jobs.put(None)
        self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, loop, done = job
            if done.cancelled():
                continue
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001 - the caller gets it
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_tell, done, result, error)


def _tell(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
