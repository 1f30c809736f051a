"""The queue between a metadata store and the reader of its notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

PENDING_MAX = 100_000

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """Holds at most `PENDING_MAX` items; `overflow` replaces them all when the reader is slower."""

    def __init__(self, overflow: T) -> None:
        self._pending: asyncio.Queue[T | None] = asyncio.Queue()
        self._overflow = overflow

    def put(self, item: T) -> None:
        if self._pending.qsize() >= PENDING_MAX:
            while not self._pending.empty():
                self._pending.get_nowait()
            item = self._overflow
        self._pending.put_nowait(item)

    def close(self) -> None:
        """End the reader's iteration after the pending items."""
        self._pending.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[T]:
        """The items, as they come."""
        while (item := await self._pending.get()) is not None:
            yield item
