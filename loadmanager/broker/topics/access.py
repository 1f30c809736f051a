"""The permissions of roles here: superusers, proxies, administrators of tenants, and the grants of
namespaces and topics (Pulsar `PulsarAuthorizationProvider`).

What the store says of a namespace or a tenant is kept until a watch reports a change; so is that
there is none (`known_names`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from loadmanager.broker.topics.refused_tokens import RefusedTokens
from loadmanager.engine.policies.permissions import Grants
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live, conf
from loadmanager.kit.errors import (
    CorruptDataError,
    ForbiddenError,
    NotAuthenticatedError,
    NotFoundError,
)
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.once import Once
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.security.identity import Identity, Verifier
from loadmanager.member.namespaces import Namespaces

AUTHORIZATION = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"
TOKEN = "token"
GRANTS_MAX = 10_000
"""Namespaces, and tenants, whose grants are kept."""

K = TypeVar("K")
V = TypeVar("V")

log = get_logger("access")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Authentication and authorization."""

    authentication: bool = conf(
        "authenticationEnabled", False, "Clients, operators and brokers must prove who they are"
    )
    providers: tuple[str, ...] = conf(
        "authenticationProviders",
        (),
        "Verifiers of clients: org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    )
    metrics: bool = conf(
        "authenticateMetricsEndpoint", False, "Reading /metrics needs authentication, too"
    )
    refresh_s: float = conf(
        "authenticationRefreshCheckSeconds",
        60.0,
        "Interval of the check for connections whose token has expired",
        minimum=0.05,
    )
    anonymous: str = conf(
        "anonymousUserRole", "", "The role of clients that prove nothing; empty: they are refused"
    )
    open: bool = conf(
        "loadManagerAllowUnauthenticatedAccess",
        False,
        "Without authenticationEnabled, listen where bindAddress and bindAddresses say: whoever "
        "reaches a port may do everything. Else the broker then listens on loopback only",
    )
    authorization: bool = conf(
        "authorizationEnabled", False, "Roles may do only what they are permitted to do"
    )
    provider: str = conf(
        "authorizationProvider", AUTHORIZATION, "The class that decides this; there is one only"
    )
    wildcards: bool = conf(
        "authorizationAllowWildcardsMatching",
        False,
        "Roles in permissions may begin or end with *",
    )
    superusers: tuple[str, ...] = conf(
        "superUserRoles", (), "Roles that may do everything; brokers need one"
    )
    proxies: tuple[str, ...] = conf(
        "proxyRoles", (), "Roles that ask for others, whose role they must name"
    )


@dataclass(slots=True, kw_only=True)
class BrokerAccess:
    """Implements `broker.ports.access.Access`."""

    settings: Live[AccessSettings]
    namespaces: Namespaces
    verifier: Verifier
    clock: Clock
    refused: RefusedTokens
    _grants: dict[NamespaceName, Grants] = field(default_factory=dict)
    _admins: dict[str, frozenset[str]] = field(default_factory=dict)
    _changes: int = 0
    _permission_listeners: list[Callable[[str, str], None]] = field(default_factory=list)
    _ended: Counter[str] = field(default_factory=Counter)
    _reading_grants: Once[tuple[NamespaceName, int], Grants] = field(default_factory=Once)
    _reading_admins: Once[tuple[str, int], frozenset[str]] = field(default_factory=Once)
    """By what is read, and the changes before: whoever asks after a change reads anew."""

    @property
    def changes(self) -> int:
        return self._changes

    def on_permissions(self, listener: Callable[[str, str], None]) -> None:
        self._permission_listeners.append(listener)

    @property
    def authorizes(self) -> bool:
        return self.settings.value.authorization

    @property
    def anonymous(self) -> bool:
        return bool(self.settings.value.anonymous)

    @property
    def refresh_s(self) -> float:
        return self.settings.value.refresh_s

    # Authentication

    def identify(self, method: str, credentials: str) -> Identity:
        if method in ("", "none") and not credentials:
            anonymous = self.settings.value.anonymous
            if anonymous:
                return Identity(anonymous)
            raise NotAuthenticatedError("authentication is required: a token is expected")
        if method not in ("", TOKEN):
            raise NotAuthenticatedError("unsupported authentication method: token is supported")
        identity = self.verifier.verify(credentials)
        if self.refuses(identity):
            raise NotAuthenticatedError("this token is refused: an operator took it back")
        return identity

    def refuses(self, identity: Identity) -> bool:
        return identity.token_id in self.refused

    def on_refused(self, listener: Callable[[], None]) -> None:
        self.refused.listeners.append(listener)

    def ended(self, roles: tuple[str, ...]) -> int:
        return sum(self._ended.get(role, 0) for role in roles)

    def end(self, role: str) -> None:
        if role in self._ended or len(self._ended) < GRANTS_MAX:
            self._ended[role] += 1

    def left_s(self, identity: Identity) -> float:
        if identity.expires_s is None:
            return math.inf
        return identity.expires_s - self.clock.now_ms() / 1000

    def check_original(self, role: str, original: str) -> None:
        proxies = self.settings.value.proxies
        if original and role not in proxies:
            raise ForbiddenError("only proxies (proxyRoles) may ask for another role")
        if role in proxies and (not original or original in proxies):
            raise ForbiddenError("a proxy must name the role for which it asks, not a proxy's")

    # Authorization

    def require_superuser(self, roles: tuple[str, ...], what: str) -> None:
        if self.settings.value.authorization:
            for role in roles:
                if role not in self.settings.value.superusers:
                    raise ForbiddenError(f"Unauthorized to {what}: {role} is not a superuser")

    async def require_tenant(self, roles: tuple[str, ...], tenant: str, what: str) -> None:
        if self.settings.value.authorization:
            for role in roles:
                if not await self._administers(role, tenant):
                    raise ForbiddenError(f"Unauthorized to {what}: {role} does not administer it")

    async def require_topic(
        self,
        roles: tuple[str, ...],
        actions: tuple[str, ...],
        topic: TopicName,
        *,
        subscription: str = "",
        what: str,
    ) -> None:
        if self.settings.value.authorization:
            for role in roles:
                await self._require(
                    role, actions, topic.namespace, topic, subscription=subscription, what=what
                )

    async def require_namespace(
        self, roles: tuple[str, ...], actions: tuple[str, ...], namespace: NamespaceName, what: str
    ) -> None:
        if self.settings.value.authorization:
            for role in roles:
                await self._require(role, actions, namespace, None, what=what)

    async def _require(
        self,
        role: str,
        actions: Iterable[str],
        namespace: NamespaceName,
        topic: TopicName | None,
        *,
        subscription: str = "",
        what: str,
    ) -> None:
        if await self._administers(role, namespace.tenant):
            return
        grants = self._known_grants(namespace)
        if grants is None:
            key = namespace, self._changes
            grants = await self._reading_grants.run(key, lambda: self._read_grants(namespace))
        if not self._allows(grants, role, actions, topic, subscription):
            raise ForbiddenError(f"Client is not authorized to {what}")

    def _allows(
        self,
        grants: Grants,
        role: str,
        actions: Iterable[str],
        topic: TopicName | None,
        subscription: str,
    ) -> bool:
        return grants.allows(
            role,
            actions,
            topic,
            subscription=subscription,
            wildcards=self.settings.value.wildcards,
        )

    def knows(
        self,
        roles: tuple[str, ...],
        actions: tuple[str, ...],
        namespace: NamespaceName,
        topic: TopicName | None,
        *,
        subscription: str = "",
        what: str,
    ) -> bool:
        """See `broker.ports.access.Access.knows`."""
        if not self.settings.value.authorization:
            return True
        for role in roles:
            administers = self._known_administers(role, namespace.tenant)
            if administers:
                continue
            grants = None if administers is None else self._known_grants(namespace)
            if grants is None:
                return False
            if not self._allows(grants, role, actions, topic, subscription):
                raise ForbiddenError(f"Client is not authorized to {what}")
        return True

    def _known_administers(self, role: str, tenant: str) -> bool | None:
        """Whether a role is a superuser, or an administrator of a tenant; None if that is not in
        memory.
        """
        if role in self.settings.value.superusers:
            return True
        admins = self._admins.get(tenant)
        if admins is not None:
            return role in admins
        return False if self.namespaces.names.lacks_tenant(tenant) else None

    def _known_grants(self, namespace: NamespaceName) -> Grants | None:
        """The grants of a namespace; None if they are not in memory."""
        grants = self._grants.get(namespace)
        if grants is None and self.namespaces.names.lacks(namespace):
            return Grants()
        return grants

    async def _administers(self, role: str, tenant: str) -> bool:
        administers = self._known_administers(role, tenant)
        if administers is not None:
            return administers
        key = tenant, self._changes
        return role in await self._reading_admins.run(key, lambda: self._read_admins(tenant))

    async def _read_grants(self, namespace: NamespaceName) -> Grants:
        changes = self._changes
        try:
            grants = Grants.of(await self.namespaces.policies(namespace))
        except NotFoundError:
            return Grants()  # `namespaces.names` remembers that
        except CorruptDataError:
            grants = Grants()
        if changes == self._changes:
            _keep(self._grants, namespace, grants)
        return grants

    async def _read_admins(self, tenant: str) -> frozenset[str]:
        changes = self._changes
        try:
            stored = (await self.namespaces.tenant(tenant)).get("adminRoles")
        except NotFoundError:
            return frozenset()
        except CorruptDataError:
            stored = None
        admins = (
            frozenset(role for role in stored if isinstance(role, str))
            if isinstance(stored, list)
            else frozenset()
        )
        if changes == self._changes:
            _keep(self._admins, tenant, admins)
        return admins

    def on_change(self, change: Change) -> None:
        """Forget what a change below /admin concerns."""
        self._changes += 1
        if change.kind is ChangeKind.RESYNC:
            self._grants.clear()
            self._admins.clear()
            self._tell("", "")
        elif change.path.startswith(f"{paths.POLICIES}/"):
            tenant, _, name = change.path[len(paths.POLICIES) + 1 :].partition("/")
            self._admins.pop(tenant, None)
            if name:
                self._grants.pop(NamespaceName(tenant, name), None)
            self._tell(tenant, name)

    def _tell(self, tenant: str, namespace: str) -> None:
        if self.settings.value.authorization:
            for listener in self._permission_listeners:
                listener(tenant, namespace)


def _keep(recent: dict[K, V], key: K, value: V) -> None:
    """Keep a value; the oldest make room."""
    while len(recent) >= GRANTS_MAX:
        del recent[next(iter(recent))]
    recent[key] = value
