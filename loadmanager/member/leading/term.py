"""One term of a leader: it restores the stored averages, places bundles, and runs its cycles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Protocol

from loadmanager.engine.bundles.ranges import NamespaceBundles
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.moves.move import Move
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.ownership.state_records import StateRecord
from loadmanager.engine.strategies.cycle import Rng
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.metadata.store import Check, Store
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import Interval, Scope, Steps, every, forever
from loadmanager.leader.brokers import Brokers
from loadmanager.leader.cycle_log import CycleLog
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.draining import INTERVAL_S, Draining
from loadmanager.leader.events import Events
from loadmanager.leader.heat_map import HeatMap
from loadmanager.leader.leading import Leading
from loadmanager.leader.load_feed import LoadFeed
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.memory_keeper import MemoryKeeper
from loadmanager.leader.merging import Merging
from loadmanager.leader.moves import Moves, Release
from loadmanager.leader.operations import Operations
from loadmanager.leader.overview import Overview
from loadmanager.leader.owners_seen import OwnersSeen
from loadmanager.leader.plans import Plans
from loadmanager.leader.ports.peers import Peers
from loadmanager.leader.preferred import Preferred
from loadmanager.leader.quotas import Quotas
from loadmanager.leader.term_events import TermEvents
from loadmanager.leader.warm_up import WarmUp
from loadmanager.leader.wishes import OperatorWishes
from loadmanager.member.placement_policies import PlacementPolicies
from loadmanager.member.settings import BrokerSettings

SLOW_FRACTION = 1 / 3
"""A strategy that takes this part of the session timeout is too slow to lead with."""


class Feed(Protocol):
    """Feeds a view during one term (`LoadFeed`)."""

    @property
    def view(self) -> ClusterView:
        """The view."""
        ...

    @property
    def heard(self) -> Set[str]:
        """Brokers that have reported since the feed began."""
        ...

    def __enter__(self) -> object:
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """End, because the term is over."""
        ...

    async def refresh(self) -> None:
        """Read what is not fed as it changes, before a cycle."""
        ...

    async def restore(self, store: Store) -> None:
        """Begin with the averages that earlier leaders stored."""
        ...

    async def save(self, store: Store, bundles_per_broker: int, checks: Sequence[Check]) -> None:
        """Store averages for the next leader. Raises `VersionConflictError` if the term is over."""
        ...


@dataclass(frozen=True, kw_only=True)
class LeaderWork:
    """The leader's work; `run` is one term of it."""

    manager: ClassVar[Manager] = Manager.MODULAR
    store: Store
    brokers: Brokers
    policies: PlacementPolicies
    peers: Peers
    clock: Clock
    leading: Leading
    corrupt: Corrupt
    broker: Live[BrokerSettings]
    strategies: Live[StrategySettings]
    splits: Live[SplitSettings]
    bundle_count: Callable[[NamespaceName], Awaitable[int]]
    """How many bundles a namespace has; 0 for one that does not exist."""
    wishes: OperatorWishes
    moves: Live[MoveSettings]
    merges: Live[MergeSettings]
    release: Release
    """How this cluster's load manager moves a bundle."""
    owner: Callable[[str], Awaitable[str | None]]
    """Bundle → the brokerId of its owner, as stored."""
    rng: Callable[[int], Rng]
    """Epoch → its generator of random numbers."""
    cycle_log: Callable[[int], CycleLog | None]
    """Epoch → what records its cycles, if they are recorded."""
    observe: Callable[[int, int, Plan], None]
    """Called with the epoch, the cycle and the plan."""
    observe_move: Callable[[int, int, Move, int | None], None]
    """Called with the epoch, the cycle, a move that has ended, and the life that it ended."""
    boundaries: Callable[[NamespaceName], Awaitable[NamespaceBundles]]
    """The bundles of a namespace. Raises `NotFoundError`."""
    settings_with: Callable[[Mapping[str, str]], StrategySettings]
    """Settings of strategies in force, with some keys changed. Raises `BadInputError`."""
    events: Events
    stats_interval_s: Callable[[], float]
    """Over how long brokers measure traffic."""
    leader_splits: bool = True
    """False: the owners decide about splits."""
    assign: Callable[[str, str], Awaitable[bool]] | None = None
    """Has a broker acquire a bundle that nobody owns; None: its next lookup does."""
    records: list[Callable[[str, StateRecord | None], None]] | None = None
    """Where to listen for changes of state records; None: reports tell of owners."""

    def _leads(self, broker: str) -> bool:
        """True if a broker runs this load manager."""
        report = self.brokers.reports.get(broker)
        runs = None if report is None else Manager.of(report.load_manager_class_name)
        return runs is None or runs is self.manager

    def new_view(self) -> ClusterView:
        """Make the leader's view of the load."""
        return ClusterView()

    def new_feed(self, view: ClusterView, load_manager: LoadManager, steps: Steps) -> Feed:
        """Make the feed of the view."""
        return LoadFeed(
            view,
            observe=load_manager.observe,
            brokers=self.brokers,
            clock=self.clock,
            corrupt=self.corrupt,
            steps=steps,
        )

    def new_owners(self, view: ClusterView) -> OwnersSeen:
        """Make the follower of the owners of bundles."""
        return OwnersSeen(
            brokers=self.brokers,
            clock=self.clock,
            events=self.events,
            view=view,
            stats_interval_s=self.stats_interval_s,
            records=self.records,
        )

    def new_decisions(self) -> Decisions:
        """Make what keeps the decisions."""
        return Decisions(self.clock)

    def release_of(self, _term: Term) -> Release:
        """Return the function that moves bundles during a term."""
        return self.release

    def begin(self, term: Term, scope: Scope, steps: Steps) -> None:
        """Start what this load manager does besides, even if it does not balance."""

    async def run(self, term: Term, scope: Scope, steps: Steps) -> None:
        """Lead until cancelled."""
        view = self.new_view()
        quotas = Quotas(self.store, term.checks, self.corrupt, view.expected)
        moves = self.new_moves(term, view, scope, steps)
        began_s = self.clock.monotonic_s()
        keeper = MemoryKeeper(
            store=self.store,
            checks=term.checks,
            corrupt=self.corrupt,
            strategies=self.strategies,
            clock=self.clock,
        )
        log = self.cycle_log(term.epoch)
        load_manager = self._build_load_manager(
            term, moves, steps, memories=await keeper.restore(view), log=log
        )
        owners = self.new_owners(view)
        operations = self._build_operations(term, moves, load_manager, owners)
        feed = self.new_feed(view, load_manager, steps)
        stored = await self.store.children(paths.LOAD_BALANCE)
        if paths.last(paths.RESOURCE_QUOTAS) in stored:
            await quotas.restore()
        if paths.last(paths.BUNDLE_DATA) in stored:
            await feed.restore(self.store)
        if log is not None:
            log.begin(view)
        self.begin(term, scope, steps)
        events = TermEvents(
            leader=term.leader,
            events=self.events,
            decisions=load_manager.kept,
            moves=moves,
            clock=self.clock,
        )
        heat = self._build_heat(view, owners, feed)
        with feed, events, owners:
            self.leading.quotas, self.leading.operations = quotas, operations
            self.leading.heat = heat
            self.leading.load_manager = load_manager
            scope.spawn(moves.run(), "moves")
            scope.spawn(every(heat.interval_s, heat.step, "heat", steps), "heat")
            drain = operations.step
            scope.spawn(every(lambda: INTERVAL_S, drain, "drain", steps), "drain")
            if self.broker.value.load_balancer_enabled:
                merge = operations.merging.step
                interval = Interval(self.splits, lambda settings: settings.interval_minutes * 60)
                scope.spawn(every(interval, merge, "merge", steps, first_after_s=None), "merge")
                warm_up = WarmUp(
                    brokers=self.brokers,
                    heard=lambda: feed.heard,
                    settings=self.moves,
                    clock=self.clock,
                    began_s=began_s,
                )
                self._run_cycles(
                    term, load_manager, feed, keeper, warm_up, scope=scope, steps=steps
                )
            await forever()

    def _build_load_manager(
        self, term: Term, moves: Moves, steps: Steps, *, memories: Memories, log: CycleLog | None
    ) -> LoadManager:
        load_manager = LoadManager(
            epoch=term.epoch,
            view=moves.view,
            policies=self.policies,
            moves=moves,
            clock=self.clock,
            rng=self.rng(term.epoch),
            strategies=self.strategies,
            splits=self.splits,
            bundle_count=self.bundle_count,
            steps=steps,
            planned=lambda cycle, plan: self.observe(term.epoch, cycle, plan),
            kept=self.new_decisions(),
            slow_s=self.store.session_timeout_s * SLOW_FRACTION,
            memories=memories,
            log=log,
        )
        moves.on_record.append(
            lambda move, life: self.observe_move(term.epoch, load_manager.cycles, move, life)
        )
        return load_manager

    def new_moves(self, term: Term, view: ClusterView, scope: Scope, steps: Steps) -> Moves:
        """The moves of a term."""
        return Moves(
            epoch=term.epoch,
            settings=self.moves,
            brokers=self.brokers,
            wishes=self.wishes,
            view=view,
            preferred=Preferred(self.clock),
            release=self.release_of(term),
            owner=self.owner,
            mover=self.peers,
            clock=self.clock,
            scope=scope,
            steps=steps,
            assign=self.assign,
        )

    def _build_heat(self, view: ClusterView, owners: OwnersSeen, feed: Feed) -> HeatMap:
        return HeatMap(
            view=view,
            owners=owners,
            refresh=feed.refresh,
            report_interval_ms=lambda: self.broker.value.report_interval_min_ms,
            clock=self.clock,
        )

    def _build_operations(
        self, term: Term, moves: Moves, load_manager: LoadManager, owners: OwnersSeen
    ) -> Operations:
        draining = Draining(
            moves=moves,
            load_manager=load_manager,
            brokers=self.brokers,
            mover=self.peers,
            clock=self.clock,
            leads=self._leads,
        )
        merging = Merging(
            moves=moves,
            peers=self.peers,
            load_manager=load_manager,
            settings=self.merges,
            splits=self.splits,
            bundle_count=self.bundle_count,
        )
        overview = Overview(
            leader=term.leader,
            since_ms=self.clock.now_ms(),
            view=load_manager.view,
            moves=moves,
            draining=draining,
            owners=owners,
            strategies=self.strategies,
            balancing=lambda: self.broker.value.load_balancer_enabled,
            load_manager=load_manager,
        )
        plans = Plans(
            epoch=term.epoch,
            load_manager=load_manager,
            moves=moves,
            settings_with=self.settings_with,
            boundaries=self.boundaries,
        )
        return Operations(
            checks=term.checks,
            moves=moves,
            draining=draining,
            merging=merging,
            overview=overview,
            plans=plans,
        )

    def _run_cycles(
        self,
        term: Term,
        load_manager: LoadManager,
        feed: Feed,
        keeper: MemoryKeeper,
        warm_up: WarmUp,
        *,
        scope: Scope,
        steps: Steps,
    ) -> None:
        broker = self.broker
        shedding = Interval(
            self.strategies, lambda settings: settings.shedding_interval_minutes * 60
        )
        splitting = Interval(self.splits, lambda settings: settings.interval_minutes * 60)
        saving = Interval(broker, lambda settings: settings.quota_update_interval_minutes * 60)

        async def shed() -> None:
            await feed.refresh()
            await load_manager.shed(warm_up)
            await keeper.save(load_manager.memories, feed.view)

        async def save() -> None:
            await self.wishes.forget_old(term.checks)
            count = self.strategies.value.bundles_in_report_max
            await feed.save(self.store, count, term.checks)

        cycles: list[tuple[Callable[[], float], Callable[[], Awaitable[object]], str]] = [
            (shedding, shed, "shed"),
            (saving, save, "save"),
        ]
        if self.leader_splits:
            cycles.insert(1, (splitting, load_manager.split, "split"))
        for interval, step, name in cycles:
            scope.spawn(every(interval, step, name, steps, first_after_s=None), name)
