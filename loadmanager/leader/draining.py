"""Drains cordoned brokers: each is an order to empty it, which lasts as long as the cordon.

What a drain has in common with any order to reach a goal is in one place, and used from here: the
plan and what the guards let go of it (`goal_planning`), storing moves before they are queued with
what each costs, counting what came of them, also of those that a dead leader had ordered,
withdrawing them and ending (`GoalWork.order_moves`, `settled`, `so_far`, `withdraw`, `end`).

What is here is a loop of its own, because it asks something else at each step. `GoalWork.go_on`
asks reports: whether they are fresh, whether the picture is steady, what the plan then says, and
whether that ends the order. A broker that is about to stop cannot wait for others, for fresh
reports or for room. So this asks the broker itself what it serves, makes a drain of each cordon
that wants one, orders many moves at once, sends bundles for which the plan has no place where the
placement rule says, tries failures again, and ends with the cordon. So it is where the load is not
known, too: in the extensible load manager, and before brokers have reported to a new leader. The
rate of the last minute, and what the broker had left when it was last asked, are counted here
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from loadmanager.engine.load.wishes import Cordon
from loadmanager.engine.moves.move import Author, Move, MoveState
from loadmanager.engine.plans.goals import PlanLimits
from loadmanager.engine.plans.order import GoalOrder, Progress
from loadmanager.engine.plans.planner import REACHED, GoalPlan
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import LoadManagerError, NotFoundError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.reason import Reason
from loadmanager.leader.documents.moves import CordonShown
from loadmanager.leader.goals import TermGoals
from loadmanager.leader.moves import Moves
from loadmanager.leader.own_changes import OwnChanges

BATCH = 50
"""Moves of one drain that are decided together: later ones see where the earlier ones went."""
INTERVAL_S = 1.0
LOOK_AGAIN_S = 5.0
"""A drained broker is asked this often whether it got a bundle after all."""
AFTER_FAILURE_S = 10.0
RATE_WINDOW_S = 60.0

log = get_logger("drain")


@dataclass(slots=True)
class Drain:
    """The drain of one broker, as this leader knows it."""

    left: int | None = None
    """Bundles that the broker served when it was last asked, without those that have left since;
    None: it has not answered yet.
    """
    empty: bool = False
    """Whether the broker served none when it was last asked: it may get one while others leave."""
    problem: str = ""
    next_s: float = 0.0
    moved_s: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    """When bundles left it, in the last minute."""


@dataclass(slots=True, kw_only=True)
class Draining:
    """The drains of one term."""

    goals: TermGoals
    leads: Callable[[str], bool]
    """Whether a broker runs this leader's load manager: it refuses the orders of another leader."""
    own_changes: OwnChanges | None = None
    """Where to record a cordon that ends by itself; None: nowhere."""
    drains: dict[str, Drain] = field(default_factory=dict)
    """brokerId → its drain."""
    moves: Moves = field(init=False)

    def __post_init__(self) -> None:
        """Hear of the moves that end."""
        self.moves = self.goals.moves
        self.moves.on_end.append(self._moved)

    async def step(self) -> None:
        """Queue the next moves of every broker that is drained."""
        wanted = {
            broker for broker, cordon in self.moves.cluster.wishes.cordons.items() if cordon.drain
        }
        for order in list(self.moves.cluster.wishes.goals.values()):
            if order.drains and order.drains not in wanted:
                await self.over(order.drains)
        for broker in self.drains.keys() - wanted:
            del self.drains[broker]
        for broker in sorted(wanted):
            drain = self.drains.setdefault(broker, Drain())
            await self._drain(broker, drain)
            if (drains := self.goals.drain_of(broker)) is not None:
                self._say(drains, drain)

    def _say(self, order: GoalOrder, drain: Drain) -> None:
        """Why the order waits."""
        waits = self.goals.work.waits
        if drain.problem:
            waits[order.id] = Reason("DrainWaits", drain.problem)
        elif drain.empty:
            waits[order.id] = Reason("Drained", "it has no bundles, and gets none")
        else:
            waits.pop(order.id, None)

    async def over(self, broker: str) -> None:
        """The drain of a broker is over: its cordon has ended, or no longer drains."""
        order, drain = self.goals.drain_of(broker), self.drains.pop(broker, Drain())
        if order is not None:
            done = drain.empty
            why = REACHED if done else Reason("Stopped", "the cordon was lifted")
            await self.goals.end_early(order, why, "no longer wanted")

    async def _drain(self, broker: str, drain: Drain) -> None:
        now_s = self.moves.term.clock.monotonic_s()
        address = self.moves.cluster.brokers.address(broker)
        if address is None and broker in self.moves.cluster.brokers.reports:
            drain.problem = "it does not answer"
            return
        if address is None:
            drain.left, drain.empty, drain.problem = (
                0,
                True,
                "",
            )  # its session is over, and its claims with it
            return
        if (why := self.moves.hold_of(Author.DRAIN)) is not None:
            drain.problem = why
            return
        if now_s < drain.next_s or any(
            move.author is Author.DRAIN and move.source == broker
            for move in self.moves.queue.open_moves()
        ):
            return
        try:
            served = await self.moves.orders.mover.served_bundles(address)
        except LoadManagerError as error:
            drain.problem = str(error)
            return
        await self._go_on(broker, drain, served, now_s)

    async def _go_on(
        self, broker: str, drain: Drain, served: Mapping[str, int], now_s: float
    ) -> None:
        before, drain.empty = drain.empty, not served
        drain.left, drain.problem = len(served), ""
        if served and not self.leads(broker):
            drain.problem = "it runs the other load manager, whose leader drains it"
            return
        order = self.goals.drain_of(broker)
        if order is None and served:
            note = self.moves.cluster.wishes.cordons[broker].note
            order = await self.goals.order_drain(broker, note)
        if order is not None:
            order = await self.goals.work.settled(order) or replace(order, under_way=())
        if served and order is not None:
            await self._queue(order, broker, drain, served)
            return
        drain.next_s = now_s + LOOK_AGAIN_S
        if not before:
            log.info("broker drained", peer=broker, moved=order.progress.arrived if order else 0)

    async def _queue(
        self, order: GoalOrder, broker: str, drain: Drain, served: Mapping[str, int]
    ) -> None:
        """The bundles with the fewest clients first, where the plan does not say: the estimate gets
        better meanwhile.
        """
        free = [bundle for bundle in served if self.moves.queue.move_of(bundle) is None]
        moves, made = await self._planned(order, frozenset(free))
        planned = {move.bundle for move in moves}
        rest = sorted(set(free) - planned, key=lambda bundle: (served[bundle], bundle))
        stay: Sequence[Skip] = ()
        if len(moves) < BATCH and rest:
            by_rule, stay = self.goals.load_manager.destinations(
                broker, rest[: BATCH - len(moves)], "Drained"
            )
            moves = (*moves, *by_rule)
        cordon = self.moves.cluster.wishes.cordons.get(broker)
        if cordon is not None:  # so that the moves themselves say it, later on, too
            about = {"cordonNote": cordon.note, "orderedBy": cordon.by}
            about = {name: text for name, text in about.items() if text}
            moves = tuple(replace(move, why={**move.why, **about}) for move in moves)
        if stay:
            drain.problem = f"{len(stay)} bundles have nowhere to go: {stay[0].reason}"
        if not moves:
            drain.next_s = self.moves.term.clock.monotonic_s() + AFTER_FAILURE_S * bool(stay)
            return
        if made is not None:
            order = replace(order, progress=order.progress.at(made.curve[0]))
        try:
            queued = await self.goals.work.order_moves(order, moves, Author.DRAIN, made)
        except LoadManagerError as error:  # what is only counted does not keep a broker from going
            drain.problem = f"the drain is not written down: {error}"
            queued = self.moves.decide(moves, Author.DRAIN)
        if len(queued) < len(moves) or stay:
            drain.next_s = self.moves.term.clock.monotonic_s() + AFTER_FAILURE_S

    async def _planned(
        self, order: GoalOrder, free: frozenset[str]
    ) -> tuple[tuple[Unload, ...], GoalPlan | None]:
        """The next moves by the plan, where the load is known and the guards let them go."""
        planning, work = self.goals.planning, self.goals.work.work_of(order.id)
        if self.goals.hold() is not None:
            return (), None
        limits = PlanLimits(moves=BATCH)
        try:
            made = await planning.plan(order.goal, limits, work.left, at_once=True)
        except NotFoundError:
            return (), None
        wanted = (move for move in made.moves if move.bundle in free)
        moves, _ = planning.admitted(order.goal, order.id, wanted, "Drained")
        return moves, made

    def _moved(self, move: Move) -> None:
        drain = self.drains.get(move.source)
        if drain is None:
            return
        now_s, is_own = self.moves.term.clock.monotonic_s(), move.author is Author.DRAIN
        if move.state is MoveState.DONE:  # also one that an operator orders while moves are paused
            drain.moved_s.append(now_s)
            drain.left = None if drain.left is None else max(0, drain.left - 1)
        elif move.state is MoveState.FAILED and is_own:
            drain.next_s = now_s + AFTER_FAILURE_S
            drain.problem = f"{move.bundle}: {move.outcome.text if move.outcome else ''}"

    def shown(self, broker: str, cordon: Cordon) -> CordonShown:
        """The progress of a cordoned broker's drain; the rate is that of the last minute."""
        drain = self.drains.get(broker, Drain()) if cordon.drain else None
        active = (
            self.moves.cluster.brokers.address(broker) is not None
            or broker in self.moves.cluster.brokers.reports
        )
        shown = CordonShown(
            broker=broker,
            since=cordon.since_ms,
            note=cordon.note,
            by=cordon.by,
            until_restart=bool(cordon.until_restart_of),
            state="cordoned" if drain is None else _state(drain, active=active),
            active=active,
        )
        if drain is None:
            return shown
        now_s = self.moves.term.clock.monotonic_s()
        while drain.moved_s and drain.moved_s[0] <= now_s - RATE_WINDOW_S:
            drain.moved_s.popleft()
        per_s = 0.0
        if drain.moved_s:
            per_s = len(drain.moved_s) / max(1.0, now_s - drain.moved_s[0])
        left_s = drain.left / per_s if drain.left is not None and per_s else None
        left = drain.left if active else 0
        paused = (
            "moves are paused"
            if left != 0 and self.moves.cluster.wishes.pause() is not None
            else ""
        )
        order = self.goals.drain_of(broker)
        progress = Progress() if order is None else self.goals.work.so_far(order)[0]
        return replace(
            shown,
            total=cordon.total,
            left=left,
            moved=progress.arrived,
            failed=progress.failed,
            moves_per_minute=round(per_s * 60, 1),
            seconds_left=0 if left == 0 else left_s and round(left_s),
            problem=drain.problem or paused,
        )

    async def count(self, address: BrokerAddress) -> int:
        """The bundles that a broker serves now."""
        return len(await self.moves.orders.mover.served_bundles(address))


def _state(drain: Drain, *, active: bool) -> Literal["draining", "drained", "stopped"]:
    """`stopped`: the broker went away; nothing is left there to be moved."""
    if not active:
        return "stopped"
    return "drained" if drain.empty else "draining"
