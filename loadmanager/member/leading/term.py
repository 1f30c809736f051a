"""One term of a leader: it restores the stored averages, places bundles, and runs its cycles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from loadmanager.engine.findings.finding import FindingShown, Kind
from loadmanager.engine.findings.recorded import FindingRecords
from loadmanager.engine.history.members import MemberChange
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.moves.move import Move
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.history.port import History
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.leader import Term
from loadmanager.kit.tasks import Interval, Scope, Steps, every, forever
from loadmanager.leader.base import BundleOrders, LedCluster, TermBase
from loadmanager.leader.cycle_log import CycleLog
from loadmanager.leader.documents.members import first_lost_after
from loadmanager.leader.documents_back import DocumentsBack
from loadmanager.leader.draining import INTERVAL_S, Draining
from loadmanager.leader.events import EventHub
from loadmanager.leader.findings import LOOK_S, TermFindings
from loadmanager.leader.goals import TermGoals
from loadmanager.leader.heat_map import TermHeatMap
from loadmanager.leader.last_replay import LOOK_S as REPLAY_S
from loadmanager.leader.limit_ends import TermLimitEnds
from loadmanager.leader.load_manager import FirstHold, LeaderHold, LeaderRecords, LoadManager
from loadmanager.leader.members import STEP_S, AbsenceSettings, StoreOfTerm, TermMembers
from loadmanager.leader.memory_keeper import MemoryKeeper
from loadmanager.leader.merging import Merging
from loadmanager.leader.moves import Moves
from loadmanager.leader.moves_back import MovesBack
from loadmanager.leader.operations import Operations
from loadmanager.leader.overview import Balancing, TermOverview
from loadmanager.leader.own_changes import OwnChanges
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.leader.plan_records import PlanRecords
from loadmanager.leader.plans import TermPlans
from loadmanager.leader.quotas import TermQuotas
from loadmanager.leader.term_events import TermEvents
from loadmanager.leader.undo import TermUndo
from loadmanager.leader.warm_up import WarmUp
from loadmanager.member.base import Base, Cluster
from loadmanager.member.leading.manager import Feed, RunningManager

SLOW_FRACTION = 1 / 3
"""A strategy that takes this part of the session timeout is too slow to lead with."""


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
    observe: Callable[[int, int, Plan, Sequence[str]], None]
    """Called with the epoch, and what `LeaderRecords.planned` is called with; `observe_move`: with
    that of `LeaderRecords.moved`.
    """
    observe_move: Callable[[int, int, Move, int | None, Sequence[str]], None]

    def within(self, scope: Scope, steps: Steps) -> Leads:
        """The same in a term: what it starts ends with the term."""
        return replace(self, base=replace(self.base, scope=scope, steps=steps))

    def leads(self, broker: str) -> bool:
        """True if a broker runs this load manager."""
        report = self.cluster.brokers.reports.get(broker)
        runs = None if report is None else Manager.of(report.load_manager_class_name)
        return runs is None or runs is self.manager.manager


@dataclass(frozen=True, slots=True, kw_only=True)
class TermParts:
    """What a member leads with in one term; `build` makes it, `lead` runs it."""

    leads: Leads
    term: Term
    load_manager: LoadManager
    keeper: MemoryKeeper
    quotas: TermQuotas
    owners: OwnerTracker
    operations: Operations
    feed: Feed
    warm_up: WarmUp

    @property
    def moves(self) -> Moves:
        return self.load_manager.moves


async def build(with_what: Leads, term: Term, scope: Scope, steps: Steps) -> TermParts:
    """The parts of a term, with what earlier leaders stored. Nothing runs yet."""
    leads = with_what.within(scope, steps)
    base, cluster, manager = leads.base, leads.cluster, leads.manager
    began_s = base.clock.monotonic_s()
    view = manager.view()
    quotas = TermQuotas(cluster.wishes.store, term.checks, base.corrupt, view.expected)
    moves = _moves(leads, term, view)
    keeper = MemoryKeeper(
        store=base.store,
        checks=term.checks,
        corrupt=base.corrupt,
        strategies=base.strategies,
        clock=base.clock,
    )
    load_manager = _load_manager(leads, moves, memories=await keeper.restore(view))
    moves.pauses = replace(moves.pauses, before_s=keeper.pause_s)
    owners = OwnerTracker(
        brokers=cluster.brokers,
        clock=base.clock,
        events=leads.events,
        view=view,
        stats_interval_s=leads.stats_interval_s,
        records=manager.records,
    )
    operations = _operations(leads, term, moves, load_manager, owners, quotas=quotas)
    feed = manager.feed(base, view, load_manager)
    warm_up = WarmUp(
        brokers=cluster.brokers,
        heard=lambda: feed.heard,
        settings=base.settings.live(MoveSettings),
        clock=base.clock,
        began_s=began_s,
    )
    operations.goals.hold, operations.goals.planning.refresh = warm_up.reason, feed.refresh
    operations.goals.work.steady.departures = cluster.brokers.departures
    await _restore(base, quotas, feed)
    if load_manager.records.log is not None:
        load_manager.records.log.begin(view)
    return TermParts(
        leads=leads,
        term=term,
        load_manager=load_manager,
        keeper=keeper,
        quotas=quotas,
        owners=owners,
        operations=operations,
        feed=feed,
        warm_up=warm_up,
    )


async def lead(with_what: Leads, term: Term, scope: Scope, steps: Steps) -> None:
    """Lead until cancelled."""
    parts = await build(with_what, term, scope, steps)
    base, operations = parts.leads.base, parts.operations
    parts.leads.manager.lead(base, term)
    events = TermEvents(
        leader=term.leader,
        events=parts.leads.events,
        decisions=parts.load_manager.records.decisions,
        moves=parts.moves,
    )
    members = await _members(parts)
    heat = TermHeatMap(
        view=parts.feed.view,
        owners=parts.owners,
        refresh=parts.feed.refresh,
        report_interval_ms=lambda: base.broker.value.report_interval_min_ms,
        clock=base.clock,
    )
    with parts.feed, events, parts.owners:
        leading = parts.leads.cluster.leading
        leading.quotas, leading.operations, leading.heat = parts.quotas, operations, heat
        leading.load_manager, leading.members = parts.load_manager, members
        leading.findings = findings = _findings(parts, members)
        scope.spawn(parts.moves.run(), "moves")

        async def look_at_members() -> None:
            await members.step()
            findings.look_at_members()

        scope.spawn(every(lambda: STEP_S, look_at_members, "members", steps), "members")
        look = every(lambda: LOOK_S, findings.step, "findings", steps, first_after_s=None)
        scope.spawn(look, "findings")
        scope.spawn(every(heat.interval_s, heat.step, "heat", steps), "heat")
        replay = parts.moves.cluster.replay
        replay.url = lambda: base.settings.live(HistorySettings).value.replay_error_url
        scope.spawn(every(lambda: REPLAY_S, replay.step, "replay error", steps), "replay error")
        wishes, checks = parts.leads.cluster.wishes, term.checks
        own_changes = OwnChanges(base.broker_id, base.clock, parts.leads.history)
        ends = TermLimitEnds(
            wishes=wishes, checks=checks, clock=base.clock, own_changes=own_changes
        )
        for name, step in (
            ("drain", operations.step),
            ("goal", operations.goals.step),
            ("limit ends", ends.step),
        ):
            scope.spawn(every(lambda: INTERVAL_S, step, name, steps), name)
        if base.broker.value.load_balancer_enabled:
            merge, splits = operations.merging.step, base.settings.live(SplitSettings)
            interval = Interval(splits, lambda settings: settings.interval_minutes * 60)
            scope.spawn(every(interval, merge, "merge", steps, first_after_s=None), "merge")
            _run_cycles(parts, FirstHold(parts.warm_up.reason, operations.goals.at_work))
        await forever()


async def _members(parts: TermParts) -> TermMembers:
    """With the book of earlier leaders."""
    leads, term = parts.leads, parts.term
    base = leads.base

    def record(**fields: Any) -> None:
        if leads.history is not None:
            now: dict[str, Any] = {"ts": base.clock.now_ms(), "broker": base.broker_id}
            change = MemberChange(**(now | fields))
            leads.history.append(change)

    members = TermMembers(
        store=StoreOfTerm(base.store, term.checks, base.corrupt, base.broker_id),
        brokers=leads.cluster.brokers,
        moves=parts.moves,
        owners=parts.owners,
        settings=base.settings.live(AbsenceSettings),
        record=record,
    )
    await members.restore(parts.operations.overview.since_ms)
    parts.operations.goals.work.steady.unserved = members.unserved
    return members


def _findings(parts: TermParts, members: TermMembers) -> TermFindings:
    leads = parts.leads
    records = FindingRecords(leads.base.broker_id, parts.load_manager.term.epoch)

    def record(findings: Sequence[FindingShown], now_ms: int, only: Kind | None) -> None:
        if leads.history is not None:
            leads.history.append(*records.step(findings, now_ms, only))

    findings = TermFindings(
        leading=leads.cluster.leading,
        brokers=leads.cluster.brokers,
        members=members,
        load_manager=parts.load_manager,
        splits=leads.base.settings.live(SplitSettings),
        events=leads.events,
        record=record,
    )
    parts.moves.on_end.append(findings.watch.flapping.moved)
    return findings


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


def _load_manager(leads: Leads, moves: Moves, *, memories: Memories) -> LoadManager:
    base, epoch = leads.base, moves.term.epoch
    return LoadManager(
        moves=moves,
        strategies=base.strategies,
        splits=base.settings.live(SplitSettings),
        records=LeaderRecords(
            decisions=leads.manager.decisions(),
            planned=partial(leads.observe, epoch),
            moved=partial(leads.observe_move, epoch),
            log=_cycle_log(leads, epoch),
        ),
        slow_s=base.store.session_timeout_s * SLOW_FRACTION,
        memories=memories,
    )


def _operations(
    leads: Leads,
    term: Term,
    moves: Moves,
    load_manager: LoadManager,
    owners: OwnerTracker,
    *,
    quotas: TermQuotas,
) -> Operations:
    base = leads.base
    goals = TermGoals(checks=term.checks, load_manager=load_manager, moves=moves)
    own_changes = OwnChanges(base.broker_id, base.clock, leads.history)
    draining = Draining(goals=goals, leads=leads.leads, own_changes=own_changes)
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
        balancing=lambda: Balancing(base.broker.value.load_balancer_enabled),
        load_manager=load_manager,
    )
    plans = TermPlans(
        load_manager=load_manager,
        moves=moves,
        settings_with=base.settings.strategies_with,
        boundaries=leads.cluster.namespaces.bundles,
        records=PlanRecords(base.broker_id, leads.history),
    )

    def lost_after(broker: str, at_ms: int) -> int | None:
        members = leads.cluster.leading.members
        absent = [] if members is None else members.shown().absent
        return first_lost_after(absent, broker, at_ms)

    return Operations(
        undo=TermUndo(
            epoch=term.epoch,
            documents=DocumentsBack(wishes=leads.cluster.wishes, quotas=quotas, draining=draining),
            moves=MovesBack(plans=plans, owned_since=owners.since, lost_after=lost_after),
        ),
        moves=moves,
        draining=draining,
        merging=merging,
        overview=overview,
        plans=plans,
        goals=goals,
    )


async def shed(parts: TermParts, hold: LeaderHold | None) -> None:
    """One cycle, and what the next leader is to know of it."""
    load_manager = parts.load_manager
    await parts.feed.refresh()
    await load_manager.shed(hold)
    memories = load_manager.usage.remembered(load_manager.memories)
    await parts.keeper.save(memories, parts.feed.view, parts.moves.pauses.of_moves_s())


def _run_cycles(parts: TermParts, hold: FirstHold) -> None:
    leads, load_manager, feed = parts.leads, parts.load_manager, parts.feed
    base, splits = leads.base, leads.base.settings.live(SplitSettings)
    shedding = Interval(base.strategies, lambda settings: settings.shedding_interval_minutes * 60)
    splitting = Interval(splits, lambda settings: settings.interval_minutes * 60)
    saving = Interval(base.broker, lambda settings: settings.quota_update_interval_minutes * 60)

    async def save() -> None:
        await leads.cluster.wishes.forget_old(parts.term.checks)
        count = base.strategies.value.bundles_in_report_max
        await feed.save(base.store, count, parts.term.checks)

    cycles: list[tuple[Callable[[], float], Callable[[], Awaitable[object]], str]] = [
        (shedding, partial(shed, parts, hold), "shed"),
        (saving, save, "save"),
    ]
    if leads.manager.leader_splits:
        cycles.insert(1, (splitting, load_manager.split, "split"))
    for interval, step, name in cycles:
        base.scope.spawn(every(interval, step, name, base.steps, first_after_s=None), name)
