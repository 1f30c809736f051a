"""How large logs are, by the sizes of their files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from loadmanager.broker.storage.writers import Disk


class LogSizes:
    """Implements `broker.ports.log.Sizes`. `run` runs a call that may block, in a thread in which
    nothing else waits.
    """

    def __init__(self, disk: Disk, run: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._disk, self._run = disk, run

    async def bytes_of(self, log_ids: Sequence[int]) -> int:
        size: int = await self._run(lambda: sum(map(self._bytes_of, log_ids)))
        return size

    def _bytes_of(self, log_id: int) -> int:
        folder, size = f"{log_id:016x}", 0
        for name in self._disk.names(folder):
            if name.endswith(".log"):
                with suppress(FileNotFoundError):  # trimmed, or deleted, meanwhile
                    size += self._disk.size(f"{folder}/{name}")
        return size
