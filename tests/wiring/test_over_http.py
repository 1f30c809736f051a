"""Complete brokers behind their admin APIs: what brokers ask of each other, and what operators see of settings."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from wiring.running import NS, Cluster, a_client, a_cluster, eventually

from loadmanager.adapters.admin.peers import HttpPeers
from loadmanager.adapters.admin.server import AdminServer
from loadmanager.core.bundles.names import TopicName
from loadmanager.core.errors import ConflictError, OperationalError
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.runtime.shared import paths
from loadmanager.settings import REJECTED

TOPIC = TopicName("persistent", NS, "a/b %2F ö")


@asynccontextmanager
async def served(cluster: Cluster) -> AsyncIterator[BrokerAddress]:
    """The first broker behind its API; where that is."""
    broker = cluster.brokers[0]
    sock = socket.create_server(("127.0.0.1", 0))
    admin = AdminServer(broker.use, cluster="standalone", version="1", metrics=lambda: (b"", "text/plain"))
    await admin.start(sock)
    try:
        yield BrokerAddress("b0:8080", "", f"http://127.0.0.1:{sock.getsockname()[1]}")
    finally:
        await admin.stop()


async def test_a_peer_closes_a_deleted_topic() -> None:
    """Refused while it has clients, unless forced; says whether it was open; an owner that cannot be reached is named."""
    async with a_cluster() as cluster, served(cluster) as address:
        broker, peers = cluster.brokers[0], HttpPeers(release_timeout_s=lambda: 5)
        await broker.serve(TOPIC)
        async with a_client(await broker.listen()) as client:
            await client.produce(TOPIC)
            with pytest.raises(ConflictError, match="active producers"):
                await peers.close_topic(address, str(TOPIC), force=False)
            assert await peers.close_topic(address, str(TOPIC), force=True)
            assert (await client.take()).command.type == 15
        assert not await peers.close_topic(address, str(TOPIC), force=False)
        with pytest.raises(OperationalError, match="may still serve it"):
            await peers.close_topic(BrokerAddress("x", "", "http://127.0.0.1:1"), str(TOPIC), force=True)
        await peers.close()


async def test_what_operators_see_of_settings() -> None:
    """The values in force, and those that are stored and are not, each with its reason; a bad one is refused with 412."""
    async with a_cluster() as cluster, served(cluster) as address, aiohttp.ClientSession(address.web_url) as session:

        async def runtime() -> dict[str, str]:
            async with session.get("/admin/v2/brokers/configuration/runtime") as answer:
                found: dict[str, str] = await answer.json()
                return found

        async def post(key: str, value: str) -> int:
            async with session.post(f"/admin/v2/brokers/configuration/{key}/{value}") as answer:
                return answer.status

        assert await post("minUnloadMessage", "7") == 204
        await eventually(runtime, lambda shown: shown["minUnloadMessage"] == "7")
        assert await post("loadBalancerLoadSheddingStrategy", "Sheder") == 412
        await cluster.brokers[0].store.put(paths.DYNAMIC_CONFIGURATION, b'{"minUnloadMessage": "few", "minUnloadMessageThroughput": "9"}')
        shown = await eventually(runtime, lambda shown: REJECTED in shown)
        assert shown[REJECTED] == "minUnloadMessage = 'few': a whole number of at least 0 is allowed"
        assert (shown["minUnloadMessage"], shown["minUnloadMessageThroughput"]) == ("7", "9")
        assert await post("minUnloadMessage", "8") == 204
        shown = await eventually(runtime, lambda shown: REJECTED not in shown)
        assert shown["minUnloadMessage"] == "8"
