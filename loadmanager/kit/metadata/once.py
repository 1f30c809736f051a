"""Calls with the same key at the same time share one run, and its result or error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from loadmanager.kit.errors import OperationalError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Once(Generic[K, T]):
    """The runs in progress. If the first caller is cancelled, the others get an
    `OperationalError`.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Future[T]] = {}

    async def run(self, key: K, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, or of the run with this key that is in progress."""
        running = self._running.get(key)
        if running is not None:
            return await asyncio.shield(running)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._running[key] = future
        try:
            result = await work()
        except asyncio.CancelledError:
            _fail(future, OperationalError(f"{key}: the call was cancelled; try again"))
            raise
        except Exception as error:
            _fail(future, error)
            raise
        finally:
            del self._running[key]
        future.set_result(result)
        return result


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # without another waiter nobody retrieves it
