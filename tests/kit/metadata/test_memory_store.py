"""The store in memory keeps the contract."""

from __future__ import annotations

import asyncio

import pytest

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Change, ChangeKind, delete_tree
from loadmanager.testing.store_contract import StoreContract, next_of, until


class TestMemoryStore(StoreContract):
    """Sessions over one tree."""

    async def open(self) -> MemoryStore:
        self.tree: MemoryTree = getattr(self, "tree", None) or MemoryTree()
        store = self.tree.session(timeout_s=2.0)
        await store.__aenter__()
        self.closing.push_async_callback(self.close, store)
        return store

    async def close(self, store: MemoryStore) -> None:
        if store in self.tree.sessions:
            await store.__aexit__()

    async def expire(self, store: MemoryStore) -> None:
        store.expire()
        store.resume()

    async def cut(self, store: MemoryStore) -> None:
        store.suspend()
        asyncio.get_running_loop().call_later(store.session_timeout_s, store.expire)

    async def test_suspended_session_runs_out(self, store: MemoryStore) -> None:
        """Without a connection operations fail and the lease runs out; a RESYNC follows."""
        other, session_id = await self.open(), store.session_id
        changes = store.watch("/s")
        await next_of(changes)
        store.suspend()
        assert store.lease.held(self.now_s())
        with pytest.raises(OperationalError):
            await store.get("/s")
        await until(lambda: not store.lease.held(self.now_s()), "the lease runs out")
        await other.create("/s", b"")
        store.resume()
        assert await next_of(changes) == Change(ChangeKind.RESYNC, "/s")
        assert store.session_id == session_id
        assert store.lease.held(self.now_s())

    async def test_a_deep_tree_is_deleted(self, store: MemoryStore) -> None:
        """A tree with more levels than Python calls may nest, such as an operator could make."""
        paths = ["/deep" + "/d" * level for level in range(1_500)]
        for path in paths:
            await store.create(path, b"")
        await delete_tree(store, "/deep")
        assert await store.get_many([paths[0], paths[-1]]) == [None, None]

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()
