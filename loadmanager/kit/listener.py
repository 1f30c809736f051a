"""Accepts connections of one listening socket, over TLS or not, and goes on after the process ran
out of file descriptors.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from loadmanager.kit.crowd import Crowd
from loadmanager.kit.errors import said
from loadmanager.kit.logger import get_logger

BACKLOG = 1024
PAUSE_S = 1.0
"""Pause after the system refused a connection: others may end meanwhile."""
HANDSHAKE_TIMEOUT_S = 10.0
HANDSHAKES_MAX = 256
"""TLS handshakes of one socket at a time. The oldest of the address that has the most gives way to
a new one: a handshake takes milliseconds, unless the client does not want it to end.
"""
GOODBYE_TIMEOUT_S = 5.0
"""How long a client may take to answer the end of TLS."""

log = get_logger("listener")

Spawn = Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]


class Tls(Protocol):
    """The TLS of a socket, which may change between two connections."""

    @property
    def value(self) -> ssl.SSLContext:
        """The context for the next connection."""
        ...

    def handshake_failed(self) -> None:
        """A client did not finish a handshake."""
        ...


class Listener:
    """One listening socket. `make` creates the protocol of a connection; `failed` is told of errors
    of our own; `spawn` starts the tasks.
    """

    def __init__(
        self,
        sock: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        failed: Callable[[str, Exception], None],
        *,
        spawn: Spawn,
        tls: Tls | None = None,
        handshakes_max: int = HANDSHAKES_MAX,
    ) -> None:
        self._sock = sock
        self._make = make
        self._failed = failed
        self._spawn = spawn
        self._tls = tls
        self._handshakes_max = handshakes_max
        self._handshakes: Crowd[asyncio.Task[Any], str] = Crowd()
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._accepting = spawn(self._run(), "accept")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        refused = False
        while True:
            try:
                client, name = await loop.sock_accept(self._sock)
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
            if self._tls is None:
                await self._connect(client)
            else:
                address = str(name[0]) if isinstance(name, tuple) else ""
                self._shake_hands(client, self._tls, address)

    async def _connect(self, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, client)
        except Exception as error:  # noqa: BLE001 - contained: it costs this connection only
            client.close()
            self._failed("a connection could not be served", error)

    def _shake_hands(self, client: socket.socket, tls: Tls, address: str) -> None:
        if self._handshakes.count >= self._handshakes_max:
            oldest, at = next(iter(self._handshakes.greediest().items()))
            self._handshakes.leave(at, oldest)
            oldest.cancel()
            tls.handshake_failed()
        working = self._connect_over_tls(client, tls)
        try:
            task = self._spawn(working, "handshake")
        except RuntimeError:  # the broker is stopping: no task is started any more
            working.close()
            client.close()
            return
        self._handshakes.enter(address, task, address)
        task.add_done_callback(lambda done: self._handshakes.leave(address, done))

    async def _connect_over_tls(self, client: socket.socket, tls: Tls) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                client,
                ssl=tls.value,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=GOODBYE_TIMEOUT_S,
            )
        except OSError as error:  # TLS errors and timeouts are OSErrors
            tls.handshake_failed()
            log.debug("a TLS handshake failed", error=said(error))
            client.close()
        except asyncio.CancelledError:
            client.close()
            raise
        except Exception as error:  # noqa: BLE001 - contained: it costs this connection only
            client.close()
            self._failed("a connection could not be served", error)

    def close(self) -> None:
        """Accept nothing more, and close the socket."""
        self._accepting.cancel()
        for task in list(self._handshakes):
            task.cancel()
        with suppress(OSError):
            self._sock.close()
