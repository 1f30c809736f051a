"""How long a request waits for a metadata store that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.http.middlewares import ALWAYS_ANSWERED, Handler

WAITS_S, CHANGES_WAIT_S = 3.0, 10.0
"""A request waits at least so long: most stores that are silent answer again within seconds. What
changes something waits longer, because it may be carried out nevertheless.
"""
LOOK_S = 1.0
UNKNOWN = "; whether this was done is not known: look again when it answers"


class _Watch:
    """Ends a wait once the store is known to be silent."""

    def __init__(self, silent_ms: Callable[[], int | None], limit: asyncio.Timeout) -> None:
        self._silent_ms, self._limit = silent_ms, limit
        self._timer: asyncio.TimerHandle | None = None
        self.silent: int | None = None
        """For how long it had not answered when the wait was ended."""

    def look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self.silent = self._silent_ms()
        if self.silent is None:
            self.look_in(LOOK_S)
        else:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def patience(silent_ms: Callable[[], int | None], streams: frozenset[str]) -> Middleware:
    """Answer 503 to requests that wait for a store that is silent, in place of waiting as long as
    an operation of it may take. `silent_ms`: for how long it has not answered; None: it does.
    `streams`: paths of answers that do not end.
    """

    @web.middleware
    async def patient(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in ALWAYS_ANSWERED or request.path in streams:
            return await handler(request)
        reads = request.method in ("GET", "HEAD")
        limit = asyncio.timeout(None)
        watch = _Watch(silent_ms, limit)
        watch.look_in(WAITS_S if reads else CHANGES_WAIT_S)
        try:
            async with limit:
                return await handler(request)
        except TimeoutError:
            if watch.silent is None:
                raise
            text = f"the metadata store has not answered for {watch.silent / 1000:.0f} s"
            raise OperationalError(text + ("" if reads else UNKNOWN)) from None
        finally:
            watch.end()

    return patient
