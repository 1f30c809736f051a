"""A value that changes, and readers that wait for its next change.

A slow reader sees the latest value, not every value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Holds one value."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._next: asyncio.Event = asyncio.Event()

    def set(self, value: T) -> None:
        """Change the value and wake the readers."""
        self.value = value
        self._next.set()
        self._next = asyncio.Event()

    async def changed(self, timeout_s: float) -> None:
        """Return at the next `set`, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._next.wait()
        except TimeoutError:
            return

    async def follow(self) -> AsyncIterator[T]:
        """The present value, then the latest after each change."""
        while True:
            upcoming = self._next
            yield self.value
            await upcoming.wait()
