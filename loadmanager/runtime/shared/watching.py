"""Feeds the changes of one part of the metadata store to whoever keeps a cache of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from loadmanager.core.errors import OperationalError
from loadmanager.ports.store import Change, ChangeKind, Store
from loadmanager.runtime.tasks import retrying

log = structlog.get_logger("watch")


class Watcher:
    """Passes each change to its readers in order; `synced` is set once the first reading is complete."""

    def __init__(self, store: Store, root: str, *readers: Callable[[Change], Awaitable[None] | None]) -> None:
        self._store = store
        self._root = root
        self._readers = readers
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Watch until the store is closed. A change that cannot be read for now is followed by a reading of everything."""
        async for change in self._store.watch(self._root):
            try:
                await self._apply(change)
            except OperationalError as error:
                log.warning("a change could not be read; reading all again", root=self._root, error=str(error))
                await retrying(lambda: self._apply(Change(ChangeKind.RESYNC, self._root)), f"watch {self._root}")
            if change.kind is ChangeKind.RESYNC:
                self.synced.set()

    async def _apply(self, change: Change) -> None:
        for reader in self._readers:
            answer = reader(change)
            if answer is not None:
                await answer
