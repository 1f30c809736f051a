"""Builds the work of the daemon at one Pulsar cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from loadmanager.engine.load.carried import Carried
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.moves.queue import MoveQueue
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.kit.text import moment
from loadmanager.leader.base import BundleOrders, LedCluster, TermBase
from loadmanager.leader.cycle_log import CycleLog
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.draining import Draining
from loadmanager.leader.events import EventHub
from loadmanager.leader.goal_pace import KnownWait
from loadmanager.leader.load_manager import LeaderRecords, LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.moves_back import MovesBack
from loadmanager.leader.overview import Balancing, TermOverview
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.leader.plan_records import PlanRecords
from loadmanager.steer.acting import Acting
from loadmanager.steer.advice import Advice, Shadow
from loadmanager.steer.canary import Canary, CanaryProducer
from loadmanager.steer.daemon_note import DaemonNote
from loadmanager.steer.gate import Gate
from loadmanager.steer.hold import FleetHold
from loadmanager.steer.namespaces import FleetNamespaces
from loadmanager.steer.notices import Notices
from loadmanager.steer.operating import FleetGoals, FleetOperations, FleetPlans, NoMerging
from loadmanager.steer.outside import FleetOutside
from loadmanager.steer.owner_records import OwnerRecords
from loadmanager.steer.picture import Picture
from loadmanager.steer.recording import FleetRecorder
from loadmanager.steer.rivals import Rivals
from loadmanager.steer.settings import ACT, APPROVE, OBSERVE
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.split_orders import SplitOrders
from loadmanager.steer.splitting import FleetSplitting
from loadmanager.steer.undo import NO_MERGES, FleetUndo, NoDocuments, why_not
from loadmanager.steer.watching import Watching
from loadmanager.steer.work import FleetWork

SLOW_S = 10.0
PULSAR_STATS_INTERVAL_S = 60.0
"""Over how long Pulsar's brokers measure traffic: the default of statsUpdateFrequencyInSecs."""


def build_fleet_work(
    cluster: ClusterSettings, outside: FleetOutside, scope: Scope, steps: Steps
) -> FleetWork:
    """Build the parts. Orders pass the gate, so it comes before what gives them; what was done
    lately is recalled by `Acting`, which comes after the moves that it hears of.
    """
    built = _Built(cluster, outside, scope, steps)
    work = built.work()
    work.canary = built.canary(work)
    work.owner_records = built.owner_records()
    if outside.tell is not None:
        work.notices = Notices(outside.tell)
    return work


class _Built:
    """The parts while they are built, in the order in which they need each other."""

    def __init__(
        self, cluster: ClusterSettings, outside: FleetOutside, scope: Scope, steps: Steps
    ) -> None:
        self.cluster, self.outside, self.scope, self.steps = cluster, outside, scope, steps
        self.settings, self.strategies = Live(cluster.fleet), Live(cluster.strategies)
        self.splits, clock = Live(cluster.splits), outside.clock
        self.picture, self.view, self.carried = Picture(clock), ClusterView(), Carried()
        self.namespaces = FleetNamespaces(outside.reader)
        self.recorder = FleetRecorder(
            cluster=cluster.name,
            epoch=outside.me.epoch,
            clock=clock,
            history=outside.history,
            settings=self.settings,
            strategies=self.strategies,
        )
        self.note = DaemonNote(
            note=outside.note, unwritten=outside.unwritten, scope=scope, steps=steps
        )
        self.hold = FleetHold(
            picture=self.picture,
            settings=self.settings,
            note=self.note,
            url=self._orders_url(),
            rivals=self._rivals(),
        )
        self.watching = Watching(
            reader=outside.reader,
            picture=self.picture,
            view=self.view,
            carried=self.carried,
            settings=self.settings,
            record=self.recorder.read,
        )
        queue = MoveQueue()
        gate = Gate(
            watching=self.watching,
            hold=self.hold,
            queue=queue,
            wishes=outside.wishes,
            note=self.note,
        )
        self.orders = outside.orders(gate, lambda: self.picture.answering)
        self.producer = CanaryProducer(self.orders.release_bundle)
        self.moves = self._moves(queue)
        self.load_manager = self._load_manager()
        self.acting = Acting(
            moves=self.moves,
            picture=self.picture,
            carried=self.carried,
            settings=self.settings,
            load_manager=self.load_manager,
            hold=self.hold,
            note=self.note,
        )

    def _moves(self, queue: MoveQueue) -> Moves:
        outside = self.outside
        return Moves(
            term=TermBase(
                epoch=outside.me.epoch,
                clock=outside.clock,
                rng=outside.rng,
                scope=self.scope,
                steps=self.steps,
            ),
            cluster=LedCluster(
                view=self.view,
                brokers=self.picture,
                policies=self.picture,
                wishes=outside.wishes,
                bundle_count=self.namespaces.bundle_count,
                unusable=self.picture.unread,
                fleet=self.cluster.name,
            ),
            orders=BundleOrders(
                mover=self.orders, release=self.producer.release, owner=self.orders.owner
            ),
            settings=Live(self.cluster.moves),
            hold_of=self.hold.refusal,
            queue=queue,
            canary=lambda: tuple(self.acting.pauses),
        )

    def _load_manager(self) -> LoadManager:
        return LoadManager(
            moves=self.moves,
            strategies=self.strategies,
            splits=self.splits,
            records=LeaderRecords(
                decisions=Decisions(self.outside.clock),
                planned=self.recorder.planned,
                moved=self.recorder.moved,
                log=self._cycle_log(),
            ),
            slow_s=SLOW_S,
        )

    def _rivals(self) -> Rivals | None:
        marks = self.outside.marks
        if marks is None:
            return None
        return Rivals(
            marks=marks,
            me=self.outside.daemon_id,
            locked=self.outside.has_lock,
            clock=self.outside.clock,
            settings=self.settings,
        )

    def _cycle_log(self) -> CycleLog | None:
        history = self.outside.history
        if history is None or not self.settings.value.history_cycles:
            return None
        log = CycleLog(history, self.cluster.name, self.outside.me.epoch, self.outside.clock)
        log.begin(self.view)
        return log

    def work(self) -> FleetWork:
        """Everything together."""
        split_orders = SplitOrders(load_manager=self.load_manager, acting=self.acting)
        plans = FleetPlans(
            load_manager=self.load_manager,
            moves=self.moves,
            settings_with=self._settings_with,
            boundaries=self.namespaces.bundles,
            records=PlanRecords(self.cluster.name, self.outside.history),
            hold=self.hold,
            split_orders=split_orders,
        )
        shadows = tuple(Shadow(name) for name in self.settings.value.shadows)
        advice = Advice(self.outside.rng, shadows)
        owners = OwnerTracker(
            brokers=self.picture,
            clock=self.outside.clock,
            events=EventHub(),
            view=self.view,
            stats_interval_s=lambda: PULSAR_STATS_INTERVAL_S,
        )
        return FleetWork(
            settings=self.settings,
            lives=self.outside.lives,
            picture=self.picture,
            watching=self.watching,
            hold=self.hold,
            note=self.note,
            load_manager=self.load_manager,
            moves=self.moves,
            acting=self.acting,
            advice=advice,
            operations=self._operations(plans, owners),
            split_orders=split_orders,
            splitting=FleetSplitting(
                load_manager=self.load_manager,
                acting=self.acting,
                hold=self.hold,
                advice=advice,
                plans=plans,
                orders=split_orders,
                settings=self.settings,
            ),
            owners=owners,
            recorder=self.recorder,
        )

    def _held_until(self) -> Iterable[KnownWait]:
        """What keeps all moves of goals from being made until a time that is known."""
        until_ms = self.hold.breaker.until_ms
        if self.hold.stopped() is not None:
            text = f"the circuit breaker lets nothing move before {moment(until_ms)}"
            yield KnownWait(text, until_ms, until_ms)

    def _orders_url(self) -> str:
        """Where the API takes orders: without tokens, at its socket alone, if it has one."""
        cluster = self.cluster
        at_socket = cluster.api.socket and not cluster.has_tokens
        return f"unix:{cluster.api.socket}" if at_socket else self.outside.me.service_url

    def canary(self, work: FleetWork) -> Canary | None:
        """The canary; None where none is wanted, or nothing may be moved."""
        outside, fleet = self.outside, self.settings.value
        if not fleet.canary_namespace or outside.canary is None or fleet.mode not in (APPROVE, ACT):
            return None
        return Canary(
            load_manager=self.load_manager,
            acting=self.acting,
            namespaces=self.namespaces,
            producer=self.producer,
            outside=outside.canary,
            at_work=work.operations.goals.at_work,
            tell=outside.tell,
        )

    def owner_records(self) -> OwnerRecords | None:
        """What records owners, and brokers that come and go; None without a history."""
        if self.outside.history is None:
            return None
        records = OwnerRecords(
            cluster=self.cluster.name,
            picture=self.picture,
            clock=self.outside.clock,
            append=self.recorder.append,
            open_moves=self.moves.queue.open_moves,
        )
        self.picture.listeners.append(records.reported)
        self.moves.on_end.append(records.ended)
        return records

    def _operations(self, plans: FleetPlans, owners: OwnerTracker) -> FleetOperations:
        goals = FleetGoals(
            checks=self.outside.checks,
            load_manager=self.load_manager,
            moves=self.moves,
            fleet_hold=self.hold,
            held_until=self._held_until,
        )
        draining = Draining(goals=goals, leads=lambda broker: True)
        overview = TermOverview(
            leader=self.outside.me,
            since_ms=self.outside.clock.now_ms(),
            moves=self.moves,
            draining=draining,
            owners=owners,
            balancing=self._balancing,
            load_manager=self.load_manager,
        )
        return FleetOperations(
            undo=FleetUndo(
                epoch=self.outside.me.epoch,
                documents=NoDocuments(),
                moves=MovesBack(plans=plans, why_not=why_not, divided=NO_MERGES),
                hold=self.hold,
            ),
            moves=self.moves,
            draining=draining,
            merging=NoMerging(),
            overview=overview,
            plans=plans,
            goals=goals,
            hold=self.hold,
            acting=self.acting,
        )

    def _balancing(self) -> Balancing:
        mode = self.settings.value.mode
        hold = None if mode == OBSERVE else self.hold.shown_reason()
        return Balancing(mode == ACT, mode, hold)

    def _settings_with(self, changes: Mapping[str, str]) -> StrategySettings:
        try:
            changed = self.cluster.with_changes(changes)
        except ConfigError as error:
            raise BadInputError(str(error)) from None
        return dataclasses.replace(changed.strategies, shedding_enabled=True)
