"""A client of the daemon's own, over Pulsar's binary protocol: the canary's producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol


class Way(Protocol):
    """The way to the brokers that a producer may connect to, with what it proves itself by.

    All may raise `OperationalError`.
    """

    async def find(self, topic: str) -> str:
        """The binary service URL of a topic's owner; a topic without one gets an owner."""
        ...

    def choose(self, plain: str, tls: str) -> str:
        """The one of two service URLs, either may be empty, that is to be used."""
        ...

    async def connect(self, url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a broker of the cluster, with TLS if the URL says so."""
        ...

    def credentials(self) -> tuple[str, bytes]:
        """The authentication method and its data; empty ones without credentials."""
        ...


class Producing(Protocol):
    """Opens a producer on a topic, and follows it to whichever broker owns that."""

    def __call__(self, topic: str, way: Way) -> AsyncGenerator[float | None]:
        """Yields 0 once the first message has its receipt. Afterwards, each time: None as soon as
        the broker has closed the producer or the connection has ended, then the seconds from there
        to the first receipt of the next owner.

        Raises `OperationalError` when no owner takes it, within a bounded time.
        """
        ...
