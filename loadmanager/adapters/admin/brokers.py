"""Brokers, clusters, load reports, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from loadmanager.adapters.admin.answers import failed, redirect_to, whole
from loadmanager.adapters.admin.use_cases import UseCases
from loadmanager.core.errors import NotFoundError

UNLOADS_PER_S_MAX = 1_000_000
HEALTH_TIMEOUT_S = 10.0
OWNERSHIP_STATUS = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
"""Pulsar's `NamespaceOwnershipStatus` of each owned bundle; no bundle is reserved for a broker."""


class BrokerRoutes:
    """Brokers, leadership, health, metrics."""

    def __init__(
        self,
        use: UseCases,
        *,
        cluster: str,
        version: str,
        metrics: Callable[[], Awaitable[tuple[bytes, str]]],
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
            web.get("/metrics", self.metrics),
            web.get("/status.html", self.status),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """The ids (`host:port` of the admin API) of the live brokers of the cluster."""
        self._check_cluster(request.match_info.get("cluster", self._cluster))
        return web.json_response(sorted(self._use.brokers.registered))

    def _check_cluster(self, name: str) -> None:
        if name != self._cluster:
            raise NotFoundError(f"Cluster {name} does not exist here; this one is {self._cluster}")

    async def leader(self, _request: web.Request) -> web.Response:
        """The broker that leads now.

        Answers: 200 `{"serviceUrl", "brokerId"}`; 404 while there is no leader.
        """
        leader = self._use.leading.leader
        if leader is None:
            raise NotFoundError("there is no leader now")
        return web.json_response({"serviceUrl": leader.service_url, "brokerId": leader.broker_id})

    async def health(self, request: web.Request) -> web.Response:
        """Whether the broker can use the metadata store; `?brokerId=` names another broker.

        Answers: 200 `ok`; 500 or 503 with the reason; 307 to the broker that is named.
        """
        redirect = self._at_broker(request.query.get("brokerId", ""), request)
        if redirect is not None:
            return redirect
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self._use.health.check()
        except TimeoutError:
            return failed(500, f"no answer of the metadata store within {HEALTH_TIMEOUT_S:g} s")
        return web.Response(text="ok")

    def _at_broker(self, broker_id: str, request: web.Request) -> web.Response | None:
        """307 to a broker; None if `broker_id` is empty or this broker."""
        if broker_id in ("", self._use.self_address.broker_id):
            return None
        address = self._use.brokers.address(broker_id)
        if address is None:
            raise NotFoundError(f"Broker {broker_id} is not active")
        return redirect_to(address.web_url, request)

    async def ready(self, _request: web.Request) -> web.Response:
        """Whether the broker is registered, knows a leader and takes bundles.

        Answers: 200 `ok`; 500 until then, and while the broker has no session, as Pulsar does.
        """
        return (
            web.Response(text="ok")
            if self._use.health.ready()
            else failed(500, "the broker is not ready")
        )

    async def version(self, _request: web.Request) -> web.Response:
        """The version of loadmanager.

        Answers: 200, text.
        """
        return web.Response(text=self._version)

    async def configuration(self, _request: web.Request) -> web.Response:
        """Every broker.conf key with the value in force; names rejected dynamic values."""
        return web.json_response(dict(self._use.settings()))

    async def internal_configuration(self, _request: web.Request) -> web.Response:
        """Where the metadata store is."""
        url = self._use.settings()["metadataStoreUrl"]
        return web.json_response(
            {
                "zookeeperServers": url.removeprefix("zk:"),
                "configurationStoreServers": url.removeprefix("zk:"),
                "metadataStoreUrl": url,
                "configurationMetadataStoreUrl": url,
            }
        )

    async def nothing_to_do(self, _request: web.Request) -> web.Response:
        """Does nothing: backlogs are bounded while they grow.

        Answers: 204.
        """
        return web.Response(status=204)

    async def shutdown(self, request: web.Request) -> web.Response:
        """Begin a graceful stop; `?maxConcurrentUnloadPerSec=` is the most unloads a second; 0: any
        number.
        """
        self._use.stop(
            whole(request, "maxConcurrentUnloadPerSec", 0, minimum=0, maximum=UNLOADS_PER_S_MAX)
        )
        return web.Response(status=204)

    async def owned(self, request: web.Request) -> web.Response:
        """The bundles that a broker owns.

        Answers: 200, JSON; 307 to the broker that is named.
        """
        self._check_cluster(request.match_info["cluster"])
        return self._at_broker(request.match_info["broker"], request) or web.json_response(
            dict.fromkeys(self._use.ownership.owned(), OWNERSHIP_STATUS)
        )

    async def load_report(self, _request: web.Request) -> web.Response:
        """The load report of this broker, as it is in the metadata store.

        Answers: 200, JSON; 501 in the extensible load manager, which has none, as in Pulsar.
        """
        if self._use.extensible:
            return failed(501, "ExtensibleLoadManagerImpl publishes no load report")
        return await self.own_load_report(_request)

    async def own_load_report(self, _request: web.Request) -> web.Response:
        """The load report of this broker under either load manager."""
        return web.Response(body=self._use.load_report(), content_type="application/json")

    async def clusters(self, _request: web.Request) -> web.Response:
        """The names of the clusters that the metadata store records."""
        return web.json_response(await self._use.namespaces.clusters())

    async def cluster(self, request: web.Request) -> web.Response:
        """The URLs of the broker that answers; `{}` for another cluster than its own."""
        name = request.match_info["cluster"]
        if name not in await self._use.namespaces.clusters():
            raise NotFoundError(f"Cluster {name} does not exist")
        urls = {
            "serviceUrl": self._use.self_address.web_url,
            "brokerServiceUrl": self._use.self_address.service_url,
        }
        return web.json_response(urls if name == self._cluster else {})

    async def metrics(self, _request: web.Request) -> web.Response:
        """The metrics in Prometheus' text format.

        Answers: 200, text.
        """
        page, content_type = await self._metrics()
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def status(self, _request: web.Request) -> web.Response:
        """Whether the broker is ready, for HTTP load balancers.

        Answers: 200 `OK`; 503 until then.
        """
        return (
            web.Response(text="OK")
            if self._use.health.ready()
            else failed(503, "the broker is not ready")
        )
