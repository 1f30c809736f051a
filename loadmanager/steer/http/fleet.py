"""The HTTP API of the daemon that steers a Pulsar cluster: the leader's routes, and its own."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence

from aiohttp import web

from loadmanager.kit.http.answers import failed
from loadmanager.kit.http.auditing import audited
from loadmanager.kit.http.connections import Connections
from loadmanager.kit.http.middlewares import Handler, concurrency_limit, errors, log_access
from loadmanager.kit.http.openapi import DAEMON, OpenApiRoutes
from loadmanager.kit.http.serving import HttpServing
from loadmanager.kit.http.visitors import visitors
from loadmanager.kit.listener import Spawn
from loadmanager.kit.refused_clients import ClientRefusals
from loadmanager.kit.system.clock import SystemClock
from loadmanager.leader.http.archive import ArchiveRoutes
from loadmanager.leader.http.findings import FindingRoutes
from loadmanager.leader.http.goals import GoalRoutes
from loadmanager.leader.http.interruptions import InterruptionRoutes, OwnArchive
from loadmanager.leader.http.leading import ROOT, LeadingRoutes
from loadmanager.leader.http.moves import MoveRoutes
from loadmanager.leader.http.outages import OutageRoutes
from loadmanager.leader.http.page import PageRoutes
from loadmanager.leader.http.undo import UndoRoutes
from loadmanager.steer.http.fleet_access import FleetGuard
from loadmanager.steer.http.fleet_routes import FleetRoutes, FleetUse, OrdersGiven
from loadmanager.steer.ports.cluster_reader import AGENT

REQUESTS_MAX = 64
CONNECTIONS_MAX = 256
CONNECTIONS_OF_ADDRESS_MAX = 128
BODY_BYTES_MAX = 256 * 1024
HEADER_BYTES_MAX = 8192
IDLE_S = 30.0
CONFIGURATION = "/admin/v2/brokers/configuration"
DAEMON_HERE = "this is the daemon beside a Pulsar cluster"


@web.middleware
async def _no_daemon(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse another daemon that takes this one for a broker of its cluster."""
    if request.headers.get("User-Agent") == AGENT:
        return failed(403, "this is a daemon beside a Pulsar cluster, not a broker")
    return await handler(request)


@web.middleware
async def _of_brokers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Say of what only brokers have that this is a daemon, and who has it."""
    try:
        return await handler(request)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
        text = nothing_here(request.rel_url.raw_path)
        if text is None:
            raise
        return failed(404, text)


def nothing_here(path: str) -> str | None:
    """Why a daemon has nothing at a path, and who has; None for a path that no broker has."""
    if path.startswith(CONFIGURATION):
        return (
            f"{DAEMON_HERE}, which has no settings that change while it runs: its own are in the "
            "file of --config, and `pulsar-admin brokers get-runtime-config` lists the brokers'"
        )
    if path.startswith(("/admin/", "/lookup/")):
        return (
            f"{DAEMON_HERE}, which has nothing at {path}: the cluster's brokers have, which "
            "`pulsar-admin` asks"
        )
    if path.startswith(f"{ROOT}/"):
        return f"{DAEMON_HERE}, which has nothing at {path}: only loadmanager's own brokers have"
    return None


class FleetServer:
    """Serves one cluster's API on a port and a Unix socket. What web pages send from elsewhere is
    refused, and what such daemons send; `guard` decides about the others.
    """

    def __init__(
        self, use: FleetUse, guard: FleetGuard, *, version: str, connections_cap: int = 0
    ) -> None:
        """`connections_cap`: the most connections that the process has files for; 0: any number."""
        me, self.refusals = use.self_address, ClientRefusals("http")
        most = min(CONNECTIONS_MAX, connections_cap or CONNECTIONS_MAX)
        of_address = min(CONNECTIONS_OF_ADDRESS_MAX, max(1, most // 2))
        connections = Connections(
            most=most,
            at_address_max=of_address,
            bounds=f"{most} are kept, of one address {of_address}",
        )
        application = web.Application(
            middlewares=[
                connections.middleware(),
                log_access(Counter()),
                concurrency_limit(REQUESTS_MAX),
                errors,
                _no_daemon,
                _of_brokers,
                visitors(me, tuple, allowed=(), proven=False),
                guard.middleware(self.refusals),
                audited(use.audit, "fleet"),
            ],
            client_max_size=BODY_BYTES_MAX,
        )

        def archives() -> OwnArchive | None:
            return OwnArchive(use.archive) if use.archive else None

        parts = (
            FleetRoutes(use),
            LeadingRoutes(use),
            MoveRoutes(use),
            GoalRoutes(use),
            FindingRoutes(use),
            UndoRoutes(use, OrdersGiven(use.audit).order),
            ArchiveRoutes(use),
            OutageRoutes(archives),
            InterruptionRoutes(use, archives, SystemClock()),
            OpenApiRoutes(version, DAEMON),
            PageRoutes(),
        )
        for part in parts:
            application.router.add_routes(part.routes())
        self._serving = HttpServing(
            application, connections, idle_s=IDLE_S, header_bytes_max=HEADER_BYTES_MAX
        )

    @property
    def application(self) -> web.Application:
        return self._serving.application

    async def start(self, socks: Sequence[socket.socket], spawn: Spawn) -> None:
        """Listen on bound sockets; `spawn` starts the tasks."""
        await self._serving.start(spawn)
        for sock in socks:
            self._serving.listen(sock)

    async def stop(self) -> None:
        """Stop, once the requests in progress are answered."""
        await self._serving.stop()
