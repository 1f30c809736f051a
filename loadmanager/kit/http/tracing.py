"""Requests as parts of the traces that their senders name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from loadmanager.kit import tracing
from loadmanager.kit.http.middlewares import errors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def traced(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Make what is done for a request with a `traceparent` part of that trace. It comes after the
    check of rights: strangers begin no spans.
    """
    parent = request.headers.get(tracing.HEADER)
    if parent is None:
        return await handler(request)
    resource = request.match_info.route.resource
    route = "" if resource is None else resource.canonical
    attributes: dict[str, tracing.Attribute] = {
        "http.request.method": request.method,
        "http.route": route,
    }
    name = f"{request.method} {route}"
    with tracing.part(name, parent, kind=tracing.SpanSide.SERVER, **attributes) as span:
        answer = await errors(request, handler)
        span.note(**{"http.response.status_code": answer.status})
        if answer.status >= 500:
            span.fail(f"answered {answer.status}")
        return answer
