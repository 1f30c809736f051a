"""The limits that end by themselves. None of these routes is Pulsar's."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.documents import LimitEndShown
from loadmanager.broker.admin.routes_throttling import NAMESPACE_RATES
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.load.wishes import LimitEnd
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import operation
from loadmanager.kit.metadata import paths

ENDS = "/loadmanager/v1/limit-ends"


class LimitEndRoutes:
    """Shows the ends; the routes of the limits set them."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        return [web.get(ENDS, self.ends)]

    @operation(list[LimitEndShown])
    async def ends(self, _request: web.Request) -> web.Response:
        """The limits that end by themselves, the first to end first."""
        return shown([_end_shown(end) for end in await self._use.limits.ends.all()])


def _end_shown(end: LimitEnd) -> LimitEndShown:
    topic = paths.topic_of_policies(end.of)
    names = {field: name for name, (field, _) in NAMESPACE_RATES.items()}
    return LimitEndShown(
        of=end.of.removeprefix(f"{paths.POLICIES}/") if topic is None else str(topic),
        limit=names.get(end.path[0], end.path[0]) if topic is None else "/".join(end.path),
        until=end.until_ms,
        then=end.before,
    )
