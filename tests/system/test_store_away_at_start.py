"""A start goes on when connections to the metadata store are lost in the middle of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters.standalone import wait_for
from kit.zookeeper.spy import Spy, spying
from kit.zookeeper.store_process import StoreProcess
from ports import free_port, free_ports

from loadmanager import Member
from loadmanager.broker.initialize import initialize_cluster
from loadmanager.broker.settings import KEYS
from loadmanager.testing.store_contract import until

pytestmark = pytest.mark.system

LOSSES = 8


@pytest.fixture
def spy(tmp_path: Path) -> Iterator[Spy]:
    """Before a store. Its first connections end: the first one at its first request, the second one
    at its second, and so on.
    """
    store = StoreProcess(free_port(), tmp_path / "store")
    store.start()
    try:
        with spying(store.port) as running:
            running.ends_at = list(range(1, LOSSES + 1))
            yield running
    finally:
        store.stop()


def test_a_broker_starts(spy: Spy, tmp_path: Path) -> None:
    """With stored topics, whose directory it checks in the store."""
    port = free_ports(2)
    settings = {
        "metadataStoreUrl": f"zk:127.0.0.1:{spy.port}/root",
        "advertisedAddress": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "brokerServicePort": str(port),
        "webServicePort": str(port + 1),
        "loadManagerStorageDirectory": str(tmp_path / "topics"),
        "loadManagerHistoryDirectory": str(tmp_path / "history"),
    }
    command = [sys.executable, "-m", "loadmanager", "broker", "--log-format", "json"]
    command += [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]
    log = tmp_path / "log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as broker:
        try:
            wait_for(
                lambda: '"event": "ready"' in log.read_text() or broker.poll() is not None,
                "it is ready",
                120,
            )
            assert broker.poll() is None, log.read_text()
            assert spy.ended > LOSSES / 2, "there were losses during the start"
            broker.terminate()
            assert broker.wait(60) == 0
        finally:
            broker.kill()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert "failed; trying again" in {event["event"] for event in events}


async def test_a_cluster_is_initialized(spy: Spy) -> None:
    """As `standalone` does it first."""
    url = {"metadataStoreUrl": f"zk:127.0.0.1:{spy.port}/root"}
    made = await initialize_cluster(KEYS.load(None, url), {"public/default": 4, "acme/shop": 4})
    assert len(made) > 0
    assert await initialize_cluster(KEYS.load(None, url), {"public/default": 4}) == frozenset()
    assert spy.ended > LOSSES / 2


class Nothing:
    """Has no state."""

    async def open(self, shard: object) -> None:
        """At once."""

    async def close(self, shard: object, state: None) -> None:
        """At once."""


async def test_a_member_joins(spy: Spy) -> None:
    """And opens its shards."""
    url = f"zk://127.0.0.1:{spy.port}/rooms"
    async with (
        asyncio.timeout(120),
        Member(url, Nothing(), address="http://h:1", shards=4, eager=True) as member,
    ):
        await until(lambda: len(member.shards) == 4, "all shards are open")
        assert spy.ended > LOSSES / 2
