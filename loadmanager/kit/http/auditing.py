"""Tells the audit log of requests that changed something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.kit.audit import Asked, Audit, asking
from loadmanager.kit.http.answers import SENT
from loadmanager.kit.http.permits import PERMIT, address_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
READS = frozenset({"GET", "HEAD", "OPTIONS"})
NO_CHANGES = frozenset({"/loadmanager/v1/dry-runs", "/loadmanager/v1/peers/changes"})
"""They are sent by POST, and change nothing."""
PEERS = "/loadmanager/v1/peers/"
BODY_MAX = 2_000


def audited(audit: Audit, over: str = "http") -> Middleware:
    """Tell of each request that was allowed and changed something, after it has. Its answer waits
    until the record is there also after a kill, unless another broker ordered it. One that failed
    is told as far as it wrote something.
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
            except BaseException:
                if asked.written:
                    asked.note = "the request failed"
                    audit.changed(asked)
                raise
        if asked.idle and not asked.written:
            return answer
        if answer.status < 300:
            asked.body = request.get(SENT, b"")[:BODY_MAX].decode(errors="replace")
            audit.changed(asked)
        elif asked.written:
            asked.note = f"the request was answered {answer.status}"
            audit.changed(asked)
        else:
            return answer
        if not asked.orders:
            await audit.settle()
        return answer

    return tell
