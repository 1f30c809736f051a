"""The parts of a broker: how they are built, started and stopped.

A broker takes everything outside it from `Outside`, and opens no socket and reads no clock of its
own. Several complete brokers can therefore run in one process, on virtual time, over a store in
memory. `broker.wiring.broker` adds what a process has: ports, signals, metrics, history on disk.
"""

from __future__ import annotations

from functools import partial

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.messaging.settings import MessagingSettings
from loadmanager.broker.settings.live import LiveSettings
from loadmanager.broker.topics.deleting import Deleting
from loadmanager.broker.topics.directory import TopicDirectory
from loadmanager.broker.topics.schemas import Schemas
from loadmanager.broker.topics.topics import Topics
from loadmanager.broker.wiring.auditing import Telling, build_audit
from loadmanager.broker.wiring.extensible import Common, ExtensibleParts
from loadmanager.broker.wiring.hosting import (
    access_watchers,
    build_access,
    build_hosting,
    build_limits,
    disconnect,
    hosting_samples,
    share_topics,
)
from loadmanager.broker.wiring.leading import leader_work
from loadmanager.broker.wiring.outside import HostsTopics, Outside, StoresTopics
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.moves.move import Move
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.metrics.settings import MetricsSettings
from loadmanager.kit.sampler import OwnTraffic
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.tasks import Interval, Scope, Steps, every, for_each, retrying
from loadmanager.kit.telemetry import Telemetry
from loadmanager.kit.units import MIB
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.leader.audit import NotingStore
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.decision_telemetry import Counts
from loadmanager.leader.events import Events
from loadmanager.leader.leading import Leading
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.limits.broker import BrokerThrottling
from loadmanager.limits.settings import ThrottlingSettings
from loadmanager.member.health import Health
from loadmanager.member.leading.leadership import Leadership
from loadmanager.member.leading.term import LeaderWork
from loadmanager.member.locks import Locks
from loadmanager.member.lookup import Lookups
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.orders import Orders
from loadmanager.member.ownership import Ownership
from loadmanager.member.ownership_log import OwnershipLog
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.recorder import Recorder
from loadmanager.member.reporter import Reporter
from loadmanager.member.session_keeper import SessionKeeper
from loadmanager.member.settings import BrokerSettings
from loadmanager.member.splitting import Splitting
from loadmanager.member.stopping import stop
from loadmanager.member.telemetry import BrokerTelemetry
from loadmanager.member.unloading import Unloading
from loadmanager.member.wellness import STEP_S, Wellness


class Parts:
    """A broker: the constructor builds its parts, `start` runs them in `scope`, `stop` ends it."""

    def __init__(self, settings: LiveSettings, outside: Outside, scope: Scope) -> None:
        self.settings = settings
        self._outside, self._scope = outside, scope
        self._broker = self.settings.live(BrokerSettings)
        self._strategies = self.settings.live(StrategySettings)
        self._splits = self.settings.live(SplitSettings)
        self._leading, self._counts, self._corrupt = Leading(), Counts(), Corrupt()
        self._events = Events()
        self.steps = Steps()
        store, cluster = outside.store, self._broker.value.cluster_name
        self._watchers: list[Watcher] = []
        self._brokers = Brokers(
            store,
            outside.clock,
            self._corrupt,
            leads=lambda: self._leading.load_manager is not None,
        )
        self._telling = Telling(outside, self._leading, self._brokers, self._events)
        self.audit, noting = build_audit(outside, self._telling), NotingStore(store)
        self._wishes = OperatorWishes(noting, outside.clock, self._corrupt)
        self._namespaces = Namespaces(noting, self._broker, self._corrupt)
        throttling = self.settings.live(ThrottlingSettings)
        self._throttling = BrokerThrottling(
            throttling.value,
            cluster=cluster,
            now_ns=outside.clock.monotonic_ns(),
            publish_buffer_bytes=settings.live(MessagingSettings).value.publish_buffer_mb * MIB,
        )
        self.policies = PlacementPolicies(noting, cluster, self._corrupt)
        self.access = build_access(settings, outside, self._namespaces, noting, self._corrupt)
        self.hosting = build_hosting(
            settings, outside, scope, self._throttling, access=self.access, audit=self.audit
        )
        storage = outside.storage if isinstance(self.hosting, StoresTopics) else None
        self._topics = Topics(noting, self._namespaces, self._broker, self._corrupt, storage)
        share_topics(self._topics, self.hosting)
        self._schemas = Schemas(noting, self._namespaces, outside.clock, self._corrupt)
        limiting = self.hosting, self._throttling, settings, noting, self._namespaces
        self.limits = build_limits(*limiting, clock=outside.clock, corrupt=self._corrupt)
        self._locks = self._build_locks()
        self._extensible = self._build_extensible()
        self._ownership = self._build_ownership()
        self._reporter = self._build_reporter()
        search = None
        if self._extensible is not None:
            search = self._extensible.connect(self._ownership, self._reporter, self.hosting)
        self._lookups = Lookups(
            ownership=self._ownership,
            namespaces=self._namespaces,
            brokers=self._brokers,
            leading=self._leading,
            self_address=outside.me,
            clock=outside.clock,
            settings=self._broker,
            search=search,
        )
        self._recorder = self._build_recorder()
        self._election = self._build_election()
        self._session_keeper = self._build_session_keeper()
        self._brokers.listeners.append(self._on_broker)
        work = self._build_leader_work()
        if self._extensible is not None:
            work = self._extensible.leader_work(work)
        self._leadership = Leadership(self._election, self._leading, work.run, outside.clock)
        self._directory = self._build_directory()
        self.use_cases = self._build_use_cases()
        self.telemetry = self._build_telemetry()

    def _build_locks(self) -> Locks:
        me, peers = self._outside.me, self._outside.peers
        store, address = self._outside.store, self._brokers.address
        return Locks(store, self._namespaces, me, self._corrupt, peers, address=address)

    def _build_extensible(self) -> ExtensibleParts | None:
        """Build the parts of the extensible manager; returns None if the other one is to run."""
        manager = Manager.of(self._strategies.value.load_manager_class)
        if manager is not Manager.EXTENSIBLE:
            return None
        common = Common(
            settings=self.settings,
            store=self._outside.store,
            clock=self._outside.clock,
            me=self._outside.me,
            scope=self._scope,
            steps=self.steps,
            brokers=self._brokers,
            namespaces=self._namespaces,
            policies=self.policies,
            leading=self._leading,
            corrupt=self._corrupt,
            locks=self._locks,
            seed=self._outside.seed,
            observe=self._on_plan,
            wishes=self._wishes,
        )
        return ExtensibleParts(common)

    def _build_ownership(self) -> Ownership:
        outside = self._outside
        self._ownership_log = OwnershipLog(
            broker_id=outside.me.broker_id,
            clock=outside.clock,
            lease=outside.store.lease,
            history=outside.history,
        )
        return Ownership(
            store=outside.store,
            namespaces=self._namespaces,
            hosting=self.hosting,
            claims=self._locks if self._extensible is None else self._extensible.claims,
            clock=outside.clock,
            scope=self._scope,
            self_address=outside.me,
            observe=self._ownership_log.on_transition,
        )

    def _build_election(self) -> StoreElection:
        return StoreElection(
            self._outside.store,
            self._outside.clock,
            broker_id=self._outside.me.broker_id,
            web_url=self._outside.me.web_url or self._outside.me.web_url_tls,
            corrupt=self._corrupt,
            on_leader=self._leading.learn_of,
            path=paths.LEADER if self._extensible is None else paths.EXTENSIBLE_LEADER,
        )

    def _build_session_keeper(self) -> SessionKeeper:
        self.wellness = self._build_wellness()
        keeper = SessionKeeper(
            store=self._outside.store,
            hosting=self.hosting,
            ownership=self._ownership,
            clock=self._outside.clock,
            register=self._reporter.register,
            on_lost=self._election.session_lost,
            end_when_lost=self.settings.live(ZooKeeperSettings).value.session_expired_policy
            == "shutdown",
        )
        keeper.on_unproven = self.wellness.lost_lease
        return keeper

    def _build_wellness(self) -> Wellness:
        return Wellness(
            broker_id=self._outside.me.broker_id,
            store=self._outside.store,
            hosting=self.hosting,
            brokers=self._brokers,
            wishes=self._wishes,
            clock=self._outside.clock,
            bundles=lambda: len(self._ownership.owned()),
            started_ms=lambda: self._reporter.report.start_timestamp,
        )

    def _build_leader_work(self) -> LeaderWork:
        return leader_work(
            self._outside,
            self.settings,
            brokers=self._brokers,
            policies=self.policies,
            wishes=self._wishes,
            leading=self._leading,
            corrupt=self._corrupt,
            bundle_count=self._namespaces.bundle_count,
            boundaries=self._namespaces.bundles,
            events=self._events,
            observe=self._on_plan,
            observe_move=self._on_move,
        )

    def _build_reporter(self) -> Reporter:
        outside = self._outside
        own = OwnTraffic(
            lambda: self.hosting.usage().bytes_in_total,
            lambda: self.hosting.usage().bytes_out_total,
            lambda: outside.busy.fraction,
        )
        return Reporter(
            store=outside.store,
            hosting=self.hosting,
            ownership=self._ownership,
            sampler=outside.sampler(own),
            clock=outside.clock,
            settings=self._broker,
            strategies=self._strategies,
            self_address=outside.me,
            version=outside.version,
            epoch=lambda: self._leading.epoch,
            extensible=self._extensible is not None,
        )

    def _build_recorder(self) -> Recorder | None:
        if self._outside.history is None:
            return None
        return Recorder(
            history=self._outside.history,
            broker_id=self._outside.me.broker_id,
            clock=self._outside.clock,
            reporter=self._reporter,
            hosting=self.hosting,
            ownership=self._ownership,
            throttling=self._throttling,
            strategies=self._strategies,
            settings=self._broker,
        )

    def _build_directory(self) -> TopicDirectory:
        return TopicDirectory(
            store=self._outside.store,
            self_address=self._outside.me,
            session_keeper=self._session_keeper,
            namespaces=self._namespaces,
            topics=self._topics,
            schemas=self._schemas,
            ownership=self._ownership,
            lookups=self._lookups,
            limits=self.limits,
            clock=self._outside.clock,
            hosting=self.hosting,
        )

    def _build_use_cases(self) -> UseCases:
        me, unloading = self._outside.me, self._build_unloading()
        splitting = self._build_splitting()
        return UseCases(
            self_address=me,
            brokers=self._brokers,
            leading=self._leading,
            health=Health(
                self_address=me,
                store=self._outside.store,
                ownership=self._ownership,
                brokers=self._brokers,
                leading=self._leading,
            ),
            ownership=self._ownership,
            namespaces=self._namespaces,
            topics=self._topics,
            topic_host=self.hosting.topic_host if isinstance(self.hosting, HostsTopics) else None,
            directory=self._directory,
            hosting=self.hosting,
            unloading=unloading,
            splitting=splitting,
            deleting=self._build_deleting(unloading),
            orders=Orders(
                self_address=me,
                leading=self._leading,
                ownership=self._ownership,
                unloading=unloading,
                splitting=splitting,
                hosting=self.hosting,
            ),
            limits=self.limits,
            policies=self.policies,
            events=self._events,
            for_each=for_each,
            load_report=self._reporter.current,
            extensible=self._extensible is not None,
            settings=self.settings.in_force,
            refused_tokens=None if self.access is None else self.access.refused,
            disconnect=partial(disconnect, self.hosting, self.access),
            audit=self.audit,
            tell_listeners=self._telling.listeners,
            stop=self._outside.stop,
        )

    def _build_unloading(self) -> Unloading:
        return Unloading(
            settings=self._broker,
            self_address=self._outside.me,
            namespaces=self._namespaces,
            ownership=self._ownership,
            brokers=self._brokers,
            leading=self._leading,
            peers=self._outside.peers,
            hosting=self.hosting,
            released=self._ownership_log.released,
        )

    def _build_splitting(self) -> Splitting:
        return Splitting(
            namespaces=self._namespaces,
            topics=self._topics,
            ownership=self._ownership,
            hosting=self.hosting,
            brokers=self._brokers,
            self_address=self._outside.me,
            settings=self._splits,
            broker=self._broker,
        )

    def _build_deleting(self, unloading: Unloading) -> Deleting:
        return Deleting(
            settings=self._broker,
            self_address=self._outside.me,
            namespaces=self._namespaces,
            topics=self._topics,
            directory=self._directory,
            ownership=self._ownership,
            unloading=unloading,
            hosting=self.hosting,
            peers=self._outside.peers,
        )

    def _build_telemetry(self) -> Telemetry:
        outside, metrics = self._outside, self.settings.live(MetricsSettings)
        samples = BrokerTelemetry(
            reporter=self._reporter,
            lookups=self._lookups,
            ownership=self._ownership,
            hosting=self.hosting,
            leading=self._leading,
            store=outside.store,
            busy=outside.busy,
            counts=self._counts,
            session_keeper=self._session_keeper,
            wellness=self.wellness,
            expose_bundles=metrics.value.bundles,
            rejected_settings=lambda: len(self.settings.rejected),
            corrupt=self._corrupt,
            watch_failures=lambda: sum(watcher.failures for watcher in self._watchers),
            steps=(self.steps.failures, self._leadership.failures),
            clock=outside.clock,
            pauses=self._ownership_log.pauses,
            version=outside.version,
        )
        others = hosting_samples(self.hosting, self._throttling, outside.clock, metrics)
        return Telemetry([samples.samples, self.audit.samples, *others])

    # Life

    async def start(self) -> None:
        """`prepare`, then `join`, for a broker without ports."""
        await self.prepare()
        await self.join()

    async def prepare(self) -> None:
        """Fill the caches and make hosting ready: from now on, clients can be answered."""
        store = self._outside.store
        admin = (self._namespaces, self._topics, self.limits, self.policies)
        self._watchers = [
            Watcher(
                store,
                paths.ADMIN,
                *(part.on_change for part in admin),
                self._ownership.on_boundaries,
                *([] if self.access is None else [self.access.on_change]),
            ),
            Watcher(store, paths.BROKERS, self._brokers.on_change),
            Watcher(store, self._election.path, self._election.on_change),
            Watcher(store, paths.WISHES, self._wishes.on_change),
            *access_watchers(store, self.access),
        ]
        if self._extensible is None:
            self._watchers.insert(1, Watcher(store, paths.LOCKS, self._ownership.on_change))
        else:
            self._watchers += self._extensible.watchers()
        for watcher in self._watchers:
            self._scope.spawn(watcher.run(), f"watch{watcher.root.replace('/', '-')}")
        await self.steps.run("sample", self._reporter.sample)
        for watcher in self._watchers:
            await watcher.synced.wait()
        if self._extensible is not None:
            await self._extensible.prepare()
        self.hosting.begin(self._directory)

    async def join(self) -> None:
        """Register this broker, so that it gets work, and start its periodic steps."""
        scope, broker = self._scope, self._broker
        scope.spawn(self._session_keeper.watch_lease(), "lease")
        scope.spawn(self._session_keeper.watch_session(), "session")
        if self._extensible is not None:
            await self._extensible.begin()
        await retrying(self._reporter.register, "register")
        scope.spawn(self._session_keeper.keep_registered(), "registration")
        scope.spawn(self._leadership.follow(), "follow-leader")
        scope.spawn(self._leadership.run(), "leadership")
        scope.spawn(self.audit.run(), "tell-changes")
        sampling = Interval(
            self.settings.live(SamplerSettings), lambda sampler: sampler.interval_minutes * 60
        )
        reporting = Interval(broker, lambda settings: settings.report_interval_min_ms / 1000)
        recording = Interval(broker, lambda settings: settings.history_interval_s)
        first_s = min(1.0, sampling())
        steps = self.steps
        scope.spawn(
            every(sampling, self._reporter.sample, "sample", steps, first_after_s=first_s), "sample"
        )
        scope.spawn(every(reporting, self._reporter.tick, "report", steps), "report")
        if broker.value.unwell_gives_up:
            for step, name in ((self.wellness.step, "wellness"), (self.wellness.pulse, "pulse")):
                scope.spawn(every(lambda: STEP_S, step, name, steps), name)
        if self._recorder is not None:
            scope.spawn(every(recording, self._recorder.sample, "record", steps), "record")

    async def stop(self, unloads_per_s_max: int) -> None:
        """Stop gracefully; see `member.stopping`."""
        await stop(
            ownership=self._ownership,
            reporter=self._reporter,
            election=self._election,
            hang_up=self.hosting.stop,
            clock=self._outside.clock,
            settings=self._broker,
            unloads_per_s_max=unloads_per_s_max,
        )

    def _on_broker(self, broker_id: str, report: LocalBrokerData | None) -> None:
        if report is None and broker_id == self._outside.me.broker_id:
            self._session_keeper.verify_registration()  # it was deleted or overwritten

    def _on_plan(self, epoch: int, cycle: int, plan: Plan) -> None:
        if self._recorder is not None:
            self._recorder.on_plan(epoch, cycle, plan)
        self._counts.on_plan(plan)

    def _on_move(self, epoch: int, cycle: int, move: Move, life: int | None) -> None:
        if self._recorder is not None:
            self._recorder.on_move(epoch, cycle, move, life)
        self._counts.on_move(move)
