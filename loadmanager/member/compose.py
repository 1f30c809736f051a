"""A member of a cluster: how its parts are built, started and stopped.

It takes everything outside it from a `World`, and opens no socket and reads no clock of its own.
Several complete members can therefore run in one process, on virtual time, over a store in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.moves.move import Move
from loadmanager.engine.strategies.plan import Plan
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.metadata.store import Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.metrics.settings import MetricsSettings
from loadmanager.kit.sampler import OwnTraffic
from loadmanager.kit.tasks import retrying
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.decision_telemetry import Counts
from loadmanager.leader.events import EventHub
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.member.base import Base, Cluster
from loadmanager.member.extensible import ExtensibleManager
from loadmanager.member.health import Health
from loadmanager.member.hooks import HookLimits, Hooks
from loadmanager.member.last_reports import LastReports
from loadmanager.member.leading.leadership import Leadership
from loadmanager.member.leading.manager import RunningManager
from loadmanager.member.leading.term import Leads, lead
from loadmanager.member.lookup import Lookups
from loadmanager.member.modular import ModularManager
from loadmanager.member.namespaces import Namespaces
from loadmanager.member.not_opened import Refusals
from loadmanager.member.ownership.log import OwnershipLog
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.ports.hosting import Counting, Hosting
from loadmanager.member.reporter import Reporter
from loadmanager.member.session_keeper import SessionKeeper
from loadmanager.member.stopping import stop
from loadmanager.member.telemetry import BrokerTelemetry
from loadmanager.member.unloading import Unloading
from loadmanager.member.wellness import Wellness
from loadmanager.member.world import World

if TYPE_CHECKING:
    from loadmanager.limits.broker import BrokerThrottling
    from loadmanager.member.limit_records import LimitRecords
    from loadmanager.member.recorder import Recorder


class ComposedMember:
    """The constructor builds the parts, `prepare` and `join` run them, `stop` ends the member.

    `throttling`: the limits whose state is recorded, if there are any. `documents`: the store as
    operators' requests write to it. `stats_interval_s`: over how long the host measures traffic.
    """

    def __init__(
        self,
        base: Base,
        world: World,
        hosting: Hosting,
        throttling: BrokerThrottling | None,
        *,
        documents: Store,
        stats_interval_s: Callable[[], float],
    ) -> None:
        self.base, self._world = base, world
        self._unguarded, self._hosting = hosting, Hooks(hosting, HookLimits())
        self.events, self._counts = EventHub(), Counts()
        self._watchers: list[Watcher] = []
        self.cluster = self._build_cluster(documents)
        self.manager = self._build_manager()
        self.ownership_log = OwnershipLog(
            broker_id=base.broker_id,
            clock=base.clock,
            lease=base.store.lease,
            history=world.history,
        )
        self.refusals = Refusals(base.store, base.clock, base.broker_id)
        self.cluster.wishes.refusals = self.refusals.now
        self.ownership = Ownership(
            base,
            namespaces=self.cluster.namespaces,
            hosting=self._hosting,
            claims=self.manager.claims,
            refusals=self.refusals,
            observe=self.ownership_log.on_transition,
        )
        self.reporter = self._build_reporter()
        self.manager.connect(self.ownership, self.reporter, self._hosting)
        self.lookups = Lookups(
            base=base, cluster=self.cluster, ownership=self.ownership, search=self.manager.search
        )
        self._recorder = self._build_recorder(throttling)
        self._election = self._build_election()
        self.wellness = Wellness(
            base=base,
            cluster=self.cluster,
            hosting=hosting,
            bundles=lambda: len(self.ownership.owned()),
            started_ms=lambda: self.reporter.report.start_timestamp,
            history=world.history,
        )
        self.session_keeper = self._build_session_keeper()
        self.cluster.brokers.listeners.append(self._on_broker)
        leads = self._build_leads(stats_interval_s)
        self._leadership = Leadership(
            self._election, self.cluster.leading, partial(lead, leads), base.clock
        )
        self.unloading = Unloading(
            base=base,
            cluster=self.cluster,
            ownership=self.ownership,
            hosting=self._hosting,
            released=self.ownership_log.released,
        )
        self.health = Health(
            base=base,
            cluster=self.cluster,
            ownership=self.ownership,
            last_reports=LastReports(base=base, cluster=self.cluster, manager=self.manager),
        )
        self.telemetry = self._build_telemetry()

    def _build_cluster(self, documents: Store) -> Cluster:
        base, leading = self.base, PresentLeader()
        return Cluster(
            brokers=Brokers(
                base.store, base.clock, base.corrupt, leads=lambda: leading.load_manager is not None
            ),
            namespaces=Namespaces(documents, base.broker, base.corrupt, base.clock.monotonic_s),
            policies=PlacementPolicies(documents, base.broker.value.cluster_name, base.corrupt),
            wishes=OperatorWishes(documents, base.clock, base.corrupt),
            leading=leading,
        )

    def _build_manager(self) -> RunningManager:
        manager = Manager.of(self.base.strategies.value.load_manager_class)
        if manager is Manager.EXTENSIBLE:
            return ExtensibleManager(self.base, self.cluster, self._on_plan)
        return ModularManager(self.base, self.cluster)

    def _build_election(self) -> StoreElection:
        base = self.base
        return StoreElection(
            base.store,
            base.clock,
            broker_id=base.broker_id,
            web_url=base.me.web_url or base.me.web_url_tls,
            corrupt=base.corrupt,
            on_leader=self.cluster.leading.learn_of,
            path=self.manager.leader_path,
        )

    def _build_reporter(self) -> Reporter:
        world = self._world
        own = OwnTraffic(
            lambda: self._hosting.usage().bytes_in_total,
            lambda: self._hosting.usage().bytes_out_total,
            lambda: world.busy.fraction,
        )
        return Reporter(
            base=self.base,
            cluster=self.cluster,
            hosting=self._hosting,
            ownership=self.ownership,
            sampler=world.sampler(own),
            version=world.version,
            extensible=self.extensible,
        )

    @property
    def extensible(self) -> bool:
        """Whether the extensible manager runs."""
        return self.manager.manager is Manager.EXTENSIBLE

    def _build_recorder(self, throttling: BrokerThrottling | None) -> Recorder | None:
        if self._world.history is None:
            return None
        from loadmanager.member.recorder import Recorder  # and all records, which take long

        recorder = Recorder(
            base=self.base,
            history=self._world.history,
            reporter=self.reporter,
            hosting=self._hosting,
            ownership=self.ownership,
            throttling=throttling,
            busy=self._world.busy,
        )
        if isinstance(self._unguarded, Counting):
            recorder.counting = self._unguarded.counter
        return recorder

    @property
    def limit_records(self) -> LimitRecords | None:
        """What tells what limits did since it was recorded last; None: it is not recorded."""
        return None if self._recorder is None else self._recorder.limits

    def _build_session_keeper(self) -> SessionKeeper:
        session = self.base.settings.live(ZooKeeperSettings).value
        keeper = SessionKeeper(
            store=self.base.store,
            hosting=self._unguarded,
            ownership=self.ownership,
            clock=self.base.clock,
            register=self.reporter.register,
            on_lost=self._hosting.fencing(self._election.session_lost),
            end_when_lost=session.session_expired_policy == "shutdown",
        )
        keeper.on_unproven, keeper.on_proven = self.wellness.lost_lease, self.ownership_log.proven
        keeper.on_silent = self.ownership_log.silent
        return keeper

    def _build_leads(self, stats_interval_s: Callable[[], float]) -> Leads:
        return Leads(
            base=self.base,
            cluster=self.cluster,
            manager=self.manager,
            history=self._world.history,
            events=self.events,
            stats_interval_s=stats_interval_s,
            observe=self._on_plan,
            observe_move=self._on_move,
        )

    def _build_telemetry(self) -> BrokerTelemetry:
        base = self.base
        return BrokerTelemetry(
            base=base,
            cluster=self.cluster,
            reporter=self.reporter,
            lookups=self.lookups,
            ownership=self.ownership,
            hosting=self._hosting,
            busy=self._world.busy,
            counts=self._counts,
            session_keeper=self.session_keeper,
            wellness=self.wellness,
            expose_bundles=base.settings.live(MetricsSettings).value.bundles,
            watch_failures=lambda: sum(watcher.failures for watcher in self._watchers),
            steps=(base.steps.failures, self._leadership.failures),
            pauses=self.ownership_log.pauses,
            version=self._world.version,
        )

    async def prepare(self, watchers: Sequence[Watcher]) -> None:
        """Fill the caches: from now on, questions can be answered. `watchers`: the host's."""
        store = self.base.store
        self._watchers = [
            *watchers,
            Watcher(store, paths.BROKERS, self.cluster.brokers.on_change),
            Watcher(store, self._election.path, self._election.on_change),
            Watcher(store, paths.WISHES, self.cluster.wishes.on_change),
            Watcher(store, paths.REFUSALS, self.refusals.on_change),
            *self.manager.watchers(),
        ]
        for watcher in self._watchers:
            self.base.scope.spawn(watcher.run(), f"watch{watcher.root.replace('/', '-')}")
        await self.base.steps.run("sample", self.reporter.sample)
        for watcher in self._watchers:
            await watcher.synced.wait()
        await self.manager.prepare()

    async def join(self) -> None:
        """Register this member, so that it gets work, and start its periodic steps."""
        scope = self.base.scope
        scope.spawn(self.session_keeper.watch_lease(), "lease")
        scope.spawn(self.session_keeper.watch_session(), "session")
        await self.manager.begin()
        await retrying(self.reporter.register, "register")
        scope.spawn(self.session_keeper.keep_registered(), "registration")
        scope.spawn(self._leadership.follow(), "follow-leader")
        scope.spawn(self._leadership.run(), "leadership")
        self.reporter.begin()
        if self.base.broker.value.unwell_gives_up:
            self.wellness.begin()
        if self._recorder is not None:
            self._recorder.begin()

    async def stop(self, unloads_per_s_max: int, hang_up: Callable[[], Awaitable[None]]) -> None:
        """Stop gracefully; see `member.stopping`."""
        await stop(
            ownership=self.ownership,
            reporter=self.reporter,
            election=self._election,
            hang_up=hang_up,
            said_farewell=self._on_farewell,
            clock=self.base.clock,
            settings=self.base.broker,
            unloads_per_s_max=unloads_per_s_max,
        )

    def _on_broker(self, broker_id: str, report: LocalBrokerData | None) -> None:
        if report is None and broker_id == self.base.broker_id:
            self.session_keeper.verify_registration()  # it was deleted or overwritten

    def _on_farewell(self) -> None:
        if self._recorder is not None:
            self._recorder.stops()

    def _on_plan(self, epoch: int, cycle: int, plan: Plan, ids: Sequence[str]) -> None:
        if self._recorder is not None:
            self._recorder.on_plan(epoch, cycle, plan, ids)
        self._counts.on_plan(plan)

    def _on_move(self, epoch: int, cycle: int, move: Move, *more: Any) -> None:
        if self._recorder is not None:
            self._recorder.on_move(epoch, cycle, move, *more)
        self._counts.on_move(move)
