"""Streams of events: how many an address may have open at a broker, and how long a write waits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress

from aiohttp import web

from loadmanager.kit.http.answers import RefusedError
from loadmanager.kit.http.connections import CONNECTION, WRITE_TIMEOUT_S

AT_ADDRESS_MAX = 16


class Streams:
    """Counts the streams that a broker serves, and those that it passes on, by address."""

    def __init__(self) -> None:
        self._at = Counter[str]()

    @asynccontextmanager
    async def opened(self, request: web.Request, address: str) -> AsyncIterator[None]:
        """A stream to that address, which the block writes. It ends at once when the client goes.

        Raises `RefusedError` (503) for one too many.
        """
        connection, loop = request.get(CONNECTION), asyncio.get_running_loop()
        with self._counted(address), suppress(TimeoutError):
            async with asyncio.timeout(None) as ending:
                gone = (
                    connection.when_lost(lambda: ending.reschedule(loop.time()))
                    if connection is not None
                    else nullcontext()
                )
                with gone:
                    yield

    @contextmanager
    def _counted(self, address: str) -> Iterator[None]:
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
