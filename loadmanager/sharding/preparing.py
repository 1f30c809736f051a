"""Before a shard moves, its destination loads what takes long, while the source still serves.

Whoever orders the move creates a node for the destination, which answers by writing into it. The
node is deleted when the shard has arrived, or will not: then the destination lets go of what it has
prepared and not opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress

from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.tasks import Scope, sleep
from loadmanager.sharding.copies import PREPARE_S, Copies

BEGIN_S = 2.0
"""One that does not even begin is not waited for: an older version, or on its way out."""
POLL_S = 0.05
BEGUN, READY, FAILED = b"begun", b"ready", b"failed: "


class Preparations:
    """`on_change` must be called by a watch on `paths.SERVICE`."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        me: str,
        *,
        registered: Callable[[], Collection[str]],
        copies: Copies,
    ) -> None:
        """`registered`: the live members. `copies`: those of this member."""
        self._store, self._scope, self._registered = store, scope, registered
        self._copies = copies
        self._working: set[str] = set()
        self._here = f"{paths.SERVICE_PREPARATIONS}/{paths.encode(me)}"

    # Where a shard comes from

    @asynccontextmanager
    async def of(self, bundle: str, destination: str | None) -> AsyncIterator[None]:
        """Return when the destination has prepared; at the end, it is to have the shard.

        Raises `OperationalError` if it cannot prepare.
        """
        if destination is None or not self._copies.possible:
            yield
            return
        here = f"{paths.SERVICE_PREPARATIONS}/{paths.encode(destination)}"
        path = f"{here}/{paths.encode(bundle)}"
        await self._store.create(path, b"", ephemeral=True)
        try:
            await self._answered(path, bundle, destination)
            yield
        finally:
            with suppress(LoadManagerError):  # it ends with the session, too
                await self._store.delete(path)

    async def _answered(self, path: str, bundle: str, destination: str) -> None:
        waited_s = 0.0
        while waited_s < PREPARE_S + BEGIN_S:
            node = await self._store.get(path)
            if node is None or node.value.startswith(FAILED):
                why = "" if node is None else node.value[len(FAILED) :].decode(errors="replace")
                raise OperationalError(
                    f"{destination} cannot prepare {bundle}: {why or 'its order is gone'}"
                )
            if node.value == READY or (not node.value and waited_s >= BEGIN_S):
                return
            if destination not in self._registered():
                raise OperationalError(f"{destination} is gone: it was to prepare {bundle}")
            await sleep(POLL_S)
            waited_s += POLL_S
        raise OperationalError(f"{destination} has not prepared {bundle} in time")

    # Where it goes

    async def on_change(self, change: Change) -> None:
        """Do what a node for this member orders."""
        if change.kind is ChangeKind.RESYNC:
            for name in await self._store.children(self._here):
                self._begin(f"{self._here}/{name}")
        elif change.path.startswith(f"{self._here}/"):
            if change.kind is ChangeKind.CREATED:
                self._begin(change.path)
            elif change.kind is ChangeKind.DELETED:
                self._copies.forget_move(paths.decode(paths.last(change.path)))

    def _begin(self, path: str) -> None:
        bundle = paths.decode(paths.last(path))
        self._scope.spawn(self._prepare_here(path, bundle), f"prepare {bundle}")

    async def _prepare_here(self, path: str, bundle: str) -> None:
        if bundle in self._working:
            return
        self._working.add(bundle)
        try:
            await self._answer(path, bundle)
        except LoadManagerError:  # the order is gone, or the store does not answer
            self._copies.forget_move(bundle)
        finally:
            self._working.discard(bundle)

    async def _answer(self, path: str, bundle: str) -> None:
        node = await self._store.get(path)
        if node is not None and node.value == BEGUN:  # in another session
            await self._store.put(path, FAILED + b"it began anew", version=node.version)
        elif node is not None and not node.value:
            version = await self._store.put(path, BEGUN, version=node.version)
            answer = await self._done(bundle)
            await self._store.put(path, answer, version=version)

    async def _done(self, bundle: str) -> bytes:
        try:
            await self._copies.make(bundle)
        except OperationalError as error:
            return FAILED + str(error).encode(errors="replace")[:500]
        return READY
