"""Accepts connections of one listening socket, and goes on after the process ran out of file
descriptors.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

BACKLOG = 1024
PAUSE_S = 1.0
"""Pause after the system refused a connection: others may end meanwhile."""

log = structlog.get_logger("protocol")


class Listener:
    """One listening socket. `make` creates the protocol of a connection; `failed` is told of errors
    of our own.
    """

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.Protocol],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._sock = sock
        self._make = make
        self._failed = failed
        sock.setblocking(False)
        sock.listen(BACKLOG)

    async def run(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        refused = False
        while True:
            try:
                client, _ = await loop.sock_accept(self._sock)
            except ConnectionError:
                continue  # the client went away before it was accepted
            except OSError as error:
                if not refused:
                    log.warning(
                        "no connection can be accepted: raise the limit of open files",
                        error=str(error),
                    )
                refused = True
                await asyncio.sleep(PAUSE_S)
                continue
            if refused:
                log.info("connections are accepted again")
            refused = False
            try:
                await loop.connect_accepted_socket(self._make, client)
            except Exception as error:  # noqa: BLE001 - contained: it costs this connection only
                client.close()
                self._failed("a connection could not be served", error)

    def close(self) -> None:
        """Close the socket; cancel `run` first."""
        self._sock.close()
