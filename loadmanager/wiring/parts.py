"""All parts of a running broker: what is built from what, what starts in which order, and how it stops."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Mapping

import structlog

from loadmanager.adapters.admin.peers import HttpPeers
from loadmanager.adapters.admin.server import AdminServer
from loadmanager.adapters.admin.settings import AdminSettings
from loadmanager.adapters.files.journal import FLUSH_S, Journal
from loadmanager.adapters.files.settings import HistorySettings
from loadmanager.adapters.metrics.page import MetricsPage
from loadmanager.adapters.metrics.settings import MetricsSettings
from loadmanager.adapters.protocol.server import BrokerServer
from loadmanager.adapters.system.cgroup import Cgroup
from loadmanager.adapters.system.clock import SystemClock
from loadmanager.adapters.system.open_files import connections_cap
from loadmanager.adapters.system.sampler import SystemSampler
from loadmanager.adapters.system.settings import SamplerSettings
from loadmanager.adapters.zookeeper.settings import ZooKeeperSettings
from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.conf import Live
from loadmanager.core.errors import NotFoundError, OperationalError
from loadmanager.core.messaging.settings import MessagingSettings
from loadmanager.core.ownership.states import BundleState
from loadmanager.core.strategies.decision import Plan
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.threshold import weights_of
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.core.throttling.broker import BrokerThrottling
from loadmanager.core.throttling.settings import ThrottlingSettings
from loadmanager.ports.election import Leader
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.ports.sampler import OwnTraffic
from loadmanager.ports.store import Store
from loadmanager.ports.telemetry import Telemetry
from loadmanager.runtime.broker.guard import SessionGuard
from loadmanager.runtime.broker.limit_telemetry import samples as limit_samples
from loadmanager.runtime.broker.limits import Limits
from loadmanager.runtime.broker.lookup import Lookups
from loadmanager.runtime.broker.namespaces import Namespaces
from loadmanager.runtime.broker.ownership import Ownership, Transition
from loadmanager.runtime.broker.recorder import Recorder
from loadmanager.runtime.broker.reporter import Reporter
from loadmanager.runtime.broker.service import BrokerService
from loadmanager.runtime.broker.splitting import Splitting
from loadmanager.runtime.broker.stopping import Draining
from loadmanager.runtime.broker.telemetry import BrokerTelemetry, Counts
from loadmanager.runtime.broker.topics import Topics
from loadmanager.runtime.leader.desk import LeaderDesk
from loadmanager.runtime.leader.leadership import Leadership
from loadmanager.runtime.leader.load_view import LoadView
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.brokers import Brokers
from loadmanager.runtime.shared.election import StoreElection
from loadmanager.runtime.shared.leading import Desk, Leading
from loadmanager.runtime.shared.placement_policies import PlacementPolicies
from loadmanager.runtime.shared.settings import BrokerSettings
from loadmanager.runtime.shared.watching import Watcher
from loadmanager.runtime.tasks import LoopBusy, Scope, every
from loadmanager.settings import Settings, known_keys

log = structlog.get_logger("ownership")


class Parts:
    """Builds everything in the constructor; `start` and `stop` run it."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        me: BrokerAddress,
        peers: HttpPeers,
        scope: Scope,
        version: str,
        stop: Callable[[int], None],
    ) -> None:
        self._store, self._me, self._peers, self._scope = store, me, peers, scope
        self._broker = settings.leaf(BrokerSettings)
        self._in_force = settings
        self._strategies = settings.leaf(StrategySettings)
        self._sampling = settings.leaf(SamplerSettings)
        self._clock = SystemClock()
        self._counts = Counts()
        self._leading = Leading()
        self._busy = LoopBusy()
        self._brokers = Brokers(store)
        self._namespaces = Namespaces(store, self._broker)
        self._topics = Topics(store, self._namespaces, self._broker)
        self._throttling = BrokerThrottling(
            settings.leaf(ThrottlingSettings),
            cluster=self._broker.cluster_name,
            clock=time.monotonic_ns,
            publish_buffer_bytes=settings.leaf(MessagingSettings).publish_buffer_mb * 1024 * 1024,
        )
        self._splits = settings.leaf(SplitSettings)
        self._ship_interval_s = settings.leaf(HistorySettings).ship_interval_s
        self._policies = PlacementPolicies(store, self._broker.cluster_name)
        self._limits = self._build_limits(settings)
        self._hosting = self._build_hosting(settings)
        self._ownership = Ownership(
            store=store,
            namespaces=self._namespaces,
            hosting=self._hosting,
            peers=peers,
            clock=self._clock,
            self_address=me,
            observe=self._on_transition,
        )
        self._journal = self._build_journal(settings)
        self._lookups = Lookups(
            ownership=self._ownership,
            namespaces=self._namespaces,
            brokers=self._brokers,
            leading=self._leading,
            self_address=me,
            clock=self._clock,
            lookups_max=self._broker.lookups_max,
        )
        self._reporter = self._build_reporter(version)
        self._recorder = self._build_recorder()
        self._guard = SessionGuard(
            store=store,
            hosting=self._hosting,
            ownership=self._ownership,
            clock=self._clock,
            register=self._reporter.register,
            end_when_lost=settings.leaf(ZooKeeperSettings).session_expired_policy == "shutdown",
        )
        self._election = StoreElection(store, self._clock, broker_id=me.broker_id, web_url=me.web_url)
        self._leadership = Leadership(self._election, self._leading, self._start_term)
        self._service = self._build_service(settings, stop)
        self._admin = self._build_admin(settings, version)

    def _build_hosting(self, settings: Settings) -> BrokerServer:
        return BrokerServer(
            Live(settings.leaf(MessagingSettings)),
            clock=self._clock,
            spawn=self._scope.spawn,
            throttling=self._throttling,
            connections_cap=connections_cap(),
        )

    def _build_reporter(self, version: str) -> Reporter:
        own = OwnTraffic(lambda: self._hosting.bytes_in, lambda: self._hosting.bytes_out, lambda: self._busy.fraction)
        return Reporter(
            store=self._store,
            hosting=self._hosting,
            ownership=self._ownership,
            sampler=SystemSampler(self._sampling, own, cgroup=Cgroup.find()),
            clock=self._clock,
            settings=lambda: self._broker,
            weights=lambda: weights_of(self._strategies),
            self_address=self._me,
            version=version,
        )

    def _build_journal(self, settings: Settings) -> Journal | None:
        history = settings.leaf(HistorySettings)
        if not history.enabled:
            return None
        return Journal(history, cluster=self._broker.cluster_name, broker=self._me.broker_id, clock=self._clock)

    def _build_recorder(self) -> Recorder | None:
        if self._journal is None:
            return None
        return Recorder(
            history=self._journal,
            broker_id=self._me.broker_id,
            clock=self._clock,
            reporter=self._reporter,
            hosting=self._hosting,
            ownership=self._ownership,
            throttling=self._throttling,
            weights=lambda: weights_of(self._strategies),
            settings=lambda: self._broker,
        )

    def _build_limits(self, settings: Settings) -> Limits:
        names = sorted(name for name, known in known_keys().items() if known.key.dynamic and name == known.key.name)

        def apply(values: Mapping[str, str]) -> None:
            changed = settings.with_overrides({name: value for name, value in values.items() if name in names})
            self._in_force = changed
            self._broker = changed.leaf(BrokerSettings)
            self._strategies = changed.leaf(StrategySettings)
            self._splits = changed.leaf(SplitSettings)
            self._sampling = changed.leaf(SamplerSettings)
            self._throttling.update_settings(changed.leaf(ThrottlingSettings))

        return Limits(self._store, self._namespaces, self._throttling, dynamic=lambda: names, check=settings.with_overrides, apply=apply)

    def _settings_in_force(self) -> Mapping[str, str]:
        return self._in_force.runtime()

    def _build_service(self, settings: Settings, stop: Callable[[int], None]) -> BrokerService:
        splitting = Splitting(
            namespaces=self._namespaces,
            ownership=self._ownership,
            hosting=self._hosting,
            self_address=self._me,
            settings=lambda: self._splits,
            unload_timeout_s=self._unload_timeout_s,
        )
        return BrokerService(
            store=self._store,
            config=self._broker,
            self_address=self._me,
            cut=self._namespaces,
            catalogue=self._topics,
            ownership=self._ownership,
            splitting=splitting,
            limits=self._limits,
            lookups=self._lookups,
            live=self._brokers,
            leading=self._leading,
            hosting=self._hosting,
            peers=self._peers,
            last_report=lambda: self._reporter.bytes,
            settings_in_force=self._settings_in_force,
            stop=stop,
        )

    def _build_admin(self, settings: Settings, version: str) -> AdminServer:
        samples = BrokerTelemetry(
            reporter=self._reporter,
            lookups=self._lookups,
            ownership=self._ownership,
            hosting=self._hosting,
            leading=self._leading,
            store=self._store,
            busy=self._busy,
            counts=self._counts,
            guard=self._guard,
            expose_bundles=settings.leaf(MetricsSettings).bundles,
            monotonic_s=self._clock.monotonic_s,
            version=version,
        )
        page = MetricsPage(
            Telemetry(
                [samples.samples, lambda: limit_samples(self._throttling), *([] if self._journal is None else [self._journal.samples])]
            ),
            cluster=self._broker.cluster_name,
            broker=self._me.broker_id,
        )
        return AdminServer(
            self._service,
            cluster=self._broker.cluster_name,
            version=version,
            metrics=lambda: (page.render(), page.content_type),
            settings=settings.leaf(AdminSettings),
            limits=self._limits,
            policies=self._policies,
        )

    @property
    def _unload_timeout_s(self) -> float:
        return self._broker.bundle_unload_timeout_ms / 1000

    # Life

    async def start(self, pulsar: socket.socket, web: socket.socket) -> None:
        """Caches first, then the listening ports, then the registration, which brings work."""
        scope = self._scope
        watchers = [
            Watcher(
                self._store,
                paths.ADMIN,
                self._namespaces.on_change,
                self._topics.on_change,
                self._limits.on_change,
                self._policies.on_change,
            ),
            Watcher(self._store, paths.LOCKS, self._ownership.on_change),
            Watcher(self._store, paths.BROKERS, self._brokers.apply),
            Watcher(self._store, paths.LEADER, self._election.on_change),
        ]
        for watcher, root in zip(watchers, (paths.ADMIN, paths.LOCKS, paths.BROKERS, paths.LEADER), strict=True):
            scope.spawn(watcher.run(), f"watch{root.replace('/', '-')}")
        scope.spawn(self._busy.run(), "loop-busy")
        await self._reporter.sample()
        await asyncio.gather(*(watcher.synced.wait() for watcher in watchers))
        self._hosting.begin(self._service)
        await self._hosting.listen(pulsar)
        await self._admin.start(web)
        await self._reporter.register()
        scope.spawn(self._guard.watch_lease(), "lease")
        scope.spawn(self._guard.watch_session(), "session")
        scope.spawn(self._leadership.follow(), "follow-leader")
        scope.spawn(self._leadership.run(), "leadership")
        sampling_s = self._sampling.interval_minutes * 60
        scope.spawn(
            every(lambda: self._sampling.interval_minutes * 60, self._reporter.sample, "sample", first_after_s=min(1.0, sampling_s)),
            "sample",
        )
        scope.spawn(every(lambda: self._broker.report_interval_min_ms / 1000, self._reporter.tick, "report"), "report")
        if self._journal is not None and self._recorder is not None:
            await self._journal.start()
            ship_s = self._ship_interval_s
            scope.spawn(every(lambda: FLUSH_S, self._journal.flush, "history"), "history")
            scope.spawn(every(lambda: ship_s, self._journal.ship, "ship-history", first_after_s=ship_s), "ship-history")
            scope.spawn(every(lambda: self._broker.history_interval_s, self._recorder.sample, "record"), "record")

    async def stop(self, unloads_per_s_max: int) -> None:
        """Give everything back, and close the history, whatever came of it."""
        try:
            await self._give_back(unloads_per_s_max)
        finally:
            if self._journal is not None:
                await self._journal.close()

    async def _give_back(self, unloads_per_s_max: int) -> None:
        """Take no new work, resign, give the bundles back, hang up; within `brokerShutdownTimeoutMs`."""
        draining = Draining(
            self._ownership, self._clock, unload_timeout_s=self._unload_timeout_s, unloads_max=self._broker.shutdown_unloads_max
        )
        try:
            async with asyncio.timeout(self._broker.shutdown_timeout_ms / 1000):
                self._ownership.accepting = False
                await self._reporter.unregister()
                await self._election.resign()
                await draining.run(unloads_per_s_max=unloads_per_s_max)
                await self._hosting.stop()
                await self._admin.stop()
        except (TimeoutError, OperationalError) as error:
            log.warning("the stop was cut short; locks go with the session", error=str(error) or "brokerShutdownTimeoutMs is over")

    # Leading

    async def _start_term(self, mine: Leader, term: Scope) -> Desk:
        view = LoadView(self._brokers, self._policies, self._clock)
        await view.restore(self._store)
        desk = LeaderDesk(
            epoch=mine.epoch,
            view=view,
            brokers=self._brokers,
            peers=self._peers,
            clock=self._clock,
            rng=random.Random(mine.epoch),  # noqa: S311 - reproducible by the epoch, not secret
            settings=lambda: self._strategies,
            split_settings=lambda: self._splits,
            bundle_count=self._bundle_count,
            leading=self._leading,
            observe=lambda cycle, plan: self._on_plan(mine.epoch, cycle, plan),
        )
        term.spawn(_until_cancelled(view.close), "load-view")
        if self._broker.load_balancer_enabled:
            shedding_s = self._strategies.shedding_interval_minutes * 60
            term.spawn(
                every(lambda: self._strategies.shedding_interval_minutes * 60, desk.shed, "shedding", first_after_s=shedding_s), "shedding"
            )
            split_s = self._splits.interval_minutes * 60
            term.spawn(every(lambda: split_s, desk.split, "splitting", first_after_s=split_s), "splitting")
            quota_s = self._broker.quota_update_interval_minutes * 60
            term.spawn(
                every(
                    lambda: quota_s, lambda: view.save(self._store, self._broker.bundles_in_report_max), "averages", first_after_s=quota_s
                ),
                "averages",
            )
        return desk

    async def _bundle_count(self, namespace: NamespaceName) -> int:
        try:
            return len((await self._namespaces.bundles(namespace)).ranges)
        except NotFoundError:
            return 0  # deleted since it was reported

    # What happened

    def _on_plan(self, epoch: int, cycle: int, plan: Plan) -> None:
        if self._recorder is not None:
            self._recorder.on_plan(epoch, cycle, plan)
        self._counts.unload_cycles += bool(plan.unloads)
        self._counts.unloaded_bundles += len(plan.unloads)

    def _on_transition(self, step: Transition) -> None:
        """The ownership log: when this broker began and ceased to own a bundle, on a clock that all processes of the machine share."""
        if self._recorder is not None:
            self._recorder.on_transition(step)
        event = {BundleState.OWNED: "bundle acquired", BundleState.RELEASING: "bundle releasing", BundleState.FREE: "bundle released"}.get(
            step.after
        )
        if event is None or (step.before is BundleState.ASSIGNING and step.after is BundleState.FREE):
            return
        log.info(
            event,
            bundle=step.bundle,
            state_before=step.before.value,
            reason=step.reason,
            destination=step.destination,
            pause_ms=None if step.pause_ms is None else round(step.pause_ms, 1),
            # A paused process wakes up long after it ceased to own anything: the proof of its session ended then.
            monotonic_s=min(self._clock.monotonic_s(), self._store.lease.proven_until_s),
        )


async def _until_cancelled(close: Callable[[], None]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        close()
