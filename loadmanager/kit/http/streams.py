"""Streams of events: how many an address may have open at a broker, and how long a write waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from loadmanager.kit.http.answers import RefusedError
from loadmanager.kit.http.connections import WRITE_TIMEOUT_S

AT_ADDRESS_MAX = 16


class Streams:
    """Counts the streams that a broker serves, and those that it passes on, by address."""

    def __init__(self) -> None:
        self._at = Counter[str]()

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """While a stream to that address is open. Raises `RefusedError` (503) for one too many."""
        if self._at[address] >= AT_ADDRESS_MAX:
            reason = f"{address} has {AT_ADDRESS_MAX} streams of events here already"
            raise RefusedError(503, reason)
        self._at[address] += 1
        try:
            yield
        finally:
            self._at[address] -= 1
            if not self._at[address]:
                del self._at[address]


async def write(response: web.StreamResponse, data: bytes) -> None:
    """Write to a stream. Raises `TimeoutError` when its client takes nothing."""
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await response.write(data)
