"""One broker process: ports, session, signals. `broker.compose` builds what runs in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadmanager import __version__
from loadmanager.broker.admin.calls import Calls
from loadmanager.broker.admin.peers import HttpPeers
from loadmanager.broker.admin.server import AdminServer
from loadmanager.broker.compose import Parts
from loadmanager.broker.initialize import record_cluster
from loadmanager.broker.listeners import (
    Port,
    TlsContexts,
    address_of,
    bind_all,
    listen_on,
    restricted,
    tls_contexts,
    urls_of,
    warn_if_restricted,
)
from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.ports.log import Storage
from loadmanager.broker.protocol.server import BrokerServer
from loadmanager.broker.service import BrokerService, Outside
from loadmanager.broker.settings import check
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.settings.secrets import read_by_others
from loadmanager.broker.storage.shared_id import SharedDirectory, SharedId
from loadmanager.broker.storage.storage import DirectoryStorage
from loadmanager.broker.topics.access import AccessSettings
from loadmanager.broker.topics.shared_directory import require_original, require_shared
from loadmanager.engine.history.archived import ARCHIVED
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import ConfigError, OperationalError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.history import FLUSH_S, FileHistory
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.http.settings import AdminSettings
from loadmanager.kit.logger import get_logger
from loadmanager.kit.logs import configure
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.starting import answered
from loadmanager.kit.metrics.page import MetricsPage
from loadmanager.kit.otlp.sending import Process, Sending, sending
from loadmanager.kit.otlp.settings import OtlpSettings, require_installed
from loadmanager.kit.security.client import BrokerCredentials
from loadmanager.kit.security.identity import Verifier
from loadmanager.kit.security.settings import BrokerClientSettings, TlsSettings, TokenSettings
from loadmanager.kit.security.tls import Contexts
from loadmanager.kit.settings import Settings, unknown_text
from loadmanager.kit.system import open_files
from loadmanager.kit.system.cgroup import Cgroup
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.system.disks import INTERVAL_S as LOOK_S
from loadmanager.kit.system.disks import Disks
from loadmanager.kit.system.ending import Ending
from loadmanager.kit.system.first_signals import hangup_as_before
from loadmanager.kit.system.garbage import set_limits
from loadmanager.kit.system.notify import keep_notifying, notify
from loadmanager.kit.system.parent import stop_with_parent
from loadmanager.kit.system.sampler import SystemSampler
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.system.watchdog import Watchdog
from loadmanager.kit.tasks import LoopBusy, Scope, every
from loadmanager.kit.telemetry import Telemetry
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings, ZooKeeperTlsSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.leader.plugins import warn_of_left_out
from loadmanager.member.settings import BrokerSettings

CERTIFICATES_S_MIN = 1.0
"""Changed certificates are looked for at most this often."""
STILL_S_MIN = 15.0
"""The process ends when its event loop stands still for two session timeouts, at least this."""
STOP_MARGIN_S = 30.0
"""A stop takes this longer than brokerShutdownTimeoutMs at most: the disk may be slow."""
SWITCH_S = 0.000_5
"""How long a thread of the storage waits for the event loop's thread at most, instead of 5 ms: each
commit waits for it several times.
"""

log = get_logger("broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Options of the process; its settings say what the broker does."""

    log_format: str | None = None
    stop_with_parent: bool = False
    reload: Callable[[], Settings] | None = None
    """Reads the settings again. None: they are of no file."""
    service: Callable[..., BrokerService] = BrokerServer
    """What hosts the bundles; see `Outside.service`."""


def run_broker(settings: Settings, options: BrokerOptions) -> int:
    """Run one broker until it is told to stop; returns the exit status.

    Raises `ConfigError` or `OperationalError` when it cannot start.
    """
    if options.stop_with_parent:
        stop_with_parent()
    open_files.raise_limit()
    broker = settings.leaf(BrokerSettings)
    check(settings)
    require_installed(settings.leaf(OtlpSettings))
    within_s = broker.shutdown_timeout_ms / 1000 + STOP_MARGIN_S
    with (
        Ending(lambda: within_s) as ending,
        asyncio.Runner(loop_factory=_loop_factory(broker)) as runner,
    ):
        return runner.run(_Broker(settings, options, ending).run())


def _loop_factory(broker: BrokerSettings) -> Callable[[], asyncio.AbstractEventLoop]:
    if broker.event_loop_uvloop:
        with contextlib.suppress(ImportError):
            import uvloop

            factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
            return factory
    return asyncio.new_event_loop


@dataclass(slots=True)
class _Stop:
    """The request to stop the broker, by a signal or an operator."""

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    unloads_per_s_max: int = 0
    signals: int = 0

    def on_signal(self) -> None:
        self.signals += 1
        if self.signals > 1:
            os._exit(1)  # the second signal: at once
        self.requested.set()

    def by_admin(self, unloads_per_s_max: int) -> None:
        self.unloads_per_s_max = unloads_per_s_max
        self.requested.set()


def _ready(store: ZooKeeperStore, me: BrokerAddress) -> None:
    """Everything has been built that stays."""
    set_limits()
    notify("READY=1")
    log.info("ready", **urls_of(me), session=f"0x{store.session_id:x}")


class _Broker:
    """Builds and runs the parts."""

    def __init__(self, settings: Settings, options: BrokerOptions, ending: Ending) -> None:
        self._settings = settings
        self._ending = ending
        self._options = options
        self._broker = settings.leaf(BrokerSettings)
        self._stop = _Stop()

    async def run(self) -> int:
        """Run until it is told to stop; it is, by a signal, also while it waits for ZooKeeper."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._ending.listen(task.cancel)
        try:
            await self._run()
        except asyncio.CancelledError:
            if not self._ending.signalled:
                raise
        log.info("stopped")
        return 0

    async def _run(self) -> None:
        tls = tls_contexts(self._settings)
        with contextlib.ExitStack() as stack:
            restricted_broker = restricted(self._broker, self._settings.leaf(AccessSettings))
            ports = bind_all(restricted_broker, stack)
            me = address_of(restricted_broker, ports)
            json = None if self._options.log_format is None else self._options.log_format == "json"
            configure(self._broker.log_level, json=json, broker=me.broker_id)
            warn_if_restricted(self._broker, restricted_broker)
            warn_of_left_out()
            if self._settings.unknown:
                log.warning(
                    "settings are ignored; loadmanager config check FILE lists them",
                    keys=unknown_text(self._settings.unknown),
                )
            for key, why in self._settings.changed_without_effect().items():
                log.warning("a setting has no effect", key=key, why=why)
            for key, path in read_by_others(self._settings):
                log.warning(
                    "every user of this machine can read a secret: chmod o-r",
                    key=key,
                    file=str(path),
                )
            zookeeper = self._settings.leaf(ZooKeeperSettings)
            zookeeper_tls = self._settings.leaf(ZooKeeperTlsSettings)
            async with ZooKeeperStore(zookeeper, tls=zookeeper_tls) as store:
                try:
                    await self._serve(store, me, ports, tls)
                except* OperationalError as errors:
                    raise OperationalError(
                        "; ".join(str(error) for error in errors.exceptions)
                    ) from None

    async def _answered(self, step: Callable[[], Awaitable[None]], name: str) -> None:
        """Do a step of the start, again while the metadata store is away for a moment."""
        within_s = self._settings.leaf(ZooKeeperSettings).operation_timeout_s
        await answered(step, name, within_s)

    async def _record_cluster(self, store: ZooKeeperStore, me: BrokerAddress) -> None:
        await record_cluster(store, self._broker.cluster_name, me)
        others = sorted(set(await store.children(paths.CLUSTERS)) - {self._broker.cluster_name})
        if others:
            log.warning(
                "the metadata store records other clusters, too; all of its brokers must have the "
                "same clusterName",
                clusterName=self._broker.cluster_name,
                others=others,
            )

    async def _serve(
        self, store: ZooKeeperStore, me: BrokerAddress, ports: list[Port], tls: TlsContexts
    ) -> None:
        await self._answered(lambda: self._record_cluster(store, me), "record the cluster")
        settings = self._live_settings()
        broker = settings.live(BrokerSettings)
        calls = self._build_calls(tls)
        peers = HttpPeers(
            calls, release_timeout_s=lambda: broker.value.bundle_unload_timeout_ms / 1000
        )
        clock, busy, disks = SystemClock(), LoopBusy(), self._build_disks()
        history, archive = self._build_history(me, clock)
        outside = Outside(
            me=me,
            store=store,
            clock=clock,
            peers=peers,
            sampler=lambda own: SystemSampler(
                self._settings.leaf(SamplerSettings), own, cgroup=Cgroup.find(), disks=disks.fills
            ),
            version=__version__,
            stop=self._stop.by_admin,
            history=history,
            archive=archive,
            busy=busy,
            connections_cap=open_files.connections_cap(),
            service=self._options.service,
            storage=self._build_storage(settings),
            verifier=self._build_verifier(),
        )
        try:
            async with Scope("broker") as scope:
                scope.spawn(busy.run(), "loop-busy")
                self._run_watchdogs(store, scope)
                self._run_storage(outside.storage, scope)
                parts = Parts(settings, outside, scope)
                look = every(lambda: LOOK_S, disks.measure, "disks", parts.steps)
                scope.spawn(look, "disks")
                contexts = self._watch_certificates(tls, parts, scope)
                measured = (history, outside.storage, disks, contexts, self._build_otlp(me, clock))
                admin = self._build_admin(parts, calls, measured, scope)

                async def start() -> None:
                    await self._require_shared(store, me, outside.storage)
                    # Caches, then listening ports, then the registration, which brings work.
                    await parts.prepare()
                    await admin.start(scope.spawn)
                    await listen_on(ports, tls, parts.hosting, admin)
                    await self._join(parts, store, me, outside.storage)
                    if history is not None:
                        await self._begin_history(parts, history, scope)
                    _ready(store, me)

                self._ending.listen(self._stop.on_signal)
                starting = scope.spawn(start(), "start")
                await self._stop.requested.wait()
                # It may still wait to register, as long as another broker has the name.
                starting.cancel()
                notify("STOPPING=1")
                log.info("stopping", within_s=broker.value.shutdown_timeout_ms / 1000)
                try:
                    await parts.stop(self._stop.unloads_per_s_max)
                    await admin.stop()
                finally:
                    if history is not None:
                        await history.close()
                scope.cancel()
        finally:
            await calls.close()

    def _live_settings(self) -> LiveSettings:
        """SIGHUP has their file read again, unless the broker is in the foreground of a terminal:
        to close that is to end the broker.
        """
        settings, read = LiveSettings(self._settings), self._options.reload
        if read is None or os.isatty(0):
            hangup_as_before()
            return settings

        def reload() -> None:
            try:
                changes, later = settings.reload(read())
            except (ConfigError, OSError) as error:
                log.error("broker.conf cannot be used; nothing changes", reason=str(error))
                return
            log.info("broker.conf was read again", changes=changes)
            if later:
                log.warning("changed settings take a restart", keys=later)

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
        return settings

    def _build_calls(self, tls: TlsContexts) -> Calls:
        credentials = BrokerCredentials(self._settings.leaf(BrokerClientSettings))
        return Calls(credentials.headers, tls.client)

    def _build_verifier(self) -> Verifier | None:
        if not self._settings.leaf(AccessSettings).authentication:
            return None
        from loadmanager.kit.security.tokens import TokenVerifier  # with much that is imported

        return TokenVerifier(self._settings.leaf(TokenSettings))

    @staticmethod
    def _build_storage(settings: LiveSettings) -> DirectoryStorage | None:
        stored = settings.live(StorageSettings)
        if not stored.value.directory:
            log.info("persistent topics are in memory: loadManagerStorageDirectory is not set")
            return None
        log.info("persistent topics are stored", directory=stored.value.directory)
        sys.setswitchinterval(SWITCH_S)
        return DirectoryStorage(stored)

    async def _require_shared(
        self, store: ZooKeeperStore, me: BrokerAddress, storage: Storage | None
    ) -> None:
        if isinstance(storage, DirectoryStorage):
            settings = self._settings.leaf(StorageSettings)
            shared = SharedId(Path(settings.directory))
            with SharedDirectory(shared, settings.timeout_s) as directory:
                await self._answered(
                    lambda: require_shared(store, directory, me.broker_id), "check the storage"
                )
            await self._answered(
                lambda: require_original(store, storage, me.broker_id), "check the locks"
            )
            await storage.remember_id()

    async def _join(
        self, parts: Parts, store: ZooKeeperStore, me: BrokerAddress, storage: Storage | None
    ) -> None:
        await parts.join()
        if isinstance(storage, DirectoryStorage):
            # Of two brokers that begin at once, one is registered when the other looks.
            await self._answered(
                lambda: require_original(store, storage, me.broker_id), "check the locks"
            )

    @staticmethod
    def _run_watchdogs(store: ZooKeeperStore, scope: Scope) -> None:
        """Ours, and systemd's."""
        watchdog = Watchdog(lambda: max(STILL_S_MIN, 2 * store.session_timeout_s))
        scope.spawn(watchdog.run(), "watchdog")
        scope.spawn(keep_notifying(), "service-manager")

    @staticmethod
    def _run_storage(storage: Storage | None, scope: Scope) -> None:
        if isinstance(storage, DirectoryStorage):
            scope.spawn(storage.run(), "storage")

    def _build_history(
        self, me: BrokerAddress, clock: SystemClock
    ) -> tuple[FileHistory | None, Archive | None]:
        settings, archive = self._settings.leaf(HistorySettings), None
        if not settings.enabled:
            return None, None
        cluster, name = self._broker.cluster_name, me.broker_id
        if settings.archive_bytes_max:
            archive = Archive(settings, ARCHIVED, cluster=cluster, broker=name, clock=clock)
        history = FileHistory(settings, cluster=cluster, broker=name, clock=clock, archive=archive)
        return history, archive

    def _build_otlp(self, me: BrokerAddress, clock: SystemClock) -> Sending | None:
        process = Process(
            cluster=self._broker.cluster_name, broker=me.broker_id, version=__version__
        )
        return sending(self._settings.leaf(OtlpSettings), process, clock)

    def _build_disks(self) -> Disks:
        history, stored = self._settings.leaf(HistorySettings), self._settings.leaf(StorageSettings)
        folders = {
            "history": history.directory if history.enabled else "",
            "topics": stored.directory,
            "store": self._settings.leaf(SamplerSettings).store_directory,
        }
        return Disks({name: Path(folder) for name, folder in folders.items() if folder})

    def _watch_certificates(self, tls: TlsContexts, parts: Parts, scope: Scope) -> Contexts:
        contexts = Contexts(tls.pulsar, tls.web, tls.client)
        interval_s = max(self._settings.leaf(TlsSettings).refresh_s, CERTIFICATES_S_MIN)
        look = every(lambda: interval_s, contexts.refresh, "certificates", parts.steps)
        scope.spawn(look, "certificates")
        return contexts

    def _build_admin(
        self, parts: Parts, calls: Calls, measured: Sequence[object], scope: Scope
    ) -> AdminServer:
        kinds = FileHistory | DirectoryStorage | Disks | Contexts | Sending
        more = [part for part in measured if isinstance(part, kinds)]
        sources = [*parts.telemetry.sources, *(part.samples for part in more)]
        telemetry = Telemetry(sources)
        page = MetricsPage(
            telemetry,
            cluster=self._broker.cluster_name,
            broker=parts.use_cases.self_address.broker_id,
        )
        admin = AdminServer(
            parts.use_cases,
            calls,
            cluster=self._broker.cluster_name,
            version=__version__,
            metrics=page.render,
            settings=self._settings.leaf(AdminSettings),
            connections_cap=open_files.http_connections_cap(),
            access=parts.access,
            authenticate_metrics=self._settings.leaf(AccessSettings).metrics,
        )
        sources.append(admin.samples)
        for part in more:
            if isinstance(part, Sending):
                scope.spawn(part.run(telemetry, parts.steps), "otlp")
        return admin

    async def _begin_history(self, parts: Parts, history: FileHistory, scope: Scope) -> None:
        """Seal the segments of an earlier process, then write and ship records."""
        await history.start()
        ship_s = self._settings.leaf(HistorySettings).ship_interval_s
        scope.spawn(every(lambda: FLUSH_S, history.flush, "history", parts.steps), "history")
        scope.spawn(
            every(lambda: ship_s, history.ship, "ship-history", parts.steps, first_after_s=ship_s),
            "ship-history",
        )
