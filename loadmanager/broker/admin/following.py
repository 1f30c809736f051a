"""Asks other brokers for whoever reaches this one only: a page in a browser, or a command outside
the cluster's network.

What only the leader or an owner answers is redirected there (307). So a request with the header
`Loadmanager-Follow: true` is repeated by this broker at the one that it would be sent to, with the
same credentials, and gets that answer. One with `Loadmanager-Broker: host:port` is repeated at the
broker of that id, once it may be asked here; the answer has the same header, by which a client
tells it from that of a broker that passes nothing on. A stream of events is passed on as it comes.
With authentication nothing is passed on for who proves no role, not even what is for everybody.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

from loadmanager.broker.admin.calls import Calls, UnansweredError, plain, whole
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.http.answers import LISTENER, failed, listener_of, raw_body
from loadmanager.kit.http.passing_on import (
    ASKER,
    BROKER,
    FOLLOW,
    MISDIRECTED,
    PASSED_BY,
    PROOF,
    UNDECIDED,
    WITHIN,
)
from loadmanager.kit.http.permits import PERMIT
from loadmanager.kit.http.streams import Streams, write
from loadmanager.kit.tracing import HEADER

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HOPS_MAX = 3
TIMEOUT_S = 60.0
"""A move that an operator waits for may take so long."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
EVENTS = "text/event-stream"
PASSED_ON = (
    "Authorization",
    "X-Original-Principal",
    "Content-Type",
    "Accept",
    "Last-Event-ID",
    HEADER,
)
HEADERS_PASSED_ON = (
    "Content-Type",
    "WWW-Authenticate",
    "Retry-After",
    "Cache-Control",
    "X-Accel-Buffering",
)
"""Headers of the other broker's answer that are passed back."""


class Following:
    """Answers for other brokers."""

    def __init__(self, use: UseCases, calls: Calls, streams: Streams, *, proven: bool) -> None:
        """`proven`: only for who proves a role."""
        self._use = use
        self._calls = calls
        self._streams = streams
        self._proven = proven

    def middleware(self) -> Middleware:
        """Repeats a request elsewhere if its answer is a redirect and it wants that followed."""

        @web.middleware
        async def follow(request: web.Request, handler: Handler) -> web.StreamResponse:
            answer = await handler(request)
            wanted = request.headers.get(FOLLOW) == "true"
            hops = HOPS_MAX if wanted and (PERMIT in request or not self._proven) else 0
            asked = hops > 0
            while answer.status == 307 and hops > 0:
                hops -= 1
                url = URL(answer.headers["Location"], encoded=True)
                answer = await self._repeated(request, url)
            if answer.status == 307 and asked:
                return _undecided(answer.headers["Location"])
            return answer

        return follow

    def to_named(self) -> Middleware:
        """Repeats a request at the broker that it names; comes after the check of rights."""

        @web.middleware
        async def pass_on(request: web.Request, handler: Handler) -> web.StreamResponse:
            broker_id = request.headers.get(BROKER)
            if broker_id is None:
                return await handler(request)
            if broker_id == self._use.self_address.broker_id:
                answer = await handler(request)
            else:
                broker = self._use.brokers.address(broker_id)
                if broker is None:
                    answer = failed(502, f"{broker_id} is not active")
                else:
                    answer = await self._asked(request, broker, request.rel_url)
            if not answer.prepared and answer.status != MISDIRECTED:
                answer.headers[BROKER] = broker_id
            return answer

        return pass_on

    async def _repeated(self, request: web.Request, url: URL) -> web.StreamResponse:
        where = url.origin()
        broker = self._broker_at(str(where))
        if broker is None:
            return failed(502, f"{where} is not a broker of this cluster")
        return await self._asked(request, broker, url.relative())

    async def _asked(
        self, request: web.Request, broker: BrokerAddress, path: URL
    ) -> web.StreamResponse:
        body = await raw_body(request)
        passed = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        if listener := listener_of(request):
            passed[LISTENER] = listener
        within_s = _within_s(request.headers)
        try:
            url = URL(self._calls.url(broker)).join(path)
            if request.secure and url.scheme == "http" and "Authorization" in passed:
                return failed(
                    MISDIRECTED,
                    f"{broker.broker_id} would be asked without TLS, and the request came with it: "
                    "brokerClientTlsEnabled lets brokers ask each other over TLS",
                )
            passed |= self._of_asker(request)
            repeated = self._calls.repeated(
                broker, request.method, url, passed, body, timeout_s=within_s
            )
            async with repeated as answer:
                if answer.content_type == EVENTS:
                    return await self._passed_on(request, answer)
                async with asyncio.timeout(TIMEOUT_S):
                    return await _whole(broker, answer, url)
        except UnansweredError as error:
            return failed(504 if error.late else 502, str(error))
        except OperationalError as error:
            return failed(502, str(error))
        except TimeoutError:
            return failed(504, f"{broker.broker_id} did not answer within {TIMEOUT_S:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return failed(502, f"{broker.broker_id} cannot be reached: {plain(error)}")

    def _of_asker(self, request: web.Request) -> dict[str, str]:
        """Who asks, and by whom that is said; see `askers`."""
        headers = {ASKER: request.remote or "", PASSED_BY: self._use.self_address.broker_id}
        try:
            proof = self._calls.proof().get("Authorization")
        except OperationalError:  # the other broker takes this one for who asks
            return {}
        return {**headers, PROOF: proof} if proof else headers

    def _broker_at(self, base: str) -> BrokerAddress | None:
        """The broker with that address, with TLS or without, of any listener."""
        brokers, leader = self._use.brokers, self._use.leading.leader
        addresses = [brokers.address(broker_id) for broker_id in brokers.registered]
        addresses += [] if leader is None else [brokers.of_leader(leader)]
        return next((it for it in addresses if it and base in _bases(it)), None)

    async def _passed_on(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """The stream of the other broker, as it comes, until either side ends it."""
        response = web.StreamResponse(headers=_headers(answer))
        async with self._streams.opened(request, request.remote or ""):
            try:
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await write(response, data)
            except (TimeoutError, OSError, aiohttp.ClientError):
                if request.transport is not None:
                    request.transport.abort()
        return response


def _undecided(location: str) -> web.Response:
    """After more redirects than brokers need that agree."""
    answer = failed(
        503,
        f"the brokers do not agree yet on the owner or the leader: after {HOPS_MAX} of them, "
        f"{URL(location, encoded=True).authority} would have to be asked; ask again in a moment",
    )
    answer.headers[UNDECIDED] = "true"
    answer.headers["Retry-After"] = "1"
    return answer


def _bases(broker: BrokerAddress) -> set[str]:
    own = (broker.web_url, broker.web_url_tls)
    others = ((it.web_url, it.web_url_tls) for it in broker.listeners.values())
    return {url for pair in (own, *others) for url in pair if url}


def _within_s(headers: Mapping[str, str]) -> float:
    try:
        wanted_s = float(headers.get(WITHIN, TIMEOUT_S))
    except ValueError:
        return TIMEOUT_S
    return min(wanted_s, TIMEOUT_S) if math.isfinite(wanted_s) and wanted_s > 0 else TIMEOUT_S


async def _whole(broker: BrokerAddress, answer: aiohttp.ClientResponse, url: URL) -> web.Response:
    body = (await whole(broker, answer, ANSWER_BYTES_MAX)).body
    headers = _headers(answer)
    if answer.status == 307:
        headers["Location"] = str(url.join(URL(answer.headers["Location"], encoded=True)))
    return web.Response(status=answer.status, body=body, headers=headers)


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in HEADERS_PASSED_ON if name in answer.headers}
