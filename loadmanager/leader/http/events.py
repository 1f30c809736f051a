"""The stream of events of the leader, as server-sent events."""

from __future__ import annotations

import asyncio

from aiohttp import web

from loadmanager.kit.http.operation import of_leader
from loadmanager.kit.http.permits import address_of, permitted_s
from loadmanager.kit.http.streams import Streams, write
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.ports.operating import Events, EventStream

HEARTBEAT_S = 15.0
PERMITTED_S = 0.5
"""How often it is checked whether the listener still may listen."""
RETRY_MS = 1_000
"""How long a client waits before it connects again."""
EVENTS = "/loadmanager/v1/events"
"""A stream, which does not end."""


class EventRoutes:
    """The stream of events in the cluster."""

    def __init__(self, use: LeaderUse, events: Events, streams: Streams) -> None:
        self._use, self._events = use, events
        self._streams = streams

    def routes(self) -> list[web.RouteDef]:
        return [web.get(EVENTS, self.events)]

    @of_leader(str, media="text/event-stream", also={503: "too many listen"})
    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream the events of the cluster as server-sent events, until the leader's term or the
        listener's token ends.

        Kinds: `decision`, `split` and `merge` (data as in `/loadmanager/v1/decisions`), `move` (as
        in `/loadmanager/v1/moves`, whenever its state changes), `ownership` (a broker reported that
        it has other bundles), `broker` (one came or went), `leadership` (a term began or ended),
        `change` (an operator or a client changed something: data as in `/loadmanager/v1/changes`),
        `finding` (something that `/loadmanager/v1/findings` shows began or ended), and `lost` (so
        many events were not sent, because the listener was too slow). With the
        header `Last-Event-ID` the stream begins after that event: the last 1,000 of a term are
        kept. A comment every 15 s keeps the connection open. At most 64 listen at once, and 16 of
        one address.
        """
        operations(self._use)
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        async with self._streams.opened(request, address_of(request)):
            stream = self._events.listen(request.headers.get("Last-Event-ID"))
            try:
                await _stream(request, response, stream)
            finally:
                self._events.leave(stream)
        return response


async def _stream(request: web.Request, response: web.StreamResponse, stream: EventStream) -> None:
    try:
        await response.prepare(request)
        await write(response, b"retry: %d\n\n" % RETRY_MS)
        loop = asyncio.get_running_loop()
        beat_s = loop.time() + HEARTBEAT_S
        while (left_s := await permitted_s(request)) > 0:
            try:
                async with asyncio.timeout(min(PERMITTED_S, left_s)):
                    event = await stream.next()
            except TimeoutError:
                if loop.time() >= beat_s:
                    await write(response, b": heartbeat\n\n")
                    beat_s = loop.time() + HEARTBEAT_S
                continue
            if event is None:
                break
            await write(response, _encoded(*event))
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()


def _encoded(event_id: str, kind: str, data: bytes) -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: ".encode() + data + b"\n\n"
