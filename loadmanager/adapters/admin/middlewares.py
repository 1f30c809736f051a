"""What stands before every route: a bound on requests at once, errors as Pulsar's status codes, an
access log.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.adapters.admin.answers import RefusedError, failed
from loadmanager.core.errors import (
    BadInputError,
    ConflictError,
    CorruptDataError,
    LoadManagerError,
    NotFoundError,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ALWAYS_ANSWERED = frozenset(
    {"/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/metrics", "/metrics/", "/status.html"}
)
"""A full broker must still say that it lives."""

log = structlog.get_logger("admin")


@web.middleware
async def access(request: web.Request, handler: Handler) -> web.StreamResponse:
    """One line a request, at debug."""
    started_s = time.monotonic()
    answer = await handler(request)
    took_ms = round((time.monotonic() - started_s) * 1000, 2)
    log.debug(
        "request",
        method=request.method,
        path=request.rel_url.raw_path,
        status=answer.status,
        took_ms=took_ms,
        peer=request.remote,
    )
    return answer


class AtOnce:
    """Bounds how many requests are worked on at once; those beyond are told to come again (503)."""

    def __init__(self, requests_max: int) -> None:
        self._max = requests_max
        self._now = 0

    @property
    def middleware(self) -> Middleware:
        """For the application."""

        @web.middleware
        async def at_once(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self._now >= self._max and request.path not in ALWAYS_ANSWERED:
                return failed(
                    503,
                    f"{self._max} requests are in progress already; try again",
                    {"Retry-After": "1"},
                )
            self._now += 1
            try:
                return await handler(request)
            finally:
                self._now -= 1

        return at_once


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into Pulsar's status codes with a reason."""
    try:
        return await handler(request)
    except RefusedError as error:
        return failed(error.status, str(error))
    except LoadManagerError as error:
        return failed(_status(error), str(error))
    except web.HTTPException as error:
        return _of_aiohttp(error, request)
    except Exception:
        # One request that meets a bug of ours must not look like a broken connection; the log has
        # the story.
        log.exception("a request failed", method=request.method, path=request.rel_url.raw_path)
        return failed(500, "internal error; the broker's log tells more")


def _status(error: LoadManagerError) -> int:
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, ConflictError):
        return 409
    if isinstance(error, CorruptDataError):
        return 500
    return 412 if isinstance(error, BadInputError) else 503


def _of_aiohttp(error: web.HTTPException, request: web.Request) -> web.StreamResponse:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return failed(405, f"{error.method} is not allowed here, but {allowed}", {"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        return failed(404, f"there is nothing at {request.rel_url.raw_path}")
    if error.status < 400:
        raise error
    return failed(error.status, error.reason)
