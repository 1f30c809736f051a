"""Tells the audit log of requests that changed something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.kit.audit import Asked, Audit, asking
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.http.answers import SENT, ElsewhereError, RefusedError
from loadmanager.kit.http.middlewares import status_of
from loadmanager.kit.http.permits import PERMIT, address_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
READS = frozenset({"GET", "HEAD", "OPTIONS"})
NO_CHANGES = frozenset({"/loadmanager/v1/dry-runs", "/loadmanager/v1/peers/changes"})
"""They are sent by POST, and change nothing."""
PEERS = "/loadmanager/v1/peers/"
BODY_MAX = 2_000
NOT_SERVED = 501
WHY_MAX = 500


def audited(audit: Audit, over: str = "http") -> Middleware:
    """Tell of each request that was allowed and changed something, after it has. Its answer waits
    until the record is there also after a kill, unless another broker ordered it. One that failed
    is told as far as it wrote something; one that was in order and could not be carried out, as
    failed. What is refused is not told.
    """

    @web.middleware
    async def tell(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical.rstrip("/")
        if request.method in READS or path in NO_CHANGES:
            return await handler(request)
        permit = request.get(PERMIT)
        asked = Asked(
            roles=() if permit is None else permit.roles,
            address=address_of(request),
            over=over,
            what=f"{request.method} {request.rel_url.raw_path_qs}",
            orders=path.startswith(PEERS),
        )
        with asking(asked):
            try:
                answer = await handler(request)
            except BaseException as error:
                if asked.written:
                    asked.note = "the request failed"
                    audit.changed(asked)
                elif _is_failure(asked, status := _status_of(error)):
                    _tell_failure(audit, asked, request, f"{status}: {error}")
                raise
        if _tell_answer(audit, asked, request, answer) and not asked.orders:
            await audit.settle()
        return answer

    return tell


def _tell_answer(
    audit: Audit, asked: Asked, request: web.Request, answer: web.StreamResponse
) -> bool:
    """Tell of a request that was answered; returns whether there is something to tell."""
    if asked.idle and not asked.written:
        return False
    if answer.status < 300:
        asked.body = _sent(request)
        audit.changed(asked)
    elif asked.written:
        asked.note = f"the request was answered {answer.status}"
        audit.changed(asked)
    elif _is_failure(asked, answer.status):
        text = (answer.text if isinstance(answer, web.Response) else "") or ""
        _tell_failure(audit, asked, request, f"{answer.status}: {text}")
    else:
        return False
    return True


def _is_failure(asked: Asked, status: int) -> bool:
    """Whether a request was in order, and could not be carried out."""
    return status >= 500 and status != NOT_SERVED and not asked.orders


def _tell_failure(audit: Audit, asked: Asked, request: web.Request, why: str) -> None:
    asked.failed = why[:WHY_MAX]
    asked.body = _sent(request)
    audit.changed(asked)


def _sent(request: web.Request) -> str:
    sent: bytes = request.get(SENT, b"")
    return sent[:BODY_MAX].decode(errors="replace")


def _status_of(error: BaseException) -> int:
    """The status code that an error becomes; 0: none, or it is no failure."""
    if isinstance(error, RefusedError | web.HTTPException):
        return error.status
    if isinstance(error, ElsewhereError) or not isinstance(error, Exception):
        return 0
    return status_of(error) if isinstance(error, LoadManagerError) else 500
