"""What all routes share: Pulsar's error bodies, redirects, and careful reading of what clients send."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web

from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.ports.control import Redirect

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger("admin")


def failed(status: int, reason: str) -> web.Response:
    """An error as Pulsar words it."""
    return web.json_response({"reason": reason}, status=status)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into Pulsar's status codes with a reason."""
    try:
        return await handler(request)
    except NotFoundError as error:
        return failed(404, str(error))
    except ConflictError as error:
        return failed(409, str(error))
    except BadInputError as error:
        return failed(412, str(error))
    except OperationalError as error:
        return failed(503, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return failed(error.status, error.reason)


def no_content(redirect: Redirect | None, request: web.Request) -> web.Response:
    """204, or 307 to the broker that must be asked."""
    if redirect is None:
        return web.Response(status=204)
    query = dict(request.query)
    if redirect.authoritative is not None:
        query["authoritative"] = "true" if redirect.authoritative else "false"
    target = request.rel_url.with_query(query)
    return web.Response(status=307, headers={"Location": f"{redirect.web_url}{target}"})


def flag(request: web.Request, name: str, *, default: bool = False) -> bool:
    """A boolean of the query. Raises `BadInputError` for anything but true and false."""
    text = request.query.get(name, "").lower()
    if text in ("", "true", "false"):
        return default if not text else text == "true"
    raise BadInputError(f"{name}={text}: true or false is allowed")


async def body(request: web.Request) -> Any:
    """The JSON body, None when there is none. Answers 400 when it is not JSON."""
    raw = await request.read()
    if not raw.strip():
        return None
    try:
        return json.loads(raw)
    except ValueError as error:
        raise web.HTTPBadRequest(reason=f"malformed JSON: {error}".replace("\n", " ")) from None


def namespace_of(request: web.Request) -> NamespaceName:
    """The namespace of the path."""
    return NamespaceName.parse(f"{request.match_info['tenant']}/{request.match_info['namespace']}")


def topic_of(request: web.Request) -> TopicName:
    """The topic of the path."""
    info = request.match_info
    return TopicName.parse(f"{info['domain']}://{info['tenant']}/{info['namespace']}/{info['topic']}")
