"""Leads one Pulsar cluster: the cycle, the queue of moves and the guards are the leader's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.bundles.ranges import NamespaceBundles, parse_boundaries
from loadmanager.core.conf import Live
from loadmanager.core.history.records import broker_load, bundle_loads, decisions, move_record
from loadmanager.core.load.carried import Carried
from loadmanager.core.load.cluster_view import ClusterView
from loadmanager.core.load.reports import LocalBrokerData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.load.usage import max_weighted_usage
from loadmanager.core.moves.move import Author, Move
from loadmanager.core.moves.settings import MoveSettings
from loadmanager.core.strategies.cycle import Rng
from loadmanager.core.strategies.plan import Plan
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.ports.clock import Clock
from loadmanager.ports.cluster_reader import BrokerReading, ClusterReader
from loadmanager.ports.election import Leader
from loadmanager.ports.history import History
from loadmanager.ports.mover import Mover
from loadmanager.ports.note import Note
from loadmanager.ports.store import Check
from loadmanager.ports.wishes import WishBook
from loadmanager.runtime.broker.decision_telemetry import Counts
from loadmanager.runtime.fleet.acting import Acting
from loadmanager.runtime.fleet.advice import Advice, Shadow
from loadmanager.runtime.fleet.daemon_note import DaemonNote, Unwritten
from loadmanager.runtime.fleet.gate import Gate
from loadmanager.runtime.fleet.operating import FleetHold, FleetOperations, FleetPlans, NoMerging
from loadmanager.runtime.fleet.picture import Picture
from loadmanager.runtime.fleet.settings import ACT, APPROVE, OBSERVE, FleetSettings
from loadmanager.runtime.fleet.splitting import FleetSplitting
from loadmanager.runtime.fleet.watching import Watching
from loadmanager.runtime.leader.draining import INTERVAL_S, Draining
from loadmanager.runtime.leader.load_manager import LoadManager
from loadmanager.runtime.leader.moves import Moves
from loadmanager.runtime.leader.operations import Operations
from loadmanager.runtime.leader.overview import Overview
from loadmanager.runtime.leader.owners_seen import OwnersSeen
from loadmanager.runtime.leader.plans import Kept
from loadmanager.runtime.leader.preferred import Preferred
from loadmanager.runtime.shared.decisions import Decisions
from loadmanager.runtime.shared.events import Events
from loadmanager.runtime.tasks import Interval, Scope, Steps, every

SLOW_S = 10.0
HUNG_S = 120.0
"""A reading of which no part has ended for so long does not go on."""

PULSAR_STATS_INTERVAL_S = 60.0
"""Over how long Pulsar's brokers measure traffic: the default of statsUpdateFrequencyInSecs."""

log = structlog.get_logger("fleet")


class Orders(Mover, Protocol):
    """Orders to a Pulsar cluster's brokers."""

    brokers: tuple[str, ...]
    """The live brokers: the owner of a bundle is looked for among them."""
    may_order: Callable[[str], Awaitable[None]]
    """Called with the bundle before each order; raises `NotSentError` if it may not be sent."""
    may_repeat: Callable[[str], Awaitable[None]]
    """Called instead before the further orders of a move."""

    async def owner(self, bundle: str) -> str | None:
        """The owner of a bundle; None without one."""
        ...


@dataclass(slots=True, kw_only=True)
class FleetOutside:
    """The parts outside of the daemon's work."""

    name: str
    """The cluster's name in the daemon's configuration."""
    me: Leader
    """This daemon, which leads for as long as this lives. Its epoch is another one each time, so
    that no plan of an earlier term can be approved.
    """
    checks: Sequence[Check] = ()
    """The checks of its term, if it leads by a lock in the metadata store."""
    lives: Callable[[], None] = lambda: None
    """A sign of life: the daemon may move bundles, and the cluster answers it."""
    reader: ClusterReader
    orders: Orders
    wishes: WishBook
    note: Note
    """What the next daemon must know of this one."""
    unwritten: Unwritten = field(default_factory=Unwritten)
    """What the note does not have yet, also of this daemon's earlier terms."""
    clock: Clock
    rng: Rng
    history: History | None


@dataclass(slots=True, kw_only=True)
class FleetSettingsOf:
    """The settings of one cluster."""

    fleet: Live[FleetSettings]
    strategies: Live[StrategySettings]
    splits: Live[SplitSettings]
    moves: Live[MoveSettings]
    settings_with: Callable[[Mapping[str, str]], StrategySettings]
    """Settings of strategies in force, with some keys of broker.conf changed."""


@dataclass(slots=True)
class FleetWork:
    """One cluster: what is known of it, what is decided, and what is done."""

    outside: FleetOutside
    settings: FleetSettingsOf
    scope: Scope
    steps: Steps
    counts: Counts = field(default_factory=Counts)
    _held: str | None = None
    """The code of the reason that the log told last."""
    _began: bool = False
    """Whether the cluster was read once."""
    _read_ms: dict[str, int] = field(default_factory=dict)
    """Broker → when it was last recorded."""
    picture: Picture = field(init=False)
    load_manager: LoadManager = field(init=False)
    moves: Moves = field(init=False)
    acting: Acting = field(init=False)
    note: DaemonNote = field(init=False)
    advice: Advice = field(init=False)
    operations: Operations = field(init=False)
    splitting: FleetSplitting = field(init=False)
    watching: Watching = field(init=False)
    hold: FleetHold = field(init=False)
    owners: OwnersSeen = field(init=False)

    def __post_init__(self) -> None:
        """Build the parts."""
        outside, settings, view = self.outside, self.settings, ClusterView()
        clock, carried = outside.clock, Carried()
        self.picture = Picture(clock)
        self.moves = Moves(
            epoch=self.outside.me.epoch,
            settings=settings.moves,
            brokers=self.picture,
            wishes=outside.wishes,
            view=view,
            preferred=Preferred(clock),
            release=outside.orders.release_bundle,
            owner=outside.orders.owner,
            mover=outside.orders,
            clock=clock,
            scope=self.scope,
            steps=self.steps,
            held=self._held_back,
        )
        self.load_manager = LoadManager(
            epoch=self.outside.me.epoch,
            view=view,
            policies=self.picture,
            moves=self.moves,
            clock=clock,
            rng=outside.rng,
            strategies=settings.strategies,
            splits=settings.splits,
            bundle_count=self._bundle_count,
            steps=self.steps,
            planned=self._planned,
            kept=Decisions(clock),
            slow_s=SLOW_S,
            unusable=self.picture.unread,
        )
        self.moves.on_record.append(self._moved)
        self.acting = Acting(
            moves=self.moves,
            picture=self.picture,
            carried=carried,
            settings=settings.fleet,
            clock=clock,
            url=outside.me.service_url,
            load_manager=self.load_manager,
            note_name=outside.note.name,
        )
        self.note = DaemonNote(
            note=lambda: outside.note,
            acting=self.acting,
            unwritten=outside.unwritten,
            scope=self.scope,
            steps=self.steps,
        )
        self.hold = FleetHold(self.picture, settings.fleet, self.acting)
        shadows = tuple(Shadow(name) for name in settings.fleet.value.shadows)
        self.advice = Advice(outside.rng, shadows)
        self.operations = self._build_operations(self._build_splitting())
        self.watching = Watching(
            reader=outside.reader,
            picture=self.picture,
            view=view,
            carried=carried,
            clock=clock,
            settings=settings.fleet,
            record=self._record,
        )
        gate = Gate(watching=self.watching, hold=self.hold, moves=self.moves, note=self.note)
        outside.orders.may_order, outside.orders.may_repeat = gate.first, gate.again

    def _build_splitting(self) -> FleetPlans:
        plans = FleetPlans(
            epoch=self.outside.me.epoch,
            load_manager=self.load_manager,
            moves=self.moves,
            settings_with=self.settings.settings_with,
            boundaries=self._boundaries,
            hold=self.hold,
            execute_split=self._execute_split,
        )
        self.splitting = FleetSplitting(
            load_manager=self.load_manager,
            acting=self.acting,
            hold=self.hold,
            advice=self.advice,
            plans=plans,
            settings=self.settings.fleet,
            strategies=self.settings.strategies,
            splits=self.settings.splits,
        )
        return plans

    def _build_operations(self, plans: FleetPlans) -> Operations:
        draining = Draining(
            moves=self.moves,
            load_manager=self.load_manager,
            brokers=self.picture,
            mover=self.outside.orders,
            clock=self.outside.clock,
        )
        return FleetOperations(
            checks=self.outside.checks,
            moves=self.moves,
            draining=draining,
            merging=NoMerging(),
            overview=self._build_overview(draining),
            plans=plans,
            hold=self.hold,
        )

    def _build_overview(self, draining: Draining) -> Overview:
        clock, events = self.outside.clock, Events()
        owners = OwnersSeen(
            brokers=self.picture,
            clock=clock,
            events=events,
            view=self.load_manager.view,
            stats_interval_s=lambda: PULSAR_STATS_INTERVAL_S,
        )
        self.picture.listeners.append(self._observe)
        self.owners = owners
        return Overview(
            leader=self.outside.me,
            since_ms=clock.now_ms(),
            view=self.load_manager.view,
            moves=self.moves,
            draining=draining,
            owners=owners,
            strategies=self.settings.strategies,
            balancing=lambda: self.settings.fleet.value.mode == ACT,
            load_manager=self.load_manager,
        )

    def _observe(self, broker: str, report: LocalBrokerData | None) -> None:
        with self.steps.contained("observe"):  # a strategy's failure: the broker was read
            if report is not None:
                self.load_manager.observe(broker, report)

    def _held_back(self, author: Author) -> str | None:
        why = self.hold.held(author)
        return None if why is None else str(why)

    async def _execute_split(self, kept: Kept) -> None:
        await self.splitting.execute(kept)

    async def _boundaries(self, namespace: NamespaceName) -> NamespaceBundles:
        edges = await self.outside.reader.boundaries(str(namespace))
        return NamespaceBundles(namespace, parse_boundaries(edges))

    async def _bundle_count(self, namespace: NamespaceName) -> int:
        return max(0, len(await self.outside.reader.boundaries(str(namespace))) - 1)

    # Running

    def begin(self) -> None:
        """Start everything that this mode does, in the scope."""
        settings, steps = self.settings, self.steps
        reading = Interval(settings.fleet, lambda fleet: fleet.read_interval_s)
        self._every(reading, self.read, "read")
        mode = settings.fleet.value.mode
        if mode == OBSERVE:
            return
        shedding = Interval(
            settings.strategies, lambda strategies: strategies.shedding_interval_minutes * 60
        )
        self.scope.spawn(every(shedding, self.shed, "shed", steps, first_after_s=None), "shed")
        checks = Interval(settings.splits, lambda splits: splits.interval_minutes * 60)
        self.scope.spawn(
            every(checks, self.splitting.step, "split", steps, first_after_s=None), "split"
        )
        if mode in (APPROVE, ACT):
            self._every(reading, self.sign, "sign")
            self.scope.spawn(self.moves.run(), "moves")
            drain = self.operations.step
            self.scope.spawn(every(lambda: INTERVAL_S, drain, "drain", steps), "drain")

    def _every(
        self, interval_s: Callable[[], float], step: Callable[[], Awaitable[object]], name: str
    ) -> None:
        self.scope.spawn(every(interval_s, step, name, self.steps), name)

    async def read(self) -> None:
        """Read the brokers, and the policies of namespaces that are new; before all, what was done
        lately.
        """
        await self.steps.run("write-note", self.note.write)
        await self.watching.read_brokers()
        if not self._began and self.picture.answering:
            self.owners.begin()
            self._began = True
        self.outside.orders.brokers = tuple(sorted(self.picture.answering))
        await self.watching.read_due_policies()
        mode = self.settings.fleet.value.mode
        if mode in (APPROVE, ACT):
            await self.watching.read_settings()
            self.acting.look()
        await self.sign()
        self._tell_hold()

    async def shed(self) -> None:
        """One cycle, unless something holds it; its plan is advised, sealed or carried out."""
        await self.load_manager.shed(self.hold, self._carry_out)

    async def sign(self) -> None:
        """Give a sign of life, if the daemon may move bundles and the cluster answers it. A reading
        may take long, when brokers hang; one that does not go on is no life. Meanwhile the settings
        are read here.
        """
        fleet, goes_on = self.settings.fleet.value, self._goes_on()
        answers = self.picture.answering and "brokers" not in self.picture.problems
        if fleet.mode not in (APPROVE, ACT):
            return
        if self.picture.unknown("settings", fleet.read_interval_s) is not None:
            await self.watching.read_settings()
        if answers and goes_on:
            self.outside.lives()

    def _goes_on(self) -> bool:
        return self.outside.clock.monotonic_s() - self.watching.tried_s < HUNG_S

    def _tell_hold(self) -> None:
        """Log why nothing is moved, once for each reason."""
        mode, why = self.settings.fleet.value.mode, self.hold.told()
        code = None if why is None else why.code
        if code != self._held and mode != OBSERVE:
            if why is None:
                log.info("bundles may be moved" if mode in (APPROVE, ACT) else "plans are made")
            else:
                log.warning("nothing is moved now", why=str(why))
            self._held = code

    def _carry_out(self, snapshot: ClusterSnapshot, plan: Plan) -> Sequence[Move]:
        strategies, waiting = self.settings.strategies.value, self.advice.plan_id
        self.advice.take(snapshot, plan, strategies)
        if self.settings.fleet.value.mode == APPROVE and plan.unloads:
            self.advice.plan_id = self._sealed(snapshot, plan, strategies, waiting)
        if self.settings.fleet.value.mode == ACT:
            return self.acting.queue(plan, self.splitting.is_busy)
        return ()

    def _sealed(
        self,
        snapshot: ClusterSnapshot,
        plan: Plan,
        strategies: StrategySettings,
        waiting: str | None,
    ) -> str:
        """The id of the sealed plan: of the one that waits already, if it has the same moves."""
        plans = self.operations.plans
        ready = waiting is not None and plans.is_ready(waiting)
        if waiting and ready and _moves(plans.find(waiting).sealed.plan) == _moves(plan):
            return waiting
        kept = plans.keep(snapshot, plan, strategies, {})
        log.info("a plan waits for approval", plan=kept.id, moves=len(plan.unloads))
        return kept.id

    # Recording

    def _planned(self, cycle: int, plan: Plan) -> None:
        self.counts.on_plan(plan)
        self._append(
            *decisions(
                self.outside.clock.now_ms(),
                self.outside.name,
                plan,
                epoch=self.outside.me.epoch,
                cycle=cycle,
            )
        )

    def _moved(self, move: Move) -> None:
        self.counts.on_move(move)
        now_ms, cycle = self.outside.clock.now_ms(), self.load_manager.cycles
        self._append(
            move_record(now_ms, self.outside.name, move, epoch=self.outside.me.epoch, cycle=cycle)
        )

    def _record(self, broker: str, reading: BrokerReading) -> None:
        now_ms, report = self.outside.clock.now_ms(), reading.report
        since_ms = self._read_ms.get(broker)
        interval_ms = round(self.settings.fleet.value.read_interval_s * 1000)
        if since_ms is not None:
            interval_ms = max(1, min(now_ms - since_ms, 2 * interval_ms))
        self._read_ms[broker] = now_ms
        usage = max_weighted_usage(report, self.settings.strategies.value.weights)
        self._append(
            broker_load(
                now_ms,
                broker,
                report,
                usage=usage,
                interval_ms=interval_ms,
                faults=list(reading.faults),
            ),
            *bundle_loads(now_ms, broker, report.last_stats, interval_ms=interval_ms),
        )

    def _append(self, *records: Any) -> None:
        if self.outside.history is not None:
            self.outside.history.append(*records)


def _moves(plan: Plan) -> list[tuple[str, str, str | None]]:
    """The bundles, sources and destinations of a plan's moves, without the figures that change all
    the time.
    """
    return [(move.bundle, move.source, move.destination) for move in plan.unloads]
