"""Brokers that are there and those that left. No route is Pulsar's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from aiohttp import web

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import of_leader
from loadmanager.kit.metadata.once import Once
from loadmanager.leader.documents.members import AbsentBroker, MembersShown
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.interruptions import Archives, with_clients_back
from loadmanager.leader.ports.operating import Absences

MEMBERS = "/loadmanager/v1/members"


class MemberRoutes:
    """Shows who left, and forgets them. `archives` answers None where there are none."""

    def __init__(
        self, use: LeaderUse, archives: Callable[[], Archives | None], clock: Clock
    ) -> None:
        self._use, self._archives, self._clock = use, archives, clock
        self._once: Once[None, list[AbsentBroker]] = Once()

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
        owned, when that was served again, and who of its clients is back: as the leader counts, or
        by the records of the clients, where these tell of more.
        """
        answer = self._absences().shown()
        if (archives := self._archives()) is not None:
            now_ms = self._clock.now_ms()
            with suppress(OperationalError):  # it is of use as the leader counted
                answer.absent = await self._once.run(
                    None, lambda: with_clients_back(archives, answer.absent, now_ms)
                )
        return shown(answer)

    @of_leader(also={404: "it is not among those that left", 409: "it is there again"})
    async def forget(self, request: web.Request) -> web.Response:
        """Forget a broker that left and is not to come back."""
        await self._absences().forget(request.match_info["broker"])
        return web.Response(status=204)
