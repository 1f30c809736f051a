"""Brokers, clusters, load reports, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from loadmanager.broker.admin.documents import AddressesShown
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.load.manager import Manager
from loadmanager.kit.audit import note_change
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.http.answers import failed, redirect_to, shown, whole
from loadmanager.kit.http.operation import TEXT, Document, Names, Query, Texts, operation
from loadmanager.leader.documents.cluster import LeaderBroker

UNLOADS_PER_S_MAX = 1_000_000
HEALTH_TIMEOUT_S = 3.0
OWNERSHIP_STATUS = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
"""Pulsar's `NamespaceOwnershipStatus` of each owned bundle; no bundle is reserved for a broker."""
BROKER_ID = Query(name="brokerId", doc="Another broker, `host:port`.")
OF_ANOTHER = {
    401: "another broker is to answer, and the request does not prove whose it is",
    403: "another broker is to answer, and the token is refused",
}
"""Of what everybody may ask a broker of itself."""
UNLOADS_PER_S = Query(
    name="maxConcurrentUnloadPerSec",
    doc="The most unloads a second; 0: any number.",
    kind=int,
    minimum=0,
    maximum=UNLOADS_PER_S_MAX,
    default=0,
)


class BrokerRoutes:
    """Brokers, leadership, health, metrics."""

    def __init__(
        self,
        use: UseCases,
        *,
        cluster: str,
        version: str,
        metrics: Callable[[str], Awaitable[tuple[bytes, str]]],
    ) -> None:
        self._use = use
        self._cluster = cluster
        self._version = version
        self._metrics = metrics

    def routes(self) -> list[web.RouteDef]:
        """All routes; fixed paths come before those with a variable."""
        return [
            web.get("/admin/v2/brokers", self.list),
            web.get("/admin/v2/brokers/leaderBroker", self.leader),
            web.get("/admin/v2/brokers/health", self.health),
            web.get("/admin/v2/brokers/ready", self.ready),
            web.get("/admin/v2/brokers/version", self.version),
            web.get("/admin/v2/brokers/configuration/runtime", self.configuration),
            web.get("/admin/v2/brokers/internal-configuration", self.internal_configuration),
            web.get("/admin/v2/brokers/backlog-quota-check", self.nothing_to_do),
            web.post("/admin/v2/brokers/shutdown", self.shutdown),
            web.get("/admin/v2/brokers/{cluster}", self.list),
            web.get("/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", self.owned),
            web.get("/admin/v2/broker-stats/load-report", self.load_report),
            web.get("/admin/v2/clusters", self.clusters),
            web.get("/admin/v2/clusters/{cluster}", self.cluster),
            web.get("/loadmanager/v1/load-report", self.own_load_report),
            web.get("/loadmanager/v1/addresses", self.addresses),
            web.get("/metrics", self.metrics),
            web.get("/status.html", self.status),
        ]

    @operation(Names, also={404: "it is another cluster"})
    async def list(self, request: web.Request) -> web.Response:
        """The ids (`host:port` of the admin API) of the live brokers of the cluster."""
        self._check_cluster(request.match_info.get("cluster", self._cluster))
        return web.json_response(sorted(self._use.brokers.registered))

    def _check_cluster(self, name: str) -> None:
        if name != self._cluster:
            raise NotFoundError(f"Cluster {name} does not exist here; this one is {self._cluster}")

    @operation(LeaderBroker, also={404: "there is no leader now"})
    async def leader(self, _request: web.Request) -> web.Response:
        """The broker that leads now."""
        leader = self._use.leading.leader
        if leader is None:
            raise NotFoundError("there is no leader now")
        return shown(LeaderBroker(service_url=leader.service_url, broker_id=leader.broker_id))

    @operation(
        str,
        media=TEXT,
        query=(BROKER_ID,),
        elsewhere="the broker that is named",
        also={
            404: "that broker is not active",
            503: "the metadata store does not answer",
            **OF_ANOTHER,
        },
    )
    async def health(self, request: web.Request) -> web.Response:
        """Check that the broker can use the metadata store; `?brokerId=` names another broker."""
        redirect = self._at_broker(request.query.get("brokerId", ""), request)
        if redirect is not None:
            return redirect
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self._use.health.check()
        except TimeoutError:
            return failed(503, f"no answer of the metadata store within {HEALTH_TIMEOUT_S:g} s")
        return web.Response(text="ok")

    def _at_broker(self, broker_id: str, request: web.Request) -> web.Response | None:
        """307 to a broker; None if `broker_id` is empty or this broker."""
        if broker_id in ("", self._use.self_address.broker_id):
            return None
        address = self._use.brokers.address(broker_id)
        if address is None:
            raise NotFoundError(f"Broker {broker_id} is not active")
        return redirect_to(address, request)

    @operation(str, media=TEXT, also={503: "not yet, or the broker has no session", **OF_ANOTHER})
    async def ready(self, _request: web.Request) -> web.Response:
        """Check that the broker is registered, knows a leader and takes bundles."""
        return (
            web.Response(text="ok")
            if self._use.health.ready()
            else failed(503, "the broker is not ready")
        )

    @operation(str, media=TEXT)
    async def version(self, _request: web.Request) -> web.Response:
        """The version of loadmanager."""
        return web.Response(text=self._version)

    @operation(Texts)
    async def configuration(self, _request: web.Request) -> web.Response:
        """Every broker.conf key with the value in force; names rejected dynamic values."""
        return web.json_response(dict(self._use.settings()))

    @operation(Texts)
    async def internal_configuration(self, _request: web.Request) -> web.Response:
        """The address of the metadata store."""
        url = self._use.settings()["metadataStoreUrl"]
        return web.json_response(
            {
                "zookeeperServers": url.removeprefix("zk:"),
                "configurationStoreServers": url.removeprefix("zk:"),
                "metadataStoreUrl": url,
                "configurationMetadataStoreUrl": url,
            }
        )

    @operation()
    async def nothing_to_do(self, _request: web.Request) -> web.Response:
        """Does nothing: backlogs are bounded while they grow."""
        return web.Response(status=204)

    @operation(query=(UNLOADS_PER_S,))
    async def shutdown(self, request: web.Request) -> web.Response:
        """Begin a graceful stop; `?maxConcurrentUnloadPerSec=` is the most unloads a second; 0: any
        number.
        """
        note_change(self._use.self_address.broker_id)
        self._use.stop(
            whole(request, "maxConcurrentUnloadPerSec", 0, minimum=0, maximum=UNLOADS_PER_S_MAX)
        )
        return web.Response(status=204)

    @operation(
        Document,
        elsewhere="the broker that is named",
        also={404: "it is another cluster, or the broker is not active"},
    )
    async def owned(self, request: web.Request) -> web.Response:
        """The bundles that a broker owns."""
        self._check_cluster(request.match_info["cluster"])
        return self._at_broker(request.match_info["broker"], request) or web.json_response(
            dict.fromkeys(self._use.ownership.owned(), OWNERSHIP_STATUS)
        )

    @operation(Document, also={501: "the extensible load manager has none, as in Pulsar"})
    async def load_report(self, _request: web.Request) -> web.Response:
        """The load report of this broker, as it is in the metadata store."""
        if self._use.extensible:
            return failed(501, f"{Manager.EXTENSIBLE.short_name} publishes no load report")
        return await self.own_load_report(_request)

    @operation(Document)
    async def own_load_report(self, _request: web.Request) -> web.Response:
        """The load report of this broker under either load manager."""
        return web.Response(body=self._use.load_report(), content_type="application/json")

    @operation(Names)
    async def clusters(self, _request: web.Request) -> web.Response:
        """The names of the clusters that the metadata store records."""
        return web.json_response(await self._use.namespaces.clusters())

    @operation(Texts)
    async def cluster(self, request: web.Request) -> web.Response:
        """The URLs of the broker that answers; `{}` for another cluster than its own."""
        name = request.match_info["cluster"]
        if name not in await self._use.namespaces.clusters():
            raise NotFoundError(f"Cluster {name} does not exist")
        urls = {
            "serviceUrl": self._use.self_address.web_url,
            "serviceUrlTls": self._use.self_address.web_url_tls,
            "brokerServiceUrl": self._use.self_address.service_url,
            "brokerServiceUrlTls": self._use.self_address.service_url_tls,
        }
        urls = {name: url for name, url in urls.items() if url}
        return web.json_response(urls if name == self._cluster else {})

    @operation(dict[str, AddressesShown])
    async def addresses(self, _request: web.Request) -> web.Response:
        """The addresses of each live broker; an empty one is not served."""
        addresses = {}
        for broker_id in sorted(self._use.brokers.registered):
            if (broker := self._use.brokers.address(broker_id)) is not None:
                addresses[broker_id] = AddressesShown(
                    web_service_url=broker.web_url,
                    web_service_url_tls=broker.web_url_tls,
                    pulsar_service_url=broker.service_url,
                    pulsar_service_url_tls=broker.service_url_tls,
                )
        return shown(addresses)

    @operation(str, media="*/*")
    async def metrics(self, request: web.Request) -> web.Response:
        """The metrics in Prometheus' text format, or in OpenMetrics for who accepts that."""
        page, content_type = await self._metrics(request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})

    @operation(str, media=TEXT, also={503: "not yet", **OF_ANOTHER})
    async def status(self, _request: web.Request) -> web.Response:
        """Check that the broker is ready, for HTTP load balancers."""
        return (
            web.Response(text="OK")
            if self._use.health.ready()
            else failed(503, "the broker is not ready")
        )
