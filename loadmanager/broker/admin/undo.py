"""Undoes changes and decisions. None of these routes is Pulsar's."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aiohttp import web

from loadmanager.broker.admin.audit import ChangesOfAll
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import ConflictError
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import Query, body_as, of_leader
from loadmanager.kit.text import moment
from loadmanager.leader.documents.undo import Undone, UndoPlan, UndoWanted
from loadmanager.leader.http.changes import WantedChanges, ids_of
from loadmanager.leader.http.use import operations
from loadmanager.leader.ports.operating import Undo
from loadmanager.leader.undo_documents import Draft, UndoOrder

UNDO = "/loadmanager/v1/undo"
NAMED_MAX = 5
"""Later changes that are looked for."""
IDS = Query(
    name="ids", doc="The ids of changes and of the leader's decisions, with commas between."
)


class UndoRoutes:
    """Finds what is to be undone; the leader says what that would do, and does it."""

    def __init__(self, use: UseCases, changes: ChangesOfAll) -> None:
        self._use, self._changes = use, changes

    def routes(self) -> list[web.RouteDef]:
        return [web.get(UNDO, self.plan), web.post(UNDO, self.carry_out)]

    @of_leader(UndoPlan, query=(IDS,), also={412: "no ids, or too many"})
    async def plan(self, request: web.Request) -> web.Response:
        """What undoing changes and decisions would do now, the newest first, and what cannot be
        undone. Nothing is done.
        """
        leader = self._leader()
        draft = await leader.draft(await self._order(ids_of(request)))
        await self._name_others(draft)
        return shown(draft.plan())

    @of_leader(
        Undone,
        body=UndoWanted,
        also={409: "the plan is another one by now, or has nothing to do: nothing was done"},
    )
    async def carry_out(self, request: web.Request) -> web.Response:
        """Undo exactly what the plan with this seal says: its documents in one transaction, then
        its moves through the queue. Or refuse, and do nothing.
        """
        leader, wanted = self._leader(), await body_as(request, UndoWanted)
        return shown(await leader.carry_out(await self._order(wanted.ids), wanted.seal))

    def _leader(self) -> Undo:
        undo = operations(self._use).undo
        if undo is None:
            raise ConflictError("nothing can be undone here")
        return undo

    async def _order(self, ids: Sequence[str]) -> UndoOrder:
        answer = await self._changes.ask(WantedChanges(ids=tuple(ids)))
        changes: dict[str, list[ChangeShown]] = {}
        for change in answer.changes:
            of_id = changes.setdefault(change.id or "", [])
            if change not in of_id:  # two archives may have the same
                of_id.append(change)
        set_key = self._use.limits.settings.changed
        return UndoOrder(ids, changes, sorted(answer.no_answer), set_key)

    async def _name_others(self, draft: Draft) -> None:
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
