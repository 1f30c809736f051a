"""The admin API of a few brokers on real ports, over a cluster in memory."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from loadmanager.adapters.admin.server import AdminServer
from loadmanager.adapters.admin.settings import AdminSettings
from loadmanager.adapters.memory.admin_control import CLUSTER, MemoryCluster, MemoryControl
from loadmanager.core.bundles.names import TopicName
from loadmanager.core.bundles.ranges import BundleRange, topic_hash
from loadmanager.ports.hosting import BrokerAddress


@dataclass(frozen=True)
class Answer:
    """What came back; `body` is parsed if it is JSON."""

    status: int
    body: Any
    headers: Any

    @property
    def reason(self) -> str:
        """Reason of a failure."""
        return str(self.body["reason"])


@dataclass
class Served:
    """Brokers behind their APIs; broker 0 leads."""

    cluster: MemoryCluster
    brokers: list[MemoryControl]
    session: aiohttp.ClientSession

    def open_two_topics(self, bundle_range: str) -> None:
        """Topics of acme/orders in a bundle: one with fewer than two is not cut at given positions."""
        span, found = BundleRange.parse(bundle_range), 0
        for index in itertools.count():
            topic = TopicName.parse(f"acme/orders/in-{index}")
            if topic_hash(str(topic)) in span:
                self.cluster.topics[topic] = set()
                found += 1
            if found == 2:
                return

    def url(self, index: int = 0) -> str:
        """Base address of a broker's API."""
        return self.brokers[index].self_address.web_url

    def broker_id(self, index: int) -> str:
        """Name of a broker."""
        return self.brokers[index].self_address.broker_id

    async def ask(self, method: str, path: str, body: Any = None, *, at: int = 0, raw: bytes | None = None) -> Answer:
        """One request; redirects are not followed."""
        data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        async with self.session.request(method, URL(self.url(at) + path, encoded=True), data=data, allow_redirects=False) as answer:
            text = await answer.text()
            return Answer(answer.status, json.loads(text) if "json" in answer.content_type else text, answer.headers)

    async def get(self, path: str, *, at: int = 0) -> Any:
        """Body of a successful GET."""
        answer = await self.ask("GET", path, at=at)
        assert answer.status == 200, answer
        return answer.body


@asynccontextmanager
async def serving(brokers: int = 2, settings: AdminSettings | None = None, *, connections_cap: int = 0) -> AsyncIterator[Served]:
    """Start the APIs, with a tenant acme that has a namespace acme/orders of four bundles."""
    cluster, controls, servers = MemoryCluster(), [], []
    for _ in range(brokers):
        sock = socket.create_server(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        control = cluster.join(BrokerAddress(f"127.0.0.1:{port}", f"pulsar://127.0.0.1:{port + 1}", f"http://127.0.0.1:{port}"))
        server = AdminServer(
            control,
            cluster=CLUSTER,
            version="1.2.3",
            metrics=lambda: (b"pulsar_x 1\n", "text/plain; version=0.0.4"),
            settings=settings,
            connections_cap=connections_cap,
        )
        await server.start(sock)
        controls.append(control)
        servers.append(server)
    try:
        async with aiohttp.ClientSession() as session:
            served = Served(cluster, controls, session)
            assert (await served.ask("PUT", "/admin/v2/tenants/acme", {"allowedClusters": [CLUSTER]})).status == 204
            assert (await served.ask("PUT", "/admin/v2/namespaces/acme/orders", {"bundles": {"numBundles": 4}})).status == 204
            yield served
    finally:
        for server in servers:
            await server.stop()
