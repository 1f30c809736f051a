"""Builds what hosts the bundles, and what asks its clients who they are."""

from __future__ import annotations

import structlog

from loadmanager.core.messaging.settings import MessagingSettings, StorageSettings
from loadmanager.core.throttling.broker import BrokerThrottling
from loadmanager.ports.audit import Audit
from loadmanager.ports.store import Store
from loadmanager.runtime.broker.access import AccessSettings, BrokerAccess
from loadmanager.runtime.broker.namespaces import Namespaces
from loadmanager.runtime.broker.refused_tokens import RefusedTokens
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.documents import Corrupt
from loadmanager.runtime.shared.watching import Watcher
from loadmanager.runtime.tasks import Scope
from loadmanager.settings.live import LiveSettings
from loadmanager.wiring.outside import (
    AuthenticatesClients,
    DisconnectsRoles,
    Outside,
    Service,
    StoresTopics,
    TellsChanges,
)

log = structlog.get_logger("hosting")


def build_access(
    settings: LiveSettings,
    outside: Outside,
    namespaces: Namespaces,
    store: Store,
    corrupt: Corrupt,
) -> BrokerAccess | None:
    """Build what asks clients who they are; returns None if they need not say it."""
    access = settings.live(AccessSettings)
    if outside.verifier is None or not access.value.authentication:
        return None
    return BrokerAccess(
        settings=access,
        namespaces=namespaces,
        verifier=outside.verifier,
        clock=outside.clock,
        refused=RefusedTokens(store, outside.clock, corrupt),
    )


def access_watchers(store: Store, access: BrokerAccess | None) -> list[Watcher]:
    """What tells the access checks of changes, beside the watch of tenants and namespaces."""
    return [] if access is None else [Watcher(store, paths.REFUSED, access.refused.on_change)]


def disconnect(hosting: Service, access: BrokerAccess | None, role: str) -> int:
    """End what a role has begun here; returns how many connections of clients these are."""
    if access is not None:
        access.end(role)
    return hosting.disconnect(role) if isinstance(hosting, DisconnectsRoles) else 0


def build_hosting(
    settings: LiveSettings,
    outside: Outside,
    scope: Scope,
    throttling: BrokerThrottling,
    *,
    access: BrokerAccess | None,
    audit: Audit,
) -> Service:
    """The service, with its storage, its access checks and the audit log if it takes them, as our
    broker does.
    """
    hosting = outside.service(
        settings.live(MessagingSettings),
        clock=outside.clock,
        spawn=scope.spawn,
        throttling=throttling,
        connections_cap=outside.connections_cap,
    )
    if outside.storage is not None and isinstance(hosting, StoresTopics):
        hosting.store_in(outside.storage, settings.live(StorageSettings))
    if isinstance(hosting, TellsChanges):
        hosting.tell_changes(audit)
    if access is not None:
        if isinstance(hosting, AuthenticatesClients):
            hosting.protect(access)
        else:
            log.warning(
                "the service does not ask its clients who they are, in spite of "
                "authenticationEnabled",
                service=type(hosting).__name__,
            )
    return hosting
