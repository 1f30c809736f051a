"""Keeps web pages from using the admin API through the browser of somebody who may reach it.

A page can send requests anywhere (cross-site request forgery), and read the answers from hosts
under its own name, which its owner may point at any address (DNS rebinding). So a request that
changes something must be sent by no page from elsewhere, and its body must be of a type that
browsers do not send without asking. A request without a body needs no type: Pulsar's tools send
none, and browsers say from where a page sends it. Where nobody must prove who he is, it must also
be sent to a name that is this broker's.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cache
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.http.answers import failed
from loadmanager.kit.http.middlewares import ALWAYS_ANSWERED, METRICS

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
READS = frozenset({"GET", "HEAD"})
FOREIGN = frozenset({"cross-site", "same-site"})
"""What browsers say of pages of other sites, and of other hosts or ports of the same."""
ANY = "*"


def visitors(
    me: BrokerAddress,
    others: Callable[[], Iterable[BrokerAddress]],
    *,
    allowed: tuple[str, ...],
    proven: bool,
) -> Middleware:
    """Answer 403 to what a page from elsewhere sends, and 415 to a body that is not JSON, or
    compressed.

    `others`: the brokers whose pages may send requests here. `allowed`: more names of this broker,
    or `*`. `proven`: whoever asks must prove who he is, which a page cannot, so that any name will
    do. Names without a dot belong to no web page, nor do addresses.
    """
    added = {name.lower() for name in allowed}

    @cache
    def names() -> set[str]:
        return {*own_names(me), *added}

    @web.middleware
    async def refuse_foreign(request: web.Request, handler: Handler) -> web.StreamResponse:
        changes = request.method not in READS
        always = request.path in ALWAYS_ANSWERED | METRICS
        if not proven and (changes or _local(request)) and not always:
            host = host_of(f"//{request.headers.get('Host', '')}")
            if ANY not in added and host not in names() and not cannot_be_rebound(host):
                return failed(
                    403,
                    f"{host} is not a name of this broker; loadManagerAllowedHosts adds names",
                )
        if changes:
            if _from_elsewhere(request, added, others()):
                return failed(403, "a web page from elsewhere may change nothing here")
            if request.body_exists and not _is_json(request.content_type):
                return failed(415, "the body must be JSON: send Content-Type: application/json")
            if request.body_exists and _is_encoded(request):
                return failed(415, "the body must not be compressed: send no Content-Encoding")
        return await handler(request)

    return refuse_foreign


def own_names(me: BrokerAddress) -> Iterator[str]:
    """The names by which this broker says that it is reached, and those of its machine."""
    yield socket.gethostname().lower()
    yield host_of(f"//{me.broker_id}")
    yield from (host_of(url) for url in (me.web_url, me.web_url_tls))
    for listener in me.listeners.values():
        yield from (host_of(url) for url in (listener.web_url, listener.web_url_tls))
        yield from (host_of(url) for url in (listener.service_url, listener.service_url_tls))


def host_of(url: str) -> str:
    """The host of a URL, in small letters; empty if there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return url.lower()


def cannot_be_rebound(host: str) -> bool:
    """True if the owner of a web page cannot point this host at other machines: an address, a name
    without a dot, or no host.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(".localhost")
    return True


def _local(request: web.Request) -> bool:
    """True if a request came from this machine."""
    return request.remote is not None and request.remote in ("127.0.0.1", "::1")


def _from_elsewhere(request: web.Request, added: set[str], others: Iterable[BrokerAddress]) -> bool:
    """True if the page that sent a request was not served by a broker."""
    origin = request.headers.get("Origin")
    if origin is None:
        return request.headers.get("Sec-Fetch-Site") in FOREIGN
    place = origin.partition("://")[2].lower()
    if not place:
        return True  # "null"
    if place == request.headers.get("Host", "").lower() or host_of(origin) in added - {ANY}:
        return False
    urls = (url for other in others for url in (other.web_url, other.web_url_tls) if url)
    return not any(place == urlsplit(url).netloc for url in urls)


def _is_encoded(request: web.Request) -> bool:
    return request.headers.get("Content-Encoding", "").lower() not in ("", "identity")


def _is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")
