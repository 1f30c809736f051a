"""Requests from a broker to other brokers: their credentials, TLS, and bounded answers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.listener import Tls


@dataclass(frozen=True, slots=True)
class Calls:
    """The headers, the address and the TLS of requests to other brokers."""

    headers: Callable[[], dict[str, str]] = dict
    """Prove who this broker is. Raises `OperationalError` when it cannot now."""
    context: Tls | None = None
    """None: without TLS."""

    def tls(self) -> ssl.SSLContext | bool:
        """For aiohttp's `ssl`."""
        return True if self.context is None else self.context.value

    def url(self, broker: BrokerAddress) -> str:
        """The base of a broker's URLs.

        Raises `OperationalError` when the broker does not serve what was chosen: what is meant for
        TLS is never sent without.
        """
        if self.context is not None:
            return broker.web(secure=True)
        if not broker.web_url:
            raise OperationalError(
                f"{broker.broker_id} serves its admin API over TLS only: brokerClientTlsEnabled "
                "lets brokers ask each other so"
            )
        return broker.web_url


async def body_of(answer: aiohttp.ClientResponse, bytes_max: int) -> bytes | None:
    """The body of an answer; None if it is longer, of which no more is read."""
    body = bytearray()
    while len(body) <= bytes_max and (more := await answer.content.readany()):
        body += more
    return bytes(body) if len(body) <= bytes_max else None
