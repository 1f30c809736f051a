"""Leads one Pulsar cluster: the cycle, the queue of moves and the guards are the leader's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.moves.move import Move
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.conf import Live
from loadmanager.kit.logger import get_logger
from loadmanager.kit.tasks import Interval, every
from loadmanager.leader.draining import INTERVAL_S
from loadmanager.leader.last_replay import LOOK_S as REPLAY_S
from loadmanager.leader.load_manager import FirstHold, LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.operations import Operations
from loadmanager.leader.owner_tracker import OwnerTracker
from loadmanager.steer.acting import Acting
from loadmanager.steer.advice import Advice
from loadmanager.steer.canary import LOOK_S, Canary
from loadmanager.steer.daemon_note import DaemonNote
from loadmanager.steer.findings import LOOK_S as FINDINGS_S
from loadmanager.steer.findings import FleetFindings
from loadmanager.steer.hold import FleetHold
from loadmanager.steer.notices import Notices
from loadmanager.steer.owner_records import OwnerRecords
from loadmanager.steer.picture import Picture
from loadmanager.steer.recording import FleetRecorder
from loadmanager.steer.settings import ACT, APPROVE, OBSERVE, FleetSettings
from loadmanager.steer.split_orders import SplitOrders
from loadmanager.steer.splitting import FleetSplitting
from loadmanager.steer.watching import Watching

HUNG_S = 120.0
"""A reading of which no part has ended for so long does not go on."""

log = get_logger("fleet")


@dataclass(slots=True, kw_only=True)
class FleetWork:
    """One cluster: its parts, and when they act. `steer.fleet_work` builds them."""

    settings: Live[FleetSettings]
    lives: Callable[[], None]
    """A sign of life: the daemon may move bundles, and the cluster answers it."""
    picture: Picture
    watching: Watching
    hold: FleetHold
    note: DaemonNote
    load_manager: LoadManager
    moves: Moves
    acting: Acting
    advice: Advice
    operations: Operations
    split_orders: SplitOrders
    splitting: FleetSplitting
    owners: OwnerTracker
    recorder: FleetRecorder
    findings: FleetFindings = field(init=False)
    """What is wrong in the cluster."""
    canary: Canary | None = field(default=None, init=False)
    """Measures what a move costs; None: nothing does."""
    owner_records: OwnerRecords | None = field(default=None, init=False)
    """Records owners, and brokers that come and go; None: there is no history."""
    notices: Notices | None = field(default=None, init=False)
    """What people are told; None: nobody is."""
    _hold_code: str | None = None
    """The code of the reason that the log told last."""
    _began: bool = False
    """Whether the cluster was read once."""

    def __post_init__(self) -> None:
        """Hear of the reports, and of the moves."""
        self.picture.listeners.append(self._observe)
        self.findings = FleetFindings(
            picture=self.picture, load_manager=self.load_manager, recorder=self.recorder
        )
        self.moves.on_end.append(self.findings.watch.flapping.moved)

    def _observe(self, broker: str, report: LocalBrokerData | None) -> None:
        with self.load_manager.term.steps.contained(
            "observe"
        ):  # a strategy's failure: the broker was read
            if report is not None:
                self.load_manager.observe(broker, report)

    def begin(self) -> None:
        """Start everything that this mode does, in the scope."""
        steps = self.load_manager.term.steps
        reading = Interval(self.settings, lambda fleet: fleet.read_interval_s)
        self._every(reading, self.read, "read")
        looking = every(
            lambda: FINDINGS_S, self.findings.step, "findings", steps, first_after_s=None
        )
        self.load_manager.term.scope.spawn(looking, "findings")
        replay = self.moves.cluster.replay
        replay.url = lambda: self.settings.value.replay_error_url
        self._every(lambda: REPLAY_S, replay.step, "replay error")
        mode = self.settings.value.mode
        if mode == OBSERVE:
            return
        shedding = Interval(
            self.load_manager.strategies,
            lambda strategies: strategies.shedding_interval_minutes * 60,
        )
        self.load_manager.term.scope.spawn(
            every(shedding, self.shed, "shed", steps, first_after_s=None), "shed"
        )
        checks = Interval(self.load_manager.splits, lambda splits: splits.interval_minutes * 60)
        self.load_manager.term.scope.spawn(
            every(checks, self.splitting.step, "split", steps, first_after_s=None), "split"
        )
        if mode in (APPROVE, ACT):
            self._every(reading, self.sign, "sign")
            self.load_manager.term.scope.spawn(self.moves.run(), "moves")
            drain = self.operations.step
            self.load_manager.term.scope.spawn(
                every(lambda: INTERVAL_S, drain, "drain", steps), "drain"
            )
            goals = every(lambda: INTERVAL_S, self.operations.goals.step, "goal", steps)
            self.load_manager.term.scope.spawn(goals, "goal")
        if self.canary is not None:
            measuring = every(lambda: LOOK_S, self.canary.step, "canary", steps)
            self.load_manager.term.scope.spawn(measuring, "canary")

    def _every(
        self, interval_s: Callable[[], float], step: Callable[[], Awaitable[object]], name: str
    ) -> None:
        self.load_manager.term.scope.spawn(
            every(interval_s, step, name, self.load_manager.term.steps), name
        )

    async def read(self) -> None:
        """Write the note if it has not been written yet; then read the brokers, and the policies of
        namespaces that are new.
        """
        await self.load_manager.term.steps.run("write-note", self.note.write)
        await self.watching.read_brokers()
        if self.owner_records is not None:
            self.owner_records.looked()
        if not self._began and self.picture.answering:
            self.owners.begin()
            self._began = True
        await self.watching.read_due_policies()
        mode = self.settings.value.mode
        if mode in (APPROVE, ACT):
            await self.watching.read_settings()
            self.acting.look()
            if self.hold.rivals is not None:
                await self.hold.rivals.look()
        await self.sign()
        self._tell_hold()
        if self.notices is not None:
            self._give_notice(self.notices)

    def _give_notice(self, notices: Notices) -> None:
        """Tell people what has changed."""
        plan_id, plan = self.advice.plan_id, self.advice.plan
        waits = plan_id is not None and self.operations.plans.is_ready(plan_id)
        # an approved goal goes first: nobody has to approve anything meanwhile
        waits = waits and not self.operations.goals.on_hold()
        notices.look(
            None if self.settings.value.mode == OBSERVE else self.hold.shown_reason(),
            len(plan.unloads) if waits and plan else 0,
            self.moves.cluster.wishes.goals,
            f"loadmanager admin --url {self.hold.url}",
            now_ms=self.load_manager.term.clock.now_ms(),
        )

    async def shed(self) -> None:
        """One cycle, unless something holds it; its plan is advised, sealed or carried out."""
        hold = FirstHold(self.hold.reason, self.operations.goals.at_work)
        await self.load_manager.shed(hold, self._carry_out)

    async def sign(self) -> None:
        """Give a sign of life, if the daemon may move bundles, the cluster answers, and its reading
        goes on: one may take long, when brokers hang. The settings are read here meanwhile.
        """
        fleet, goes_on = self.settings.value, self._goes_on()
        answers = self.picture.answering and "brokers" not in self.picture.problems
        if fleet.mode not in (APPROVE, ACT):
            return
        if self.picture.unknown("settings", fleet.read_interval_s) is not None:
            await self.watching.read_settings()
        if answers and goes_on:
            self.lives()

    def _goes_on(self) -> bool:
        return self.load_manager.term.clock.monotonic_s() - self.watching.tried_s < HUNG_S

    def _tell_hold(self) -> None:
        """Log why nothing is moved, once for each reason."""
        mode, why = self.settings.value.mode, self.hold.shown_reason()
        code = None if why is None else why.code
        if code != self._hold_code and mode != OBSERVE:
            if why is None:
                log.info("bundles may be moved" if mode in (APPROVE, ACT) else "plans are made")
            else:
                log.warning("nothing is moved now", why=str(why))
            self._hold_code = code

    def _carry_out(self, snapshot: ClusterSnapshot, plan: Plan) -> Sequence[Move]:
        strategies, waiting = self.load_manager.strategies.value, self.advice.plan_id
        self.advice.take(snapshot, plan, strategies)
        if self.settings.value.mode == APPROVE and plan.unloads:
            self.advice.plan_id = self._sealed(snapshot, plan, strategies, waiting)
        if self.settings.value.mode == ACT:
            return self.acting.queue(plan, self.split_orders.is_busy)
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
        term_plan = plans.keep(snapshot, plan, strategies, {})
        log.info("a plan waits for approval", plan=term_plan.id, moves=len(plan.unloads))
        return term_plan.id


def _moves(plan: Plan) -> list[tuple[str, str, str | None]]:
    """The bundles, sources and destinations of a plan's moves, without the figures that change all
    the time.
    """
    return [(move.bundle, move.source, move.destination) for move in plan.unloads]
