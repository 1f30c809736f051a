"""Orders the bundles of moves that are undone back to where they came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from loadmanager.engine.load.wishes import Pin
from loadmanager.engine.moves.move import Author, Move, MoveState
from loadmanager.engine.strategies.plan import Unload
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import ConflictError, NotFoundError
from loadmanager.kit.metadata import paths
from loadmanager.kit.text import moment
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.undo import UndoStep
from loadmanager.leader.move_notes import moves_noted
from loadmanager.leader.plans import TermPlans
from loadmanager.leader.undo_documents import ADMIN, CannotUndoError, Draft, EarlierMoves

MOVES_MAX = 200
"""Moves that are undone at once."""
_PLAN = re.compile(r"POST /loadmanager/v1/plans/([^/?]+)/execute/?")
_WHY = {
    "place": "the bundle had no owner before: `bundles move` moves it elsewhere",
    "unload": "no archive has the end of a move that it ordered",
}
"""Kind of a decision → why there is no move to undo."""
ORDER = "it is an order, which stored nothing that could be put back"
DIVIDED = (
    f"bundles are not put together or divided again: `{ADMIN} bundles merge` and `bundles split` "
    "do that"
)


@dataclass(slots=True, kw_only=True)
class MovesBack:
    """The moves of a term, which `plans` knows."""

    plans: TermPlans
    why_not: Callable[[ChangeShown], str] = lambda _change: ORDER
    """Why an order that moved nothing is not undone."""
    divided: str = DIVIDED
    """Why splits and merges are not undone."""
    owned_since: Callable[[str, str], int | None] = lambda _bundle, _broker: None
    """Since when a broker has a bundle; None: not known."""
    lost_after: Callable[[str, int], int | None] = lambda _broker, _ms: None
    """When a broker was lost after a moment; None: it was not, or that is not known."""

    async def draft(
        self,
        draft: Draft,
        changes: Iterable[ChangeShown],
        decisions: Iterable[str],
        earlier: EarlierMoves,
    ) -> None:
        """Add the bundles that changes and decisions moved; their documents are added already."""
        wanted = [
            part for change in changes for part in self._moves_of_change(draft, change, earlier)
        ]
        for id_ in decisions:
            if id_ in earlier.by_decision:
                wanted += self._of_earlier_decision(draft, id_, earlier)
            else:
                wanted += self._moves_of_decision(draft, id_)
        # the changes of one request, as of an undo, name the same moves: the newest has them
        firsts: dict[str, tuple[str, str, Move]] = {}
        for each in wanted:
            firsts.setdefault(each[2].id, each)
        wanted = list(firsts.values())
        gone = await self.plans.gone([move.bundle for _, _, move in wanted])
        for id_, what, move in wanted[:MOVES_MAX]:
            try:
                await self._undo(draft, id_, what, move, gone=gone, earlier=earlier)
            except CannotUndoError as error:
                draft.refuse(id_, what, move.bundle, str(error))
        for id_, what, move in wanted[MOVES_MAX:]:
            draft.refuse(id_, what, move.bundle, f"at most {MOVES_MAX} moves are undone at once")

    def _moves_of_change(
        self, draft: Draft, change: ChangeShown, earlier: EarlierMoves
    ) -> Iterator[tuple[str, str, Move]]:
        id_ = change.id or ""
        plan, listed = _PLAN.match(change.what), moves_noted(change.note)
        try:
            if plan is not None and (not listed or self.plans.knows(plan[1])):
                moves: Sequence[Move] = self.plans.find(plan[1]).moves
            elif listed:
                moves = self._moves_named(listed, earlier)
            elif change.path is None:
                raise CannotUndoError(self.why_not(change))
            else:
                return
            yield from ((id_, str(change), move) for move in _made(moves))
        except (CannotUndoError, NotFoundError) as error:
            draft.refuse(id_, str(change), None, str(error))

    def _moves_named(self, ids: Sequence[str], earlier: EarlierMoves) -> list[Move]:
        queue = self.plans.moves.queue
        by_id = dict(earlier.by_move)
        by_id |= {move.id: move for move in [*queue.ended, *queue.open_moves()]}
        missing = [id_ for id_ in ids if id_ not in by_id]
        if missing:
            why = f"neither this leader nor an archive knows move {missing[0]}"
            raise CannotUndoError(earlier.why_unknown(why))
        return [by_id[id_] for id_ in ids]

    def _of_earlier_decision(
        self, draft: Draft, id_: str, earlier: EarlierMoves
    ) -> Iterator[tuple[str, str, Move]]:
        moves = earlier.by_decision[id_]
        what = f"{'move' if '-m' in id_ else 'decision'} of an earlier term"
        reasons = {**_WHY, "split": self.divided}
        try:
            for kind in sorted(earlier.decided[id_] & reasons.keys()):
                if not moves:
                    raise CannotUndoError(earlier.why_unknown(reasons[kind]))
            yield from ((id_, what, move) for move in _made(moves))
        except CannotUndoError as error:
            draft.refuse(id_, what, None, str(error))

    def _moves_of_decision(self, draft: Draft, id_: str) -> Iterator[tuple[str, str, Move]]:
        if "-m" in id_:
            try:
                moves = _made(self._moves_named([id_], EarlierMoves()))
                yield from ((id_, "move", move) for move in moves)
            except CannotUndoError as error:
                draft.refuse(id_, "move", None, str(error))
            return
        for decision in self.plans.load_manager.records.decisions.newest_first():
            if decision.id == id_:
                what = f"decision {decision.kind}"
                try:
                    ids = _ids_of(decision.shown(), self.divided)
                    moves = _made(self._moves_named(ids, EarlierMoves()))
                    yield from ((id_, what, move) for move in moves)
                except CannotUndoError as error:
                    draft.refuse(id_, what, None, str(error))
                return
        draft.refuse(id_, None, None, "this leader has no decision of this id (any more)")

    async def _undo(
        self,
        draft: Draft,
        id_: str,
        what: str,
        move: Move,
        *,
        gone: Mapping[str, str],
        earlier: EarlierMoves,
    ) -> None:
        bundle, back, moves = move.bundle, move.source, self.plans.moves
        there = None if move.outcome is None else move.outcome.owner
        if bundle in gone:
            raise CannotUndoError(gone[bundle])
        if there is None:
            raise CannotUndoError("it is not known where it went")
        if bundle not in draft.owners:
            if (under_way := moves.queue.move_of(bundle)) is not None:
                raise CannotUndoError(f"move {under_way.id} of it is under way")
            owner = await moves.orders.owner(bundle)
            if owner is None:
                lost = self._lost(there, move, earlier)
                why = f", since {there} was lost at {lost}" if lost else ""
                raise CannotUndoError(f"nobody owns it now{why}: its next lookup places it")
            draft.owners[bundle] = (owner, owner)
        owner, at = draft.owners[bundle]
        if at != there:
            if at != owner:
                raise CannotUndoError(
                    f"it is at {owner} now, and the steps before this one bring it to {at}: "
                    f"this was a move to {there}"
                )
            if at == back:
                raise CannotUndoError(f"it is back at {back} already")
            since_ms = self.owned_since(bundle, at)
            since = "" if since_ms is None else f", since {moment(since_ms)}"
            why = (
                f", which was lost at {lost}" if (lost := self._lost(there, move, earlier)) else ""
            )
            raise CannotUndoError(f"it is at {at} now{since}, and not at {there} any more{why}")
        self._check_destination(draft, bundle, at, back)
        draft.owners[bundle] = (owner, back)
        draft.steps.append(UndoStep(id=id_, what=what, of=bundle, now=at, then=back))

    def _lost(self, broker: str, move: Move, earlier: EarlierMoves) -> str:
        """When the broker to which a bundle was moved was lost first since; empty: it was not. A
        leader does not know of a crash of all brokers, the archives do.
        """
        ended_ms = move.ended_at or 0
        lost_ms = earlier.lost_after(broker, ended_ms)
        if lost_ms is None:
            lost_ms = self.lost_after(broker, ended_ms)
        return "" if lost_ms is None else moment(lost_ms)

    def _check_destination(self, draft: Draft, bundle: str, at: str, back: str) -> None:
        wishes = self.plans.moves.cluster.wishes
        if self.plans.moves.cluster.brokers.address(back) is None:
            raise CannotUndoError(f"{back} is not active")
        if draft.is_cordoned(back, wishes.cordons):
            raise CannotUndoError(f"{back} is cordoned")
        if wishes.now().refuses(back, bundle):
            raise CannotUndoError(f"{back} could not open it a moment ago")
        pin = wishes.now().pin_of(bundle)
        if paths.pin(bundle) in draft.documents:
            document = draft.documents[paths.pin(bundle)]
            pin = None if document is None else msgspec.convert(document, Pin)
        if pin is not None and pin.broker != back:
            raise CannotUndoError(
                f"it is pinned to {pin.broker}: `{ADMIN} bundles unpin` ends that"
            )

    def queue(self, draft: Draft) -> tuple[list[Move], dict[str, str]]:
        """Queue the moves back; returns them, and why some are not queued after all."""
        moves, queued, not_queued = self.plans.moves, list[Move](), dict[str, str]()
        for bundle, (owner, back) in sorted(draft.owners.items()):
            if owner != back:
                unload = Unload(bundle, owner, back, "Undo", {})
                try:
                    queued += moves.queue_all([unload], Author.OPERATOR)
                except ConflictError as error:
                    not_queued[bundle] = str(error)
        waiting = {move.bundle for move in queued}
        for bundle, (owner, back) in draft.owners.items():
            if owner != back and bundle not in waiting:
                not_queued.setdefault(bundle, "another move of it began meanwhile")
        return queued, not_queued


def _ids_of(decision: DecisionShown, divided: str) -> list[str]:
    """The ids of the moves that a decision made."""
    if decision.kind == "move" and decision.move is not UNSET:
        return [decision.move]
    if decision.kind in ("split", "merge"):
        raise CannotUndoError(divided)
    if decision.kind == "place":
        raise CannotUndoError(_WHY["place"])
    unloads = [] if decision.unloads is UNSET else decision.unloads
    return [each.move.id for each in unloads if each.move not in (UNSET, None)]


def _made(moves: Sequence[Move]) -> list[Move]:
    """The moves that moved something, the last first. Raises `CannotUndoError`."""
    if open_moves := [move for move in moves if not move.ended]:
        raise CannotUndoError(
            f"move {open_moves[0].id} has not ended: `{ADMIN} moves cancel` cancels what waits"
        )
    made = [move for move in moves if move.state is MoveState.DONE]
    if not made:
        raise CannotUndoError("it moved nothing")
    return made[::-1]
