"""Shared by all routes: Pulsar's error bodies, redirects, and checked reading of requests."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.model import encoded
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.nesting import REQUEST_LEVELS_MAX, nests_deeper

TOPIC = "{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic:[^/]+}"
"""A topic in a path. aiohttp's own pattern of a variable would exclude braces."""
SUBSCRIPTION = "{subscription:[^/]+}"
BODY_TIMEOUT_S = 10.0
"""How long a client may take to send the body that it announced."""

LISTENER = "X-Pulsar-ListenerName"
"""The header with which a client names the listener whose addresses it wants."""
LISTENERS = web.AppKey("listeners", dict[int, str])
"""Local port → the advertised listener whose clients come to it."""


SENT = web.RequestKey("sent", bytes)
"""The body of a request, once it was read."""


class RefusedError(Exception):
    """Answers this status and reason, where `middlewares.errors` would differ from Pulsar."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ElsewhereError(Exception):
    """Another broker must be asked: `middlewares.errors` answers 307."""

    def __init__(self, broker: BrokerAddress, *, authoritative: bool | None = None) -> None:
        super().__init__(broker.broker_id)
        self.broker = broker
        self.authoritative = authoritative


def shown(value: object, status: int = 200) -> web.Response:
    """A value as JSON."""
    return web.Response(
        body=encoded(value), status=status, content_type="application/json", charset="utf-8"
    )


def bare_text(answer: str | None) -> web.Response:
    """A text without quotes, as pulsar-admin prints it; 204 without one."""
    return web.Response(status=204) if answer is None else web.Response(text=answer)


def failed(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    """An error with Pulsar's body."""
    return web.json_response({"reason": reason}, status=status, headers=headers)


def listener_of(request: web.Request) -> str:
    """The advertised listener whose addresses the client wants: by `listenerName` in the query, by
    the header, or by the address that it came to (C++ clients send neither); empty: the internal
    one.
    """
    named = request.query.get("listenerName") or request.headers.get(LISTENER)
    if named or request.transport is None:
        return named or ""
    address, ports = request.transport.get_extra_info("sockname"), request.app.get(LISTENERS, {})
    return ports.get(address[1], "") if isinstance(address, tuple) else ""


def redirect_to(
    broker: BrokerAddress, request: web.Request, *, authoritative: bool | None = None
) -> web.Response:
    """307 to the same path at another broker, at its address for the clients of this listener, with
    `authoritative` in the query if it is given.

    Raises `OperationalError` when the request came over TLS and that broker has none.
    """
    target = request.rel_url
    if authoritative is not None:
        target = target.update_query(authoritative="true" if authoritative else "false")
    listener = listener_of(request)
    there = broker.of(listener) if listener in broker.listeners else broker
    return web.Response(status=307, headers={"Location": f"{web_of(there, request)}{target}"})


def web_of(broker: BrokerAddress, request: web.Request) -> str:
    """The address of a broker for the sender of a request: over TLS to those who came so."""
    return broker.web(secure=request.secure)


def no_content(
    broker: BrokerAddress | None, request: web.Request, *, authoritative: bool | None = None
) -> web.Response:
    """204, or 307 if the request is for another broker."""
    if broker is None:
        return web.Response(status=204)
    return redirect_to(broker, request, authoritative=authoritative)


def flag(request: web.Request, name: str, *, default: bool = False) -> bool:
    """A boolean of the query. Raises `BadInputError` for a value other than true and false."""
    text = request.query.get(name, "").lower()
    if text in ("", "true", "false"):
        return default if not text else text == "true"
    raise BadInputError(f"{name}={text}: true or false is allowed")


def whole(request: web.Request, name: str, default: int, *, minimum: int, maximum: int) -> int:
    """A whole number of the query. Raises `BadInputError` for another text, or out of range."""
    text = request.query.get(name, "")
    if not text:
        return default
    # Check the length first: to parse a very long number takes time.
    if (
        not (text.isascii() and text.isdecimal())
        or len(text) > 18
        or not minimum <= int(text) <= maximum
    ):
        raise BadInputError(
            f"{name}={text[:40]}: a whole number from {minimum} to {maximum} is allowed"
        )
    return int(text)


async def raw_body(request: web.Request) -> bytes:
    """The body. Raises `RefusedError`: 400 for an incomplete one, 408 if it does not arrive."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            request[SENT] = sent = await request.read()
            return sent
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise RefusedError(
            400, f"the body cannot be read: {' '.join(str(error).split())}"
        ) from None


async def body(request: web.Request) -> Any:
    """The JSON body, None for an empty one.

    Raises `RefusedError`: 400 for a body that is not JSON, and as `raw_body`.
    """
    raw = await raw_body(request)
    if not raw.strip():
        return None
    try:
        document = msgspec.json.decode(raw)
        too_deep = nests_deeper(document, raw, REQUEST_LEVELS_MAX)
    except RecursionError:
        too_deep = True
    except ValueError as error:
        raise RefusedError(400, f"malformed JSON: {error}") from None
    if too_deep:
        levels = f"{REQUEST_LEVELS_MAX} levels are allowed"
        raise RefusedError(400, f"malformed JSON: it nests too deeply, {levels}")
    return document


async def text(request: web.Request) -> str:
    """A text as the body, bare as Pulsar's Java client sends it, or in JSON.

    Raises `RefusedError` (400) for a body that is not a text, and as `raw_body`.
    """
    raw = (await raw_body(request)).strip()
    try:
        decoded = msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()
    except ValueError as error:
        raise RefusedError(400, f"the body must be a text: {error}") from None
    return decoded.strip()


async def body_object(request: web.Request) -> dict[str, Any]:
    """The body, which must be a JSON object or empty. Raises `RefusedError` (400)."""
    document = await body(request)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise RefusedError(400, "the body must be a JSON object")
    return document


def whole_numbers(document: object) -> list[int]:
    """A body as a list of whole numbers, empty for None. Raises `RefusedError` (400)."""
    if document is None:
        return []
    if not isinstance(document, list) or not all(
        isinstance(number, int) and not isinstance(number, bool) for number in document
    ):
        raise RefusedError(400, "the body must be a JSON list of whole numbers")
    return document


def namespace_of(request: web.Request) -> NamespaceName:
    """The namespace of the path."""
    return NamespaceName.parse(f"{request.match_info['tenant']}/{request.match_info['namespace']}")


def topic_of(request: web.Request) -> TopicName:
    """The topic of the path; a slash in its name is written %2F."""
    info = request.match_info
    return TopicName.parse(
        f"{info['domain']}://{info['tenant']}/{info['namespace']}/{info['topic']}"
    )
