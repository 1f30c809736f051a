"""Brokers that are there and those that left. No route is Pulsar's."""

from __future__ import annotations

from aiohttp import web

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import of_leader
from loadmanager.leader.documents.members import MembersShown
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.ports.operating import Absences

MEMBERS = "/loadmanager/v1/members"


class MemberRoutes:
    """Shows who left, and forgets them."""

    def __init__(self, use: LeaderUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get(MEMBERS, self.members),
            web.delete(MEMBERS + "/{broker}", self.forget),
        ]

    def _absences(self) -> Absences:
        operations(self._use)
        if self._use.leading.members is None:
            raise OperationalError("this broker's term as leader begins or ends; try again")
        return self._use.leading.members

    @of_leader(MembersShown)
    async def members(self, _request: web.Request) -> web.Response:
        """The brokers that are there, and those that left in the last days: when, how, what they
        owned, and when that was served again.
        """
        return shown(self._absences().shown())

    @of_leader(also={404: "it is not among those that left", 409: "it is there again"})
    async def forget(self, request: web.Request) -> web.Response:
        """Forget a broker that left and is not to come back."""
        await self._absences().forget(request.match_info["broker"])
        return web.Response(status=204)
