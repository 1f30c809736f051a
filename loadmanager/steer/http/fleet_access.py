"""Who may ask the daemon beside a Pulsar cluster, and who may give it orders.

Whoever can use its Unix socket may do everything: that is the user of the daemon. Over TCP, orders
need the token of a superuser, and reads a token where tokens are configured.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import conf
from loadmanager.kit.errors import NotAuthenticatedError
from loadmanager.kit.http.answers import failed
from loadmanager.kit.http.permits import METRICS, OPEN, PERMIT, bearer_of
from loadmanager.kit.refused_clients import ClientRefusals
from loadmanager.kit.security.identity import Identity, Verifier
from loadmanager.leader.http.page import PAGE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
READS = frozenset({"GET", "HEAD"})
NO_TOKEN = (
    "a token is missing: send one as `Authorization: Bearer TOKEN`; loadmanager admin takes it "
    "from LOADMANAGER_TOKEN or --token"
)
NO_TOKENS = (
    "orders need the token of a superuser: set tokenSecretKey or tokenPublicKey, and "
    "superUserRoles, in the daemon's configuration; or set apiSocket there, and send them to that "
    "socket"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetApiSettings:
    """The daemon's HTTP API.

    Without a key for tokens, it answers reads only, except on the socket (`apiSocket`).
    """

    socket: str = conf(
        "apiSocket",
        "",
        "Path of a Unix socket that only the daemon's user can use, beside `--listen`: whoever can "
        "may give orders; empty: none",
    )
    superusers: tuple[str, ...] = conf(
        "superUserRoles", (), "Roles that may give orders; the others may read"
    )
    metrics: bool = conf(
        "authenticateMetricsEndpoint", False, "Reading /metrics needs a token, too"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGuard:
    """Decides who may ask. Without a verifier, nobody can prove who he is."""

    settings: FleetApiSettings
    verifier: Verifier | None
    clock: Clock

    def allows(self, token: str) -> bool:
        """Whether the bearer of a token, which may be empty, may read."""
        try:
            return self.verifier is None or bool(self.verifier.verify(token))
        except NotAuthenticatedError:
            return False

    def middleware(self, refusals: ClientRefusals) -> Middleware:
        """Answer 401 to whoever does not prove who he is, and 403 to whoever may not order."""

        @web.middleware
        async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            path = "" if resource is None else resource.canonical.rstrip("/") or "/"
            reads = request.method in READS
            is_open = path in OPEN | PAGE or (path == METRICS and not self.settings.metrics)
            if (reads and is_open) or _on_socket(request):
                return await handler(request)
            if self.verifier is None:
                return await handler(request) if reads else _refused(refusals, request, NO_TOKENS)
            if not (token := bearer_of(request)):
                return _refused(refusals, request, NO_TOKEN)
            try:
                identity = self.verifier.verify(token)
            except NotAuthenticatedError as error:
                return _refused(refusals, request, str(error))
            if not reads and identity.role not in self.settings.superusers:
                why = f"{identity.role} is not among superUserRoles, which may give orders"
                refusals.forbidden(request.remote or "", why)
                return failed(403, why)
            request[PERMIT] = _Permit(identity, self.clock)
            return await handler(request)

        return authorize


@dataclass(frozen=True, slots=True)
class _Permit:
    """Implements `access.Permitted`."""

    identity: Identity
    clock: Clock

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.identity.role,)

    async def check(self, _request: web.Request) -> None:
        """What counted when the request came counts until the proof ends."""

    def left_s(self) -> float:
        ends_s = self.identity.expires_s
        return math.inf if ends_s is None else max(ends_s - self.clock.now_ms() / 1000, 0.0)


def _refused(refusals: ClientRefusals, request: web.Request, why: str) -> web.Response:
    refusals.not_authenticated(request.remote or "", why)
    return failed(401, why, {"WWW-Authenticate": "Bearer"})


def _on_socket(request: web.Request) -> bool:
    sock = request.get_extra_info("socket")
    return sock is not None and sock.family == socket.AF_UNIX
