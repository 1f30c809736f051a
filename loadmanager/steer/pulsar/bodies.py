"""Reads the bodies of answers within one budget for all requests of a cluster.

Each answer may take `SMALL_BYTES` at any time. For more than that they go one after the other, so
that a cluster whose brokers all answer without end costs the memory of one large answer.
"""

from __future__ import annotations

import asyncio

import aiohttp

from loadmanager.kit.errors import OperationalError

SMALL_BYTES = 1 << 20
FAILURE_BYTES_MAX = 64 * 1024
"""More than this of a failure's body is not read: only its beginning is told."""
CHUNK_BYTES = 64 * 1024


class Bodies:
    """The bodies that are read at one time."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: how long one answer may keep the others waiting."""
        self._timeout_s = timeout_s
        self._large = asyncio.Lock()
        self.bytes_read = 0
        self.held_bytes = 0
        """Bytes of answers that have not ended yet."""

    async def read(
        self, answer: aiohttp.ClientResponse, limit: int, time_limit: asyncio.Timeout
    ) -> bytes:
        """The body; of a failure its beginning. Raises `OperationalError` for more than `limit`
        bytes. The time limit does not count while others are read; afterwards it begins anew.
        """
        body = bytearray()
        try:
            if answer.status >= 300:
                if await self._take(answer, body, FAILURE_BYTES_MAX):
                    answer.close()
            elif await self._take(answer, body, min(SMALL_BYTES, limit)):
                await self._take_the_rest(answer, body, limit, time_limit)
            return bytes(body)
        finally:
            self.held_bytes -= len(body)

    async def _take_the_rest(
        self,
        answer: aiohttp.ClientResponse,
        body: bytearray,
        limit: int,
        time_limit: asyncio.Timeout,
    ) -> None:
        if limit > SMALL_BYTES:
            time_limit.reschedule(None)
            async with self._large:
                time_limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
                if not await self._take(answer, body, limit):
                    return
        raise OperationalError(f"more than {limit} bytes")

    async def _take(self, answer: aiohttp.ClientResponse, body: bytearray, most: int) -> bool:
        """Append what comes; returns whether it became more than `most` bytes."""
        async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
            self.bytes_read += len(chunk)
            self.held_bytes += len(chunk)
            body += chunk
            if len(body) > most:
                return True
        return False
