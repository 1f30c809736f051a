"""Passes the changes of one part of the metadata store to the caches of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.tasks import retrying

LOGGED_ERRORS_MAX = 100
"""At most this many different errors of readers are logged; all are counted."""

Reader = Callable[[Change], Awaitable[None] | None]

log = get_logger("watch")


class Watcher:
    """Passes each change to its readers in order; `synced` is set after the first RESYNC.

    A reader that fails on corrupt data misses that change. The other readers get it, and the watch
    goes on.
    """

    def __init__(self, store: Store, root: str, *readers: Reader) -> None:
        self._store = store
        self.root = root
        self._readers = readers
        self._logged: set[tuple[str, str]] = set()
        self.failures = 0
        """Failures of readers, without those in which the store did not answer."""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Watch until the store is closed."""
        async for change in self._store.watch(self.root):
            for reader in self._readers:
                await self._feed(reader, change)
            if change.kind is ChangeKind.RESYNC:
                self.synced.set()

    async def _feed(self, reader: Reader, change: Change) -> None:
        """Pass one change to one reader, or a RESYNC later if the store does not answer."""
        try:
            await self._read(reader, change)
        except OperationalError as error:
            log.warning(
                "a change could not be read; reading everything again",
                root=self.root,
                error=str(error),
            )
            await retrying(
                lambda: self._read(reader, Change(ChangeKind.RESYNC, self.root)),
                f"watch {self.root}",
            )

    async def _read(self, reader: Reader, change: Change) -> None:
        try:
            reading = reader(change)
            if reading is not None:
                await reading
        except OperationalError:
            raise
        except Exception as error:
            # Other programs write to the store, too: a change that one reader cannot process must
            # neither end the broker nor be lost for the other readers.
            name, text = (
                getattr(reader, "__qualname__", repr(reader)),
                f"{type(error).__name__}: {error}",
            )
            if self._is_new(name, text):
                log.exception(
                    "a change could not be processed",
                    root=self.root,
                    path=change.path,
                    reader=name,
                    error=text,
                )

    def _is_new(self, reader: str, error: str) -> bool:
        """Count a failure; returns whether to log it."""
        self.failures += 1
        if (reader, error) in self._logged or len(self._logged) >= LOGGED_ERRORS_MAX:
            return False
        self._logged.add((reader, error))
        return True
