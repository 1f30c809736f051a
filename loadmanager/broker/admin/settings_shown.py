"""The settings in force, and where each comes from. None of these routes is Pulsar's."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.documents import SettingShown
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.kit.http.answers import shown
from loadmanager.kit.http.operation import operation

SETTINGS = "/loadmanager/v1/settings"


class SettingRoutes:
    """Shows them; `/admin/v2/brokers/configuration` sets those that are dynamic."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        return [web.get(SETTINGS, self.settings)]

    @operation(dict[str, SettingShown])
    async def settings(self, _request: web.Request) -> web.Response:
        """Every broker.conf key with the value in force at this broker, and where that comes from:
        `settings set` (stored for all brokers), `--set` (its command line), `broker.conf` or
        `default`. Values of secrets are hidden.
        """
        values = self._use.settings()
        return shown(
            {
                name: SettingShown(value=values[name], origin=origin)
                for name, origin in sorted(self._use.limits.settings.origins().items())
            }
        )
