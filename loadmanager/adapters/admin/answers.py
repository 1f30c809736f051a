"""What all routes share: Pulsar's error bodies, redirects, and careful reading of what clients
send.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.errors import BadInputError
from loadmanager.core.nesting import REQUEST_LEVELS_MAX, nests_deeper

BODY_TIMEOUT_S = 10.0
"""How long a client may take to send the body that it announced."""


class RefusedError(Exception):
    """An answer with this status and reason, where the general mapping of errors says another
    status than Pulsar.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def failed(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    """An error as Pulsar words it."""
    return web.json_response({"reason": reason}, status=status, headers=headers)


def redirect_to(
    web_url: str, request: web.Request, *, authoritative: bool | None = None
) -> web.Response:
    """307: ask there with the same method, path, query and body; with `authoritative` in the query
    if it is given.
    """
    target = request.rel_url
    if authoritative is not None:
        target = target.update_query(authoritative="true" if authoritative else "false")
    return web.Response(status=307, headers={"Location": f"{web_url}{target}"})


def no_content(
    elsewhere: str | None, request: web.Request, *, authoritative: bool | None = None
) -> web.Response:
    """204, or 307 to the broker that must be asked, given by its URL."""
    if elsewhere is None:
        return web.Response(status=204)
    return redirect_to(elsewhere, request, authoritative=authoritative)


def flag(request: web.Request, name: str, *, default: bool = False) -> bool:
    """A boolean of the query. Raises `BadInputError` for anything but true and false."""
    text = request.query.get(name, "").lower()
    if text in ("", "true", "false"):
        return default if not text else text == "true"
    raise BadInputError(f"{name}={text}: true or false is allowed")


def whole(request: web.Request, name: str, default: int, *, minimum: int, maximum: int) -> int:
    """A whole number of the query.

    Raises `BadInputError` for anything that is none, or out of range.
    """
    text = request.query.get(name, "")
    if not text:
        return default
    # Length first: turning a very long row of digits into a number is work that a client could ask
    # for.
    if not text.isdecimal() or len(text) > 18 or not minimum <= int(text) <= maximum:
        raise BadInputError(
            f"{name}={text[:40]}: a whole number from {minimum} to {maximum} is allowed"
        )
    return int(text)


async def body(request: web.Request) -> Any:
    """The JSON body, None when there is none.

    Raises `RefusedError`: 400 when it is not JSON or broken off, 408 when it does not come.
    """
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            raw = await request.read()
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise RefusedError(
            400, f"the body cannot be read: {' '.join(str(error).split())}"
        ) from None
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


async def body_object(request: web.Request) -> dict[str, Any]:
    """The body as a JSON object, empty when there is none. Raises `RefusedError` (400)."""
    document = await body(request)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise RefusedError(400, "the body must be a JSON object")
    return document


def whole_numbers(document: object) -> list[int]:
    """A JSON list of whole numbers, empty for no body. Raises `RefusedError` (400)."""
    if document is None:
        return []
    if not isinstance(document, list) or not all(
        isinstance(item, int) and not isinstance(item, bool) for item in document
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
