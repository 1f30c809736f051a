"""Carries out the orders to reach goals: a few moves, what came of them, fresh figures, the next
moves.

The moves of an order are stored before they are queued, with what each costs. When they have ended,
what really moved counts, against the limits and in the judgement at the end. A leader that takes an
order over does not know what became of the moves that the last one had ordered: it reads where
their bundles are.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from loadmanager.engine.moves.move import NOT_AGAIN, Author, Move, MoveState
from loadmanager.engine.moves.queue import BY_OPERATOR, SUPERSEDED
from loadmanager.engine.plans.goals import MOVES_MAX, NO_LIMITS, Emptied, Goal, PlanLimits
from loadmanager.engine.plans.order import Afterwards, GoalOrder, MadeAsShown, OrderedMove, Progress
from loadmanager.engine.plans.planner import (
    AWAY,
    LIMITS,
    NOTHING_HELPS,
    REACHED,
    GoalPlan,
    Point,
)
from loadmanager.engine.strategies.guards import together
from loadmanager.engine.strategies.plan import Plan, Unload
from loadmanager.kit.errors import ConflictError, LoadManagerError, NotFoundError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import for_each
from loadmanager.kit.text import moment
from loadmanager.kit.units import MINUTE_MS
from loadmanager.leader.goal_bars import SOON_MS, Bar, GoalWait, refused_by
from loadmanager.leader.goal_ends import (
    FRESH_MAX_S,
    EndLook,
    SteadyPicture,
    named,
    reported_ms,
    waits,
)
from loadmanager.leader.goal_pace import AT_ONCE, GoalPace, KnownWait, batch_of, to_no_purpose
from loadmanager.leader.goal_planning import GoalPlanning
from loadmanager.leader.goal_progress import counted, with_ended
from loadmanager.leader.pauses import PAUSE_SOURCES

FAILURES_MAX = 10
"""An order ends after so many moves in a row that failed."""
TIMES_PROMISED = 2
"""An order without a limit of moves makes so many times those that were promised, and `AT_ONCE` at
least: figures that are never still would keep it moving for ever. One whose plan another limit cut
short makes so many times those that fitted: nobody has seen more.
"""
LATE_MS = 10_000
"""A bundle that a dead leader had ordered to move, and that is still at its broker after this time,
does not move any more: that broker has refused the old leader's orders since.
"""
READ_AT_ONCE = 8
AFTERWARDS_MS, AFTERWARDS_MAX_MS = 3 * MINUTE_MS, 30 * MINUTE_MS
"""What came of an order is looked at so long after it has ended; by a leader that comes later than
that, no more.
"""
AFTERWARDS_LATE_MS = 2 * AFTERWARDS_MS
"""After so long, also while moves are under way."""

log = get_logger("goals")


@dataclass(slots=True)
class OrderWork:
    """What this leader knows of an order that it carries out."""

    batch: list[Move] | None = None
    """The moves that this leader ordered last; None: what came of them is counted."""
    since_ms: int | None = None
    """When it first looked for the moves of an earlier leader."""
    ended_ms: int = 0
    """When the last batch ended."""
    looked: bool = field(init=False, default=True)
    """Whether its brokers have reported since."""
    touched: set[str] = field(default_factory=set)
    """The brokers of the last batch."""
    left: dict[str, str] = field(default_factory=dict)
    """Bundle → the broker that it left in the last batch."""
    failures: list[str] = field(default_factory=list)
    """Why moves failed since one arrived."""
    refused: dict[str, str] = field(default_factory=dict)
    """Bundle → why it is not moved any more for this order."""
    waiting: GoalWait = field(init=False, default_factory=GoalWait)

    curve: tuple[Point, ...] = field(init=False, default=())
    """What the first moves of the last batch come to, by the model."""
    end_look: EndLook | None = field(init=False, default=None)
    """The last look, if the order would end by it."""
    plan_again_ms: int = field(init=False, default=0)
    """Until then, that look's plan counts."""

    def take(self, batch: list[Move]) -> None:
        """The batch has ended. Bundles whose moves could not begin (they waited too long, their
        hours were over, the destination was cordoned), or were kept back halfway, may be moved
        later.
        """
        for move in batch:
            text = move.outcome.text if move.outcome else move.state.value
            if move.outcome is not None and move.outcome.code == NOT_AGAIN:
                continue
            if move.state is MoveState.DONE:
                self.failures = []
            elif move.state is MoveState.FAILED:
                self.failures.append(text)
            by_operator = text in (BY_OPERATOR, SUPERSEDED)
            if move.state is not MoveState.DONE and (move.started_at or by_operator):
                self.refused[move.bundle] = text
        self.touched = {name for move in batch for name in (move.source, move.destination) if name}
        self.left = {move.bundle: move.source for move in batch}
        self.ended_ms = max((move.ended_at or 0 for move in batch), default=0)
        self.looked = not self.ended_ms
        self.batch = None


@dataclass(slots=True, kw_only=True)
class GoalWork:
    """The work of one term."""

    planning: GoalPlanning
    store: Callable[[GoalOrder], Awaitable[None]]
    works: dict[str, OrderWork] = field(default_factory=dict)
    waits: dict[str, Reason] = field(default_factory=dict)
    """Order → why it does nothing now."""
    looked_after: set[str] = field(default_factory=set)
    """Orders that were looked at some minutes after they had ended."""
    steady: SteadyPicture = field(init=False)
    pace: GoalPace = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is known of the brokers yet."""
        self.steady = SteadyPicture(self.planning.moves)
        self.pace = GoalPace(self.planning.moves)

    def work_of(self, order_id: str) -> OrderWork:
        """Begin to work at an order, or go on."""
        return self.works.setdefault(order_id, OrderWork())

    def withdraw(self, order: GoalOrder, why: str) -> None:
        """Cancel the moves of an order that wait."""
        for move in self.work_of(order.id).batch or ():
            if move.state is MoveState.QUEUED:
                with contextlib.suppress(ConflictError):  # it begins at this moment
                    self.planning.moves.cancel(move.id, why)

    # What came of it

    async def settled(self, order: GoalOrder) -> GoalOrder | None:
        """The order with what came of its last moves; None while that is not known."""
        if not order.under_way:
            return order
        work = self.work_of(order.id)
        if work.batch is None:
            return await self._look_for_moves(order, work)
        progress, left = self.so_far(order)
        if left or self._clients_out(order, work.batch):
            return None
        done = [move for move in work.batch if move.state is MoveState.DONE]
        compared = _and_made(order, ((move.bundle, move.destination or "") for move in done))
        order = replace(order, progress=progress, under_way=(), compared=compared)
        await self.store(order)
        work.take(work.batch)
        return order

    def _clients_out(self, order: GoalOrder, batch: Sequence[Move]) -> int:
        """How many of its moves wait for their clients, where their seconds are limited; nobody
        waits long for those that do not come back.
        """
        if order.limits.client_seconds is None:
            return 0
        moves = self.planning.moves
        oldest_ms = moves.term.clock.now_ms() - FRESH_MAX_S * 1000
        return sum(it.id in moves.unverified and (it.ended_at or 0) > oldest_ms for it in batch)

    def so_far(self, order: GoalOrder) -> tuple[Progress, int]:
        """The progress with what has ended of the last moves, and how many are under way. It is
        stored when all have ended: until then, another leader would look where their bundles are.
        """
        work = self.works.get(order.id)
        if work is None or work.batch is None or not order.under_way:
            return order.progress, len(order.under_way)
        progress, left = counted(order, work.batch)
        arrived = progress.arrived - order.progress.arrived
        if arrived < len(work.curve):
            progress = progress.at(work.curve[arrived])
        return progress, left

    async def _look_for_moves(self, order: GoalOrder, work: OrderWork) -> GoalOrder | None:
        """Where the bundles are whose moves an earlier leader ordered."""
        moves, now_ms = self.planning.moves, self.planning.moves.term.clock.now_ms()
        if work.since_ms is None:
            work.since_ms = now_ms

        async def owner(move: OrderedMove) -> str | None:
            return await moves.orders.owner(move.bundle)

        try:
            owners = await for_each(order.under_way, owner, READ_AT_ONCE, "owners")
        except LoadManagerError as error:
            self.waits[order.id] = Reason("OwnersUnknown", str(error))
            return None
        where = list(zip(order.under_way, owners, strict=True))
        late = any(owner == move.source for move, owner in where) and not order.drain
        if late and now_ms - work.since_ms < LATE_MS:
            text = "moves of the leader before may still be made"
            self.waits[order.id] = Reason("EarlierLeader", text)
            return None
        progress = order.progress
        for move, at in where:
            if at == move.source and order.drain:  # it is ordered again at once
                progress = replace(progress, ordered=progress.ordered - 1)
                continue
            progress = with_ended(progress, arrived=at == move.destination)
            if at != move.source:
                progress = progress.and_moved(move, move.client_seconds)
                moves.cluster.view.moved(move.bundle, move.source, now_ms)
        done = [move for move, at in where if at == move.destination]
        compared = _and_made(order, ((move.bundle, move.destination) for move in done))
        order = replace(order, progress=progress, under_way=(), compared=compared)
        await self.store(order)
        self.waits.pop(order.id, None)
        work.since_ms, work.ended_ms = None, now_ms
        work.touched = {name for move, _ in where for name in (move.source, move.destination)}
        work.left = {move.bundle: move.source for move, at in where if at != move.source}
        log.info("moves of the leader before are counted", goal=order.id, moves=len(where))
        return order

    # The next moves

    def bar_of(self, order: GoalOrder) -> Reason | None:
        """What an order waits for, until it is time to look again."""
        work = self.works.get(order.id)
        now_ms = self.planning.moves.term.clock.now_ms()
        why = None if work is None else work.waiting.why(now_ms)
        if why is None:
            return None
        lost = self._bar_of_loss(order.goal)  # since then, say
        return why if lost is None else lost.why

    async def go_on(self, order: GoalOrder) -> None:
        """Order the next moves, or wait, or end the order."""
        work = self.work_of(order.id)
        work.waiting.end()
        if len(work.failures) >= FAILURES_MAX:
            text = f"{len(work.failures)} in a row: {work.failures[-1]}"
            await self.end(order, Reason("MovesFail", text))
        elif not self._late(work):
            if not work.looked:
                work.looked = True
                now_ms = self.planning.moves.term.clock.now_ms()
                self.pace.looked((now_ms - work.ended_ms) / 1000)
            if not self._waits_to_end(order, work):
                await self._order_next(order, work)

    def _waits_to_end(self, order: GoalOrder, work: OrderWork) -> bool:
        """Whether what the last look waits for has not come; it looks again soon in any case."""
        look, now_ms = work.end_look, self.planning.moves.term.clock.now_ms()
        if look is None or now_ms >= work.plan_again_ms:
            return False
        until = self.unsteady(order, work.ended_ms) or self.steady.again(look)
        if until is not None:
            self.waits[order.id] = waits(look, until)
        return until is not None

    def unsteady(self, order: GoalOrder | None, since_ms: int | None = None) -> str | None:
        """What the picture is not steady until, for an order or a new one; None: it is. `since_ms`:
        see `SteadyPicture.unsteady`.
        """
        moves = self.planning.moves
        others = [each for each in moves.cluster.wishes.goals.values() if each != order]
        settings = self.planning.load_manager.strategies.value
        snapshot = self.planning.load_manager.snapshot(settings)
        return self.steady.unsteady(snapshot, others, since_ms)

    def _late(self, work: OrderWork) -> list[str]:
        """The brokers of the last moves that have not reported since, for a while."""
        now_ms = self.planning.moves.term.clock.now_ms()
        if (now_ms - work.ended_ms) / 1000 >= FRESH_MAX_S:
            return []
        updated_ms = reported_ms(self.planning.moves.cluster)
        there = work.touched & updated_ms.keys()
        return [name for name in there if updated_ms[name] < work.ended_ms]

    def between(self, order: GoalOrder) -> Reason | None:
        """What an order that is carried out waits for between its moves."""
        work = self.works.get(order.id)
        if work is None:
            return None
        if not order.under_way:
            late = self._late(work)
            text = f"the next moves are planned when {named(late)} reported what the last ones did"
            return Reason("Reports", text) if late else None
        batch = work.batch or []
        left = [move for move in batch if not move.ended]
        queued = sum(move.state is MoveState.QUEUED for move in left)
        if left:
            return Reason("OwnMoves", self._own_moves(len(left) - queued, queued))
        if out := self._clients_out(order, batch):
            return Reason("Clients", f"the clients of {out} of its moves are not all back")
        return None

    def _own_moves(self, under_way: int, queued: int) -> str:
        """How many moves of an order are under way, and why others wait for their turn."""
        texts = [f"{under_way} of its moves {_are(under_way)} under way"] if under_way else []
        if queued:
            of = "" if under_way else " of its moves"
            texts.append(
                f"{queued}{of} {'waits for its' if queued == 1 else 'wait for their'} turn"
            )
        used_up = [it.text for it in self.pace.used_up(queued) if it.first_ms]
        return "; ".join([", ".join(texts), *used_up])

    async def _order_next(self, order: GoalOrder, work: OrderWork) -> None:
        left = self.planning.within(order.limits, order.progress, order.promise.pause_s)
        beyond = _beyond_promise(order)
        some = min(batch_of(order), beyond)
        some_left = replace(left, moves=min(left.moves, some))
        try:
            made, bar = await self._planned(order, work, some_left)
        except NotFoundError as error:
            await self._without_broker(order, work, str(error))
            return
        looked_at = replace(order, progress=order.progress.looked_at(made))
        if made.moves or bar is not None:
            work.end_look = None
        if bar is not None:
            work.waiting.bar = bar
            self.waits[order.id] = to_no_purpose(order, bar.why, known_waits(self, order))
            if looked_at != order:
                await self.store(looked_at)
        elif made.moves:
            await self._queue(looked_at, work, _measuring(order, made, left))
        elif made.reached and (why := await self.planning.not_reported(order.goal)):
            self.waits[order.id] = why
        elif made.ends.code != LIMITS.code and (why := self._not_yet(order, work, made)):
            self.waits[order.id] = why
            if looked_at != order:
                await self.store(looked_at)
        else:
            await self.end(looked_at, self._why_ended(order, work, made, beyond))

    async def _planned(
        self, order: GoalOrder, work: OrderWork, limits: PlanLimits
    ) -> tuple[GoalPlan, Bar | None]:
        """The next moves, and what bars them. Where some had to wait for their grace periods when
        they were shown, no others are made in their place until these are over.
        """
        refused = (*work.refused, *work.waiting.refused)
        later_ms = order.promise.later_ms or 0
        if self.planning.moves.term.clock.now_ms() < later_ms:
            until_ms = min(later_ms, order.limits.until_ms or later_ms)
            counted = await self.planning.counting_on(
                order.goal, limits, until_ms, work.left, refused
            )
            if counted is not None:
                made, grace = counted
                return made, self._bar_of_loss(order.goal) if made.moves else grace
        made = await self.planning.plan(order.goal, limits, work.left, refused=refused)
        return made, await self._bar(order.goal, work, made, limits)

    def _not_yet(self, order: GoalOrder, work: OrderWork, made: GoalPlan) -> Reason | None:
        """Why an order does not end yet that would end by this plan: the picture is not steady, or
        nothing but this look says that the goal is reached.
        """
        now_ms, before = self.planning.moves.term.clock.now_ms(), work.end_look
        text = "it looks reached" if made.reached else f"{made.ends.text}, as it looks"
        work.plan_again_ms = now_ms + SOON_MS
        if (until := self.unsteady(order, work.ended_ms)) is not None:
            work.end_look = EndLook(now_ms, text)
        elif made.reached and (before is None or before.reported_ms is None):
            work.end_look = self.steady.reached_by(text)
            until = self.steady.again(work.end_look)
        elif made.reached and before is not None:
            until = self.steady.again(before)
        return None if until is None or work.end_look is None else waits(work.end_look, until)

    async def _without_broker(self, order: GoalOrder, work: OrderWork, why: str) -> None:
        """The broker that is to be filled or emptied does not report: it may only start anew."""
        if (until := self.unsteady(order, work.ended_ms)) is None:
            await self.end(order, Reason("BrokerIsGone", why))
        else:
            look = EndLook(self.planning.moves.term.clock.now_ms(), why)
            self.waits[order.id] = waits(look, until)

    async def _bar(
        self, goal: Goal, work: OrderWork, made: GoalPlan, limits: PlanLimits
    ) -> Bar | None:
        """What bars every move that would help, if that passes."""
        if made.moves:
            return self._bar_of_loss(goal)
        if made.ends.code == AWAY.code:
            now_ms = self.planning.moves.term.clock.now_ms()
            return Bar(made.ends, now_ms + SOON_MS)
        if made.ends.code != NOTHING_HELPS.code:
            return None
        barred = await self.planning.barred(
            goal, limits, work.left, for_good=work.refused, passing=work.waiting.refused
        )
        if barred is not None:
            return barred[1]
        return work.waiting.for_arrivals(self.planning.snapshot(goal), goal)

    def _bar_of_loss(self, goal: Goal) -> Bar | None:
        """The wait until bundles of brokers that left are owned again, and their clients are back:
        where they come to, and what they carry there, is not known. Nobody waits for it who has to
        leave a broker.
        """
        if isinstance(goal, Emptied):
            return None
        load_manager = self.planning.load_manager
        snapshot = load_manager.snapshot(load_manager.strategies.value, passing=True)
        if (until := self.steady.after_loss(snapshot)) is None:
            return None
        text = f"it moves nothing more until {until}"
        return Bar(Reason("Unsteady", text), snapshot.now_ms + SOON_MS)

    def _why_ended(self, order: GoalOrder, work: OrderWork, made: GoalPlan, beyond: int) -> Reason:
        if made.ends.code == LIMITS.code and beyond <= 0:
            promised, moved = order.promise.moves, order.progress.moved
            count = "1 move was" if promised == 1 else f"{promised} moves were"
            text = f"{count} promised, and the goal is not reached after {moved}: "
            if _cut_short(order):
                text += "its limits leave more than was expected; propose it again"
            else:
                since = self.steady.changes_since(order.approved_ms or order.made_ms)
                text += f"{since or 'the load changes, or is known no better'}; propose it again"
            return Reason("BeyondPromise", text)
        text = made.ends.text
        if made.ends.code == LIMITS.code:
            text += f"; {self._used(order)}"
        if work.refused and not made.reached:
            text += f"; {_stay(work.refused)}"
        return replace(made.ends, text=text)

    def _used(self, order: GoalOrder) -> str:
        """What was used of the limits that an order has, and the pause that counts for more."""
        limits, progress = order.limits, order.progress
        used = [f"{progress.moved} of {limits.moves} moves"] if limits.moves < MOVES_MAX else []
        if limits.traffic is not None:
            used.append(f"{progress.traffic / 1e6:.3g} of {limits.traffic / 1e6:.3g} MB/s")
        if limits.clients is not None:
            used.append(f"{progress.clients:.3g} of {limits.clients:.3g} clients")
        if limits.client_seconds is None:
            return f"used: {', '.join(used)}"
        pause = self.planning.pause(progress, order.promise.pause_s)
        used.append(
            f"{progress.client_seconds:.3g} of {limits.client_seconds:.3g} client-seconds, by "
            f"{progress.clients:.3g} clients"
        )
        return (
            f"used: {', '.join(used)}; one more client counts as {pause.seconds:.3g} s: "
            f"{PAUSE_SOURCES[pause.source]}"
        )

    async def _queue(self, order: GoalOrder, work: OrderWork, made: GoalPlan) -> None:
        planning = self.planning
        moves, skips = planning.admitted(order.goal, order.id, made.moves)
        if skips:
            passing, for_good = refused_by(skips)
            work.waiting.refused |= passing
            work.refused |= for_good
            planning.load_manager.record_plan(Plan("Goal", skipped=skips))
        if not moves:
            return  # without these bundles, the next plan is another one
        waiting, queue_max = planning.moves.queue.waiting, planning.moves.settings.value.queue_max
        moves = moves[: max(0, queue_max - waiting)]
        if not moves:
            count = "1 move waits" if waiting == 1 else f"{waiting} moves wait"
            text = f"{count}; loadManagerMovesQueueMax allows {queue_max}"
            self.waits[order.id] = Reason("QueueFull", text)
            return
        await self.order_moves(order, moves, Author.GOAL, made)
        log.info("moves towards a goal", goal=order.id, moves=len(moves))

    async def order_moves(
        self, order: GoalOrder, moves: Sequence[Unload], author: Author, made: GoalPlan | None
    ) -> list[Move]:
        """Store the moves, with what each costs, and queue them; returns those for which the queue
        had room. Storing comes first: limits hold in any case, also if this leader dies now.
        """
        look_s = self.pace.look_s(order.progress)
        count = order.progress.ordered + len(moves)
        ordered = replace(order.progress, ordered=count, look_s=look_s)
        pause_s = self.planning.pause(order.progress, order.promise.pause_s).seconds
        under_way = self._with_costs(moves, made, pause_s)
        await self.store(replace(order, progress=ordered, under_way=under_way))
        work = self.work_of(order.id)
        in_turn = [move for swap in together(moves) for move in reversed(swap)]
        work.batch, work.waiting.arriving = self.planning.moves.decide(in_turn, author), None
        self.planning.ordered((it.bundle, it.destination, it.traffic) for it in under_way)
        planned = () if made is None else made.moves[: len(moves)]
        as_planned = [move.bundle for move in moves] == [move.bundle for move in planned]
        work.curve = made.curve if made is not None and as_planned else ()
        return work.batch

    def _with_costs(
        self, moves: Sequence[Unload], made: GoalPlan | None, pause_s: float
    ) -> tuple[OrderedMove, ...]:
        """The moves with what each costs: by the plan, or else by its broker's report."""
        curve = () if made is None else made.curve
        costs = {
            move.bundle: (after.traffic - before.traffic, after.clients - before.clients)
            for move, before, after in zip(
                () if made is None else made.moves, curve, curve[1:], strict=False
            )
        }
        with_costs = []
        for move in moves:
            traffic, clients = costs.get(move.bundle) or self.planning.cost_of(move)
            seconds = round(clients * pause_s, 3)
            with_costs.append(
                OrderedMove(
                    move.bundle,
                    move.source,
                    move.destination or "",
                    round(traffic),
                    round(clients, 3),
                    seconds,
                )
            )
        return tuple(with_costs)

    async def end(self, order: GoalOrder, why: Reason) -> None:
        """An order has ended; moves under way are counted when they have, too."""
        now_ms = self.planning.moves.term.clock.now_ms()
        await self.store(replace(order, state="ended", ended_ms=now_ms, ended=why))
        if why.code == REACHED.code and order.progress.moved:
            work = self.works.get(order.id)
            if work is not None and work.ended_ms and not order.drain:
                self.pace.ended((now_ms - work.ended_ms) / 1000)
            self.waits.pop(order.id, None)  # it may go on, without what was refused
        else:
            self.forget(order)
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

    async def look_afterwards(self, order: GoalOrder) -> None:
        """Store how even the brokers are some minutes after an order has ended: the last look at it
        was one at figures of which some were those of before its last moves.
        """
        now_ms = self.planning.moves.term.clock.now_ms()
        ended_ms = order.ended_ms or now_ms
        in_time = AFTERWARDS_MS <= now_ms - ended_ms < AFTERWARDS_MAX_MS
        moved = order.state == "ended" and order.progress.moved and not order.under_way
        looked = order.afterwards is not None and order.afterwards.at_ms >= ended_ms
        if not (in_time and moved) or looked or order.id in self.looked_after:
            return
        if now_ms - ended_ms < AFTERWARDS_LATE_MS and self.unsteady(order, ended_ms) is not None:
            return
        self.looked_after &= self.planning.moves.cluster.wishes.goals.keys()
        self.looked_after.add(order.id)
        with contextlib.suppress(NotFoundError):  # the broker that was filled is gone
            made = await self.planning.plan(order.goal, replace(NO_LIMITS, moves=0))
            now, reached = made.curve[0], None if made.ends.code == AWAY.code else made.reached
            spread, farthest, off = (round(it, 4) for it in (now.spread, now.farthest, made.error))
            after = Afterwards(now_ms, spread, farthest, reached, off)
            looked_at = replace(order, afterwards=after)
            if reached is False and self._may_go_on(order):
                await self._begin_again(looked_at)
            else:
                await self.store(looked_at)
                self.forget(order)

    def _may_go_on(self, order: GoalOrder) -> bool:
        """Whether an order that had ended as reached may still make moves: within its limits, and
        unless another one was approved after it.
        """
        limits, now_ms = order.limits, self.planning.moves.term.clock.now_ms()
        if order.ended is None or order.ended.code != REACHED.code or order.drain or order.empties:
            return False
        others = self.planning.moves.cluster.wishes.goals.values()
        later = any((each.approved_ms or 0) > (order.approved_ms or 0) for each in others)
        in_time = limits.until_ms is None or now_ms < limits.until_ms
        more = order.progress.moved < limits.moves and _beyond_promise(order) > 0
        return in_time and more and not later

    async def _begin_again(self, order: GoalOrder) -> None:
        self.looked_after.discard(order.id)
        before = self.works.pop(order.id, OrderWork())
        self.work_of(order.id).refused = before.refused
        await self.store(replace(order, state="approved", ended=None, ended_ms=None))
        log.info("goal goes on: it is not reached any more", goal=order.id)

    def forget(self, order: GoalOrder) -> None:
        """Nothing more is done for an order, unless moves are under way."""
        self.waits.pop(order.id, None)
        if not order.under_way:
            self.works.pop(order.id, None)


def known_waits(goals: GoalWork, order: GoalOrder) -> Iterable[KnownWait]:
    """What keeps moves of an order from being made until a time that is known."""
    now_ms = goals.planning.moves.term.clock.now_ms()
    work, promise = goals.works.get(order.id), order.promise
    bar = None if work is None else work.waiting.bar
    if bar is not None and bar.last_ms > now_ms:
        yield KnownWait(bar.why.text, bar.first_ms, bar.last_ms)
    elif promise.later is not None and (promise.later_ms or 0) > now_ms:
        yield KnownWait(promise.later.text, 0, promise.later_ms or 0)
    settled_ms = 0 if order.empties else goals.steady.settled_ms
    if settled_ms > now_ms:
        text = f"nothing moves before {moment(settled_ms)}, after a broker was lost"
        yield KnownWait(text, settled_ms, settled_ms)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _stay(refused: Mapping[str, str]) -> str:
    """Bundles that are not moved any more for an order, and why the first of them is not."""
    bundle, why = next(iter(refused.items()))
    if len(refused) == 1:
        return f"{bundle} is not moved again: {why}"
    return f"{len(refused)} bundles are not moved again; {bundle}: {why}"


def _and_made(order: GoalOrder, moves: Iterable[tuple[str, str]]) -> MadeAsShown | None:
    """What was shown beside what was made, with bundles that have arrived, and where."""
    return None if order.compared is None else order.compared.and_made(moves)


def _beyond_promise(order: GoalOrder) -> int:
    """How many moves an order may still make: more than that, nobody has approved."""
    promised, moved = order.promise.moves, order.progress.moved
    if _cut_short(order):
        return TIMES_PROMISED * promised - moved
    if order.limits.moves < MOVES_MAX or isinstance(order.goal, Emptied):
        return MOVES_MAX  # that was said; and of an emptied broker, each bundle leaves once
    return max(AT_ONCE, TIMES_PROMISED * promised) - moved


def _measuring(order: GoalOrder, made: GoalPlan, left: PlanLimits) -> GoalPlan:
    """The plan with as many moves as may be made at once where seconds of pause are limited: one
    that measures, then at most half of what is left of them, by what such moves took so far. What
    has no clients goes at any time.
    """
    if order.limits.client_seconds is None or left.clients is None:
        return made
    first = order.progress.pause_s is None
    clients = 0.0 if first else left.clients / 2
    fit = sum(point.clients <= clients for point in made.curve[1:])
    return dataclasses.replace(made, moves=made.moves[: fit + 1 if first else max(1, fit)])


def _cut_short(order: GoalOrder) -> bool:
    """Whether another limit than that of its moves ended the plan that was promised."""
    promise = order.promise
    return promise.ends.code == LIMITS.code and promise.moves < order.limits.moves
