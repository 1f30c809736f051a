"""Builds what hosts the bundles, and what asks its clients who they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from loadmanager.broker.messaging.settings import MessagingSettings, StorageSettings
from loadmanager.broker.protocol.hosted import returns
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.service import (
    AuthenticatesClients,
    BrokerService,
    DisconnectsRoles,
    Outside,
    RecordsClients,
    SharesTopics,
    StoresTopics,
    TellsChanges,
)
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.topics.access import AccessSettings, BrokerAccess
from loadmanager.broker.topics.limit_telemetry import samples as limit_samples
from loadmanager.broker.topics.refused_tokens import RefusedTokens
from loadmanager.broker.topics.topics import Topics
from loadmanager.engine.history.clients import REFUSED
from loadmanager.engine.history.records import Throttle
from loadmanager.kit.audit import Audit
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.port import History
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.metrics.settings import MetricsSettings
from loadmanager.kit.tasks import Scope
from loadmanager.kit.telemetry import Sample
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.member.extensible import ExtensibleManager
from loadmanager.member.hooks import Hooks
from loadmanager.member.leading.manager import RunningManager
from loadmanager.member.limit_records import LimitRecords
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.ownership.ownership import OPEN_TIMEOUT_S
from loadmanager.member.ports.hosting import Returns

log = get_logger("hosting")


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


def disconnect(hosting: BrokerService, access: BrokerAccess | None, role: str) -> int:
    """End what a role has begun here; returns how many connections of clients these are."""
    if access is not None:
        access.end(role)
    return hosting.disconnect(role) if isinstance(hosting, DisconnectsRoles) else 0


def build_hosting(
    settings: LiveSettings,
    outside: Outside,
    scope: Scope,
    throttling: BrokerThrottling,
) -> BrokerService:
    """The service, with its storage if it takes one, as our broker does."""
    hosting = outside.service(
        settings.live(MessagingSettings),
        clock=outside.clock,
        spawn=scope.spawn,
        throttling=throttling,
        connections_cap=outside.connections_cap,
    )
    if outside.storage is not None and isinstance(hosting, StoresTopics):
        hosting.store_in(outside.storage, settings.live(StorageSettings))
    return hosting


def announce_openings(manager: RunningManager, hosting: BrokerService) -> None:
    """Have state records say that a bundle is being opened, unless our own server opens it, which
    takes no time: then nobody is told of an owner that does not serve yet, and a move ends once
    the next owner serves, as in the modular manager.
    """
    if isinstance(manager, ExtensibleManager) and type(hosting) is not BrokerServer:
        manager.claims.openings.limit_s = OPEN_TIMEOUT_S


def record_clients(
    hosting: BrokerService, history: History | None, archive: Archive | None, broker: str
) -> None:
    """Have the service record its clients if it can, as our broker does."""
    if history is not None and isinstance(hosting, RecordsClients):
        unrecorded = hosting.record_clients(history, broker)
        if archive is not None:
            archive.unrecorded[REFUSED] = unrecorded


def tell_limits(archive: Archive | None, records: LimitRecords | None) -> None:
    """Have the archive know what limits did since it was recorded last."""
    if archive is not None and records is not None:
        archive.present[Throttle.kind] = records.present


def connect(hosting: BrokerService, access: BrokerAccess | None, audit: Audit) -> None:
    """Give the service its access checks and the audit log if it takes them, as our broker does."""
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


def share_topics(topics: Topics, hosting: BrokerService) -> None:
    """Have a namespace create topics only while it has its share of the broker's."""
    if isinstance(hosting, SharesTopics):
        topics.check_new = hosting.memory.check_new_topic


def returns_of(hosting: BrokerService, clock: Clock) -> Callable[[str], Returns]:
    """Bundle → when its clients came to it; nothing if the service does not say."""
    if isinstance(hosting, BrokerServer):
        bundles = hosting.serving.open_bundles
        return lambda bundle: returns(bundles.get(bundle), clock.now_ms())
    return lambda _bundle: Returns()


def hosting_samples(
    hosting: BrokerService,
    hooks: Hooks,
    throttling: BrokerThrottling,
    clock: Clock,
    metrics: Live[MetricsSettings],
) -> list[Callable[[], Iterable[Sample]]]:
    """Return what measures the hosted service and its limits. `hooks` contains its failures."""
    return [
        lambda: hooks.contained("samples", lambda: hosting.samples(metrics.value.detail)),
        lambda: limit_samples(throttling, clock.monotonic_ns(), metrics.value.detail.topics),
    ]
