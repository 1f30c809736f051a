"""The address of whoever had another broker ask this one, as that broker names it.

With authentication it must prove the role that this broker has, beside the credentials of whoever
asks; without, it must be an active broker that the request comes from. What anybody else says of
his address counts for nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.ports.access import Access
from loadmanager.kit.errors import LoadManagerError
from loadmanager.kit.http.passing_on import ASKER, PASSED_BY, PROOF
from loadmanager.kit.http.permits import ADDRESS, credentials_in

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOOKED_UP_S = 1.0
"""The name of a broker is looked up for so long."""


def askers(use: UseCases, calls: Calls, access: Access | None) -> Middleware:
    """Note the address of who asks, if a broker names it."""

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        address = request.headers.get(ASKER, "")
        if address and _is_address(address):
            if access is not None:
                trusted = _proves(request.headers.get(PROOF, ""), calls, access)
            else:
                trusted = await _comes_from_broker(request, use)
            if trusted:
                request[ADDRESS] = address
        return await handler(request)

    return note


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return getattr(address, "scope_id", None) is None


def _proves(proof: str, calls: Calls, access: Access) -> bool:
    """Whether it is a proof of the role that this broker has itself."""
    try:
        theirs, own = (
            credentials_in(header) for header in (proof, calls.proof().get("Authorization", ""))
        )
        if not theirs or not own:
            return False
        identity = access.identify("token", theirs)
        return identity.role == access.identify("token", own).role and not access.refuses(identity)
    except LoadManagerError:
        return False


async def _comes_from_broker(request: web.Request, use: UseCases) -> bool:
    """Whether the broker that says that it passes this on has the address that it comes from."""
    broker_id = request.headers.get(PASSED_BY, "")
    if use.brokers.address(broker_id) is None:
        return False
    host = broker_id.rpartition(":")[0].strip("[]")
    if host == request.remote:
        return True
    try:
        async with asyncio.timeout(LOOKED_UP_S):
            places = await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, UnicodeError, TimeoutError):
        return False
    return any(place[4][0] == request.remote for place in places)
