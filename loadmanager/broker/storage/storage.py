"""The storage of a broker: log files in a directory, with the threads that write them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.storage.disk import DirectoryDisk
from loadmanager.broker.storage.log_files import CLEARER, THREADS, LogFiles
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConfigError, LoadManagerError
from loadmanager.kit.files.worker import Worker
from loadmanager.kit.logger import get_logger
from loadmanager.kit.telemetry import Sample, counter

COMMITS = counter("loadmanager_storage_commits", "Writes to stored topics, of all that had come")
COMMITTED = counter("loadmanager_storage_committed_bytes", "Bytes of these writes")
COMMIT_S = counter("loadmanager_storage_commit_seconds", "Time of these writes in their thread")
SYNC_S = counter(
    "loadmanager_storage_sync_seconds", "Part of the commits' time: until they were durable"
)
DAMAGED = counter(
    "loadmanager_storage_damaged",
    "Damaged parts of stored topics that were read, and their files that were gone",
)
BROKERS = "brokers"
"""The folder of files that brokers keep locked."""
FLUSH_S = 1.0
"""After so long the segments have what was committed."""

log = get_logger("storage")


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
        self._workers = [Worker(f"storage-{number}") for number in range(THREADS)]
        self._settings = settings
        self._failing = False
        super().__init__(
            disk,
            self._work,
            syncs=lambda: settings.value.sync == "always",
            timeout_s=lambda: settings.value.timeout_s,
        )

    def samples(self) -> Iterator[Sample]:
        """The storage's metrics."""
        yield COMMITS.sample(self.commits)
        yield COMMITTED.sample(self.committed_bytes)
        yield COMMIT_S.sample(self.commit_s)
        yield SYNC_S.sample(self.sync_s)
        yield DAMAGED.sample(self.damaged)

    async def hold(self, broker: str) -> bool:
        """Keep the file of this broker locked until the process ends; false if another process has
        locked it. Raises `OSError`.
        """
        path = f"{BROKERS}/{broker}"
        locked: bool = await self._soon(lambda: self._disk.holds(path) or self._disk.lock(path))
        return locked

    async def is_held(self, broker: str) -> bool:
        """False if a broker has a file here that no process has locked. Raises `OSError`."""

        def is_held() -> bool:
            path = f"{BROKERS}/{broker}"
            if not self._disk.exists(path) or not self._disk.lock(path):
                return True
            self._disk.unlock(path)
            return False

        locked: bool = await self._soon(is_held)
        return locked

    async def _soon(self, call: Callable[[], bool]) -> Any:
        async with asyncio.timeout(self._settings.value.timeout_s):
            return await self._work(CLEARER, call)

    def _work(self, number: int, call: Callable[[], Any]) -> Any:
        return self._workers[number].run(call)

    async def run(self) -> None:
        """Read the journals of processes that have ended; then bring to the disk what was written
        without (`loadManagerStorageSync=interval`), and clear journals. Ends the threads when it is
        cancelled.
        """
        try:
            await self._try(self.recover)
            since_s = 0.0
            while True:
                interval_s = self._settings.value.sync_interval_ms / 1000
                await asyncio.sleep(interval_s)
                if (since_s := since_s + interval_s) >= FLUSH_S:
                    since_s = 0.0
                    await self._try(self.flush)
                await self._try(self.sync)
        finally:
            for worker in self._workers:
                worker.close()

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            self._failing = False
        except LoadManagerError as error:
            if not self._failing:
                log.error("messages could not be brought to the disk", error=str(error))
            self._failing = True
