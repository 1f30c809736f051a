"""The storage of a broker: log files in a directory, with the threads that write them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from loadmanager.adapters.files.disk import DirectoryDisk
from loadmanager.adapters.files.log_files import WORKERS, LogFiles
from loadmanager.adapters.files.worker import Worker
from loadmanager.core.conf import Live
from loadmanager.core.errors import ConfigError, LoadManagerError
from loadmanager.core.messaging.settings import StorageSettings

log = structlog.get_logger("storage")


class DirectoryStorage(LogFiles):
    """Stores logs in `loadManagerStorageDirectory`. Raises `ConfigError` if that is impossible."""

    def __init__(self, settings: Live[StorageSettings]) -> None:
        root = Path(settings.value.directory)
        try:
            disk = DirectoryDisk(root)
        except OSError as error:
            raise ConfigError(
                f"loadManagerStorageDirectory: {root}: {error.strerror or error}"
            ) from None
        self._workers = [Worker(f"storage-{number}") for number in range(WORKERS)]
        self._settings = settings
        super().__init__(disk, self._work, syncs=lambda: settings.value.sync == "always")

    def _work(self, number: int, call: Callable[[], Any]) -> Any:
        return self._workers[number].run(call)

    async def run(self) -> None:
        """Bring to the disk what was written without (`loadManagerStorageSync=interval`). Ends the
        threads when it is cancelled.
        """
        try:
            while True:
                await asyncio.sleep(self._settings.value.sync_interval_ms / 1000)
                if self._settings.value.sync == "interval":
                    await self._sync_now()
        finally:
            for worker in self._workers:
                worker.close()

    async def _sync_now(self) -> None:
        try:
            await self.sync()
        except LoadManagerError as error:
            log.error("messages could not be brought to the disk", error=str(error))
