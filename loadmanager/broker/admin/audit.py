"""The audit log: the changes that were allowed."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import product

from aiohttp import web

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.audit import ChangeShown, ChangesShown, change_order, is_id_of
from loadmanager.kit.history.archive_answers import ArchivedEvent
from loadmanager.kit.history.archive_reader import ArchiveReader
from loadmanager.kit.http.answers import flag, shown
from loadmanager.kit.http.operation import Query, body_as, operation
from loadmanager.leader.http.changes import (
    CHANGES,
    IDS,
    LIMIT,
    LIMIT_MAX,
    OF,
    ROLE,
    SINCE,
    WantedChanges,
    wanted_of,
)

PEERS_CHANGES = "/loadmanager/v1/peers/changes"
LOCAL = Query(name="local", doc="Only those of the broker that is asked.", kind=bool, default=False)


class ChangesOfAll:
    """Finds changes in the memories of all brokers and, by their ids, in their archives."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use, self._everybody = use, everybody

    async def own(self, wanted: WantedChanges) -> ChangesShown:
        """Those of this broker. Raises `OperationalError` if its archive cannot be read."""
        changes = self._use.audit.recent(LIMIT_MAX)
        missing = set(wanted.ids) - {each.id for each in changes}
        return wanted.of_these([*changes, *await self._archived(missing)])

    async def ask(self, wanted: WantedChanges) -> ChangesShown:
        """Those of all brokers."""
        own = await self.own(wanted)
        answers = await self._everybody.ask(
            "GET", CHANGES, ChangesShown, lambda: own, wanted.query()
        )
        changes = wanted.of_these(
            change for answer in answers.brokers.values() for change in answer.changes
        )
        changes.not_asked, changes.no_answer = answers.not_asked, answers.no_answer
        return changes

    async def _archived(self, ids: Collection[str]) -> list[ChangeShown]:
        """The changes with these ids that this broker's archive has, or one that is beside it and
        whose broker is gone.
        """
        archive, me = self._use.archive, self._use.self_address.broker_id
        wanted = [id_ for id_ in sorted(ids) if change_order(id_)]
        if archive is None or not wanted:
            return []
        gone = [name for name in await archive.beside() if name not in self._use.brokers.registered]
        changes: list[ChangeShown] = []
        for name, id_ in product(dict.fromkeys((me, *gone)), wanted):
            if is_id_of(id_, name):
                events = await archive.ask(partial(_of_id, id_), name)
                changes += [event.record_as(ChangeShown) for event in events]
        return changes


def _of_id(id_: str, archive: ArchiveReader) -> list[ArchivedEvent]:
    at_ms, _ = change_order(id_) or (0, 0)
    events = archive.events(["change"], None, at_ms, at_ms, LIMIT_MAX).events
    return [event for event in events if event.record.get("id") == id_]


class AuditRoutes:
    """Shows the changes that were allowed, and takes those of other brokers for the stream."""

    def __init__(self, use: UseCases, changes: ChangesOfAll) -> None:
        self._use, self._changes = use, changes

    def routes(self) -> list[web.RouteDef]:
        return [web.get(CHANGES, self.changes), web.post(PEERS_CHANGES, self.announced)]

    @operation(answer=ChangesShown, query=(LIMIT, SINCE, ROLE, OF, IDS, LOCAL))
    async def changes(self, request: web.Request) -> web.Response:
        """The last changes that operators and clients made, and were allowed to make.

        Each broker keeps its last 1,000 since its start; the history has all of them, and its
        archive those that are asked for by their ids. Of more than 200 brokers, 200 are asked,
        others each time.
        """
        wanted = wanted_of(request)
        local = flag(request, "local")
        return shown(await (self._changes.own(wanted) if local else self._changes.ask(wanted)))

    @operation(body=list[ChangeShown])
    async def announced(self, request: web.Request) -> web.Response:
        """Another broker tells the leader of changes there, for those who listen to its events."""
        self._use.tell_listeners(await body_as(request, list[ChangeShown]))
        return web.Response(status=204)
