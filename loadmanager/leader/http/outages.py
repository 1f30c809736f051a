"""What was wrong with brokers at a time gone by: any broker answers for all. No route is
Pulsar's.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import operation
from loadmanager.leader.documents.outages import OutagesShown, UnknownLoads
from loadmanager.leader.http.archive import AT, NONE, ROOT, SINCE, UNTIL
from loadmanager.leader.interruptions import Archives
from loadmanager.leader.outages import outages_between, unknown_at


class OutageRoutes:
    """Asks the archives of all brokers; `archives` answers None where there are none."""

    def __init__(self, archives: Callable[[], Archives | None]) -> None:
        self._asked = archives

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get(ROOT + "/outages", self.outages), web.get(ROOT + "/unknown", self.unknown)]

    def _archives(self) -> Archives:
        if (archives := self._asked()) is None:
            raise NotFoundError("there is no archive here")
        return archives

    @operation(OutagesShown, query=(SINCE, UNTIL), also=NONE)
    async def outages(self, request: web.Request) -> web.Response:
        """When brokers stood still or could not prove their sessions, and when all of them were
        down: those times that ended in a time, by the archives of all brokers.
        """
        times = SINCE.whole(request), UNTIL.whole(request)
        return shown(await outages_between(self._archives(), *times))

    @operation(UnknownLoads, query=(AT,), also=NONE)
    async def unknown(self, request: web.Request) -> web.Response:
        """Of which brokers no load of a moment is known, by the archives of all brokers: what is
        recorded next to it is of another time, as after an outage, or the next record was lost;
        and which brokers were lost about then.
        """
        return shown(await unknown_at(self._archives(), AT.whole(request)))
