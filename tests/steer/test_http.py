"""The daemon's HTTP API: its document, and clients that want all of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
from broker.admin.contract import Contract
from steer.fake_pulsar import a_pulsar

from loadmanager.kit.http.openapi import DAEMON
from loadmanager.kit.tasks import Scope
from loadmanager.steer import settings_file as conf
from loadmanager.steer.compose import ClusterDaemon
from loadmanager.steer.http.fleet import FleetServer
from loadmanager.steer.options import FleetOptions

ROUTES = (
    "fleet", "clusters", "advice", "snapshot", "cluster", "bundles", "decisions", "plans",
    "interruptions",
)  # fmt: skip


@asynccontextmanager
async def a_cluster(
    folder: Path, mode: str = "advise", cap: int = 0, **more: str
) -> AsyncIterator[str]:
    """A cluster of the daemon beside a fake Pulsar, in this process; yields its URL."""
    async with a_pulsar(2) as pulsar:
        pulsar.spread([14, 2])
        settings = conf.parse(
            "test",
            {
                "pulsar": pulsar.url(),
                "mode": mode,
                "readIntervalSeconds": "1",
                "loadBalancerSheddingIntervalMinutes": "0.01",
                "shadowStrategies": "AvgShedder",
                **more,
            },
        )
        cluster = ClusterDaemon(settings, FleetOptions(folder), port=0, connections_cap=cap)
        with contextlib.ExitStack() as stack:
            cluster.listen(stack)
            async with Scope("test") as scope:
                scope.spawn(cluster.run(), "cluster")
                yield f"http://127.0.0.1:{cluster.port}"
                scope.cancel()


async def planned(session: aiohttp.ClientSession, url: str) -> Any:
    """The advice once there is a plan."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/loadmanager/v1/advice") as answer:
                    told = await answer.json()
                    if told["plan"] and told["plan"]["unloads"]:
                        return told
            await asyncio.sleep(0.05)


async def test_answers_are_those_of_the_document(tmp_path: Path) -> None:
    """Of the daemon's own routes and the leader's; the document says nothing of other brokers."""
    unused: Any = SimpleNamespace(self_address=None, audit=None, middleware=lambda _refusals: None)
    contract = Contract(FleetServer(unused, unused, version="").application, DAEMON)
    async with a_cluster(tmp_path) as url, aiohttp.ClientSession() as session:
        told = await planned(session, url)
        assert told["plan"]["unloads"][0]["command"].startswith("pulsar-admin ")
        async with session.get(f"{url}/openapi.json") as answer:
            document = await answer.json()
        assert document["paths"].keys() == contract.document["paths"].keys()
        assert document["info"]["title"] == "loadmanager fleet"
        statuses = {
            status
            for methods in document["paths"].values()
            for entry in methods.values()
            for status in entry["responses"]
        }
        assert statuses.isdisjoint({"307", "502", "504"})
        paths = [f"/loadmanager/v1/{name}" for name in ROUTES]
        paths += [
            "/ui",
            "/loadmanager/v1/moves",
            "/admin/v2/brokers",
            "/admin/v2/brokers/leaderBroker",
            "/admin/v2/brokers/health",
            "/admin/v2/brokers/ready",
            "/metrics",
            "/loadmanager/v1/plans/1-p1",
            "/loadmanager/v1/moves?limit=x",
        ]
        for path in paths:
            async with session.get(url + path) as answer:
                contract.check("GET", path, answer.status, answer.content_type, await answer.text())


async def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """The oldest ones are closed, and one line of the log says so."""
    async with a_cluster(tmp_path, cap=8) as url:
        async with aiohttp.ClientSession() as session:
            await planned(session, url)  # it listens
        host, port = url.removeprefix("http://").split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            async with session.get(f"{url}/openapi.json") as answer:
                assert answer.status == 200
            for reader, _ in silent[:16]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in silent:
            writer.close()


async def test_whether_it_is_ready(tmp_path: Path) -> None:
    """Healthy in any case; ready while a broker of the cluster answers; its leader is Pulsar's."""
    cluster = ClusterDaemon(
        conf.parse("test", {"pulsar": "http://127.0.0.1:1"}), FleetOptions(tmp_path), port=0
    )
    with contextlib.ExitStack() as stack:
        cluster.listen(stack)
        async with Scope("test") as scope:
            scope.spawn(cluster.run(), "cluster")
            url = f"http://127.0.0.1:{cluster.port}/admin/v2/brokers"
            assert await statuses(url) == [200, 503, 404]
            scope.cancel()
    async with a_cluster(tmp_path / "other") as url:
        async with aiohttp.ClientSession() as session:
            await planned(session, url)
        assert await statuses(f"{url}/admin/v2/brokers") == [200, 200, 200]


async def statuses(url: str) -> list[int]:
    """The statuses of health, readiness and leader, once it listens."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            try:
                found = []
                for name in ("health", "ready", "leaderBroker"):
                    async with session.get(f"{url}/{name}") as answer:
                        found.append(answer.status)
                return found
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
