"""The routes that undo changes and decisions, for whoever finds the changes. None is Pulsar's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from loadmanager.kit.errors import ConflictError
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import Query, body_as, of_leader
from loadmanager.leader.documents.undo import Undone, UndoPlan, UndoWanted
from loadmanager.leader.http.changes import ids_of
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.ports.operating import Undo
from loadmanager.leader.undo_documents import Draft, UndoOrder

UNDO = "/loadmanager/v1/undo"
IDS = Query(
    name="ids", doc="The ids of changes and of the leader's decisions, with commas between."
)
Order = Callable[[Sequence[str]], Awaitable[UndoOrder]]
"""Finds the changes with these ids."""


async def _nobody_else(_draft: Draft) -> None:
    """Nobody is named."""


class UndoRoutes:
    """`order` finds what is to be undone; the leader says what that would do, and does it.
    `name_others` says who changed a document since.
    """

    def __init__(
        self,
        use: LeaderUse,
        order: Order,
        name_others: Callable[[Draft], Awaitable[None]] = _nobody_else,
    ) -> None:
        self._use, self._order, self._name_others = use, order, name_others

    def routes(self) -> list[web.RouteDef]:
        return [web.get(UNDO, self.plan), web.post(UNDO, self.carry_out)]

    @of_leader(UndoPlan, query=(IDS,), also={412: "no ids, or too many"})
    async def plan(self, request: web.Request) -> web.Response:
        """What undoing changes and decisions would do now, the newest first, and what cannot be
        undone. Nothing is done. A daemon beside a Pulsar cluster undoes what it moved.
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
