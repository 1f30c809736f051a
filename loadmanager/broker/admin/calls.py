"""Requests from a broker to other brokers: their credentials and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

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
