"""What each member says of its shards, in a node that ends with its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind, Store

T = TypeVar("T")


class Said(Generic[T]):
    """`on_change` must be called by a watch on `paths.SERVICE`, `tell` again and again."""

    def __init__(
        self, store: Store, root: str, me: str, own: Callable[[], T], kind: type[T]
    ) -> None:
        """`own`: what this member has to say; whatever is false is not written. `kind`: what it is,
        for msgspec.
        """
        self._store, self._root, self._me, self._own, self._kind = store, root, me, own, kind
        self.of: dict[str, T] = {}
        """Member → what it says."""
        self.changes = 0
        """Grows with each change of `of`."""

    async def tell(self) -> None:
        """Write what this member has to say, if that has changed."""
        said, path = self._own(), self._path(self._me)
        if said == self.of.get(self._me) or not (said or self._me in self.of):
            return
        value = msgspec.json.encode(said)
        if not said:
            await self._store.delete(path)
        elif not await self._store.create(path, value, ephemeral=True):
            await self._store.put(path, value)
        self._set(self._me, said)

    async def on_change(self, change: Change) -> None:
        """Read what a member says. What is damaged counts as nothing said."""
        if change.kind is ChangeKind.RESYNC:
            self.of.clear()
            self.changes += 1
            for name in await self._store.children(self._root):
                await self._read(paths.decode(name))
        elif change.path.startswith(f"{self._root}/"):
            await self._read(paths.decode(paths.last(change.path)))

    async def _read(self, member: str) -> None:
        node, said = await self._store.get(self._path(member)), None
        if node is not None:
            try:
                said = msgspec.json.decode(node.value, type=self._kind)
            except msgspec.MsgspecError:
                said = None
        self._set(member, said)

    def _set(self, member: str, said: T | None) -> None:
        self.of.pop(member, None)
        if said:
            self.of[member] = said
        self.changes += 1

    def _path(self, member: str) -> str:
        return f"{self._root}/{paths.encode(member)}"
