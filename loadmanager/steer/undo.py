"""Undoes what a daemon beside a Pulsar cluster moved. What else it was told, it forgets when it is
told so; nothing is stored with a version that could be put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.metadata.store import Operation
from loadmanager.leader.documents.undo import Undone
from loadmanager.leader.undo import TermUndo
from loadmanager.leader.undo_documents import ADMIN, Draft, SetKey, UndoOrder
from loadmanager.steer.hold import FleetHold

_ENDS = (
    ("/moves/pause", f"`{ADMIN} moves pause` and `moves resume` begin and end pauses"),
    ("/pins", f"`{ADMIN} bundles pin` and `bundles unpin` set pins and take them away"),
    ("/cordons", f"`{ADMIN} brokers cordon` and `brokers uncordon` begin and end cordons"),
    ("/goals", f"`{ADMIN} goals stop` ends a goal; its moves have ids in `{ADMIN} decisions`"),
)
"""A part of a path → what takes back an order there."""
ORDER = "it is an order, which moved nothing that could be moved back"
NO_MERGES = "Pulsar puts no bundles together again, and a bundle that was merged is not there"


class NoDocuments:
    """Implements `leader.undo.PutsBack`: a daemon changes no documents of the cluster."""

    async def draft(self, draft: Draft, changes: Sequence[ChangeShown], set_key: SetKey) -> None:
        """Refuse those that name a document."""
        for change in changes:
            if change.path is not None:
                draft.refuse(change.id or "", change.what, change.path, why_not(change))

    def operations(self, draft: Draft) -> list[Operation]:
        """None."""
        return []

    async def write(self, draft: Draft) -> None:
        """Nothing."""


@dataclass(slots=True, kw_only=True)
class FleetUndo(TermUndo):
    """Moves bundles back, in the modes that may move something."""

    hold: FleetHold

    async def carry_out(self, order: UndoOrder, seal: str) -> Undone:
        """See the base class. Raises `ConflictError` where nothing may be moved."""
        self.hold.check()
        return await TermUndo.carry_out(self, order, seal)


def why_not(change: ChangeShown) -> str:
    """Why an order that moved nothing is not undone, and what takes it back."""
    path = change.what.partition("?")[0]
    return next((text for part, text in _ENDS if part in path), ORDER)
