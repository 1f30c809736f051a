"""Reaches the goals that operators ordered: a few moves, a look at fresh figures, the next moves.

A plan is proposed with what it would come to, and waits until somebody approves it. What is stored
is the goal with its limits and not the moves: these are planned anew after every few, so that a
broker that dies, or load that changes, changes the rest of the plan. An order outlives the leader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from loadmanager.engine.load.wishes import NOTE_MAX, Cordon, Pause
from loadmanager.engine.moves.move import Author
from loadmanager.engine.plans import goals
from loadmanager.engine.plans.goals import NO_LIMITS, Emptied, Filled, Goal, PlanLimits
from loadmanager.engine.plans.order import (
    ORDERS_MAX,
    PROPOSAL_MS,
    GoalOrder,
    MadeAsShown,
    Progress,
    Promise,
)
from loadmanager.engine.plans.planner import LIMITS, NOTHING_HELPS, GoalPlan
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.store import Check
from loadmanager.kit.reason import Reason
from loadmanager.kit.text import moment
from loadmanager.kit.units import MINUTE_MS
from loadmanager.leader.documents.goals import ComparedMoves, GoalShown, GoalsShown, PlannedMove
from loadmanager.leader.goal_bars import Bar
from loadmanager.leader.goal_pace import KnownWait, to_no_purpose, until_ms
from loadmanager.leader.goal_planning import GoalPlanning
from loadmanager.leader.goal_work import GoalWork, known_waits
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.windows import Window, any_open, next_open_ms

MOVES_SHOWN = 200
SINCE_SAID_MS = 10_000
"""A time to begin may be over by so much: it was that of now when it was said."""

TIME_IS_UP = Reason("TimeIsUp", "it was to be done by now")
STOPPED = Reason("Stopped", "by an operator")
LAPSED = Reason(
    "Lapsed",
    f"nobody approved it within {PROPOSAL_MS // MINUTE_MS} minutes; propose it again, on figures "
    "of now",
)
UNCORDONED = Reason("Uncordoned", "the broker may have bundles again")

log = get_logger("goals")


@dataclass(slots=True, kw_only=True)
class TermGoals:
    """The orders of one term; implements `leader.ports.operating.Goals`."""

    checks: Sequence[Check]
    load_manager: LoadManager
    moves: Moves
    hold: Callable[[], Reason | None] = lambda: None
    """Why nothing is decided now: a new leader does not know the load yet, say."""
    held_until: Callable[[], Iterable[KnownWait]] = tuple
    """What keeps all moves from being made until a time that is known, beside a pause."""
    planning: GoalPlanning = field(init=False)
    work: GoalWork = field(init=False)
    _number: int = 0
    _changes: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One at a time changes approved orders: what an operator has stopped stays so."""

    def __post_init__(self) -> None:
        """Nothing is under way yet."""
        self.planning = GoalPlanning(load_manager=self.load_manager, moves=self.moves)
        self.work = GoalWork(planning=self.planning, store=self._store)

    # Proposing

    async def propose(
        self, goal: Goal, limits: PlanLimits, note: str = "", *, approve: bool = False
    ) -> GoalShown:
        """Plan the moves to a goal, and keep the order until it is approved; nothing is moved.

        With `approve` it is approved at once, or nothing is stored. Raises `BadInputError`,
        `NotFoundError` for a broker that does not report, and `ConflictError` when too many orders
        wait, the load is not known yet, or a cordon stands against it.
        """
        goals.check(goal, limits)
        for text in limits.windows:
            Window.parse(text)
        if len(note) > NOTE_MAX:
            raise BadInputError(f"a note has at most {NOTE_MAX} characters")
        now_ms = self.moves.term.clock.now_ms()
        if limits.until_ms is not None:
            if limits.until_ms <= now_ms:
                raise BadInputError("the time by which it is to be done is over")
            _check_windows(limits, max(limits.from_ms, now_ms), limits.until_ms)
        self._check_begins(limits.from_ms)
        if (why := self.hold()) is not None:
            raise ConflictError(f"nothing can be planned yet: {why}")
        self._check_cordons(goal, empties=approve)
        await self.planning.check_names(goal, limits)
        made, bar = await self._planned(goal, limits)
        if not made.moves:
            await self._check_nothing_to_do(made)
        self._number += 1
        order = GoalOrder(
            id=f"{self.moves.term.epoch}-g{self._number}",
            goal=goal,
            limits=limits,
            made_ms=now_ms,
            note=note,
            promise=self._promise(made, bar),
            compared=MadeAsShown.of(made),
        )
        if made.reached and not made.moves:
            order = replace(order, state="ended", ended_ms=now_ms, ended=made.ends)
        async with self._changes:
            begun = approve and order.state == "proposed"
            approved = self._approved_form(order, None) if begun else order
            if not await self._make_room():
                raise ConflictError(f"{ORDERS_MAX} goals are approved; stop some first")
            await (self._begin(approved) if begun else self._store(order))
        log.info("goal proposed", goal=order.id, moves=len(made.moves), ends=made.ends.code)
        if begun:
            log.info("goal approved", goal=order.id)
        return self._shown(self._order(order.id), made)

    def _check_begins(self, from_ms: int | None) -> None:
        """Raise `BadInputError` for a time to begin that is over."""
        if from_ms and from_ms < self._now_ms() - SINCE_SAID_MS:
            raise BadInputError(f"the time to begin is over: {moment(from_ms)}")

    def _check_cordons(self, goal: Goal, *, empties: bool) -> None:
        """Raise `ConflictError` for a broker that takes nothing, or, if it `empties` one, for the
        last that takes anything.
        """
        cordons = self.moves.cluster.wishes.cordons
        if isinstance(goal, Filled) and goal.broker in cordons:
            raise ConflictError(
                f"{goal.broker} is cordoned, so that it takes no bundles: uncordon it first, with "
                f"`loadmanager admin brokers uncordon {goal.broker}`"
            )
        if empties and isinstance(goal, Emptied) and goal.broker not in cordons:
            others = self.moves.cluster.brokers.reports.keys() - {goal.broker}
            if not others - cordons.keys():
                raise ConflictError(f"{goal.broker} is the last broker that is not cordoned")

    def _promise(self, made: GoalPlan, bar: Bar | None = None) -> Promise:
        """What a plan promises; `bar`: why some of its moves have to wait."""
        promise = Promise.of(made, self.moves.pauses.expected().seconds)
        if bar is None:
            return promise
        return replace(promise, later=bar.why, later_ms=bar.last_ms or None)

    async def _planned(self, goal: Goal, limits: PlanLimits) -> tuple[GoalPlan, Bar | None]:
        """The plan; where that does not reach the goal, with the moves that have to wait a while,
        and what bars them.
        """
        left = self.planning.within(limits, Progress())
        made = await self.planning.plan(goal, left)
        if made.ends.code == NOTHING_HELPS.code and (
            barred := await self.planning.barred(goal, left)
        ):
            return barred
        return made, None

    async def _check_nothing_to_do(self, made: GoalPlan) -> None:
        """Raise `ConflictError` where it only looks as if the goal were reached, and
        `BadInputError` where limits leave no move.
        """
        if made.ends.code == LIMITS.code:
            text = made.ends.text.removeprefix(LIMITS.text)
            raise BadInputError(
                f"its limits allow no move at all: each that helps would pass one{text}"
            )
        if made.reached and (why := await self.planning.not_reported(made.goal)):
            raise ConflictError(f"{why}; try again in a moment")
        if made.reached and (until := self.work.unsteady(None)) is not None:
            raise ConflictError(f"it looks reached; that counts when {until}; try again then")

    async def _make_room(self) -> bool:
        """Forget the order that ended first, if there are too many; False if none can go."""
        orders = self.moves.cluster.wishes.goals
        if len(orders) < ORDERS_MAX:
            return True
        ended = [order for order in orders.values() if order.state == "ended"]
        ended = ended or [order for order in orders.values() if order.state == "proposed"]
        if not ended:
            return False
        oldest = min(ended, key=lambda order: (order.ended_ms or order.made_ms, order.id))
        await self.moves.cluster.wishes.set_goal(oldest.id, None, self.checks)
        return True

    def drain_of(self, broker: str) -> GoalOrder | None:
        """The order that goes with the drain of a cordoned broker."""
        orders = self.moves.cluster.wishes.goals.values()
        return next((order for order in orders if order.drains == broker), None)

    async def order_drain(self, broker: str, note: str) -> GoalOrder:
        """Order what goes with the drain of a cordoned broker, with the plan for it where the load
        is known. There are as many as there are cordons.
        """
        goal, now_ms = Emptied(broker), self._now_ms()
        promise = Promise.nothing(Reason("ByPlacement", "the load is not known beforehand"))
        if self.hold() is None:
            with contextlib.suppress(NotFoundError):
                made = await self.planning.plan(goal, NO_LIMITS)
                promise = self._promise(made)
        self._number += 1
        order = GoalOrder(
            id=f"{self.moves.term.epoch}-g{self._number}",
            goal=goal,
            limits=NO_LIMITS,
            state="approved",
            made_ms=now_ms,
            approved_ms=now_ms,
            note=note,
            drain=True,
            promise=promise,
        )
        await self._make_room()
        await self._store(order)
        return order

    # What operators ask

    def list(self) -> GoalsShown:
        """All orders, the newest first."""
        orders = sorted(
            self.moves.cluster.wishes.goals.values(), key=lambda order: (-order.made_ms, order.id)
        )
        return GoalsShown(goals=[self._shown(order) for order in orders])

    def goal(self, order_id: str) -> GoalShown:
        """One order. Raises `NotFoundError`."""
        return self._shown(self._order(order_id))

    async def approve(self, order_id: str, from_ms: int | None = None) -> GoalShown:
        """Let an order be carried out, from now or a later time on. A broker that is to be emptied
        is cordoned. Raises `ConflictError` for one that is approved already, has ended or lapsed,
        and `BadInputError` for a time that is none.
        """
        async with self._changes:
            order = self._order(order_id)
            if order.state != "proposed":
                why = f": {order.ended}" if order.ended else ""
                raise ConflictError(f"goal {order_id} is {order.state} already{why}")
            self._check_begins(from_ms)
            if self._lapsed(order):
                raise ConflictError(f"goal {order_id} has lapsed: {LAPSED.text}")
            await self._begin(self._approved_form(order, from_ms))
        log.info("goal approved", goal=order_id)
        return self.goal(order_id)

    def _lapsed(self, order: GoalOrder) -> bool:
        return order.lapses_ms is not None and self._now_ms() >= order.lapses_ms

    def _approved_form(self, order: GoalOrder, from_ms: int | None) -> GoalOrder:
        """An order as it is when it is approved; nothing is stored."""
        now_ms = self._now_ms()
        begins_ms = max(from_ms or 0, order.limits.from_ms)
        ends_ms = until_ms(order.limits, max(begins_ms, now_ms))
        if ends_ms <= max(begins_ms, now_ms):
            raise ConflictError(f"goal {order.id} would have to be done before it begins")
        limits = replace(order.limits, from_ms=begins_ms, until_ms=ends_ms)
        goals.check(order.goal, limits)
        _check_windows(limits, max(begins_ms, now_ms), ends_ms)
        self._check_cordons(order.goal, empties=True)
        return replace(order, state="approved", approved_ms=now_ms, limits=limits)

    async def _begin(self, approved: GoalOrder) -> None:
        """Store an approved order; the broker that it empties is cordoned first."""
        broker, wishes = approved.empties, self.moves.cluster.wishes
        if broker and broker not in wishes.cordons:
            cordon = Cordon(self._now_ms(), note=f"emptied by goal {approved.id}")
            await wishes.cordon(broker, cordon, self.checks)
        await self._store(approved)
        why = self._not_now(approved) or self._why_not()
        if why is not None:  # who approves it is told
            waits = self._waits(approved)
            self.work.waits[approved.id] = to_no_purpose(approved, why, waits)

    async def stop(self, order_id: str) -> GoalShown:
        """End an order: its moves that wait are cancelled. A broker that was to be emptied stays
        cordoned, so that nothing comes back. Raises `ConflictError` for one that has ended.
        """
        async with self._changes:
            order = self._order(order_id)
            if order.state == "ended":
                raise ConflictError(f"goal {order_id} has ended already")
            cordon = self.moves.cluster.wishes.cordons.get(order.drains)
            if cordon is not None:
                stays = replace(cordon, drain=False)
                await self.moves.cluster.wishes.cordon(order.drains, stays, self.checks)
            await self.end_early(order, STOPPED, f"goal {order_id} was stopped")
        return self.goal(order_id)

    async def end_early(self, order: GoalOrder, why: Reason, cancelled: str) -> None:
        """End an order whose moves may be under way."""
        self.work.withdraw(order, cancelled)
        await self.work.end(await self.work.settled(order) or order, why)

    def _order(self, order_id: str) -> GoalOrder:
        order = self.moves.cluster.wishes.goals.get(order_id)
        if order is None:
            raise NotFoundError(f"there is no goal {order_id[:60]}")
        return order

    def _shown(self, order: GoalOrder, made: GoalPlan | None = None) -> GoalShown:
        fields = {name: getattr(order, name) for name in order.__struct_fields__}
        fields["progress"], fields["under_way"] = self.work.so_far(order)
        pause = self.planning.pause(fields["progress"], order.promise.pause_s)
        if order.state == "proposed":
            pause = self.moves.pauses.expected()
        compared = fields.pop("compared")
        waits = None
        if order.state == "approved":
            waits = self.work.waits.get(order.id) or self._drain_waits(order)
            waits = waits or self.work.between(order)
        stays = order.state == "ended" and order.empties in self.moves.cluster.wishes.cordons
        return GoalShown(
            **fields,
            waits=waits,
            pause_seconds=round(pause.seconds, 3),
            pause_source=pause.source,
            pause_at=pause.at_ms,
            moves=[PlannedMove.of(move) for move in made.moves[:MOVES_SHOWN]] if made else [],
            stays_cordoned=order.empties if stays else None,
            lapses_ms=order.lapses_ms,
            replay=self.moves.cluster.replay.shown,
            duration=self.work.pace.shown(
                order, fields["progress"], fields["under_way"], self._waits(order)
            ),
            compared=None if compared is None else ComparedMoves.of(compared),
            bounds=[*goals.bounds_of(order.limits), *([f"note: {order.note}"] * bool(order.note))],
        )

    def _drain_waits(self, order: GoalOrder) -> Reason | None:
        """Why no move of a drain may begin now."""
        if not order.drain:
            return None
        if (pause := self.moves.cluster.wishes.pause()) is not None:
            return Reason("Paused", _paused(pause))
        refusal = self.moves.hold_of(Author.DRAIN)
        return None if refusal is None else Reason("OnHold", refusal)

    # Carrying out

    def at_work(self) -> Reason | None:
        """Why the leader's own cycles wait: an order is being carried out."""
        for order in self._approved():
            if order.id in self.work.works and order.id not in self.work.waits:
                return Reason("GoalAtWork", f"goal {order.id} is carried out")
        return None

    def on_hold(self) -> bool:
        """Whether an approved order waits because the daemon may move nothing."""
        return any(each.code == "OnHold" for each in self.work.waits.values())

    def _approved(self) -> Sequence[GoalOrder]:
        orders = [
            order
            for order in self.moves.cluster.wishes.goals.values()
            if order.state == "approved" and not order.drain
        ]
        return sorted(orders, key=lambda order: (order.approved_ms or 0, order.id))

    async def step(self) -> None:
        """Go on with the orders: one after the other, as they were approved."""
        async with self._changes:
            self.work.steady.look()
            for order in list(self.moves.cluster.wishes.goals.values()):
                if self._lapsed(order):
                    await self.work.end(order, LAPSED)
                    continue
                late = order.state == "ended" and bool(order.under_way)
                if late and (settled := await self.work.settled(order)) is not None:
                    self.work.forget(settled)
                if self._why_not() is None:
                    await self.work.look_afterwards(order)
            await self._step()

    async def _step(self) -> None:
        at_work = None
        for order in self._approved():
            if order.limits.until_ms is not None and self._now_ms() >= order.limits.until_ms:
                waited = self.work.waits.get(order.id) or self.work.between(order)
                text = f"{TIME_IS_UP.text}; it waited: {waited}" if waited else TIME_IS_UP.text
                await self.end_early(order, replace(TIME_IS_UP, text=text), TIME_IS_UP.text)
                continue
            if order.empties and order.empties not in self.moves.cluster.wishes.cordons:
                await self.end_early(order, UNCORDONED, UNCORDONED.text)
                continue
            why = self._not_now(order)
            if why is not None and order.under_way:
                self.work.withdraw(order, str(why))
            settled = await self.work.settled(order)
            why = why or self._why_not() or self.work.bar_of(order)
            if why is None and at_work is not None:
                why = Reason("OneAtATime", f"goal {at_work} is carried out")
            if why is not None:
                self.work.waits[order.id] = to_no_purpose(order, why, self._waits(order))
                continue
            at_work = order.id
            if settled is not None:
                self.work.waits.pop(order.id, None)
                await self.work.go_on(settled)

    def _now_ms(self) -> int:
        return self.moves.term.clock.now_ms()

    def _not_now(self, order: GoalOrder) -> Reason | None:
        """Why this is not the time of an order."""
        if self._now_ms() < order.limits.from_ms:
            return Reason("NotYet", "its time has not come")
        goal, cordons = order.goal, self.moves.cluster.wishes.cordons
        if isinstance(goal, Filled) and goal.broker in cordons:
            return Reason("Cordoned", f"{goal.broker} takes no bundles until it is uncordoned")
        try:
            if not any_open(order.limits.windows, self._now_ms()):
                return Reason("OutsideWindows", ", ".join(order.limits.windows))
        except BadInputError as error:  # another machine knew the zone
            return Reason("OutsideWindows", str(error))
        return None

    def _waits(self, order: GoalOrder) -> Sequence[KnownWait]:
        """The waits of an order of which it is known when they end, beside its own hours."""
        waits = [*self.held_until(), *known_waits(self.work, order)]
        if (pause := self.moves.cluster.wishes.pause()) is not None:
            waits.append(KnownWait(_paused(pause), pause.until_ms, pause.until_ms))
        return waits

    def _why_not(self) -> Reason | None:
        """Why nothing is moved for any order now."""
        if (pause := self.moves.cluster.wishes.pause()) is not None:
            return Reason("Paused", _paused(pause))
        if (why := self.hold()) is not None:
            return why
        refusal = self.moves.hold_of(Author.GOAL)
        return None if refusal is None else Reason("OnHold", refusal)

    async def _store(self, order: GoalOrder) -> None:
        await self.moves.cluster.wishes.set_goal(order.id, order, self.checks)


def _paused(pause: Pause) -> str:
    return f"moves are paused until {moment(pause.until_ms)}"


def _check_windows(limits: PlanLimits, begins_ms: int, until_ms: int) -> None:
    """Raise `BadInputError` if no move could be made from a time on by another."""
    opens_ms = next_open_ms(limits.windows, begins_ms)
    if opens_ms >= until_ms:
        raise BadInputError(
            f"none of its windows ({', '.join(limits.windows)}) is open between "
            f"{moment(begins_ms)} and {moment(until_ms)}; the next one opens at "
            f"{moment(opens_ms)}: say a later --by (without it, a goal ends a day after its first "
            "window opens), or another --window"
        )
