"""The audit log: the changes that were allowed."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.everybody import Everybody
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.audit import ChangeShown, ChangesShown
from loadmanager.kit.http.answers import flag, shown
from loadmanager.kit.http.operation import Query, body_as, operation
from loadmanager.leader.http.changes import CHANGES, LIMIT, LIMIT_MAX, ROLE, SINCE, chosen

PEERS_CHANGES = "/loadmanager/v1/peers/changes"
LOCAL = Query(name="local", doc="Only those of the broker that is asked.", kind=bool, default=False)


class AuditRoutes:
    """Shows the changes that were allowed, and takes those of other brokers for the stream."""

    def __init__(self, use: UseCases, everybody: Everybody) -> None:
        self._use, self._everybody = use, everybody

    def routes(self) -> list[web.RouteDef]:
        return [web.get(CHANGES, self.changes), web.post(PEERS_CHANGES, self.announced)]

    @operation(answer=ChangesShown, query=(LIMIT, SINCE, ROLE, LOCAL))
    async def changes(self, request: web.Request) -> web.Response:
        """The last changes that operators and clients made, and were allowed to make.

        Each broker keeps its last 1,000 since its start; the history has all of them. Of more than
        200 brokers, 200 are asked, others each time.
        """
        limit, since_ms = LIMIT.whole(request), SINCE.whole(request)
        role = request.query.get("role")

        def own() -> ChangesShown:
            return chosen(self._use.audit.recent(LIMIT_MAX), limit, since_ms, role)

        if flag(request, "local"):
            return shown(own())
        query = {"limit": str(limit), "since": str(since_ms)}
        query |= {} if role is None else {"role": role}
        answers = await self._everybody.ask("GET", CHANGES, ChangesShown, own, query)
        changes_of_all = [
            change for answer in answers.brokers.values() for change in answer.changes
        ]
        changes = chosen(changes_of_all, limit, since_ms, role)
        changes.not_asked, changes.no_answer = answers.not_asked, answers.no_answer
        return shown(changes)

    @operation(body=list[ChangeShown])
    async def announced(self, request: web.Request) -> web.Response:
        """Another broker tells the leader of changes there, for those who listen to its events."""
        self._use.tell_listeners(await body_as(request, list[ChangeShown]))
        return web.Response(status=204)
