"""The admin API of complete brokers over a store in memory, on real ports."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import aiohttp
from broker.admin.contract import Contract
from clusters.running import Cluster, Running, a_cluster, until
from yarl import URL

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.peers import HttpPeers
from loadmanager.broker.admin.server import AdminServer
from loadmanager.broker.initialize import record_cluster
from loadmanager.broker.topics.access import AccessSettings
from loadmanager.engine.bundles.ranges import BundleRange, topic_hash
from loadmanager.kit.addresses import AdvertisedListener, BrokerAddress
from loadmanager.kit.http.settings import AdminSettings
from loadmanager.kit.metrics.page import MetricsPage
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.security.identity import Verifier
from loadmanager.kit.security.tls import Context

CLUSTER = "standalone"
ORDERS = NamespaceName("acme", "orders")


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; `body` is parsed if it is JSON."""

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

    cluster: Cluster
    session: aiohttp.ClientSession
    servers: list[AdminServer]
    contract: Contract

    @property
    def brokers(self) -> list[Running]:
        """The brokers, including stopped ones."""
        return self.cluster.brokers

    async def own(self, *bundles: str, at: int = 0) -> None:
        """Have a broker own bundles."""
        for bundle in bundles:
            await self.brokers[at].use.orders.acquire(bundle)

    def owners(self) -> dict[str, str]:
        """Bundle → brokerId of the broker that serves it."""
        return {
            bundle: broker.address.broker_id
            for broker in self.brokers
            for bundle in broker.use.ownership.owned()
        }

    async def open_two_topics(self, bundle_range: str, *, at: int = 0) -> None:
        """Open two topics of acme/orders in a bundle, so that a split divides it."""
        span = BundleRange.parse(bundle_range)
        topics = (TopicName("persistent", ORDERS, f"in-{index}") for index in itertools.count())
        for topic in itertools.islice(
            (topic for topic in topics if topic_hash(str(topic)) in span), 2
        ):
            await self.brokers[at].serve(topic)

    async def depose(self) -> None:
        """The leader resigns, and no broker stands again."""
        for broker in self.brokers:
            await broker.parts.member._election.resign()
        await until(lambda: all(broker.use.leading.leader is None for broker in self.brokers))

    def url(self, index: int = 0) -> str:
        """Base address of a broker's API."""
        address = self.brokers[index].address
        return address.web_url_tls or address.web_url

    def broker_id(self, index: int) -> str:
        """Name of a broker."""
        return self.brokers[index].address.broker_id

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        at: int = 0,
        raw: bytes | None = None,
        media: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request, with a media type if one is given; redirects are not followed."""
        if media is None and (body is not None or raw is not None):
            media = "application/json"
        data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        async with self.session.request(
            method,
            URL(self.url(at) + path, encoded=True),
            data=data,
            headers={**(headers or {}), **({"Content-Type": media} if media else {})},
            allow_redirects=False,
        ) as answer:
            text = await answer.text()
            self.contract.check(method, path, answer.status, answer.content_type, text)
            return Answer(
                answer.status,
                json.loads(text) if text and "json" in answer.content_type else text,
                answer.headers,
            )

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body of a request; None without a body."""
        answer = await self.ask(method, path, body)
        return answer.status, answer.body or None if answer.status == 204 else answer.body

    async def get(self, path: str, *, at: int = 0) -> Any:
        """Body of a successful GET."""
        answer = await self.ask("GET", path, at=at)
        assert answer.status == 200, answer
        return answer.body


def _session(credentials: dict[str, str], tls: Context | None) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=tls.value if tls else True)
    return aiohttp.ClientSession(headers=credentials, connector=connector)


@cache
def _document() -> list[Contract]:
    """The contract of the first server, which is that of all: to make it takes time."""
    return []


def _contract(server: AdminServer) -> Contract:
    if not _document():
        _document().append(Contract(server.application))
    return _document()[0]


@asynccontextmanager
async def serving(
    brokers: int = 2,
    settings: AdminSettings | None = None,
    values: Mapping[str, str] | None = None,
    *,
    connections_cap: int = 0,
    verifier: Verifier | None = None,
    token: str = "",
    tls: tuple[Context, Context] | None = None,
    plain_inside: bool = False,
    listener: str = "",
) -> AsyncIterator[Served]:
    """Start brokers that ask each other over HTTP, with a tenant acme that has a namespace
    acme/orders of four bundles. `token`: that of the brokers, and of requests without another.
    `tls`: of the servers, and of the brokers and requests; then there is no port without.
    `plain_inside`: brokers would ask each other without, all the same. `listener`: the clients of
    the ports belong to it; its names for the brokers are `http://out-0.example.com`, and so on.
    """
    credentials = {"Authorization": f"Bearer {token}"} if token else {}
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
    hosts = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in socks]
    addresses = [
        BrokerAddress(
            host,
            "",
            f"http://{host}" if plain_inside else "",
            web_url_tls=f"https://{host}",
            service_url_tls=f"pulsar+ssl://{host}",
        )
        if tls
        else BrokerAddress(
            host,
            f"pulsar://{host}",
            f"http://{host}",
            {listener: AdvertisedListener("pulsar://out:1", f"http://out-{index}.example.com")}
            if listener
            else {},
        )
        for index, host in enumerate(hosts)
    ]
    served_by, asked_by = tls or (None, None)
    async with AsyncExitStack() as stack:
        calls = Calls(lambda: credentials, None if plain_inside else asked_by)
        peers = HttpPeers(calls, release_timeout_s=lambda: 60)
        stack.push_async_callback(calls.close)
        cluster = await stack.enter_async_context(
            a_cluster(values, addresses=addresses, peers=peers, verifier=verifier)
        )
        servers = []
        for broker, sock in zip(cluster.brokers, socks, strict=True):
            page = MetricsPage(
                broker.parts.telemetry, cluster=CLUSTER, broker=broker.address.broker_id
            )
            server = AdminServer(
                broker.use,
                cluster=CLUSTER,
                version="1.2.3",
                metrics=page.render,
                settings=settings,
                connections_cap=connections_cap,
                access=broker.parts.access,
                authenticate_metrics=broker.settings.live(AccessSettings).value.metrics,
                calls=calls,
            )
            await server.start(cluster.scope.spawn)
            await server.listen(sock, listener, tls=served_by)
            stack.push_async_callback(server.stop)
            servers.append(server)
        session = await stack.enter_async_context(_session(credentials, asked_by))
        served = Served(cluster, session, servers, _contract(servers[0]))
        await record_cluster(cluster.brokers[0].store, CLUSTER)
        assert (
            await served.ask("PUT", "/admin/v2/tenants/acme", {"allowedClusters": [CLUSTER]})
        ).status == 204
        assert (
            await served.ask(
                "PUT", "/admin/v2/namespaces/acme/orders", {"bundles": {"numBundles": 4}}
            )
        ).status == 204
        yield served
