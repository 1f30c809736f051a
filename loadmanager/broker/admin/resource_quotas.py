"""Resource quotas of bundles."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.load.quotas import ResourceQuota
from loadmanager.kit.http.answers import body_object, namespace_of, shown
from loadmanager.kit.http.operation import Document, of_leader
from loadmanager.leader.http.use import operations
from loadmanager.leader.ports.operating import Quotas

PATH = "/admin/v2/resource-quotas"
BUNDLE = PATH + "/{tenant}/{namespace}/{bundle}"


class QuotaRoutes:
    """The expected load of bundles that have not been measured yet."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(PATH, self.get),
            web.post(PATH, self.set),
            web.get(BUNDLE, self.get),
            web.post(BUNDLE, self.set),
            web.delete(BUNDLE, self.reset),
        ]

    @of_leader(ResourceQuota)
    async def get(self, request: web.Request) -> web.Response:
        """The default quota, or that of a bundle; a bundle without one has the default quota."""
        bundle = await self._bundle(request)
        return shown(self._quotas().quota(bundle))

    @of_leader(body=Document)
    async def set(self, request: web.Request) -> web.Response:
        """Set a quota: what a bundle counts as carrying until its brokers have measured it."""
        bundle, document = await self._bundle(request), await body_object(request)
        await self._quotas().set_quota(bundle, document)
        return web.Response(status=204)

    @of_leader(also={404: "the bundle has no quota of its own"})
    async def reset(self, request: web.Request) -> web.Response:
        """Delete the quota of a bundle, which has the default quota from then on."""
        bundle = await self._bundle(request)
        assert bundle is not None
        await self._quotas().reset_quota(bundle)
        return web.Response(status=204)

    def _quotas(self) -> Quotas:
        operations(self._use)
        assert self._use.leading.quotas is not None
        return self._use.leading.quotas

    async def _bundle(self, request: web.Request) -> str | None:
        """The bundle of the path, which exists; None for the default quota."""
        if "bundle" not in request.match_info:
            return None
        namespace = namespace_of(request)
        bundles = await self._use.namespaces.bundles(namespace)
        return f"{namespace}/{bundles.require(request.match_info['bundle'])}"
