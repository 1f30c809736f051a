"""What is known of who sent a request."""

from __future__ import annotations

import math
from typing import Protocol

from aiohttp import web

from loadmanager.kit.errors import ForbiddenError

BEARER = "Bearer "


OPEN = frozenset({"/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/status.html"})
"""For everybody: those who watch over a broker have no credentials, and learn nothing else."""


METRICS = "/metrics"


class Permitted(Protocol):
    """What is known of who sent a request."""

    @property
    def roles(self) -> tuple[str, ...]:
        """His, and the one for which he asks."""
        ...

    async def check(self, request: web.Request) -> None:
        """See `Permit`."""
        ...

    def left_s(self) -> float:
        """See `Permit`."""
        ...


PERMIT: web.RequestKey[Permitted] = web.RequestKey("permit", Permitted)

ADDRESS: web.RequestKey[str] = web.RequestKey("address", str)
"""Of who asks, where another broker passes that on."""


def address_of(request: web.Request) -> str:
    """The address of who asks, also through another broker; empty if it is not known."""
    address: str = request.get(ADDRESS, request.remote or "")
    return address


async def permitted_s(request: web.Request) -> float:
    """For how long the answer to a request may go on: until the proof of who asked ends; 0 when he
    may not ask any more.
    """
    permit: Permitted | None = request.get(PERMIT)
    if permit is None:
        return math.inf
    try:
        await permit.check(request)
    except ForbiddenError:
        return 0
    return permit.left_s()


def bearer_of(request: web.Request) -> str:
    """The token of a request; empty without one."""
    return credentials_in(request.headers.get("Authorization", ""))


def credentials_in(header: str) -> str:
    """The token of a header."""
    credentials = header[len(BEARER) :] if header[: len(BEARER)].title() == BEARER else header
    return credentials.strip()
