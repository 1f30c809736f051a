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
    header = request.headers.get("Authorization", "")
    credentials = header[len(BEARER) :] if header[: len(BEARER)].title() == BEARER else header
    return credentials.strip()
