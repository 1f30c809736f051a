"""Complete brokers behind their admin APIs: what brokers ask of each other, and what operators see
of settings.
"""

from __future__ import annotations

import asyncio

import pytest
from broker.admin.serving import serving
from clusters.running import NS, a_client, eventually

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.peers import HttpPeers
from loadmanager.broker.settings.live import REJECTED
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.names import TopicName
from loadmanager.leader.ports.mover import ClientsBack

TOPIC = TopicName("persistent", NS, "a/b %2F ö")


async def test_a_peer_closes_a_deleted_topic() -> None:
    """Refused while it has clients, unless forced; says whether it was open; an owner that cannot
    be reached is named.
    """
    async with serving(1) as served:
        (broker,), calls = served.brokers, Calls()
        peers = HttpPeers(calls, release_timeout_s=lambda: 60)
        address = broker.address
        await broker.serve(TOPIC)
        async with a_client(await broker.listen()) as client:
            await client.produce(TOPIC)
            with pytest.raises(ConflictError, match="active producers"):
                await peers.close_topic(address, str(TOPIC), force=False)
            assert await peers.close_topic(address, str(TOPIC), force=True)
            assert (await client.take()).command.type == 15
        assert not await peers.close_topic(address, str(TOPIC), force=False)
        with pytest.raises(OperationalError) as refused:
            await peers.split_bundle(address, f"{NS}/0x0_0x1", unload=False, epoch=None)
        assert str(refused.value).startswith(f"{address.broker_id} answered 4")
        assert "{" not in str(refused.value)
        with pytest.raises(OperationalError, match="may still serve it"):
            await peers.close_topic(
                BrokerAddress("x", "", "http://127.0.0.1:1"), str(TOPIC), force=True
            )
        await calls.close()


async def test_a_peer_tells_when_clients_came_to_a_bundle() -> None:
    """Of as many as are asked for, the first ones; nothing of a bundle that it does not serve."""
    async with serving(1) as served:
        (broker,), calls = served.brokers, Calls()
        peers = HttpPeers(calls, release_timeout_s=lambda: 60)
        assert await peers.clients_back(broker.address, f"{NS}/0x0_0x1", 3) is None
        await broker.serve(TOPIC)
        async with a_client(await broker.listen()) as client:
            await client.produce(TOPIC)
            await client.subscribe(TOPIC)
            owned = await peers.served_bundles(broker.address)
            (bundle,) = (name for name, clients in owned.items() if clients)
            back = await peers.clients_back(broker.address, bundle, 9)
            assert back is not None
            assert back.count == len(back.returned_ms) == 2
            assert back.returned_ms == tuple(sorted(back.returned_ms))
            first = await peers.clients_back(broker.address, bundle, 1)
            assert first is not None
            assert first.served_ms is not None
            assert first == ClientsBack(2, back.returned_ms[:1], 0, first.served_ms)
        await calls.close()


async def test_a_peer_that_is_silent_or_gone() -> None:
    """The text names the broker, and how long it was waited for."""
    calls, never, waits_s = Calls(), asyncio.Event(), [0.01]
    peers = HttpPeers(calls, release_timeout_s=lambda: waits_s[0])

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = BrokerAddress("slow:1", "", f"http://127.0.0.1:{port}")
        with pytest.raises(OperationalError, match=r"^slow:1 did not answer within 0.01 s$"):
            await peers.release_bundle(address, f"{NS}/0x0_0x1", None, epoch=None)
        never.set()
    waits_s[0] = 60.0
    with pytest.raises(OperationalError, match=r"^slow:1 cannot be reached: .*connect"):
        await peers.release_bundle(address, f"{NS}/0x0_0x1", None, epoch=None)
    await calls.close()


async def test_what_operators_see_of_settings() -> None:
    """The values in force, and those that are stored and are not, each with its reason; a bad one
    is refused with 412.
    """
    async with serving(1) as served:

        async def runtime() -> dict[str, str]:
            settings: dict[str, str] = await served.get("/admin/v2/brokers/configuration/runtime")
            return settings

        async def post(key: str, value: str) -> int:
            return (
                await served.ask("POST", f"/admin/v2/brokers/configuration/{key}/{value}")
            ).status

        assert await post("minUnloadMessage", "7") == 204
        await eventually(runtime, lambda shown: shown["minUnloadMessage"] == "7")
        assert await post("loadBalancerLoadSheddingStrategy", "Sheder") == 412
        await served.brokers[0].store.put(
            paths.DYNAMIC_CONFIGURATION,
            b'{"minUnloadMessage": "few", "minUnloadMessageThroughput": "9"}',
        )
        shown = await eventually(runtime, lambda shown: REJECTED in shown)
        assert (
            shown[REJECTED] == "minUnloadMessage = 'few': a whole number of at least 0 is allowed"
        )
        assert (shown["minUnloadMessage"], shown["minUnloadMessageThroughput"]) == ("7", "9")
        assert await post("minUnloadMessage", "8") == 204
        shown = await eventually(runtime, lambda shown: REJECTED not in shown)
        assert shown["minUnloadMessage"] == "8"
