"""Requests from a broker to other brokers: pools of connections, their credentials and TLS, bounded
answers, and one way to say why there is none.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from loadmanager.kit import tracing
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError, said
from loadmanager.kit.listener import Tls
from loadmanager.kit.tasks import guarded, sleep
from loadmanager.kit.tracing import SpanSide

CONNECTIONS_MAX = 128
"""To all brokers, for what this one asks; what waits for one is within the time that the request
may take.
"""
PASSED_ON_MAX = 128
"""To one broker, for what it is asked on behalf of others: they keep nobody but each other waiting.
How many there are in all, `maxConcurrentHttpRequests` says.
"""
SIGNS_MAX = 8
"""To one broker, for signs that it lives."""
SILENCE_S = 60.0
"""A stream of events is never silent for so long: it has heartbeats."""
PATIENCE_S, SIGN_S = 2.0, 4.0
"""A broker whose answer takes longer is asked for a sign, which may take so long: one that is
frozen gives none.
"""
SIGN = "/admin/v2/brokers/version"
SIGN_BYTES_MAX = 64 * 1024


class UnansweredError(OperationalError):
    """A broker gave no answer that can be used."""

    def __init__(self, broker: BrokerAddress, reason: str, *, late: bool = False) -> None:
        super().__init__(f"{broker.broker_id} {reason}")
        self.reason = reason
        """Without the broker's name."""
        self.late = late
        """Whether it may still answer."""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Calls:
    """Asks other brokers over HTTP."""

    def __init__(
        self,
        headers: Callable[[], dict[str, str]] = dict,
        context: Tls | None = None,
        *,
        patience_s: float = PATIENCE_S,
        sign_s: float = SIGN_S,
    ) -> None:
        """`headers` prove who this broker is, and raise `OperationalError` when they cannot now;
        `context`: None is without TLS.
        """
        self._headers, self._context = headers, context
        self._patience_s, self._sign_s = patience_s, sign_s
        self._own = _Pool(limit=CONNECTIONS_MAX)
        self._passed_on = _Pool(limit=0, limit_per_host=PASSED_ON_MAX)
        self._signs = _Pool(limit=0, limit_per_host=SIGNS_MAX)

    async def close(self) -> None:
        """Close the connections."""
        for pool in (self._own, self._passed_on, self._signs):
            await pool.close()

    def proof(self) -> dict[str, str]:
        """The headers that prove who this broker is. Raises `OperationalError` without."""
        return self._headers()

    def url(self, broker: BrokerAddress) -> str:
        """The base of a broker's URLs.

        Raises `OperationalError` when the broker does not serve what was chosen: what is meant for
        TLS is never sent without.
        """
        if self._context is not None:
            return broker.web(secure=True)
        if not broker.web_url:
            raise OperationalError(
                f"{broker.broker_id} serves its admin API over TLS only: brokerClientTlsEnabled "
                "lets brokers ask each other so"
            )
        return broker.web_url

    async def ask(
        self,
        broker: BrokerAddress,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
        bytes_max: int,
        document: object = None,
        redirects: bool = False,
    ) -> Answer:
        """The answer of a broker, whatever its status is. `path` is encoded; `redirects` are
        followed if wanted.

        Raises `UnansweredError`, and `OperationalError` when nothing can be asked.
        """
        return await self._ask(
            self._own,
            broker,
            method,
            path,
            query,
            timeout_s=timeout_s,
            bytes_max=bytes_max,
            json=document,
            allow_redirects=redirects,
        )

    async def _ask(
        self,
        pool: _Pool,
        broker: BrokerAddress,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
        bytes_max: int,
        **more: Any,
    ) -> Answer:
        url = URL(self.url(broker) + path, encoded=True).update_query(query or {})
        attributes = {"url.path": path, "server.address": broker.broker_id}
        with (
            tracing.part(method, kind=SpanSide.CLIENT, **attributes) as span,
            _named(broker, timeout_s),
        ):
            async with (
                asyncio.timeout(timeout_s),
                self._request(pool, method, url, self._headers(), **more) as answer,
            ):
                span.note(**{"http.response.status_code": answer.status})
                return await whole(broker, answer, bytes_max)

    @asynccontextmanager
    async def repeated(
        self,
        broker: BrokerAddress,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_s: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send somebody's request on, with their headers; `timeout_s`: until its answer begins, as
        long as the broker gives a sign. No redirect is followed. Raises as `ask`.
        """
        with _named(broker, timeout_s):
            silence = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S)
            sent = self._request(
                self._passed_on,
                method,
                url,
                headers,
                data=body,
                allow_redirects=False,
                timeout=silence,
            )
            async with asyncio.timeout(timeout_s):
                answer = await guarded(sent.__aenter__(), self._while_it_lives(broker))
        try:
            yield answer
        finally:
            await sent.__aexit__(None, None, None)

    async def _while_it_lives(self, broker: BrokerAddress) -> None:
        """Return never. Raises `UnansweredError` once a broker does not even give a sign."""
        while True:
            await sleep(self._patience_s)
            try:
                await self._ask(
                    self._signs,
                    broker,
                    "GET",
                    SIGN,
                    timeout_s=self._sign_s,
                    bytes_max=SIGN_BYTES_MAX,
                )
            except UnansweredError as error:
                if error.late:
                    text = f"does not answer, for {self._patience_s + self._sign_s:g} s now"
                    raise UnansweredError(broker, text, late=True) from None

    def _request(
        self, pool: _Pool, method: str, url: URL, headers: Mapping[str, str], **more: Any
    ) -> aiohttp.client._RequestContextManager:
        secure: ssl.SSLContext | bool = True if self._context is None else self._context.value
        headers = {**headers, **tracing.headers()}
        return pool.session().request(method, url, headers=headers, ssl=secure, **more)


class _Pool:
    """Connections, which are there once one is wanted."""

    def __init__(self, *, limit: int, limit_per_host: int = 0) -> None:
        """0: any number."""
        self._limit, self._limit_per_host = limit, limit_per_host
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """What sends requests over them."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._limit, limit_per_host=self._limit_per_host)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=None)
            )
        return self._session

    async def close(self) -> None:
        """Close them."""
        if self._session is not None:
            await self._session.close()


async def whole(broker: BrokerAddress, answer: aiohttp.ClientResponse, bytes_max: int) -> Answer:
    """All of an answer. Raises `UnansweredError` if it is longer, of which no more is read."""
    body = bytearray()
    while len(body) <= bytes_max and (more := await answer.content.readany()):
        body += more
    if len(body) > bytes_max:
        raise UnansweredError(broker, f"answered {answer.status} with more than {bytes_max} bytes")
    return Answer(answer.status, bytes(body), answer.headers)


@contextmanager
def _named(broker: BrokerAddress, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise UnansweredError(broker, f"did not answer within {timeout_s:g} s", late=True) from None
    except (aiohttp.ClientError, OSError) as error:
        raise UnansweredError(broker, f"cannot be reached: {plain(error)}") from None


def plain(error: Exception) -> str:
    """What kept a connection from being made, as the system says it; else the error's own text."""
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return said(error)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if not isinstance(cause, OSError) or not cause.errno:
        return said(error)
    if cause.errno < 0:  # of the resolver
        return cause.strerror or said(error)
    return os.strerror(cause.errno).lower()
