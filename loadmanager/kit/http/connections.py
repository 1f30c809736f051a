"""Bounds on HTTP connections: idle ones, ones that do not read their answers and too many from one
address are closed.

When there are too many, the address that has the most gives up one: the connection on which nobody
has asked anything for the longest time. So a few addresses cannot keep brokers and health checks of
others out.

An answer is sent in pieces, each of which the client must take within a time. Large answers that
wait are bounded together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.kit.crowd import Crowd
from loadmanager.kit.logger import get_logger

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEAD_TIMEOUT_S = 10.0
"""How long the first line and headers of a connection may take."""
TELL_INTERVAL_S = 60.0
"""Closed connections are logged at most once in this time."""
WRITE_TIMEOUT_S = 30.0
"""A client must take the next piece, or two, of its answer within this time."""
PIECE_BYTES = 64 * 1024
UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""Large answers that wait for their clients, all together."""
CLOSED_AFTER = frozenset({401, 403, 413, 415})
"""Refusals after which no rest of a body is worth waiting for."""

log = get_logger("admin")


@dataclass(slots=True, kw_only=True)
class Connections:
    """The connections of all HTTP ports. `at_address_max`: 0 for any number."""

    most: int
    at_address_max: int
    head_timeout_s: float = HEAD_TIMEOUT_S
    write_timeout_s: float = WRITE_TIMEOUT_S
    unsent_bytes_max: int = UNSENT_BYTES_MAX
    bounds: str = (
        "maxHttpServerConnections, loadManagerMaxHttpConnectionsPerIp and the limit of open files "
        "bound them"
    )
    """What bounds them, for the log."""
    _crowd: Crowd[asyncio.Protocol, HttpConnection] = field(default_factory=Crowd)
    """The connections by the protocol that serves each."""
    _unsent: dict[HttpConnection, bytes] = field(default_factory=dict)
    """Connection → the large answer that is being sent, the oldest first. Several may be sent the
    same one.
    """
    _logged_at_s: float = float("-inf")

    def enter(self, connection: HttpConnection) -> None:
        """A connection is there; it, or another one, is closed if that is too many."""
        self._crowd.enter(connection.address, connection.inner, connection)
        here = self._crowd.at(connection.address)
        if 0 < self.at_address_max < len(here):
            self._close_one(here, "of one address")
        elif self._crowd.count > self.most:
            self._close_one(self._crowd.greediest(), "of all addresses")

    def leave(self, connection: HttpConnection) -> None:
        """A connection is gone."""
        self._crowd.leave(connection.address, connection.inner)

    def _close_one(self, here: Mapping[asyncio.Protocol, HttpConnection], which: str) -> None:
        """Close the one that was used least recently and is not in use now, else the last."""
        connections = list(here.values())
        idle = (connection for connection in connections if not connection.requests)
        victim = next(idle, connections[-1])
        self.leave(victim)
        victim.abort()
        self._tell(
            f"idle HTTP connections are closed, because there are too many: {self.bounds}",
            too_many=which,
            address=victim.address,
            connections=self._crowd.count,
        )

    def _tell(self, event: str, **values: object) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_at_s >= TELL_INTERVAL_S:
            self._logged_at_s = now_s
            log.warning(event, **values)

    def middleware(self) -> Middleware:
        """Notes which connections are in use, and sends the answers."""

        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._crowd.at(request.remote or "").get(request.protocol)
            if connection is None:
                return await handler(request)
            connection.begin()
            request[CONNECTION] = connection
            try:
                answer = await handler(request)
            finally:
                connection.requests -= 1
                self._crowd.used(connection.address, connection.inner)
            if request.body_exists and answer.status in CLOSED_AFTER:
                answer.force_close()
            return await self._sent(connection, request, answer)

        return note

    async def _sent(
        self, connection: HttpConnection, request: web.Request, answer: web.StreamResponse
    ) -> web.StreamResponse:
        """Send an answer; hang up on a client that does not take it."""
        body = answer.body if isinstance(answer, web.Response) else None
        rest: bytes | None = None
        if isinstance(body, bytes) and len(body) > PIECE_BYTES and request.method != "HEAD":
            rest = body
            answer = web.StreamResponse(status=answer.status, headers=answer.headers)
            answer.content_length = len(body)
        try:
            async with asyncio.timeout(self.write_timeout_s):
                await answer.prepare(request)
            if rest is not None:
                await self._send_large(connection, answer, rest)
            async with asyncio.timeout(self.write_timeout_s):
                await answer.write_eof()
        except TimeoutError:
            connection.abort()
            self._tell("a client does not take its answer", address=connection.address)
        except ConnectionError:
            connection.abort()
        return answer

    async def _send_large(
        self, connection: HttpConnection, answer: web.StreamResponse, body: bytes
    ) -> None:
        self._unsent[connection] = body
        self._bound_unsent()
        try:
            for start in range(0, len(body), PIECE_BYTES):
                async with asyncio.timeout(self.write_timeout_s):
                    await answer.write(body[start : start + PIECE_BYTES])
        finally:
            self._unsent.pop(connection, None)

    def _bound_unsent(self) -> None:
        """Hang up on those that have waited longest while too much waits, but not on the last."""
        while len(self._unsent) > 1:
            answers = {id(body): len(body) for body in self._unsent.values()}
            if sum(answers.values()) <= self.unsent_bytes_max:
                return
            victim = next(iter(self._unsent))
            del self._unsent[victim]
            victim.abort()
            self._tell(
                "answers wait for clients that do not take them: the oldest are given up",
                address=victim.address,
            )


class HttpConnection(asyncio.Protocol):
    """Passes on to `inner` what happens to one connection; closes it if no request comes."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self.inner = inner
        self.address = ""
        self.requests = 0
        """Requests in progress."""
        self._connections = connections
        self._lost: Callable[[], object] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A request is there."""
        self.requests += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextmanager
    def when_lost(self, call: Callable[[], object]) -> Iterator[None]:
        """Have this called once the client has gone, as long as the block lasts."""
        self._lost = call
        if self._transport is None:
            call()
        try:
            yield
        finally:
            self._lost = None

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour
        # An answer counts as sent once the system has all of it: a rest would outlive the request.
        self._transport.set_write_buffer_limits(high=1, low=0)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.head_timeout_s, self.abort)
        self.inner.connection_made(transport)
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._connections.leave(self)
        if self._lost is not None:
            self._lost()
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """See `asyncio.Protocol`."""
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.inner.resume_writing()


CONNECTION: web.RequestKey[HttpConnection] = web.RequestKey("connection", HttpConnection)
"""By which a request came."""
