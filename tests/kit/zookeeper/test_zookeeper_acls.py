"""Nodes that are for one user only, on a real ZooKeeper."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadmanager.broker.initialize import record_cluster
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.metadata.store import Create
from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore

pytestmark = pytest.mark.zookeeper


def known_as(server: JavaZooKeeper, folder: Path, text: str) -> ZooKeeperSettings:
    """Settings of a broker with a user and a password in a file; with none if `text` is empty."""
    file = folder / f"{len(list(folder.iterdir()))}.auth"
    file.write_text(text)
    url = f"{server.url}/acls-{os.getpid()}"
    return ZooKeeperSettings(url=url, auth_file=str(file) if text else "", operation_timeout_s=20)


async def test_nodes_are_for_one_user(zookeeper_server: JavaZooKeeper, tmp_path: Path) -> None:
    """Brokers with the same user share them; others read and write nothing, and are told why."""
    mine = known_as(zookeeper_server, tmp_path, "loadmanager:a secret\n")
    async with ZooKeeperStore(mine) as store:
        await record_cluster(store, "east")
        await store.commit([Create("/in-a-transaction", b"x")])
    async with ZooKeeperStore(mine) as store:
        await record_cluster(store, "east")
        assert (await store.get("/in-a-transaction")) is not None
    for other in ("", "loadmanager:another secret", "somebody:a secret"):
        with pytest.raises(OperationalError, match="the nodes belong to another user"):
            async with ZooKeeperStore(known_as(zookeeper_server, tmp_path, other)) as store:
                await record_cluster(store, "east")


@pytest.mark.parametrize("text", ["secret", ":secret", "user:", "user:pass\nuser2:pass"])
def test_files_that_name_nobody(zookeeper_server: JavaZooKeeper, tmp_path: Path, text: str) -> None:
    """Are refused; the password is not repeated."""
    with pytest.raises(ConfigError) as refused:
        known_as(zookeeper_server, tmp_path, text).credentials()
    assert "secret" not in str(refused.value)
    missing = ZooKeeperSettings(auth_file=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="cannot be read"):
        missing.credentials()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        ZooKeeperSettings(auth_file=str(tmp_path / "pipe")).credentials()
