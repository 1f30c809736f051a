"""Follows redirects for a page in a browser.

What only the leader or an owner answers is redirected there (307). A browser does not follow a
redirect to another host for a page, and may not reach that host at all. So a request with the
header `Loadmanager-Follow: true` is repeated by this broker at the one that it would be sent to,
with the same credentials, and gets that answer. A stream of events is passed on as it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

from loadmanager.broker.admin.calls import Calls, UnansweredError, whole
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError, said
from loadmanager.kit.http.answers import failed, raw_body
from loadmanager.kit.http.streams import Streams, write

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FOLLOW = "Loadmanager-Follow"
HOPS_MAX = 3
TIMEOUT_S = 60.0
"""A move that an operator waits for may take so long."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
EVENTS = "text/event-stream"
PASSED_ON = ("Authorization", "X-Original-Principal", "Content-Type", "Accept", "Last-Event-ID")
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

    def __init__(self, use: UseCases, calls: Calls, streams: Streams) -> None:
        self._use = use
        self._calls = calls
        self._streams = streams

    def middleware(self) -> Middleware:
        """Repeats a request elsewhere if its answer is a redirect and it wants that followed."""

        @web.middleware
        async def follow(request: web.Request, handler: Handler) -> web.StreamResponse:
            answer = await handler(request)
            hops = HOPS_MAX if request.headers.get(FOLLOW) == "true" else 0
            while answer.status == 307 and hops > 0:
                hops -= 1
                url = URL(answer.headers["Location"], encoded=True)
                answer = await self._repeated(request, url)
            return answer

        return follow

    async def _repeated(self, request: web.Request, url: URL) -> web.StreamResponse:
        where = url.origin()
        broker = self._broker_at(str(where))
        if broker is None:
            return failed(502, f"{where} is not a broker of this cluster")
        body = await raw_body(request)
        passed = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        try:
            url = URL(self._calls.url(broker)).join(url.relative())
            repeated = self._calls.repeated(
                broker, request.method, url, passed, body, timeout_s=TIMEOUT_S
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
            return failed(504, f"{where} did not answer within {TIMEOUT_S:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return failed(502, f"{where} cannot be reached: {said(error)}")

    def _broker_at(self, base: str) -> BrokerAddress | None:
        """The broker with that address, with TLS or without."""
        brokers, leader = self._use.brokers, self._use.leading.leader
        addresses = [brokers.address(broker_id) for broker_id in brokers.registered]
        addresses += [] if leader is None else [brokers.of_leader(leader)]
        return next((it for it in addresses if it and base in (it.web_url, it.web_url_tls)), None)

    async def _passed_on(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        """The stream of the other broker, as it comes, until either side ends it."""
        with self._streams.counted(request.remote or ""):
            response = web.StreamResponse(headers=_headers(answer))
            try:
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await write(response, data)
            except (TimeoutError, OSError, aiohttp.ClientError):
                if request.transport is not None:
                    request.transport.abort()
            return response


async def _whole(broker: BrokerAddress, answer: aiohttp.ClientResponse, url: URL) -> web.Response:
    body = (await whole(broker, answer, ANSWER_BYTES_MAX)).body
    headers = _headers(answer)
    if answer.status == 307:
        headers["Location"] = str(url.join(URL(answer.headers["Location"], encoded=True)))
    return web.Response(status=answer.status, body=body, headers=headers)


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: answer.headers[name] for name in HEADERS_PASSED_ON if name in answer.headers}
