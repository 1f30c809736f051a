"""One term of a leader: it restores the stored averages, places bundles, and runs its cycles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.moves.move import Move
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.ownership.state_records import StateRecord
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.history.port import History
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.metadata.store import Check, Store
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.tasks import Interval, Scope, Steps, every, forever
from loadmanager.leader.base import BundleOrders, LedCluster, TermBase
from loadmanager.leader.cycle_log import CycleLog
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.draining import INTERVAL_S, Draining
from loadmanager.leader.events import EventHub
from loadmanager.leader.goals import TermGoals
from loadmanager.leader.heat_map import TermHeatMap
from loadmanager.leader.load_manager import FirstHold, LeaderRecords, LoadManager
from loadmanager.leader.members import STEP_S, AbsenceSettings, StoreOfTerm, TermMembers
from loadmanager.leader.memory_keeper import MemoryKeeper
from loadmanager.leader.merging import Merging
from loadmanager.leader.moves import Moves
from loadmanager.leader.operations import Operations
from loadmanager.leader.overview import TermOverview
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.leader.plans import TermPlans
from loadmanager.leader.ports.mover import Release
from loadmanager.leader.quotas import TermQuotas
from loadmanager.leader.term_events import TermEvents
from loadmanager.leader.warm_up import WarmUp
from loadmanager.member.base import Base, Cluster
from loadmanager.member.lookup import Search
from loadmanager.member.ownership.claims import Claims
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.reporter import Reporter

Listeners = list[Callable[[str, StateRecord | None], None]]
"""Called with a bundle and its record."""
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


class RunningManager(Protocol):
    """One of Pulsar's two load managers, as it runs in a member (`member.modular`,
    `member.extensible`).
    """

    @property
    def manager(self) -> Manager:
        """Which one."""
        ...

    @property
    def claims(self) -> Claims:
        """By what a member owns bundles."""
        ...

    @property
    def leader_path(self) -> str:
        """The path of the leader's node."""
        ...

    @property
    def search(self) -> Search | None:
        """What finds the owner of a bundle on lookup; None: the leader is asked."""
        ...

    @property
    def records(self) -> Listeners | None:
        """Where to listen for changes of state records; None: reports tell of owners."""
        ...

    @property
    def assign(self) -> Callable[[str, str], Awaitable[bool]] | None:
        """Has a broker acquire a bundle that nobody owns; None: its next lookup does."""
        ...

    @property
    def leader_splits(self) -> bool:
        """False: the owners decide about splits."""
        ...

    def connect(self, ownership: Ownership, reporter: Reporter, hosting: Hosting) -> None:
        """Build what needs the member's other parts; called once."""
        ...

    def watchers(self) -> list[Watcher]:
        """The watchers that keep its caches current."""
        ...

    async def prepare(self) -> None:
        """Fill its caches."""
        ...

    async def begin(self) -> None:
        """Start its periodic steps; the member registers next."""
        ...

    async def owner(self, bundle: str) -> str | None:
        """The brokerId of a bundle's owner, as stored."""
        ...

    def view(self) -> ClusterView:
        """A leader's view of the load."""
        ...

    def feed(self, base: Base, view: ClusterView, load_manager: LoadManager) -> Feed:
        """What feeds the view during a term; `base`: that of the term."""
        ...

    def decisions(self) -> Decisions:
        """What keeps the decisions of a term."""
        ...

    def release(self, term: Term) -> Release:
        """The function that moves bundles during a term."""
        ...

    def lead(self, base: Base, term: Term) -> None:
        """Start what it does besides during a term, even if it does not balance."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    """With what a member leads."""

    base: Base
    cluster: Cluster
    manager: RunningManager
    history: History | None
    """Where to record cycles, if they are recorded."""
    events: EventHub
    stats_interval_s: Callable[[], float]
    """Over how long brokers measure traffic."""
    observe: Callable[[int, int, Plan], None]
    """Called with the epoch, the cycle and the plan."""
    observe_move: Callable[[int, int, Move, int | None], None]
    """Called with the epoch, the cycle, a move that has ended, and the life that it ended."""

    def within(self, scope: Scope, steps: Steps) -> Leads:
        """The same in a term: what it starts ends with the term."""
        return replace(self, base=replace(self.base, scope=scope, steps=steps))

    def leads(self, broker: str) -> bool:
        """True if a broker runs this load manager."""
        report = self.cluster.brokers.reports.get(broker)
        runs = None if report is None else Manager.of(report.load_manager_class_name)
        return runs is None or runs is self.manager.manager


async def lead(with_what: Leads, term: Term, scope: Scope, steps: Steps) -> None:
    """Lead until cancelled."""
    leads = with_what.within(scope, steps)
    base, cluster, manager = leads.base, leads.cluster, leads.manager
    began_s = base.clock.monotonic_s()
    view = manager.view()
    quotas = TermQuotas(base.store, term.checks, base.corrupt, view.expected)
    moves = _moves(leads, term, view)
    keeper = MemoryKeeper(
        store=base.store,
        checks=term.checks,
        corrupt=base.corrupt,
        strategies=base.strategies,
        clock=base.clock,
    )
    log = _cycle_log(leads, term.epoch)
    load_manager = _load_manager(leads, moves, memories=await keeper.restore(view), log=log)
    owners = OwnerTracker(
        brokers=cluster.brokers,
        clock=base.clock,
        events=leads.events,
        view=view,
        stats_interval_s=leads.stats_interval_s,
        records=manager.records,
    )
    operations = _operations(leads, term, moves, load_manager, owners)
    feed = manager.feed(base, view, load_manager)
    warm_up = WarmUp(
        brokers=cluster.brokers,
        heard=lambda: feed.heard,
        settings=base.settings.live(MoveSettings),
        clock=base.clock,
        began_s=began_s,
    )
    operations.goals.hold = warm_up.reason
    await _restore(base, quotas, feed)
    if log is not None:
        log.begin(view)
    manager.lead(base, term)
    events = TermEvents(
        leader=term.leader,
        events=leads.events,
        decisions=load_manager.records.decisions,
        moves=moves,
    )
    members = await _members(leads, term, moves, owners)
    heat = TermHeatMap(
        view=view,
        owners=owners,
        refresh=feed.refresh,
        report_interval_ms=lambda: base.broker.value.report_interval_min_ms,
        clock=base.clock,
    )
    with feed, events, owners:
        leading = cluster.leading
        leading.quotas, leading.operations, leading.heat = quotas, operations, heat
        leading.load_manager, leading.members = load_manager, members
        scope.spawn(moves.run(), "moves")
        scope.spawn(every(lambda: STEP_S, members.step, "members", steps), "members")
        scope.spawn(every(heat.interval_s, heat.step, "heat", steps), "heat")
        for name, step in (("drain", operations.step), ("goal", operations.goals.step)):
            scope.spawn(every(lambda: INTERVAL_S, step, name, steps), name)
        if base.broker.value.load_balancer_enabled:
            merge, splits = operations.merging.step, base.settings.live(SplitSettings)
            interval = Interval(splits, lambda settings: settings.interval_minutes * 60)
            scope.spawn(every(interval, merge, "merge", steps, first_after_s=None), "merge")
            hold = FirstHold(warm_up.reason, operations.goals.at_work)
            _run_cycles(leads, term, load_manager, feed, keeper=keeper, hold=hold)
        await forever()


async def _members(leads: Leads, term: Term, moves: Moves, owners: OwnerTracker) -> TermMembers:
    """With the book of earlier leaders."""
    base = leads.base

    def record(**fields: Any) -> None:
        if leads.history is not None:
            change = MemberChange(ts=base.clock.now_ms(), broker=base.broker_id, **fields)
            leads.history.append(change)

    members = TermMembers(
        store=StoreOfTerm(base.store, term.checks, base.corrupt),
        brokers=leads.cluster.brokers,
        moves=moves,
        owners=owners,
        settings=base.settings.live(AbsenceSettings),
        record=record,
    )
    await members.restore()
    return members


def _cycle_log(leads: Leads, epoch: int) -> CycleLog | None:
    base = leads.base
    if leads.history is None or not base.broker.value.history_cycles:
        return None
    return CycleLog(leads.history, base.broker_id, epoch, base.clock)


async def _restore(base: Base, quotas: TermQuotas, feed: Feed) -> None:
    stored = await base.store.children(paths.LOAD_BALANCE)
    if paths.last(paths.RESOURCE_QUOTAS) in stored:
        await quotas.restore()
    if paths.last(paths.BUNDLE_DATA) in stored:
        await feed.restore(base.store)


def _moves(leads: Leads, term: Term, view: ClusterView) -> Moves:
    base, cluster, manager = leads.base, leads.cluster, leads.manager
    return Moves(
        term=TermBase(
            epoch=term.epoch,
            clock=base.clock,
            rng=base.rng(term.epoch),
            scope=base.scope,
            steps=base.steps,
        ),
        cluster=LedCluster(
            view=view,
            brokers=cluster.brokers,
            policies=cluster.policies,
            wishes=cluster.wishes,
            bundle_count=cluster.namespaces.bundle_count,
        ),
        orders=BundleOrders(
            mover=base.peers,
            release=manager.release(term),
            owner=manager.owner,
            assign=manager.assign,
        ),
        settings=base.settings.live(MoveSettings),
    )


def _load_manager(
    leads: Leads, moves: Moves, *, memories: Memories, log: CycleLog | None
) -> LoadManager:
    base, epoch = leads.base, moves.term.epoch
    load_manager = LoadManager(
        moves=moves,
        strategies=base.strategies,
        splits=base.settings.live(SplitSettings),
        records=LeaderRecords(
            decisions=leads.manager.decisions(),
            planned=lambda cycle, plan: leads.observe(epoch, cycle, plan),
            log=log,
        ),
        slow_s=base.store.session_timeout_s * SLOW_FRACTION,
        memories=memories,
    )
    moves.on_record.append(
        lambda move, life: leads.observe_move(epoch, load_manager.cycles, move, life)
    )
    return load_manager


def _operations(
    leads: Leads, term: Term, moves: Moves, load_manager: LoadManager, owners: OwnerTracker
) -> Operations:
    base = leads.base
    draining = Draining(
        moves=moves,
        load_manager=load_manager,
        leads=leads.leads,
    )
    merging = Merging(
        moves=moves,
        peers=base.peers,
        load_manager=load_manager,
        settings=base.settings.live(MergeSettings),
    )
    overview = TermOverview(
        leader=term.leader,
        since_ms=base.clock.now_ms(),
        moves=moves,
        draining=draining,
        owners=owners,
        balancing=lambda: base.broker.value.load_balancer_enabled,
        load_manager=load_manager,
    )
    plans = TermPlans(
        load_manager=load_manager,
        moves=moves,
        settings_with=base.settings.strategies_with,
        boundaries=leads.cluster.namespaces.bundles,
    )
    return Operations(
        checks=term.checks,
        moves=moves,
        draining=draining,
        merging=merging,
        overview=overview,
        plans=plans,
        goals=TermGoals(checks=term.checks, load_manager=load_manager, moves=moves),
    )


def _run_cycles(
    leads: Leads,
    term: Term,
    load_manager: LoadManager,
    feed: Feed,
    *,
    keeper: MemoryKeeper,
    hold: FirstHold,
) -> None:
    base, splits = leads.base, leads.base.settings.live(SplitSettings)
    shedding = Interval(base.strategies, lambda settings: settings.shedding_interval_minutes * 60)
    splitting = Interval(splits, lambda settings: settings.interval_minutes * 60)
    saving = Interval(base.broker, lambda settings: settings.quota_update_interval_minutes * 60)

    async def shed() -> None:
        await feed.refresh()
        await load_manager.shed(hold)
        await keeper.save(load_manager.memories, feed.view)

    async def save() -> None:
        await leads.cluster.wishes.forget_old(term.checks)
        count = base.strategies.value.bundles_in_report_max
        await feed.save(base.store, count, term.checks)

    cycles: list[tuple[Callable[[], float], Callable[[], Awaitable[object]], str]] = [
        (shedding, shed, "shed"),
        (saving, save, "save"),
    ]
    if leads.manager.leader_splits:
        cycles.insert(1, (splitting, load_manager.split, "split"))
    for interval, step, name in cycles:
        base.scope.spawn(every(interval, step, name, base.steps, first_after_s=None), name)
