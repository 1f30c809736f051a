"""The admin API: Pulsar's paths, bodies and status codes over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from loadmanager.adapters.admin.answers import errors
from loadmanager.adapters.admin.brokers import BrokerRoutes
from loadmanager.adapters.admin.namespaces import NamespaceRoutes
from loadmanager.adapters.admin.peers import PeerRoutes
from loadmanager.adapters.admin.topics import TopicRoutes
from loadmanager.ports.control import BrokerControl, NamespaceControl, PeerControl, TopicControl

BODY_BYTES_MAX = 2 * 1024 * 1024
STOP_TIMEOUT_S = 2.0


class Control(TopicControl, NamespaceControl, BrokerControl, PeerControl, Protocol):
    """Everything that the API asks."""


class AdminServer:
    """Serves the API on one port."""

    def __init__(self, control: Control, *, cluster: str, version: str, metrics: Callable[[], tuple[bytes, str]]) -> None:
        application = web.Application(
            middlewares=[web.normalize_path_middleware(append_slash=False, remove_slash=True), errors], client_max_size=BODY_BYTES_MAX
        )
        application.add_routes(BrokerRoutes(control, control, cluster=cluster, version=version, metrics=metrics).routes())
        application.add_routes(PeerRoutes(control).routes())
        application.add_routes(NamespaceRoutes(control, control, control).routes())
        application.add_routes(TopicRoutes(control, control).routes())
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=STOP_TIMEOUT_S)

    async def start(self, sock: socket.socket) -> None:
        """Listen on a bound socket."""
        await self._runner.setup()
        await web.SockSite(self._runner, sock, backlog=512).start()

    async def stop(self) -> None:
        """Answer what is in progress, and stop."""
        await self._runner.cleanup()
