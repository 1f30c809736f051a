"""The leader's order to a member to merge two of its shards, and the answer, in a node of the
store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Store
from loadmanager.kit.tasks import Scope, sleep

LIMIT_S = 400.0
"""Longer than a service may prepare, close and open a shard."""
POLL_S = 0.1
DONE, FAILED = b"done: ", b"failed: "


class MergeOrders:
    """`on_change` must be called by a watch on `paths.SERVICE`."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        me: str,
        *,
        registered: Callable[[], Collection[str]],
        merge: Callable[[str, str], Awaitable[str]],
    ) -> None:
        """`merge` merges two shards of this member, the lower one first."""
        self._store, self._scope = store, scope
        self._registered, self._merge = registered, merge
        self._here = f"{paths.SERVICE_MERGES}/{paths.encode(me)}"
        self._working: set[str] = set()

    async def order(self, member: str, left: str, right: str) -> str:
        """Have a member merge two shards of its own; returns the name of the new one. Raises
        `OperationalError`.
        """
        path = f"{paths.SERVICE_MERGES}/{paths.encode(member)}/{paths.encode(left)}"
        await self._store.create(path, right.encode(), ephemeral=True)
        try:
            for _ in range(round(LIMIT_S / POLL_S)):
                node = await self._store.get(path)
                if node is None or member not in self._registered():
                    raise OperationalError(f"{member} is gone: it was to merge {left}")
                if node.value.startswith(FAILED):
                    raise OperationalError(node.value[len(FAILED) :].decode(errors="replace"))
                if node.value.startswith(DONE):
                    return node.value[len(DONE) :].decode()
                await sleep(POLL_S)
            raise OperationalError(f"{member} has not merged {left} in time")
        finally:
            with suppress(LoadManagerError):  # it ends with the session, too
                await self._store.delete(path)

    async def on_change(self, change: Change) -> None:
        """Do what a node for this member orders."""
        if change.kind is ChangeKind.RESYNC:
            for name in await self._store.children(self._here):
                self._begin(f"{self._here}/{name}")
        elif change.kind is ChangeKind.CREATED and change.path.startswith(f"{self._here}/"):
            self._begin(change.path)

    def _begin(self, path: str) -> None:
        if path not in self._working:
            self._working.add(path)
            self._scope.spawn(self._answer(path), "merge")

    async def _answer(self, path: str) -> None:
        try:
            node = await self._store.get(path)
            if node is None or node.value.startswith((DONE, FAILED)):
                return
            left = paths.decode(paths.last(path))
            try:
                answer = DONE + (await self._merge(left, node.value.decode())).encode()
            except LoadManagerError as error:
                answer = FAILED + str(error).encode(errors="replace")[:500]
            await self._store.put(path, answer, version=node.version)
        except LoadManagerError:
            pass  # the order is gone, or the store does not answer
        finally:
            self._working.discard(path)
