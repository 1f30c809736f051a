"""Undoes what operators changed and what the leader decided, during one term.

A plan is made anew each time from what is stored and who owns what now, the newest change first, as
if those before it had been undone already. Its seal is made of its steps: whoever has a plan
carried out names the seal of what he saw. All documents are put back in one transaction, under the
checks of the term and with their versions; then the bundles are queued to go back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from loadmanager.engine.load.wishes import Cordon, LimitEnd, Pause, Pin
from loadmanager.engine.moves.move import Author, Move, MoveState
from loadmanager.engine.strategies.plan import Unload
from loadmanager.kit.audit import ChangeShown, change_order, note_change
from loadmanager.kit.errors import BadInputError, ConflictError, CorruptDataError, NotFoundError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Document, read_object, write_object
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    VersionConflictError,
)
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.undo import IDS_MAX, Undone, UndoStep
from loadmanager.leader.draining import Draining
from loadmanager.leader.plans import TermPlans
from loadmanager.leader.quotas import TermQuotas
from loadmanager.leader.undo_documents import (
    ADMIN,
    CannotUndoError,
    Draft,
    SetKey,
    UndoOrder,
    put_back,
)
from loadmanager.leader.wishes import OperatorWishes

MOVES_MAX = 200
"""Moves that are undone at once."""
NAMED_MAX = 20
GROUP = "resource_group_name"
"""The field of a namespace's policies that names its resource group."""
MOVES_NOTE = "moves "
"""Begins the list of moves in the note of a change that ordered some."""
_DECISION = re.compile(r"(\d{1,12})-(a?)\d{1,12}")
_PLAN = re.compile(r"POST /loadmanager/v1/plans/([^/?]+)/execute/?")
_MOVES = re.compile(rf"{MOVES_NOTE}(\d+-\d+(?:, \d+-\d+)*)")

log = get_logger("undo")


@dataclass(slots=True, kw_only=True)
class TermUndo:
    """Implements `leader.ports.operating.Undo`."""

    wishes: OperatorWishes
    quotas: TermQuotas
    plans: TermPlans
    draining: Draining

    async def draft(self, order: UndoOrder) -> Draft:
        """What undoing would do now. Raises `BadInputError` for too many ids."""
        if not 1 <= len(order.ids) <= IDS_MAX:
            raise BadInputError(f"1 to {IDS_MAX} ids of changes or decisions are expected")
        draft = Draft()
        changes, decisions = self._sorted(order, draft)
        await self._read(draft, changes)
        for change in changes:
            if change.path is not None:
                await self._undo_document(draft, change, order)
        wanted = [part for change in changes for part in self._moves_of_change(draft, change)]
        wanted += [part for id_ in decisions for part in self._moves_of_decision(draft, id_)]
        gone = await self.plans.gone([move.bundle for _, _, move in wanted])
        for id_, what, move in wanted[:MOVES_MAX]:
            try:
                await self._undo_move(draft, id_, what, move, gone)
            except CannotUndoError as error:
                draft.refuse(id_, what, move.bundle, str(error))
        for id_, what, move in wanted[MOVES_MAX:]:
            draft.refuse(id_, what, move.bundle, f"at most {MOVES_MAX} moves are undone at once")
        return draft

    async def carry_out(self, order: UndoOrder, seal: str) -> Undone:
        """Do exactly what the plan with this seal says. Raises `ConflictError`, and does nothing,
        if the plan is another one by now, or has no steps.
        """
        draft = await self.draft(order)
        if not draft.steps:
            reasons = "; ".join(f"{each.id}: {each.why}" for each in draft.cannot[:NAMED_MAX])
            raise ConflictError(f"nothing is undone: {reasons}")
        if draft.seal != seal:
            raise ConflictError(
                f"nothing is undone: the plan is {draft.seal} now and no longer {seal[:20]}, "
                "because something changed since it was shown; look at it again"
            )
        undone = ", ".join(dict.fromkeys(step.id for step in draft.steps[:NAMED_MAX]))
        note_change(f"undoes {undone}")
        await self._write(draft)
        moves, not_queued = self._queue(draft)
        if moves:
            ids = ", ".join(move.id for move in moves)
            note_change(f"undoes {undone}; {MOVES_NOTE}{ids}")
        log.info("undone", what=undone, documents=len(draft.documents), moves=len(moves))
        return Undone(
            seal=seal,
            steps=draft.steps,
            cannot=draft.cannot,
            moves=[move.id for move in moves],
            not_queued=not_queued,
        )

    # What is meant

    def _sorted(self, order: UndoOrder, draft: Draft) -> tuple[list[ChangeShown], list[str]]:
        """The changes and the ids of decisions, the newest first."""
        changes, decisions = [], []
        for id_ in dict.fromkeys(order.ids):
            if (match := _DECISION.fullmatch(id_)) is not None:
                if match[2] or int(match[1]) != self.plans.moves.term.epoch:
                    draft.refuse(id_, None, None, _EARLIER)
                else:
                    decisions.append(id_)
                continue
            of_id = order.changes.get(id_, ())
            if len(of_id) == 1:
                changes.append(of_id[0])
            elif of_id:
                brokers = " and ".join(each.broker for each in of_id)
                draft.refuse(id_, None, None, f"{brokers} have a change of this id each")
            else:
                draft.refuse(id_, None, None, _unknown(id_, order.silent))
        changes.sort(
            key=lambda each: (each.ts, change_order(each.id or "") or (0, 0)), reverse=True
        )
        decisions.sort(key=lambda id_: int(id_.partition("-")[2]), reverse=True)
        return changes, decisions

    # Documents

    async def _read(self, draft: Draft, changes: Iterable[ChangeShown]) -> None:
        some = list(dict.fromkeys(each.path for each in changes if each.path is not None))
        draft.nodes = dict(zip(some, await self.wishes.store.get_many(some), strict=True))

    async def _undo_document(self, draft: Draft, change: ChangeShown, order: UndoOrder) -> None:
        assert change.path is not None
        path, id_ = change.path, change.id or ""
        try:
            node = draft.nodes[path]
            now = draft.documents.get(path, None if node is None else read_object(node.value, path))
            then = put_back(change, now)
            if path == paths.DYNAMIC_CONFIGURATION:
                then = _checked_settings(now or {}, then or {}, order.set_key)
            elif path.startswith(f"{paths.RESOURCE_GROUPS}/") and then is None:
                await self._check_unused(draft, paths.last(path))
            elif then is not None and then.get(GROUP) not in (None, (now or {}).get(GROUP)):
                await self._check_group(draft, str(then[GROUP]))
            elif path.startswith(f"{paths.WISHES}/"):
                self._check_wish(draft, path, then)
        except (BadInputError, CorruptDataError) as error:
            draft.refuse(id_, change.what, path, str(error))
            if isinstance(error, CannotUndoError) and error.changed:
                draft.changed.append(change)
            return
        draft.documents[path] = then
        before = "{}" if change.before is None and then is not None else change.before
        draft.steps.append(
            UndoStep(id=id_, what=change.what, of=path, now=change.after, then=before)
        )

    async def _check_unused(self, draft: Draft, group: str) -> None:
        """Raise `CannotUndoError` if a namespace is in a resource group that is to be deleted."""
        store, tenants = self.wishes.store, await self.wishes.store.children(paths.POLICIES)
        some = [
            f"{paths.POLICIES}/{tenant}/{name}"
            for tenant in tenants
            for name in await store.children(f"{paths.POLICIES}/{tenant}")
        ]
        for path, node in zip(some, await store.get_many(some), strict=True):
            document = draft.documents.get(path)
            if path not in draft.documents and node is not None:
                document = read_object(node.value, path)
            if (document or {}).get(GROUP) == group:
                namespace = path.removeprefix(f"{paths.POLICIES}/")
                raise CannotUndoError(f"{namespace} is in this resource group")

    async def _check_group(self, draft: Draft, group: str) -> None:
        """Raise `CannotUndoError` unless a resource group exists; else have its node read."""
        path = paths.resource_group(group)
        if path not in draft.nodes:
            draft.nodes[path] = await self.wishes.store.get(path)
        if draft.documents.get(path, draft.nodes[path]) is None:
            raise CannotUndoError(f"resource group {group} does not exist any more")

    def _check_wish(self, draft: Draft, path: str, then: Document | None) -> None:
        if then is None:
            return
        name, moves = paths.decode(paths.last(path)), self.plans.moves
        try:
            if path.startswith(f"{paths.CORDONS}/"):
                cordon = msgspec.convert(then, Cordon)
                self._check_cordon(draft, name, cordon)
                return
            if path == paths.PAUSE:
                until_ms = msgspec.convert(then, Pause).until_ms
            elif path.startswith(f"{paths.LIMIT_ENDS}/"):
                until_ms = msgspec.convert(then, LimitEnd).until_ms
            else:
                until_ms = msgspec.convert(then, Pin).until_ms
        except msgspec.ValidationError as error:
            raise CannotUndoError(f"its record is of another version: {error}") from None
        if until_ms <= moves.term.clock.now_ms():
            raise CannotUndoError("it would be over by now")

    def _check_cordon(self, draft: Draft, broker: str, cordon: Cordon) -> None:
        reports = self.plans.moves.cluster.brokers.reports
        if broker not in reports:
            raise CannotUndoError(f"{broker} is not active")
        if 0 < cordon.until_restart_of < reports[broker].start_timestamp:
            raise CannotUndoError(f"{broker} was restarted, which ended the cordon")
        others = [each for each in reports if each != broker]
        if all(self._cordoned(draft, each) for each in others):
            raise CannotUndoError(f"{broker} is the last broker that is not cordoned")

    def _cordoned(self, draft: Draft, broker: str) -> bool:
        path = paths.cordon(broker)
        if path in draft.documents:
            return draft.documents[path] is not None
        return broker in self.wishes.cordons

    async def _write(self, draft: Draft) -> None:
        operations = []
        for path, document in sorted(draft.documents.items()):
            operation = _operation(path, draft.nodes[path], document)
            if isinstance(operation, Create):  # a transaction makes no parents
                await self.wishes.store.create(path.rpartition("/")[0], b"")
            if operation is not None:
                operations.append(operation)
        # Who looked for the namespaces of a group before cannot delete it now.
        for path in sorted(draft.nodes.keys() - draft.documents.keys()):
            node = draft.nodes[path]
            if node is not None and path.startswith(f"{paths.RESOURCE_GROUPS}/"):
                operations.append(Put(path, node.value, node.version))
        if not operations:
            return
        try:
            await self.wishes.store.commit([*self.draining.goals.checks, *operations])
        except VersionConflictError:
            raise ConflictError(
                "nothing is undone: somebody changed one of the documents at the same time, or "
                "this broker's term as leader is over; look at the plan again"
            ) from None
        await self._take_up(draft)

    async def _take_up(self, draft: Draft) -> None:
        """Act by the wishes and quotas that changed, as after an operator's order."""
        for path, document in sorted(draft.documents.items()):
            if path.startswith(f"{paths.RESOURCE_QUOTAS}/"):
                await self.quotas.on_change(path)
            if not path.startswith(f"{paths.WISHES}/"):
                continue
            await self.wishes.on_change(Change(ChangeKind.CHANGED, path))
            if path.startswith(f"{paths.CORDONS}/") and not (document or {}).get("drain"):
                broker = paths.decode(paths.last(path))
                self.plans.moves.cancel_of(broker, Author.DRAIN)
                await self.draining.over(broker)
        self.plans.moves.wake()

    # Moves

    def _moves_of_change(
        self, draft: Draft, change: ChangeShown
    ) -> Iterator[tuple[str, str, Move]]:
        id_, note = change.id or "", change.note or ""
        plan, listed = _PLAN.match(change.what), _MOVES.search(note)
        try:
            if plan is not None:
                moves: Sequence[Move] = self.plans.find(plan[1]).moves
            elif listed is not None:
                moves = self._moves_named(listed[1].split(", "))
            elif change.path is None:
                raise CannotUndoError(_ORDER)
            else:
                return
            yield from ((id_, change.what, move) for move in _made(moves))
        except (CannotUndoError, NotFoundError) as error:
            draft.refuse(id_, change.what, None, str(error))

    def _moves_named(self, ids: Sequence[str]) -> list[Move]:
        queue = self.plans.moves.queue
        by_id = {move.id: move for move in [*queue.ended, *queue.open_moves()]}
        missing = [id_ for id_ in ids if id_ not in by_id]
        if missing:
            raise CannotUndoError(f"move {missing[0]} is not of this leader's term, or long ago")
        return [by_id[id_] for id_ in ids]

    def _moves_of_decision(self, draft: Draft, id_: str) -> Iterator[tuple[str, str, Move]]:
        for decision in self.plans.load_manager.records.decisions.newest_first():
            if decision.id == id_:
                what = f"decision {decision.kind}"
                try:
                    moves = _made(self._moves_named(_ids_of(decision.shown())))
                    yield from ((id_, what, move) for move in moves)
                except CannotUndoError as error:
                    draft.refuse(id_, what, None, str(error))
                return
        draft.refuse(id_, None, None, "this leader has no decision of this id (any more)")

    async def _undo_move(
        self, draft: Draft, id_: str, what: str, move: Move, gone: Mapping[str, str]
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
                raise CannotUndoError("nobody owns it now: its next lookup places it")
            draft.owners[bundle] = (owner, owner)
        owner, at = draft.owners[bundle]
        if at != there:
            raise CannotUndoError(f"it is at {at} now, and not at {there} any more")
        self._check_destination(draft, bundle, at, back)
        draft.owners[bundle] = (owner, back)
        draft.steps.append(UndoStep(id=id_, what=what, of=bundle, now=at, then=back))

    def _check_destination(self, draft: Draft, bundle: str, at: str, back: str) -> None:
        if self.plans.moves.cluster.brokers.address(back) is None:
            raise CannotUndoError(f"{back} is not active")
        if self._cordoned(draft, back):
            raise CannotUndoError(f"{back} is cordoned")
        if self.wishes.now().refuses(back, bundle):
            raise CannotUndoError(f"{back} could not open it a moment ago")
        pin = self.wishes.now().pin_of(bundle)
        if paths.pin(bundle) in draft.documents:
            document = draft.documents[paths.pin(bundle)]
            pin = None if document is None else msgspec.convert(document, Pin)
        if pin is not None and pin.broker != back:
            raise CannotUndoError(
                f"it is pinned to {pin.broker}: `{ADMIN} bundles unpin` ends that"
            )

    def _queue(self, draft: Draft) -> tuple[list[Move], dict[str, str]]:
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


_EARLIER = (
    "it was decided in another leader's term; `loadmanager admin decisions` says where its bundles "
    "came from, `bundles move` moves them back"
)
_ORDER = "it is an order, which stored nothing that could be put back"


def _unknown(id_: str, silent: Sequence[str]) -> str:
    why = "no broker that answers has a change of this id"
    if silent:
        why += f"; {', '.join(silent[:NAMED_MAX])} did not answer"
    return why if id_.startswith("c-") else "it is neither the id of a change nor of a decision"


def _checked_settings(now: Document, then: Document, set_key: SetKey) -> Document:
    """The dynamic settings that are to be put back, each as if it were set. Raises `BadInputError`
    for one that may not be set any more.
    """
    checked: dict[str, object] = dict(now)
    for name in sorted(now.keys() - then.keys()):
        checked = set_key(checked, name, None)
    for name in sorted(then):
        if name not in now or now[name] != then[name]:
            checked = set_key(checked, name, str(then[name]))
    return checked


def _operation(path: str, node: Node | None, document: Document | None) -> Operation | None:
    if node is None:
        return None if document is None else Create(path, write_object(document))
    if document is None:
        return Delete(path, node.version)
    if read_object(node.value, path) == document:
        return None
    return Put(path, write_object(document), node.version)


def _ids_of(decision: DecisionShown) -> list[str]:
    """The ids of the moves that a decision made."""
    if decision.kind == "move" and decision.move is not UNSET:
        return [decision.move]
    if decision.kind in ("split", "merge"):
        raise CannotUndoError(
            f"bundles are not put together or divided again: `{ADMIN} bundles merge` and "
            "`bundles split` do that"
        )
    if decision.kind == "place":
        raise CannotUndoError("the bundle had no owner before: `bundles move` moves it elsewhere")
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
