"""The admin API: Pulsar's paths, bodies and status codes over HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from loadmanager.adapters.admin.brokers import BrokerRoutes
from loadmanager.adapters.admin.guards import AtOnce, access, errors
from loadmanager.adapters.admin.namespaces import NamespaceRoutes
from loadmanager.adapters.admin.peers import PeerRoutes
from loadmanager.adapters.admin.routes_policies import PolicyRoutes
from loadmanager.adapters.admin.routes_throttling import ThrottlingRoutes
from loadmanager.adapters.admin.settings import AdminSettings
from loadmanager.adapters.admin.topics import TopicRoutes
from loadmanager.ports.control import BrokerControl, NamespaceControl, PeerControl, TopicControl
from loadmanager.ports.limits import LimitControl
from loadmanager.ports.policies import PolicyControl

BODY_BYTES_MAX = 2 * 1024 * 1024
"""Explicit boundaries of 50,000 bundles take 0.7 MB."""
KEEP_ALIVE_S = 75.0
BACKLOG = 512
STOP_TIMEOUT_S = 2.0


class Control(TopicControl, NamespaceControl, BrokerControl, PeerControl, Protocol):
    """Everything that the API asks."""


class Routes(Protocol):
    """One subject of the API."""

    def routes(self) -> list[web.RouteDef]:
        """All its routes; fixed paths come before those with a variable."""
        ...


class AdminServer:
    """Serves the API on one port."""

    def __init__(
        self,
        control: Control,
        *,
        cluster: str,
        version: str,
        metrics: Callable[[], tuple[bytes, str]],
        settings: AdminSettings | None = None,
        limits: LimitControl | None = None,
        policies: PolicyControl | None = None,
        connections_cap: int = 0,
    ) -> None:
        """`connections_cap`: how many connections the process can serve at most, 0 for any number."""
        self._settings = settings or AdminSettings()
        configured = self._settings.connections_max
        self._connections_max = min(configured, connections_cap or configured)
        application = web.Application(
            middlewares=[access, AtOnce(self._settings.requests_max).middleware, errors], client_max_size=BODY_BYTES_MAX
        )
        parts: list[Routes] = [
            BrokerRoutes(control, control, control, cluster=cluster, version=version, metrics=metrics),
            PeerRoutes(control, control),
            NamespaceRoutes(control, control, control),
            TopicRoutes(control, control, control),
            *([] if limits is None else [ThrottlingRoutes(limits, control)]),
            *([] if policies is None else [PolicyRoutes(policies, control, cluster=cluster)]),
        ]
        for part in parts:
            for route in part.routes():
                application.router.add_routes([route, web.RouteDef(route.method, route.path + "/", route.handler, {})])
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=STOP_TIMEOUT_S,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=self._settings.header_bytes_max,
            max_field_size=self._settings.header_bytes_max,
        )
        self._listener: asyncio.Server | None = None

    async def start(self, sock: socket.socket) -> None:
        """Listen on a bound socket."""
        await self._runner.setup()
        self._listener = await asyncio.get_running_loop().create_server(self._accept, sock=sock, backlog=BACKLOG)

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None or len(server.connections) >= self._connections_max:
            return _Refusing()
        return server()

    async def stop(self) -> None:
        """Answer what is in progress, and stop."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()


class _Refusing(asyncio.Protocol):
    """Closes a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
