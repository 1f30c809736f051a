"""A metadata store in memory that counts what it is asked, and can be made to wait or fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Node, Operation

T = TypeVar("T")


class CountingStore(MemoryStore):
    """One session; `counts` has its requests by their kind, without heartbeats."""

    counts: Counter[str]
    gate: asyncio.Event
    """Requests wait for it."""
    fails: bool
    """Whether requests fail."""

    def __init__(self, tree: MemoryTree, timeout_s: float, clock_s: Callable[[], float]) -> None:
        super().__init__(tree, timeout_s, clock_s)
        self.counts, self.gate, self.fails = Counter(), asyncio.Event(), False
        self.gate.set()

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return self.counts.total()

    async def _run(self, operation: Callable[[], T], *, transaction: bool = False) -> T:
        await self.gate.wait()
        if self.fails:
            raise OperationalError("the store does not answer")
        return await super()._run(operation, transaction=transaction)

    async def get(self, path: str) -> Node | None:
        self.counts["get"] += 1
        return await super().get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self.counts["get"] += len(paths)
        return await super().get_many(paths)

    async def children(self, path: str) -> list[str]:
        self.counts["children"] += 1
        return await super().children(path)

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> bool:
        self.counts["create"] += 1
        return await super().create(path, value, ephemeral=ephemeral)

    async def put(self, path: str, value: bytes, *, version: int | None = None) -> int:
        self.counts["put"] += 1
        return await super().put(path, value, version=version)

    async def delete(self, path: str, *, version: int | None = None) -> bool:
        self.counts["delete"] += 1
        return await super().delete(path, version=version)

    async def commit(self, operations: Sequence[Operation]) -> int:
        self.counts["commit"] += 1
        return await super().commit(operations)


class CountingTree(MemoryTree):
    """A tree whose sessions count."""

    def session(
        self, *, timeout_s: float = 2.0, clock_s: Callable[[], float] | None = None
    ) -> CountingStore:
        """A new session that counts."""
        return CountingStore(self, timeout_s, clock_s or asyncio.get_running_loop().time)
