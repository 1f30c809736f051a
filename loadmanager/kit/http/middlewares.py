"""Around every route: a limit of concurrent requests, Pulsar's status codes, an access log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.kit.errors import (
    BadInputError,
    ConflictError,
    CorruptDataError,
    LoadManagerError,
    NotFoundError,
    StaleError,
)
from loadmanager.kit.http.answers import ElsewhereError, RefusedError, failed, redirect_to
from loadmanager.kit.http.not_served import not_served
from loadmanager.kit.http.passing_on import BROKER
from loadmanager.kit.logger import get_logger
from loadmanager.kit.telemetry import counter

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ALWAYS_ANSWERED = frozenset({"/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/status.html"})
"""A broker that is full must still answer that it is healthy."""
METRICS = frozenset({"/metrics", "/metrics/"})
METRICS_MAX = 8
"""Requests of the metrics page at a time. They have a limit of their own: a full broker must still
be seen, and whoever asks for nothing else must not keep others out.
"""

HSTS_S = 31_536_000
"""For so long a browser that came over TLS comes over TLS only."""

log = get_logger("admin")

ANSWERS = counter(
    "loadmanager_http_answers",
    "Requests that the admin API answered, by the status of the answer; streams when they end",
    "status",
)


async def protect(_request: web.Request, response: web.StreamResponse) -> None:
    """Add what keeps browsers from guessing types and from keeping answers; a signal of each
    answer. The server does not tell its version.
    """
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Server"] = "loadmanager"


async def stay_secure(_request: web.Request, response: web.StreamResponse) -> None:
    """Have browsers come over TLS only; a signal of a server without another port. It is for all
    ports of the host, so that a server with one must not say it.
    """
    response.headers["Strict-Transport-Security"] = f"max-age={HSTS_S}"


def log_access(answers: Counter[int]) -> Middleware:
    """Count each answer by its status, and log a line for it at level debug."""

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        started_s = time.monotonic()
        answer = await handler(request)
        answers[answer.status] += 1
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

    return counted


def concurrency_limit(requests_max: int) -> Middleware:
    """Answer 503 to a request while `requests_max` others are in progress, or `METRICS_MAX` others
    of the metrics page. What another broker is to answer counts as any request.
    """
    in_progress = scrapes = 0

    @web.middleware
    async def limit(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal in_progress, scrapes
        here = BROKER not in request.headers
        if request.path in METRICS and here:
            if scrapes >= METRICS_MAX:
                reason = f"{METRICS_MAX} requests of this page are in progress already; try again"
                return failed(503, reason, {"Retry-After": "1"})
            scrapes += 1
            try:
                return await handler(request)
            finally:
                scrapes -= 1
        always = here and request.path in ALWAYS_ANSWERED
        if in_progress >= requests_max and not always:
            reason = f"{requests_max} requests are in progress already; try again"
            return failed(503, reason, {"Retry-After": "1"})
        in_progress += 1
        try:
            return await handler(request)
        finally:
            in_progress -= 1

    return limit


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions into Pulsar's status codes with a reason."""
    try:
        return await handler(request)
    except ElsewhereError as error:
        return _elsewhere(error, request)
    except RefusedError as error:
        return failed(error.status, str(error))
    except LoadManagerError as error:
        return failed(status_of(error), str(error))
    except web.HTTPException as error:
        return _of_aiohttp(error, request)
    except Exception:
        # A bug of ours must not look like a broken connection. The log has the traceback.
        log.exception("a request failed", method=request.method, path=request.rel_url.raw_path)
        return failed(500, "internal error; the broker's log tells more")


def _elsewhere(error: ElsewhereError, request: web.Request) -> web.Response:
    try:
        return redirect_to(error.broker, request, authoritative=error.authoritative)
    except LoadManagerError as without_tls:
        return failed(status_of(without_tls), str(without_tls))


def status_of(error: LoadManagerError) -> int:
    """Pulsar's status code for an error."""
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, ConflictError) and not isinstance(error, StaleError):
        return 409
    if isinstance(error, CorruptDataError):
        return 500
    return 412 if isinstance(error, BadInputError) else 503


def _of_aiohttp(error: web.HTTPException, request: web.Request) -> web.StreamResponse:
    if isinstance(error, web.HTTPMethodNotAllowed | web.HTTPNotFound):
        reason = not_served(request.rel_url.raw_path)
        if reason is not None:
            return failed(501, reason)
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return failed(405, f"{error.method} is not allowed; allowed: {allowed}", {"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        return failed(404, f"there is nothing at {request.rel_url.raw_path}")
    if error.status < 400:
        raise error
    return failed(error.status, error.reason)
