"""Undoes what operators changed and what the leader decided, during one term.

A plan is made anew each time from what is stored and who owns what now, the newest change first, as
if those before it had been undone already. Its seal is made of its steps: whoever has a plan
carried out names the seal of what he saw. All documents are put back in one transaction, under the
checks of the term and with their versions; then the bundles are queued to go back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from loadmanager.kit.audit import ChangeShown, change_order, note_change
from loadmanager.kit.errors import BadInputError, ConflictError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata.store import Operation
from loadmanager.leader.documents.undo import IDS_MAX, Undone
from loadmanager.leader.move_notes import moves_note
from loadmanager.leader.moves_back import MovesBack
from loadmanager.leader.undo_documents import NAMED_MAX, Draft, SetKey, UndoOrder

_DECISION = re.compile(r"(\d{1,12})-([am]?)\d{1,12}")
"""Of a decision, of one as archives name it that has no id, or of a move."""
_EARLIER = "it was decided in another leader's term, and this broker has no archive to look in"
_NOT_ARCHIVED = "no archive that answers has a decision of this id"

log = get_logger("undo")


class PutsBack(Protocol):
    """Puts documents back."""

    async def draft(self, draft: Draft, changes: Sequence[ChangeShown], set_key: SetKey) -> None:
        """Add the documents of changes, the newest first, as they will be."""
        ...

    def operations(self, draft: Draft) -> list[Operation]:
        """What is to be written; nothing if all is so already."""
        ...

    async def write(self, draft: Draft) -> None:
        """Put the documents back, all or none. Raises `ConflictError`."""
        ...


@dataclass(slots=True, kw_only=True)
class TermUndo:
    """Implements `leader.ports.operating.Undo`."""

    epoch: int
    documents: PutsBack
    moves: MovesBack

    async def draft(self, order: UndoOrder) -> Draft:
        """What undoing would do now. Raises `BadInputError` for too many ids."""
        if not 1 <= len(order.ids) <= IDS_MAX:
            raise BadInputError(f"1 to {IDS_MAX} ids of changes or decisions are expected")
        draft = Draft()
        draft.notes += order.earlier.notes()
        changes, decisions = self._sorted(order, draft)
        await self.documents.draft(draft, changes, order.set_key)
        await self.moves.draft(draft, changes, decisions, order.earlier)
        moving = any(owner != back for owner, back in draft.owners.values())
        draft.needless = bool(draft.steps) and not moving and not self.documents.operations(draft)
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
        if draft.needless:
            raise ConflictError("nothing is undone: what it comes to is there already")
        undone = ", ".join(dict.fromkeys(step.id for step in draft.steps[:NAMED_MAX]))
        note_change(f"undoes {undone}")
        await self.documents.write(draft)
        moves, not_queued = self.moves.queue(draft)
        if moves:
            note_change(f"undoes {undone}; {moves_note([move.id for move in moves])}")
        log.info("undone", what=undone, documents=len(draft.documents), moves=len(moves))
        return Undone(
            seal=seal,
            steps=draft.steps,
            cannot=draft.cannot,
            notes=draft.notes,
            moves=[move.id for move in moves],
            not_queued=not_queued,
        )

    def _sorted(self, order: UndoOrder, draft: Draft) -> tuple[list[ChangeShown], list[str]]:
        """The changes and the ids of decisions, the newest first."""
        changes, decisions = [], []
        for id_ in dict.fromkeys(order.ids):
            if (match := _DECISION.fullmatch(id_)) is not None:
                if id_ in order.earlier.unknown:
                    draft.refuse(id_, None, None, order.earlier.why_unknown(_NOT_ARCHIVED))
                elif id_ in order.earlier.by_decision or (
                    match[2] != "a" and int(match[1]) == self.epoch
                ):
                    decisions.append(id_)
                else:
                    draft.refuse(id_, None, None, _EARLIER)
                continue
            of_id = order.changes.get(id_, ())
            if len(of_id) == 1 and of_id[0].failed:
                draft.refuse(id_, str(of_id[0]), None, "it changed nothing that is stored")
            elif len(of_id) == 1:
                changes.append(of_id[0])
            elif of_id:
                brokers = " and ".join(each.broker for each in of_id)
                draft.refuse(id_, None, None, f"{brokers} have a change of this id each")
            else:
                draft.refuse(id_, None, None, _unknown(id_, order.silent))
        changes.sort(
            key=lambda each: (each.ts, change_order(each.id or "") or (0, 0)), reverse=True
        )
        decisions.sort(key=_decision_order, reverse=True)
        return changes, decisions


def _decision_order(id_: str) -> tuple[int, int]:
    epoch, _, number = id_.partition("-")
    return int(epoch), int(number.lstrip("am"))


def _unknown(id_: str, silent: Sequence[str]) -> str:
    why = "no broker that answers has a change of this id"
    if silent:
        why += f"; {', '.join(silent[:NAMED_MAX])} did not answer"
    return why if id_.startswith("c-") else "it is neither the id of a change nor of a decision"
