"""Finds the changes that operators want undone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from loadmanager.broker.admin.audit import ChangesOfAll
from loadmanager.broker.admin.earlier_moves import MovesOfAll
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.text import moment
from loadmanager.leader.http.changes import WantedChanges
from loadmanager.leader.undo_documents import Draft, UndoOrder

NAMED_MAX = 5
"""Later changes that are looked for."""


class OperatorsChanges:
    """Finds the changes that are to be undone, on all brokers."""

    def __init__(self, use: UseCases, changes: ChangesOfAll, moves: MovesOfAll) -> None:
        self._use, self._changes, self._moves = use, changes, moves

    async def order(self, ids: Sequence[str]) -> UndoOrder:
        """What is known of them."""
        answer = await self._changes.ask(WantedChanges(ids=tuple(ids)))
        changes: dict[str, list[ChangeShown]] = {}
        for change in answer.changes:
            of_id = changes.setdefault(change.id or "", [])
            if change not in of_id:  # two archives may have the same
                of_id.append(change)
        set_key = self._use.limits.settings.changed
        earlier = await self._moves.find(ids, answer.changes)
        return UndoOrder(ids, changes, sorted(answer.no_answer), set_key, earlier)

    async def name_others(self, draft: Draft) -> None:
        """Say who changed a document after the change that is to be undone, if that is known."""
        for change in draft.changed[:NAMED_MAX]:
            wanted = WantedChanges(of=change.path, since_ms=change.ts)
            later = [
                each
                for each in (await self._changes.ask(wanted)).changes
                if each.id != change.id and _overlap(each, change)
            ]
            for refused in draft.cannot:
                if later and refused.id == change.id and refused.of == change.path:
                    refused.why += f"; {_who(later[0])}"


def _who(change: ChangeShown) -> str:
    who = change.role or change.address
    return f"{who} changed it at {moment(change.ts)} ({change.id}: {change.what})"


def _overlap(later: ChangeShown, earlier: ChangeShown) -> bool:
    """Whether both changed a field, as far as can be read."""
    mine, others = _names(later), _names(earlier)
    return not mine or not others or not mine.isdisjoint(others)


def _names(change: ChangeShown) -> set[str]:
    names: set[str] = set()
    for text in (change.before, change.after):
        try:
            fields = json.loads(text or "{}")
        except ValueError:
            return set()
        names |= set(fields) if isinstance(fields, dict) else set()
    return names
