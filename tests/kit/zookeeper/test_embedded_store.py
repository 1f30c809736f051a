"""The store on the embedded server: the contract, as on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit.zookeeper.test_zookeeper_store import end_session

from loadmanager.kit.zookeeper.embedded.server import EmbeddedStore
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.testing.store_contract import StoreContract


class TestEmbeddedStore(StoreContract):
    """Sessions over a server in this process, which takes the path of one in the supervisor's."""

    @pytest.fixture(autouse=True)
    async def _server(self, tmp_path: Path) -> AsyncIterator[None]:
        async with EmbeddedStore(data_dir=tmp_path) as server:
            self.settings = ZooKeeperSettings(
                url=f"{server.url}/root", session_timeout_ms=20_000, operation_timeout_s=30.0
            )
            yield

    async def open(self) -> ZooKeeperStore:
        store = ZooKeeperStore(self.settings)
        await store.__aenter__()
        self.closing.push_async_callback(self.close, store)
        return store

    async def close(self, store: ZooKeeperStore) -> None:
        if not store._closed:
            await store.__aexit__()

    async def expire(self, store: ZooKeeperStore) -> None:
        await asyncio.to_thread(end_session, self.settings, store._client.client_id)
