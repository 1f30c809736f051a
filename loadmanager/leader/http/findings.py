"""What the leader finds wrong in the cluster. No route is Pulsar's."""

from __future__ import annotations

from aiohttp import web

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import of_leader
from loadmanager.leader.documents.findings import FindingsShown
from loadmanager.leader.http.use import LeaderUse, operations


class FindingRoutes:
    """Shows what the leader finds wrong."""

    def __init__(self, use: LeaderUse) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/loadmanager/v1/findings", self.findings)]

    @of_leader(FindingsShown)
    async def findings(self, _request: web.Request) -> web.Response:
        """What the leader finds wrong now, in the words of the nightly report: clocks that differ,
        bundles that move back and forth, a topic that carries as much as a broker, a leader that
        changes often, sensors that cannot be right, limits that hold clients most of the time, and
        backlogs that grow. A daemon beside a Pulsar cluster cannot see clocks, limits and backlogs.

        It looks once a minute. A new leader knows the leaders of before, and begins anew with all
        else: what takes an hour to find takes an hour again.
        """
        operations(self._use)
        if self._use.leading.findings is None:
            raise OperationalError("this broker's term as leader begins or ends; try again")
        return shown(self._use.leading.findings.shown())
