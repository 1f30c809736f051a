"""Reaches the goals that operators ordered: a few moves, a look at fresh figures, the next moves.

A plan is proposed with what it would come to, and waits until somebody approves it. What is stored
is the goal with its limits and not the moves: these are planned anew after every few, so that a
broker that dies, or load that changes, changes the rest of the plan. An order outlives the leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_model import Learned
from loadmanager.engine.load.wishes import NOTE_MAX, Cordon
from loadmanager.engine.moves.move import Author, Move, MoveState
from loadmanager.engine.moves.queue import BY_OPERATOR
from loadmanager.engine.plans import goals, planner
from loadmanager.engine.plans.goals import Apart, Emptied, Goal, PlanLimits
from loadmanager.engine.plans.order import GoalOrder, Progress, Promise
from loadmanager.engine.plans.planner import GoalPlan
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.shedding import balanced
from loadmanager.kit.errors import (
    BadInputError,
    ConflictError,
    LoadManagerError,
    NotFoundError,
)
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.store import Check
from loadmanager.kit.reason import Reason
from loadmanager.leader.documents.goals import GoalShown, GoalsShown, PlannedMove
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.windows import Window, any_open

ORDERS_MAX = 50
"""Orders that are kept; those that ended first give way."""
MOVES_SHOWN = 200
AT_ONCE, LOOKS = 5, 20
"""Moves between two looks: so many, or this part of the plan if that is more."""
FRESH_MAX_S = 30.0
"""The next moves wait so long at most for reports that are newer than the last ones."""
DAY_MS = 86_400_000
"""An order that says no end ends a day after it may begin."""
FAILURES_MAX = 10
"""An order ends after so many moves in a row that failed."""
PAUSE_S = 1.0
"""The pause of a client that is assumed where none was measured."""

TIME_IS_UP = Reason("TimeIsUp", "it was to be done by now")

log = get_logger("goals")


@dataclass(slots=True)
class _Work:
    """What this leader knows of an order that it carries out."""

    batch: list[Move] = field(default_factory=list)
    ended_ms: int = 0
    """When the last batch ended."""
    touched: set[str] = field(default_factory=set)
    """The brokers of the last batch."""
    left: dict[str, str] = field(default_factory=dict)
    """Bundle → the broker that it left in the last batch."""
    client_seconds: float = 0.0
    """What each of these moves was expected to cost."""
    failures: list[str] = field(default_factory=list)
    """Why moves failed since one arrived."""
    refused: dict[str, str] = field(default_factory=dict)
    """Bundle → why it is not moved any more for this order."""

    def take(self) -> None:
        """The batch has ended. Bundles whose moves could not begin (they waited too long, their
        hours were over, the destination was cordoned) may be moved later.
        """
        for move in self.batch:
            text = move.outcome.text if move.outcome else move.state.value
            if move.state is MoveState.DONE:
                self.failures = []
            elif move.state is MoveState.FAILED:
                self.failures.append(text)
            if move.state is not MoveState.DONE and (move.started_at or text == BY_OPERATOR):
                self.refused[move.bundle] = text
        self.touched = {
            name for move in self.batch for name in (move.source, move.destination) if name
        }
        self.left = {move.bundle: move.source for move in self.batch}
        self.ended_ms = max(move.ended_at or 0 for move in self.batch)
        self.batch = []


@dataclass(slots=True, kw_only=True)
class TermGoals:
    """The orders of one term; implements `leader.ports.operating.Goals`."""

    checks: Sequence[Check]
    load_manager: LoadManager
    moves: Moves
    hold: Callable[[], Reason | None] = lambda: None
    """Why nothing is decided now: a new leader does not know the load yet, say."""
    _number: int = 0
    _work: dict[str, _Work] = field(default_factory=dict)
    _waits: dict[str, Reason] = field(default_factory=dict)
    """Order → why it does nothing now."""
    _changes: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One at a time changes approved orders: what an operator has stopped stays so."""

    # Proposing

    async def propose(
        self, goal: Goal, limits: PlanLimits, note: str = "", *, approve: bool = False
    ) -> GoalShown:
        """Plan the moves to a goal, and keep the order until it is approved; nothing is moved.

        With `approve` it is approved at once. Raises `BadInputError`, `NotFoundError` for a broker
        that does not report, and `ConflictError` when too many orders wait, or the load is not
        known yet.
        """
        goals.check(goal, limits)
        for text in limits.windows:
            Window.parse(text)
        if len(note) > NOTE_MAX:
            raise BadInputError(f"a note has at most {NOTE_MAX} characters")
        now_ms = self.moves.term.clock.now_ms()
        if limits.until_ms is not None and limits.until_ms <= now_ms:
            raise BadInputError("the time by which it is to be done is over")
        if (why := self.hold()) is not None:
            raise ConflictError(f"nothing can be planned yet: {why}")
        made = self._plan(goal, self._within(limits, Progress()))
        if made.reached and not made.moves and (why := await self._not_reported(goal)):
            raise ConflictError(f"{why}; try again in a moment")
        self._number += 1
        order = GoalOrder(
            id=f"{self.moves.term.epoch}-g{self._number}",
            goal=goal,
            limits=limits,
            made_ms=now_ms,
            note=note,
            promise=Promise.of(made),
        )
        await self._make_room()
        if made.reached and not made.moves:
            order = replace(order, state="ended", ended_ms=now_ms, ended=made.ends)
        await self._store(order)
        log.info("goal proposed", goal=order.id, moves=len(made.moves), ends=made.ends.code)
        if approve and order.state == "proposed":
            await self.approve(order.id)
        return self._shown(self._order(order.id), made)

    async def _make_room(self) -> None:
        orders = self.moves.cluster.wishes.goals
        if len(orders) < ORDERS_MAX:
            return
        ended = [order for order in orders.values() if order.state == "ended"]
        ended = ended or [order for order in orders.values() if order.state == "proposed"]
        if not ended:
            raise ConflictError(f"{ORDERS_MAX} goals are approved; stop some first")
        oldest = min(ended, key=lambda order: (order.ended_ms or order.made_ms, order.id))
        await self.moves.cluster.wishes.set_goal(oldest.id, None, self.checks)

    def _plan(
        self, goal: Goal, limits: PlanLimits, leaving: Mapping[str, str] | None = None
    ) -> GoalPlan:
        settings = self.load_manager.strategies.value
        snapshot = self._snapshot(goal)
        if snapshot.extensible:
            raise BadInputError(
                "plans need the load of every bundle, which brokers report in the modular load "
                "manager alone (loadManagerClassName)"
            )
        remembered: Learned = self.load_manager.memories.of(balanced.SHEDDER).model
        learned = remembered if remembered.brokers else self.load_manager.usage.learned
        try:
            made = planner.plan(snapshot, settings, goal, limits, learned=learned, leaving=leaving)
        except KeyError as error:
            raise NotFoundError(
                f"Broker {error.args[0]} is not active: the brokers are "
                f"{', '.join(sorted(snapshot.reports))}"
            ) from None
        if not remembered.brokers:
            self.load_manager.usage.learned = made.learned
        return made

    async def _not_reported(self, goal: Goal) -> Reason | None:
        """Why a broker that has no bundles by its report is not empty: the report is too old."""
        address = (
            self.moves.cluster.brokers.address(goal.broker) if isinstance(goal, Emptied) else None
        )
        if address is None:
            return None
        try:
            left = len(await self.moves.orders.mover.served_bundles(address))
        except LoadManagerError as error:
            return Reason("NotReported", str(error))
        text = f"{address.broker_id} serves {left} bundles that its last report does not have"
        return Reason("NotReported", text) if left else None

    def _snapshot(self, goal: Goal) -> ClusterSnapshot:
        """The cluster now. What must leave a broker leaves it also if it came a moment ago."""
        snapshot = self.load_manager.snapshot(self.load_manager.strategies.value)
        if isinstance(goal, Emptied | Apart):
            return snapshot.having(recently_unloaded_ms={})
        return snapshot

    def _within(self, limits: PlanLimits, progress: Progress) -> PlanLimits:
        """What is left of the limits; seconds of pause become clients, by the mean pause here."""
        pause_s = self.pause_s()
        clients = [
            each
            for each in (
                _left(limits.clients, progress.clients),
                _left(limits.client_seconds, progress.client_seconds, pause_s),
            )
            if each is not None
        ]
        return replace(
            limits,
            moves=limits.moves - progress.ordered,
            traffic=_left(limits.traffic, progress.traffic),
            clients=min(clients, default=None),
        )

    def pause_s(self) -> float:
        """The mean pause of the last moves, in seconds; `PAUSE_S` if none was measured."""
        pauses = [
            move.outcome.pause_ms / 1000
            for move in self.moves.queue.ended
            if move.outcome is not None and move.outcome.pause_ms is not None
        ]
        return sum(pauses) / len(pauses) if pauses else PAUSE_S

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
        is cordoned. Raises `ConflictError` for one that is approved already, or has ended.
        """
        async with self._changes:
            await self._approve(order_id, from_ms)
        log.info("goal approved", goal=order_id)
        return self.goal(order_id)

    async def _approve(self, order_id: str, from_ms: int | None) -> None:
        order, now_ms = self._order(order_id), self.moves.term.clock.now_ms()
        if order.state != "proposed":
            raise ConflictError(f"goal {order_id} is {order.state} already")
        begins_ms = max(from_ms or 0, order.limits.from_ms)
        until_ms = order.limits.until_ms
        if until_ms is None:
            until_ms = max(begins_ms, now_ms) + DAY_MS
        if until_ms <= max(begins_ms, now_ms):
            raise ConflictError(f"goal {order_id} would have to be done before it begins")
        if isinstance(order.goal, Emptied):
            await self._cordon(order.goal.broker, order_id, now_ms)
        limits = replace(order.limits, from_ms=begins_ms, until_ms=until_ms)
        await self._store(replace(order, state="approved", approved_ms=now_ms, limits=limits))

    async def _cordon(self, broker: str, order_id: str, now_ms: int) -> None:
        wishes = self.moves.cluster.wishes
        if broker in wishes.cordons:
            return
        if not self.moves.cluster.brokers.reports.keys() - wishes.cordons.keys() - {broker}:
            raise ConflictError(f"{broker} is the last broker that is not cordoned")
        cordon = Cordon(now_ms, note=f"emptied by goal {order_id}")
        await wishes.cordon(broker, cordon, self.checks)

    async def stop(self, order_id: str) -> GoalShown:
        """End an order: its moves that wait are cancelled. Raises `ConflictError` for one that has
        ended.
        """
        async with self._changes:
            order = self._order(order_id)
            if order.state == "ended":
                raise ConflictError(f"goal {order_id} has ended already")
            self._withdraw(order, f"goal {order_id} was stopped")
            await self._end(self._counted(order), Reason("Stopped", "by an operator"))
        return self.goal(order_id)

    def _withdraw(self, order: GoalOrder, why: str) -> None:
        """Cancel the moves of an order that wait."""
        for move in self._work.get(order.id, _Work()).batch:
            if move.state is MoveState.QUEUED:
                with contextlib.suppress(ConflictError):  # it begins at this moment
                    self.moves.cancel(move.id, why)

    def _order(self, order_id: str) -> GoalOrder:
        order = self.moves.cluster.wishes.goals.get(order_id)
        if order is None:
            raise NotFoundError(f"there is no goal {order_id[:60]}")
        return order

    def _shown(self, order: GoalOrder, made: GoalPlan | None = None) -> GoalShown:
        return GoalShown(
            **{name: getattr(order, name) for name in order.__struct_fields__},
            waits=self._waits.get(order.id) if order.state == "approved" else None,
            pause_seconds=round(self.pause_s(), 3),
            moves=[PlannedMove.of(move) for move in made.moves[:MOVES_SHOWN]] if made else [],
        )

    # Carrying out

    def at_work(self) -> Reason | None:
        """Why the leader's own cycles wait: an order is being carried out."""
        for order in self._approved():
            if order.id in self._work and order.id not in self._waits:
                return Reason("GoalAtWork", f"goal {order.id} is carried out")
        return None

    def _approved(self) -> Sequence[GoalOrder]:
        orders = [
            order for order in self.moves.cluster.wishes.goals.values() if order.state == "approved"
        ]
        return sorted(orders, key=lambda order: (order.approved_ms or 0, order.id))

    async def step(self) -> None:
        """Go on with the orders: one after the other, as they were approved."""
        async with self._changes:
            await self._step()

    async def _step(self) -> None:
        at_work = None
        for order in self._approved():
            if order.limits.until_ms is not None and self._now_ms() >= order.limits.until_ms:
                self._withdraw(order, TIME_IS_UP.text)
                await self._end(self._counted(order), TIME_IS_UP)
                continue
            why = self._not_now(order)
            if why is not None:
                self._withdraw(order, str(why))
            why = why or self._why_not()
            if why is None and at_work is not None:
                why = Reason("OneAtATime", f"goal {at_work} is carried out")
            if why is not None:
                self._waits[order.id] = why
                continue
            self._waits.pop(order.id, None)
            at_work = order.id
            await self._go_on(order, self._work.setdefault(order.id, _Work()))

    def _now_ms(self) -> int:
        return self.moves.term.clock.now_ms()

    def _not_now(self, order: GoalOrder) -> Reason | None:
        """Why this is not the time of an order."""
        if self._now_ms() < order.limits.from_ms:
            return Reason("NotYet", "its time has not come")
        try:
            if not any_open(order.limits.windows, self._now_ms()):
                return Reason("OutsideWindows", ", ".join(order.limits.windows))
        except BadInputError as error:  # another machine knew the zone
            return Reason("OutsideWindows", str(error))
        return None

    def _why_not(self) -> Reason | None:
        """Why nothing is moved for any order now."""
        if self.moves.cluster.wishes.pause() is not None:
            return Reason("Paused", "moves are paused")
        if (why := self.hold()) is not None:
            return why
        refusal = self.moves.hold_of(Author.GOAL)
        return None if refusal is None else Reason("OnHold", refusal)

    async def _go_on(self, order: GoalOrder, work: _Work) -> None:
        if any(not move.ended for move in work.batch):
            return
        if work.batch:
            order = self._counted(order)
            await self._store(order)
            work.take()
        if len(work.failures) >= FAILURES_MAX:
            text = f"{len(work.failures)} in a row: {work.failures[-1]}"
            await self._end(order, Reason("MovesFail", text))
        elif self._is_fresh(work):
            await self._order_next(order, work)

    def _is_fresh(self, work: _Work) -> bool:
        """Whether the brokers of the last moves have reported since."""
        if (self._now_ms() - work.ended_ms) / 1000 >= FRESH_MAX_S:
            return True
        reports = self.moves.cluster.brokers.reports
        return all(
            reports[broker].last_update >= work.ended_ms
            for broker in work.touched
            if broker in reports
        )

    async def _order_next(self, order: GoalOrder, work: _Work) -> None:
        left = self._within(order.limits, order.progress)
        stay = (*order.limits.stay, *work.refused)
        some = max(AT_ONCE, math.ceil(order.promise.moves / LOOKS))
        try:
            within = replace(left, moves=min(left.moves, some), stay=stay)
            made = self._plan(order.goal, within, work.left)
        except NotFoundError as error:
            await self._end(order, Reason("BrokerIsGone", str(error)))
            return
        spread, farthest = made.curve[0].spread, made.curve[0].farthest
        progress = replace(order.progress, spread=round(spread, 4), farthest=round(farthest, 4))
        order = replace(order, progress=progress)
        if made.reached and not made.moves and (why := await self._not_reported(order.goal)):
            self._waits[order.id] = why
            return
        if not made.moves:
            ends, refused = made.ends, next(iter(work.refused.values()), None)
            if refused is not None and not made.reached:
                ends = replace(ends, text=f"{ends.text}; {len(work.refused)} stay: {refused}")
            await self._end(order, ends)
            return
        await self._queue(order, work, made)

    async def _queue(self, order: GoalOrder, work: _Work, made: GoalPlan) -> None:
        named = [replace(move, why={**move.why, "goal": order.id}) for move in made.moves]
        settings = self.load_manager.strategies.value
        moves, skips = cycle.admitted(self._snapshot(order.goal), settings, named)
        if skips:
            work.refused.update((skip.what, skip.reason) for skip in skips)
            self.load_manager.record_plan(Plan("Goal", skipped=skips))
        if not moves:
            return  # without these bundles, the next plan is another one
        waiting, queue_max = self.moves.queue.waiting, self.moves.settings.value.queue_max
        moves = moves[: max(0, queue_max - waiting)]
        if not moves:
            text = f"{waiting} moves wait; loadManagerMovesQueueMax allows {queue_max}"
            self._waits[order.id] = Reason("QueueFull", text)
            return
        last = [move.bundle for move in made.moves].index(moves[-1].bundle) + 1
        point, progress, pause_s = made.curve[last], order.progress, self.pause_s()
        work.client_seconds = point.clients * pause_s / len(moves)
        ordered = replace(
            progress,
            ordered=progress.ordered + len(moves),
            traffic=progress.traffic + round(point.traffic),
            clients=progress.clients + point.clients,
            client_seconds=round(progress.client_seconds + point.clients * pause_s, 3),
        )
        await self._store(replace(order, progress=ordered))  # first: limits hold in any case
        work.batch = self.moves.decide(moves, Author.GOAL)
        log.info("moves towards a goal", goal=order.id, moves=len(work.batch))

    def _counted(self, order: GoalOrder) -> GoalOrder:
        """An order with what came of its last moves: pauses that were measured replace those that
        were expected.
        """
        work = self._work.get(order.id, _Work())
        ended = [move for move in work.batch if move.ended]
        arrived = sum(move.state is MoveState.DONE for move in ended)
        more_s = 0.0
        for move in ended:
            outcome = move.outcome
            if move.started_at is None:
                more_s -= work.client_seconds
            elif outcome and outcome.pause_ms is not None and outcome.clients_closed is not None:
                more_s += outcome.clients_closed * outcome.pause_ms / 1000 - work.client_seconds
        progress = order.progress
        counted = replace(
            progress,
            arrived=progress.arrived + arrived,
            failed=progress.failed + len(ended) - arrived,
            client_seconds=round(max(0.0, progress.client_seconds + more_s), 3),
        )
        return replace(order, progress=counted)

    async def _end(self, order: GoalOrder, why: Reason) -> None:
        await self._store(replace(order, state="ended", ended_ms=self._now_ms(), ended=why))
        self._work.pop(order.id, None)
        self._waits.pop(order.id, None)
        progress = order.progress
        log.info(
            "goal ended",
            goal=order.id,
            why=str(why),
            promised_moves=order.promise.moves,
            moves=progress.arrived,
            failed=progress.failed,
            promised_farthest=order.promise.curve[-1].farthest,
            farthest=progress.farthest,
        )

    async def _store(self, order: GoalOrder) -> None:
        await self.moves.cluster.wishes.set_goal(order.id, order, self.checks)


def _left(limit: float | None, spent: float, unit: float = 1.0) -> float | None:
    return None if limit is None else max(0.0, limit - spent) / max(unit, 1e-3)
