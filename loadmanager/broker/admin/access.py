"""Authentication and authorization of every route: a request must prove who sends it, and its role
must be permitted.

A route that is not named here needs a superuser.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadmanager.broker.admin.schemas import schema_topic
from loadmanager.broker.ports.access import Access
from loadmanager.engine.policies.permissions import CONSUME, PRODUCE
from loadmanager.kit.errors import ForbiddenError, NotAuthenticatedError
from loadmanager.kit.http.answers import failed, namespace_of, topic_of
from loadmanager.kit.http.passing_on import BROKER, FOLLOW
from loadmanager.kit.http.permits import METRICS, OPEN, PERMIT, address_of, bearer_of
from loadmanager.kit.refused_clients import ClientRefusals
from loadmanager.kit.security.identity import Identity
from loadmanager.leader.http.page import PAGE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ORIGINAL = "X-Original-Principal"
"""The header in which a proxy names the role for which it asks, as in Pulsar."""

FOR_EVERY_ROLE = frozenset(
    {
        "/admin/v2/clusters",
        "/admin/v2/clusters/{cluster}",
        "/admin/v2/brokers/version",
        "/openapi.json",
        "/loadmanager/v1/addresses",
    }
)
"""To be read by everybody who proves who he is. By the addresses an operator's client tells whom
its token may be sent to; lookups name them, too.
"""
_MOVES = re.compile(
    r"/admin/v2/namespaces/\{tenant\}/\{namespace\}(/\{bundle[^}]*\}/split|(/\{bundle[^}]*\})?/unload)"
)
"""What moves or splits bundles: for superusers only, as in Pulsar 4.2's `NamespacesBase`."""
_OF_TOPIC = re.compile(
    r"/(admin|lookup)/v2/(topic/|schemas/)?(\{domain[^}]*\}/|(non-)?persistent/)?"
    r"\{tenant\}/\{namespace\}/\{topic(:[^}]*\+)?\}(?P<rest>/.*)?"
)
_TOPICS = re.compile(r"/admin/v2/(\{domain[^}]*\}|(non-)?persistent)/\{tenant\}/\{namespace\}")
_READ = re.compile(r"/(partitions|stats|partitioned-stats|schema|schemas)(/.*)?")
_CONSUMED = re.compile(r"/(subscriptions?(/.*)?|lastMessageId)")
_ANY = (PRODUCE, CONSUME)


@dataclass(frozen=True, slots=True)
class Permit:
    """A request's role, and the topic or namespace that it wants to use."""

    access: Access
    identity: Identity
    roles: tuple[str, ...]
    path: str
    ended: int = 0
    """See `Access.ended`, when the request came."""

    async def check(self, request: web.Request) -> None:
        """Raise `ForbiddenError` if the roles may not do it, or not any more."""
        if self.access.refuses(self.identity):
            raise ForbiddenError("this token is refused")
        if self.access.ended(self.roles) != self.ended:
            raise ForbiddenError("an operator ended what this role had begun")
        if self.path and self.path != METRICS:
            await _require(self.access, self.roles, request, self.path)

    def left_s(self) -> float:
        """For how many seconds the proof counts yet."""
        return self.access.left_s(self.identity)


def access_of(access: Access, refusals: ClientRefusals, *, metrics: bool) -> Middleware:
    """Answer 401 to whoever does not prove who he is, and 403 to whoever may not do it.

    `metrics`: also whoever reads /metrics must do so. Whoever has another broker asked must prove
    who he is in any case: what has no `PERMIT` is not passed on.
    """

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical.rstrip("/")
        for_all = path in OPEN or (path == METRICS and not metrics) or _of_page(request)
        if for_all and BROKER not in request.headers and FOLLOW not in request.headers:
            return await handler(request)
        try:
            identity, roles = _who(access, request)
            of = "" if for_all else path
            permit = Permit(access, identity, roles, of, access.ended(roles))
        except NotAuthenticatedError as error:
            if for_all and BROKER not in request.headers:
                return await handler(request)
            refusals.not_authenticated(address_of(request), str(error))
            return failed(401, str(error), {"WWW-Authenticate": "Bearer"})
        try:
            await permit.check(request)
        except ForbiddenError as error:
            refusals.forbidden(address_of(request), str(error))
            return failed(403, str(error))
        request[PERMIT] = permit
        return await handler(request)

    return authorize


def _of_page(request: web.Request) -> bool:
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in PAGE


def _who(access: Access, request: web.Request) -> tuple[Identity, tuple[str, ...]]:
    credentials = bearer_of(request)
    identity = access.identify("token" if credentials else "", credentials)
    role = identity.role
    original = request.headers.get(ORIGINAL, "")
    try:
        access.check_original(role, original)
    except ForbiddenError as error:
        raise NotAuthenticatedError(str(error)) from None
    return identity, (role, original) if original else (role,)


async def _require(access: Access, roles: tuple[str, ...], request: web.Request, path: str) -> None:
    what = f"{request.method} {path}"
    reads = request.method in ("GET", "HEAD")
    if reads and path in FOR_EVERY_ROLE:
        return
    if (of_topic := _OF_TOPIC.fullmatch(path)) is not None:
        actions = _actions(path, of_topic["rest"] or "", reads=reads)
        if actions:
            topic = schema_topic(request) if "/schemas/" in path else topic_of(request)
            of_subscription = _CONSUMED.fullmatch(of_topic["rest"] or "") is not None
            subscription = request.match_info.get("name", "") if of_subscription else ""
            await access.require_topic(roles, actions, topic, subscription=subscription, what=what)
            return
        await access.require_tenant(roles, request.match_info["tenant"], what)
    elif reads and _TOPICS.fullmatch(path):
        await access.require_namespace(roles, _ANY, namespace_of(request), what)
    elif _MOVES.fullmatch(path):
        access.require_superuser(roles, what)
    elif (
        path.startswith("/admin/v2/namespaces/{tenant}")
        or _TOPICS.match(path)
        or (reads and path == "/admin/v2/tenants/{tenant}")
    ):
        await access.require_tenant(roles, request.match_info["tenant"], what)
    else:
        access.require_superuser(roles, what)


def _actions(path: str, rest: str, *, reads: bool) -> tuple[str, ...]:
    """The permissions of a topic that allow a request, any of them; empty: only administrators of
    its tenant may make it.
    """
    if path.startswith("/lookup") or (reads and _READ.fullmatch(rest)):
        return _ANY
    return (CONSUME,) if _CONSUMED.fullmatch(rest) else ()
