"""The HTTP API of the daemon that steers a Pulsar cluster: the leader's routes, and its own."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from loadmanager.adapters.admin.leading import ROOT, LeadingRoutes
from loadmanager.adapters.admin.middlewares import concurrency_limit, errors, log_access
from loadmanager.adapters.admin.moves import MoveRoutes
from loadmanager.adapters.admin.use_cases import BundlesOf, Leading
from loadmanager.adapters.admin.visitors import visitors
from loadmanager.ports.election import Leader
from loadmanager.ports.hosting import BrokerAddress

REQUESTS_MAX = 64
BODY_BYTES_MAX = 256 * 1024
STOP_TIMEOUT_S = 2.0
Document = dict[str, Any]


class Watched(Protocol):
    """A cluster that the daemon watches."""

    def picture(self) -> Document: ...  # noqa: D102 - the routes say what it is
    def advice(self) -> Document: ...  # noqa: D102
    async def snapshot(self) -> Document: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetUse:
    """Implements `LeaderUse` for one cluster."""

    self_address: BrokerAddress
    leading: Leading
    namespaces: BundlesOf
    watched: Watched
    metrics: Callable[[], Awaitable[tuple[bytes, str]]]

    def address_of(self, _leader: Leader) -> BrokerAddress:
        """Where the leader is asked: there is one."""
        return self.self_address


class FleetRoutes:
    """What the daemon knows of the cluster, and would do."""

    def __init__(self, use: FleetUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get(ROOT + "/fleet", self.picture),
            web.get(ROOT + "/advice", self.advice),
            web.get(ROOT + "/snapshot", self.snapshot),
            web.get("/metrics", self.metrics),
        ]

    async def picture(self, _request: web.Request) -> web.Response:
        """The mode, the brokers, the age of each part, what is missing, and why nothing moves."""
        return web.json_response(self._use.watched.picture())

    async def advice(self, _request: web.Request) -> web.Response:
        """The last plan, each move with its `pulsar-admin` command, and those of the shadows."""
        return web.json_response(self._use.watched.advice())

    async def snapshot(self, _request: web.Request) -> web.Response:
        """The cluster as one input line of `loadmanager decide`."""
        return web.json_response(await self._use.watched.snapshot())

    async def metrics(self, _request: web.Request) -> web.Response:
        """Metrics for Prometheus."""
        page, kind = await self._use.metrics()
        return web.Response(body=page, headers={"Content-Type": kind})


class _Alone:
    """The daemon is no broker, and knows of none whose pages may ask it for changes."""

    def __init__(self, me: BrokerAddress) -> None:
        self._me = me

    @property
    def registered(self) -> set[str]:
        """None."""
        return set()

    def address(self, broker_id: str) -> BrokerAddress | None:
        """None."""
        return None

    def of_leader(self, leader: Leader) -> BrokerAddress:
        """The daemon."""
        return self._me


class FleetServer:
    """Serves one cluster's API on one port. There is no authentication: keep it on loopback. What
    web pages send from elsewhere is refused.
    """

    def __init__(self, use: FleetUse) -> None:
        me = use.self_address
        application = web.Application(
            middlewares=[
                log_access(Counter()),
                concurrency_limit(REQUESTS_MAX),
                errors,
                visitors(me, _Alone(me), allowed=(), proven=False),
            ],
            client_max_size=BODY_BYTES_MAX,
        )
        for part in (FleetRoutes(use), LeadingRoutes(use), MoveRoutes(use)):
            for route in part.routes():
                application.router.add_routes([route])
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=STOP_TIMEOUT_S
        )

    async def start(self, sock: socket.socket) -> None:
        """Listen on a bound socket."""
        await self._runner.setup()
        await web.SockSite(self._runner, sock).start()

    async def stop(self) -> None:
        """Stop, once the requests in progress are answered."""
        await self._runner.cleanup()
