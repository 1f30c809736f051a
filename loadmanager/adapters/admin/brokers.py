"""`/admin/v2/brokers`, `/admin/v2/broker-stats`, `/admin/v2/clusters`, `/metrics`, and what only this project has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from loadmanager.adapters.admin.answers import failed
from loadmanager.core.errors import BadInputError, NotFoundError, OperationalError
from loadmanager.ports.control import BrokerControl, NamespaceControl

DECISIONS_MAX = 1_000
HEALTH_TIMEOUT_S = 10.0


class BrokerRoutes:
    """Brokers, leadership, health, metrics."""

    def __init__(
        self, brokers: BrokerControl, namespaces: NamespaceControl, *, cluster: str, version: str, metrics: Callable[[], tuple[bytes, str]]
    ) -> None:
        self._brokers = brokers
        self._namespaces = namespaces
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
            web.post("/admin/v2/brokers/shutdown", self.shutdown),
            web.get("/admin/v2/brokers/{cluster}", self.list),
            web.get("/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", self.owned),
            web.get("/admin/v2/broker-stats/load-report", self.load_report),
            web.get("/admin/v2/clusters", self.clusters),
            web.get("/admin/v2/loadmanager/decisions", self.decisions),
            web.get("/admin/v2/loadmanager/dry-run", self.dry_run),
            web.get("/metrics", self.metrics),
            web.get("/metrics/", self.metrics),
            web.get("/status.html", self.status),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """GET /brokers[/{cluster}]."""
        cluster = request.match_info.get("cluster", self._cluster)
        if cluster != self._cluster:
            raise NotFoundError(f"cluster {cluster} does not exist here; this one is {self._cluster}")
        return web.json_response(await self._brokers.brokers())

    async def leader(self, _request: web.Request) -> web.Response:
        """GET /brokers/leaderBroker."""
        leader = self._brokers.leader()
        if leader is None:
            raise NotFoundError("there is no leader now")
        return web.json_response({"serviceUrl": leader.web_url, "brokerId": leader.broker_id})

    async def health(self, _request: web.Request) -> web.Response:
        """GET /brokers/health."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self._brokers.health()
        except TimeoutError:
            return failed(500, f"no answer of the metadata store within {HEALTH_TIMEOUT_S:g} s")
        return web.Response(text="ok")

    async def ready(self, _request: web.Request) -> web.Response:
        """GET /brokers/ready."""
        return web.Response(text="ok") if self._brokers.ready() else failed(500, "the broker is not ready")

    async def version(self, _request: web.Request) -> web.Response:
        """GET /brokers/version."""
        return web.Response(text=self._version)

    async def configuration(self, _request: web.Request) -> web.Response:
        """GET /brokers/configuration/runtime."""
        return web.json_response(dict(self._brokers.settings()))

    async def shutdown(self, request: web.Request) -> web.Response:
        """POST /brokers/shutdown: begin a graceful stop."""
        text = request.query.get("maxConcurrentUnloadPerSec", "0")
        if not text.isdigit():
            raise BadInputError(f"maxConcurrentUnloadPerSec={text}: a whole number of at least 0 is allowed")
        await self._brokers.shutdown(max_concurrent_unload_per_s=int(text))
        return web.Response(status=204)

    async def owned(self, request: web.Request) -> web.Response:
        """GET /brokers/{cluster}/{broker}/ownedNamespaces."""
        broker = request.match_info["broker"]
        if broker not in await self._brokers.brokers():
            raise NotFoundError(f"broker {broker} is not active")
        if broker != self._brokers.self_address.broker_id:
            return web.Response(status=307, headers={"Location": f"http://{broker}{request.rel_url}"})
        return web.json_response({bundle: dict(status) for bundle, status in self._brokers.owned().items()})

    async def load_report(self, _request: web.Request) -> web.Response:
        """GET /broker-stats/load-report."""
        return web.Response(body=self._brokers.load_report(), content_type="application/json")

    async def clusters(self, _request: web.Request) -> web.Response:
        """GET /clusters."""
        return web.json_response(await self._namespaces.clusters())

    async def decisions(self, request: web.Request) -> web.Response:
        """GET /loadmanager/decisions?limit=: the leader's last decisions with their reasons."""
        text = request.query.get("limit", "100")
        if not text.isdigit() or not 1 <= int(text) <= DECISIONS_MAX:
            raise BadInputError(f"limit={text}: 1 to {DECISIONS_MAX} is allowed")
        return self._at_leader(request) or web.json_response(await self._brokers.decisions(int(text)))

    async def dry_run(self, request: web.Request) -> web.Response:
        """GET /loadmanager/dry-run: what a shedding cycle would do right now."""
        return self._at_leader(request) or web.json_response(await self._brokers.dry_run())

    def _at_leader(self, request: web.Request) -> web.Response | None:
        """307 to the leader, unless this is it."""
        leader = self._brokers.leader()
        if leader is None:
            raise OperationalError("there is no leader now; try again")
        if leader.broker_id == self._brokers.self_address.broker_id:
            return None
        return web.Response(status=307, headers={"Location": f"{leader.web_url}{request.rel_url}"})

    async def metrics(self, _request: web.Request) -> web.Response:
        """GET /metrics."""
        page, content_type = self._metrics()
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def status(self, _request: web.Request) -> web.Response:
        """GET /status.html, for load balancers of the HTTP kind."""
        return web.Response(text="OK") if self._brokers.ready() else failed(503, "the broker is not ready")
