"""What clients went through today. No route is Pulsar's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import of_leader
from loadmanager.kit.metadata.once import Once
from loadmanager.leader.documents.interruptions import InterruptionsShown
from loadmanager.leader.http.archive import NONE
from loadmanager.leader.http.use import LeaderUse, operations
from loadmanager.leader.interruptions import (
    Archives,
    AskedArchives,
    AskedLoads,
    interruptions_today,
)
from loadmanager.leader.limits_then import moment_of

INTERRUPTIONS = "/loadmanager/v1/interruptions"


class OwnArchive:
    """Implements `Archives` for a daemon, which has the only one."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    async def events(
        self, kinds: Sequence[str], since_ms: int, until_ms: int, limit: int
    ) -> AskedArchives:
        """Those of this archive."""
        part = await self._archive.events(kinds, None, (since_ms, until_ms), limit)
        return AskedArchives({part.part: part})

    async def loads(self, at_ms: int, kinds: Sequence[str]) -> AskedLoads:
        """Those of this archive."""
        part = await self._archive.ask(lambda file: moment_of(file, at_ms, kinds))
        return AskedLoads({part.part: part})


class InterruptionRoutes:
    """Counts whom moves, losses and standstills of brokers interrupted. `archives` answers None
    where there are none.
    """

    def __init__(
        self, use: LeaderUse, archives: Callable[[], Archives | None], clock: Clock
    ) -> None:
        self._use, self._archives, self._clock = use, archives, clock
        self._once: Once[None, InterruptionsShown] = Once()

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get(INTERRUPTIONS, self.today)]

    @of_leader(InterruptionsShown, also=NONE)
    async def today(self, _request: web.Request) -> web.Response:
        """What moves, losses and standstills of brokers did to clients since midnight (UTC), or
        since there are records: by the records of each client, or as leaders counted.
        """
        operations(self._use)
        if (archives := self._archives()) is None:
            raise NotFoundError("there is no archive here")
        return shown(await self._once.run(None, lambda: self._count(archives)))

    async def _count(self, archives: Archives) -> InterruptionsShown:
        members, now_ms = self._use.leading.members, self._clock.now_ms()
        absent = [] if members is None else members.shown().absent
        return await interruptions_today(archives, absent, now_ms)
