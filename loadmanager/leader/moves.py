"""Carries out the leader's queue of moves during one term, and verifies each move afterwards.

A move is ordered from the source (`BundleOrders.release`), which fences the bundle, gives it up and
has the destination acquire it. Whatever the answer is, and if none comes in time, the leader then
reads who owns the bundle: that is what is recorded. A bundle that nobody owns is acquired by the
destination or, if that refuses, by the source. Some seconds later the leader asks how many clients
came back.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import msgspec
from msgspec.structs import replace

from loadmanager.engine.moves.move import (
    NOT_AGAIN,
    NOT_OWNED,
    NOT_SENT,
    Author,
    Move,
    MoveState,
    Outcome,
    wish_against,
)
from loadmanager.engine.moves.queue import BY_OPERATOR, SUPERSEDED, Group, MoveQueue
from loadmanager.engine.moves.settings import MoveSettings
from loadmanager.engine.strategies.guards import together
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.plan_document import log_fields
from loadmanager.kit import tracing
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import asked_by
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError, LoadManagerError, OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.tasks import sleep
from loadmanager.leader.base import BundleOrders, LedCluster, TermBase
from loadmanager.leader.documents.moves import MovesShown, PauseShown
from loadmanager.leader.pauses import CanaryPause, ClientPauses
from loadmanager.leader.ports.mover import ClientsBack, NotAgainError, NotSentError, Released
from loadmanager.leader.preferred import Preferred

TICK_S = 1.0
READ_ATTEMPTS = 4
READ_AGAIN_S = 0.5
CLIENTS_ASKED_AFTER_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Waits between the questions how many clients came back."""
ASKED_LATER_S = (60.0, 120.0)
"""Further ones, where the destination does not serve the bundle any more."""
VERIFYING_MAX = 100
"""How many moves wait for their clients at once; the clients of further moves are not counted."""

PLANNED_AGAIN = "it waited until the next cycle, which plans again"

log = get_logger("moves")


class Unverified(msgspec.Struct, rename="camel"):
    """A move that has ended, and whose clients are not all seen back yet."""

    move: Move
    life: int | None = None
    """See `Moves.on_record`."""


@dataclass(slots=True, kw_only=True)
class Moves:
    """The moves of one term."""

    term: TermBase
    cluster: LedCluster
    orders: BundleOrders
    settings: Live[MoveSettings]
    hold_of: Callable[[Author], str | None] = lambda _author: None
    """Why no move that an author wants may begin now; None: it may."""
    queue: MoveQueue = field(default_factory=MoveQueue)
    canary: Callable[[], Sequence[CanaryPause]] = tuple
    """See `leader.pauses.ClientPauses`."""
    pauses: ClientPauses = field(init=False)
    preferred: Preferred = field(init=False)
    """The brokers of the next placements: a bundle that is unloaded goes where it is wanted."""
    on_change: list[Callable[[Move], None]] = field(default_factory=list, init=False)
    """Called whenever the state of a move, or what is known of its outcome, has changed."""
    on_end: list[Callable[[Move], None]] = field(default_factory=list, init=False)
    """Called once for each move as soon as it has ended, before its clients are counted."""
    on_record: list[Callable[[Move, int | None], None]] = field(default_factory=list, init=False)
    """Called once for each move, when its outcome is known, with the life of the bundle at the
    source, which the move ended; None: not told.
    """
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Replaced by another one when a move ends."""
    unverified: dict[str, Unverified] = field(default_factory=dict, init=False)
    """Moves that have ended, and whose clients are not all seen back yet, by id."""
    handed_over: frozenset[str] = field(default=frozenset(), init=False)
    """Those of them that are stored, so that the next leader goes on with them."""
    taken_up: list[Move] = field(default_factory=list, init=False)
    """Those of earlier leaders whose clients this one counts, or counted; the newest first."""
    _traces: dict[str, str] = field(default_factory=dict)
    """Move → the trace of the request that ordered it."""

    def __post_init__(self) -> None:
        """Prefer nothing yet."""
        self.pauses = ClientPauses(self.queue, self.canary)
        self.preferred = Preferred(self.term.clock)

    # Adding

    def decide(self, unloads: Sequence[Unload], author: Author) -> list[Move]:
        """Queue the moves of a plan; returns those for which the queue had room."""
        queued: list[Move] = []
        for swap in together(unloads):
            # The bundle that goes out stands last in a swap, and moves first: without it, nothing
            # may come back.
            moves = [self._move(unload, author) for unload in reversed(swap)]
            try:
                self._add(moves)
                queued += moves
            except ConflictError as error:
                for move in moves:
                    log.warning("a move was not queued", bundle=move.bundle, error=str(error))
        return queued

    def queue_all(self, unloads: Sequence[Unload], author: Author) -> list[Move]:
        """Queue all moves of a plan. Raises `ConflictError`, and queues none, without room."""
        limit = self.settings.value.queue_max
        if self.queue.waiting + len(unloads) > limit:
            raise ConflictError(
                f"{self.queue.waiting} moves wait and {len(unloads)} would be added; "
                f"loadManagerMovesQueueMax allows {limit}"
            )
        return self.decide(unloads, author)

    def _move(self, unload: Unload, author: Author) -> Move:
        why = dict(unload.why)
        if author in (Author.OPERATOR, Author.PLAN) and (by := asked_by()):
            why["orderedBy"] = by
        return Move(
            id=f"{self.term.epoch}-m{next(self._numbers)}",
            bundle=unload.bundle,
            source=unload.source,
            destination=unload.destination,
            reason=unload.reason,
            why=why,
            author=author,
            swap=unload.swap,
            state=MoveState.QUEUED,
            created_at=self.term.clock.now_ms(),
            started_at=None,
            ended_at=None,
            outcome=None,
        )

    def _add(self, moves: Sequence[Move]) -> None:
        self.queue.add(moves, self.term.clock.monotonic_s(), self.settings.value)
        parent = tracing.traceparent()
        for move in moves:
            self._expect(move)
            if parent:
                self._traces[move.id] = parent
            _call(self.on_change, move)
        self._wake.set()

    def _expect(self, move: Move) -> None:
        """Count a bundle at its destination, for the decisions until it is there."""
        if move.destination is not None:
            self.cluster.view.placed(move.bundle, move.destination, self.term.clock.now_ms())

    async def move(self, unload: Unload, author: Author = Author.OPERATOR) -> Move:
        """Move a bundle now, before what the leader itself wants, and wait until that has ended.

        Raises `ConflictError` when the bundle is moving already, or nothing may be moved. The move
        is cancelled if nothing may be moved any more before it begins, or the caller is.
        """
        if (why := self.hold_of(author)) is not None:
            raise ConflictError(why)
        queued = self.queue.move_of(unload.bundle)
        if queued is not None and queued.state is MoveState.QUEUED:
            self.cancel(queued.id, SUPERSEDED)
        move = self._move(unload, author)
        self._add([move])
        try:
            await self.ended(move)
        except asyncio.CancelledError:
            if move.state is MoveState.QUEUED:
                self.cancel(move.id, "who ordered it is gone")
            raise
        return move

    async def ended(self, move: Move) -> None:
        """Wait until a move has ended."""
        while not move.ended:
            await self._changed.wait()

    async def idle(self) -> None:
        """Wait until no move waits or is under way."""
        while any(True for _ in self.queue.open_moves()):
            await self._changed.wait()

    # Queries and changes

    def shown(self, limit: int) -> MovesShown:
        """The pause, the moves that have not ended, and the last ones that have, those of earlier
        leaders that this one took up last.
        """
        moves = [*self.queue.open_moves(), *self.queue.ended, *self.taken_up][: max(limit, 0)]
        there = {move.id for move in moves}
        return MovesShown(
            paused=PauseShown.of(self.cluster.wishes.pause()),
            waiting=self.queue.waiting,
            running=self.queue.running(),
            moves=moves,
            taken_up=[move.id for move in self.taken_up if move.id in there],
        )

    def cancel(self, move_id: str | None, why: str = BY_OPERATOR, *, urgent: bool = True) -> int:
        """Cancel a move that waits, or all; returns how many. See `MoveQueue.cancel`."""
        return self._drop(self.queue.cancel(move_id, self.term.clock.now_ms(), why, urgent=urgent))

    def cancel_of(self, source: str, author: Author) -> int:
        """Cancel the waiting moves away from a broker that an author wanted."""
        return self._drop(self.queue.cancel_of(source, author, self.term.clock.now_ms()))

    def look_again(self) -> int:
        """Cancel the moves of cycles that still wait: they were planned from figures that are old
        now, and what of them is still worth it is planned again. Not while moves are paused.
        """
        if self.cluster.wishes.pause() is not None:
            return 0
        now_ms = self.term.clock.now_ms()
        return self._drop(self.queue.cancel_of(None, Author.CYCLE, now_ms, PLANNED_AGAIN))

    def _drop(self, moves: Sequence[Move]) -> int:
        for move in moves:
            self.cluster.view.not_placed(move.bundle)
            _call(self.on_change, move)
            self._record(move)
        if moves:
            self._tell()
        return len(moves)

    def wake(self) -> None:
        """Look now what may start: a pause ended, say."""
        self._wake.set()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._wake.set()

    # Running

    async def run(self) -> None:
        """Start moves as soon as they may start, until the term ends."""
        try:
            while True:
                self._wake.clear()
                await self.term.steps.run("move", self._turn)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._wake.wait()
        finally:
            for move in list(self.queue.open_moves()):
                what = "what came of it is not known" if move.started_at else "it had not begun"
                move.state = MoveState.CANCELLED
                move.outcome = Outcome(f"the leader's term ended; {what}")
                move.ended_at = self.term.clock.now_ms()
                _call(self.on_change, move)
                self._record(move)
            self._tell()

    async def _turn(self) -> None:
        now_s, settings = self.term.clock.monotonic_s(), self.settings.value
        self._drop(self.queue.expire(now_s, self.term.clock.now_ms(), settings))
        for move in self.queue.open_moves():
            self._expect(move)
        paused = self.cluster.wishes.pause() is not None
        on_hold = {author for author in Author if self.hold_of(author) is not None}
        if (why := self.hold_of(Author.OPERATOR)) is not None:  # somebody waits for an answer
            for move in list(self.queue.open_moves()):
                if move.author is Author.OPERATOR and move.state is MoveState.QUEUED:
                    self.cancel(move.id, why)
        for group in self.queue.start(now_s, settings, paused=paused, held_authors=on_hold):
            self.term.scope.spawn(self._run(group), f"move {group.moves[0].bundle}")

    async def _run(self, group: Group) -> None:
        for move in group.moves:
            if move.ended:
                continue  # a move of its swap failed
            with self._traced(move) as span:
                made = await self.term.steps.run("move", partial(self._make, move))
                if not made and not move.ended:
                    self._end(move, MoveState.FAILED, Outcome("a bug; the log has it"), left=False)
                _note_end(span, move)

    def _traced(self, move: Move) -> AbstractContextManager[tracing.Span]:
        parent = self._traces.get(move.id, "")
        return tracing.span(
            "move",
            parent,
            id=move.id,
            bundle=move.bundle,
            source=move.source,
            destination=move.destination or "",
            reason=move.reason,
            author=move.author.value,
        )

    async def _make(self, move: Move) -> None:
        source = self.cluster.brokers.address(move.source)
        destination = self.cluster.brokers.address(move.destination) if move.destination else None
        problem = self._obstacle(move, source, destination)
        if problem is not None or source is None:
            self._end(move, MoveState.FAILED, Outcome(str(problem)), left=False)
            return
        if (wish := wish_against(move, self.cluster.wishes.now())) is not None:
            self._end(move, MoveState.CANCELLED, Outcome(wish), left=False)
            return
        move.state, move.started_at = MoveState.RUNNING, self.term.clock.now_ms()
        move.clients = self._clients_of(move)
        _call(self.on_change, move)
        log.info("bundle moves", epoch=self.term.epoch, **log_fields(move, *LOGGED))
        if destination is not None:
            self.preferred.set(move.bundle, destination.broker_id)
        released, failed = await self._order(move, source, destination)
        answered_s = self.term.clock.monotonic_s()
        unanswered = released is None and failed is not None and failed.code is None
        owner, failed = await self._settled(move, source, destination, failed)
        there = owner == move.destination if destination else owner not in (move.source, UNKNOWN)
        given_up, pause_ms = released or Released(), None if released is None else released.pause_ms
        if pause_ms is not None and (failed is not None or not there):
            # The source counted until it had given the bundle up, and nobody took it over then.
            more_ms = 1000 * (self.term.clock.monotonic_s() - answered_s)
            pause_ms = None if owner in (None, UNKNOWN) else pause_ms + more_ms
        outcome = replace(
            failed or Outcome("moved"),
            owner=None if owner == UNKNOWN else owner,
            clients_closed=given_up.clients,
            pause_ms=pause_ms,
            unanswered_since=move.started_at if unanswered else None,
        )
        state = MoveState.DONE if there else MoveState.FAILED
        left = owner not in (move.source, UNKNOWN)
        self._end(move, state, outcome, left=left, life=given_up.life)

    def _clients_of(self, move: Move) -> int | None:
        """How many clients its bundle has, by the last report of the modular manager."""
        report = self.cluster.view.reports.get(move.source)
        stats = None if report is None else report.last_stats.get(move.bundle)
        return None if stats is None else int(stats.producer_count + stats.consumer_count)

    def _obstacle(
        self, move: Move, source: BrokerAddress | None, destination: BrokerAddress | None
    ) -> str | None:
        """Why a move cannot begin any more."""
        if source is None:
            return f"{move.source} is gone: the next lookup places the bundle"
        if move.destination is not None and destination is None:
            return f"{move.destination} is gone"
        return None

    async def _order(
        self, move: Move, source: BrokerAddress, destination: BrokerAddress | None
    ) -> tuple[Released | None, Outcome | None]:
        """Have the source release the bundle; returns its answer, and what went wrong."""
        epoch = None if move.author is Author.OPERATOR else self.term.epoch
        timeout_s = self.settings.value.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                released = await self.orders.release(source, move.bundle, destination, epoch=epoch)
        except OperationalError as error:
            codes = {NotSentError: NOT_SENT, NotAgainError: NOT_AGAIN}
            return None, Outcome(str(error), code=codes.get(type(error)))
        except TimeoutError:
            return None, Outcome(f"{source.broker_id} did not finish within {timeout_s:g} s")
        not_owned = Outcome("the source did not own it", code=NOT_OWNED)
        return released, None if released else not_owned

    async def _settled(
        self,
        move: Move,
        source: BrokerAddress,
        destination: BrokerAddress | None,
        failed: Outcome | None,
    ) -> tuple[str | None, Outcome | None]:
        """Repair a move that left the bundle without an owner; returns its owner now, and what went
        wrong.
        """
        owner = await self._owner(move.bundle)
        not_owned = failed is not None and failed.code == NOT_OWNED
        if owner is not None or destination is None or not_owned:
            return owner, failed
        wishes = self.cluster.wishes.now()
        for broker in (destination, source):
            if wishes.refuses_it(broker.broker_id, move.bundle):
                continue
            with contextlib.suppress(LoadManagerError):
                await self.orders.mover.acquire_bundle(broker, move.bundle, epoch=self.term.epoch)
                break
        repaired = await self._owner(move.bundle)
        failed = failed or Outcome(f"{destination.broker_id} did not take it")
        then = "the next lookup places it" if repaired is None else f"repaired: {repaired} owns it"
        return repaired, replace(failed, text=f"{failed.text}; {then}")

    async def _owner(self, bundle: str) -> str | None:
        """The owner; `UNKNOWN` if the store does not say."""
        for attempt in range(READ_ATTEMPTS):
            try:
                return await self.orders.owner(bundle)
            except LoadManagerError:
                if attempt < READ_ATTEMPTS - 1:
                    await sleep(READ_AGAIN_S)
        return UNKNOWN

    # Ending

    def _end(
        self,
        move: Move,
        state: MoveState,
        outcome: Outcome,
        *,
        left: bool,
        life: int | None = None,
    ) -> None:
        """Record the end of a move; `left`: the source no longer owns the bundle; `life`: as
        `on_record`.
        """
        ended = self.queue.end(move, state, outcome, self.term.clock.now_ms())
        if left:
            self.cluster.view.moved(move.bundle, move.source, self.term.clock.now_ms())
        if state is not MoveState.DONE:
            self.preferred.forget(move.bundle)
            for other in ended:
                self.cluster.view.not_placed(other.bundle)
        self._tell()
        for other in ended:
            _call(self.on_end, other)
            _call(self.on_change, other)
        for other in ended[1:]:
            self._record(other)
        if state is MoveState.DONE and move.destination and outcome.clients_closed:
            self.term.scope.spawn(self._verify(move, outcome, life), f"verify {move.bundle}")
        else:
            self._record(move, life)

    async def _verify(self, move: Move, outcome: Outcome, life: int | None) -> None:
        """Ask for the clients that came back, then record the move; if the term ends before that
        and the move is in `handed_over`, the next leader does both.
        """
        closed, over, at, came = outcome.clients_closed or 0, False, "", False
        verifying = self.unverified[move.id] = Unverified(move, life)
        try:
            waits = (*CLIENTS_ASKED_AFTER_S, *ASKED_LATER_S)
            for wait_s in waits if len(self.unverified) <= VERIFYING_MAX else ():
                if wait_s in ASKED_LATER_S and at == move.destination:
                    break
                await sleep(wait_s)
                at, back = await self._clients(move, closed)
                if came and at not in ("", move.destination):
                    break  # what took the bundle away again is not this move's doing
                if back is not None and back.count >= (outcome.clients_back or 0):
                    outcome = _with_clients(outcome, back, at)
                    came = at == move.destination and back.count > 0
                    if move.ended_at is not None:
                        outcome.clients_within_ms = self.term.clock.now_ms() - move.ended_at
                    move.outcome = outcome
                    if back.count >= closed:
                        break
        except asyncio.CancelledError:
            over = True
            raise
        finally:
            if (
                self.unverified.get(move.id) is verifying
            ):  # two managers may count from the same term
                del self.unverified[move.id]
            _call(self.on_change, move)
            if not (over and move.id in self.handed_over):
                self._record(move, life)

    def take_up(self, moves: Sequence[Unverified]) -> None:
        """Go on with the moves of earlier leaders of which they did not see the clients back."""
        self.taken_up = [each.move for each in moves]
        self.taken_up.sort(key=lambda move: -(move.ended_at or 0))
        for each in sorted(moves, key=lambda it: it.move.ended_at or 0):
            outcome = each.move.outcome or Outcome("moved")
            if each.move.ended_at is not None:
                self.cluster.view.moved(each.move.bundle, each.move.source, each.move.ended_at)
            self.term.scope.spawn(
                self._verify(each.move, outcome, each.life), f"verify {each.move.bundle}"
            )

    async def _clients(self, move: Move, closed: int) -> tuple[str, ClientsBack | None]:
        """Those at the destination; if that does not serve the bundle any more, at its present
        owner; with the broker of which it is known that it serves the bundle.
        """
        destination = self.cluster.brokers.address(move.destination or "")
        if destination is not None:
            with contextlib.suppress(LoadManagerError):  # it may be dead: then another owns it
                back = await self.orders.mover.clients_back(destination, move.bundle, closed)
                if back is not None:
                    return destination.broker_id, self._since_the_end(move, back)
        try:
            owner = self.cluster.brokers.address(await self.orders.owner(move.bundle) or "")
            if owner is None or owner == destination:
                return "", None
            back = await self.orders.mover.clients_back(owner, move.bundle, closed)
        except LoadManagerError:
            return "", None
        return owner.broker_id, back and self._since_the_end(move, back)

    def _since_the_end(self, move: Move, back: ClientsBack) -> ClientsBack:
        """The same with times since the move ended, if the bundle is served since later: by another
        broker, or by the destination once more.
        """
        if back.served_ms is None:
            return back
        began_ms = self.term.clock.now_ms() - back.served_ms
        late_ms = max(0.0, began_ms - (move.ended_at or began_ms))
        return dataclasses.replace(
            back, returned_ms=tuple(late_ms + each for each in back.returned_ms)
        )

    def _record(self, move: Move, life: int | None = None) -> None:
        outcome = move.outcome
        self._traces.pop(move.id, None)
        tell = log.info if move.state is MoveState.DONE else log.warning
        tell(
            "move ended",
            id=move.id,
            bundle=move.bundle,
            state=move.state.value,
            reason=move.reason,
            source=move.source,
            destination=move.destination,
            outcome=outcome and outcome.text,
            owner=outcome and outcome.owner,
            clients_closed=outcome and outcome.clients_closed,
            clients_back=outcome and outcome.clients_back,
            clients_waited_ms=outcome and outcome.clients_waited_ms,
            pause_ms=outcome and outcome.pause_ms,
        )
        for listener in self.on_record:
            listener(move, life)


def _note_end(span: tracing.Span, move: Move) -> None:
    outcome = move.outcome
    span.note(state=move.state.value)
    if outcome is not None:
        span.note(
            owner=outcome.owner, pause_ms=outcome.pause_ms, clients_closed=outcome.clients_closed
        )
        if move.state is not MoveState.DONE:
            span.fail(outcome.text)


def _with_clients(outcome: Outcome, back: ClientsBack, at: str) -> Outcome:
    """What came of a move, with how long its clients were without a broker: from the fence at the
    source until the destination, or the owner after it, served, and from then on until each was
    served there.
    """
    outcome = replace(
        outcome,
        clients_back=back.count,
        clients_unserved=back.unserved,
        clients_back_at=None if at == outcome.owner else at,
    )
    if outcome.pause_ms is None or not back.returned_ms:
        return outcome
    waited_ms = [round(outcome.pause_ms + each, 1) for each in back.returned_ms]
    return replace(
        outcome,
        clients_waited_ms=waited_ms[-1],
        clients_waited_mean_ms=round(sum(waited_ms) / len(waited_ms), 1),
    )


def _call(listeners: Sequence[Callable[[Move], None]], move: Move) -> None:
    for listener in listeners:
        listener(move)


UNKNOWN = "?"
LOGGED = ("id", "bundle", "source", "destination", "reason", "author")
