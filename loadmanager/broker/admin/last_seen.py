"""What the broker that is asked knows of all brokers. The route is not Pulsar's."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import Query, operation
from loadmanager.leader.documents.last_seen import LastSeen

LAST_SEEN = "/loadmanager/v1/last-seen"
LIMIT = Query(
    name="limit", doc="At most so many brokers.", kind=int, minimum=1, maximum=10_000, default=100
)


class LastSeenRoutes:
    """Answers without the leader and without the metadata store."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get(LAST_SEEN, self.last_seen)]

    @operation(LastSeen, query=(LIMIT,))
    async def last_seen(self, request: web.Request) -> web.Response:
        """All brokers as the broker that is asked has seen them last, also while nobody leads and
        while the metadata store does not answer it: who there was, who led, and their last reports.
        """
        return shown(self._use.health.last_seen(LIMIT.whole(request)))
