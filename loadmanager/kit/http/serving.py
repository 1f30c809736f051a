"""Serves one application of HTTP on listening sockets, with bounded connections."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp import web

from loadmanager.kit.http.connections import Connections, HttpConnection
from loadmanager.kit.http.middlewares import protect
from loadmanager.kit.http.unreadable import Handler
from loadmanager.kit.listener import Listener, Spawn, Tls
from loadmanager.kit.logger import get_logger

STOP_TIMEOUT_S = 2.0

log = get_logger("admin")


class HttpServing:
    """`connections` counts them, and closes those that are too many. The application must have its
    middleware, so that no connection that is in use is closed.
    """

    def __init__(
        self,
        application: web.Application,
        connections: Connections,
        *,
        idle_s: float,
        header_bytes_max: int,
    ) -> None:
        self._connections = connections
        application.on_response_prepare.append(protect)
        self._runner = web.AppRunner(
            application, handle_signals=False, shutdown_timeout=STOP_TIMEOUT_S
        )
        self._limits: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,  # a small body could become a large one
            "keepalive_timeout": idle_s,
            "max_line_size": header_bytes_max,
            "max_field_size": header_bytes_max,
        }
        self._listeners: list[Listener] = []
        self._spawn: Spawn

    @property
    def application(self) -> web.Application:
        """The application that this server serves."""
        return self._runner.app

    async def start(self, spawn: Spawn) -> None:
        """Get ready to `listen`; `spawn` starts the tasks."""
        self._spawn = spawn
        await self._runner.setup()

    def listen(self, sock: socket.socket, tls: Tls | None = None) -> None:
        """Accept connections of a bound socket, which is closed with the rest."""
        self._listeners.append(
            Listener(sock, self._accept, self._failed, spawn=self._spawn, tls=tls)
        )

    @staticmethod
    def _failed(what: str, error: Exception) -> None:
        log.error(what, exc_info=error)

    def _accept(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None:
            return _Refusing()
        handler = Handler(server, loop=asyncio.get_running_loop(), **self._limits)
        return HttpConnection(handler, self._connections)

    async def stop(self) -> None:
        """Stop, once the requests in progress are answered."""
        for listener in self._listeners:
            listener.close()
        await self._runner.cleanup()


class _Refusing(asyncio.Protocol):
    """Closes a connection that came too late."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
