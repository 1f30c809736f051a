"""`/admin/v2/tenants` and `/admin/v2/namespaces`."""

from __future__ import annotations

from aiohttp import web

from loadmanager.adapters.admin.answers import body, flag, namespace_of, no_content
from loadmanager.core.bundles.ranges import format_boundaries
from loadmanager.core.errors import BadInputError, ConflictError
from loadmanager.ports.control import BrokerControl, NamespaceControl, TopicControl


class NamespaceRoutes:
    """Tenants, namespaces, bundles."""

    def __init__(self, namespaces: NamespaceControl, brokers: BrokerControl, topics: TopicControl) -> None:
        self._namespaces = namespaces
        self._brokers = brokers
        self._topics = topics

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        one = "/admin/v2/namespaces/{tenant}/{namespace}"
        return [
            web.get("/admin/v2/tenants", self.tenants),
            web.get("/admin/v2/tenants/{tenant}", self.tenant),
            web.put("/admin/v2/tenants/{tenant}", self.create_tenant),
            web.post("/admin/v2/tenants/{tenant}", self.update_tenant),
            web.delete("/admin/v2/tenants/{tenant}", self.delete_tenant),
            web.get("/admin/v2/namespaces/{tenant}", self.list),
            web.get(one, self.policies),
            web.put(one, self.create),
            web.delete(one, self.delete),
            web.get(one + "/bundles", self.bundles),
            web.get(one + "/topics", self.list_topics),
            web.put(one + "/unload", self.unload),
            web.put(one + "/{bundle}/unload", self.unload_bundle),
            web.put(one + "/{bundle}/split", self.split_bundle),
        ]

    async def tenants(self, _request: web.Request) -> web.Response:
        """GET /tenants."""
        return web.json_response(await self._namespaces.tenants())

    async def tenant(self, request: web.Request) -> web.Response:
        """GET /tenants/{tenant}."""
        return web.json_response(await self._namespaces.tenant(request.match_info["tenant"]))

    async def create_tenant(self, request: web.Request) -> web.Response:
        """PUT /tenants/{tenant}."""
        name = request.match_info["tenant"]
        if name in await self._namespaces.tenants():
            raise ConflictError("Tenant already exist")
        return await self._write_tenant(request)

    async def update_tenant(self, request: web.Request) -> web.Response:
        """POST /tenants/{tenant}."""
        await self._namespaces.tenant(request.match_info["tenant"])
        return await self._write_tenant(request)

    async def _write_tenant(self, request: web.Request) -> web.Response:
        await self._namespaces.create_tenant(request.match_info["tenant"], _object(await body(request)))
        return web.Response(status=204)

    async def delete_tenant(self, request: web.Request) -> web.Response:
        """DELETE /tenants/{tenant}."""
        await self._namespaces.delete_tenant(request.match_info["tenant"])
        return web.Response(status=204)

    async def list(self, request: web.Request) -> web.Response:
        """GET /namespaces/{tenant}."""
        return web.json_response(await self._namespaces.namespaces(request.match_info["tenant"]))

    async def policies(self, request: web.Request) -> web.Response:
        """GET /namespaces/{tenant}/{namespace}."""
        return web.json_response(await self._namespaces.policies(namespace_of(request)))

    async def create(self, request: web.Request) -> web.Response:
        """PUT /namespaces/{tenant}/{namespace}."""
        namespace, policies = namespace_of(request), _object(await body(request))
        try:
            await self._namespaces.create_namespace(namespace, policies)
        except BadInputError as error:
            if type(error) is not BadInputError:
                raise
            raise web.HTTPBadRequest(reason=str(error)) from None  # bundles, where Pulsar answers 400
        return web.Response(status=204)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /namespaces/{tenant}/{namespace}."""
        try:
            await self._namespaces.delete_namespace(namespace_of(request), force=flag(request, "force"))
        except BadInputError as error:
            if type(error) is not BadInputError:
                raise
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "PUT"], reason=str(error)) from None
        return web.Response(status=204)

    async def bundles(self, request: web.Request) -> web.Response:
        """GET …/bundles."""
        cut = await self._namespaces.bundles(namespace_of(request))
        return web.json_response({"boundaries": format_boundaries(cut.boundaries), "numBundles": len(cut.boundaries) - 1})

    async def list_topics(self, request: web.Request) -> web.Response:
        """GET …/topics?mode=."""
        return web.json_response(await self._topics.topics_of_namespace(namespace_of(request), request.query.get("mode", "PERSISTENT")))

    async def unload(self, request: web.Request) -> web.Response:
        """PUT …/unload."""
        await self._brokers.unload_namespace(namespace_of(request))
        return web.Response(status=204)

    async def unload_bundle(self, request: web.Request) -> web.Response:
        """PUT …/{bundle}/unload?destinationBroker=."""
        redirect = await self._brokers.unload_bundle(
            namespace_of(request),
            request.match_info["bundle"],
            authoritative=flag(request, "authoritative"),
            destination=request.query.get("destinationBroker") or None,
        )
        return no_content(redirect, request)

    async def split_bundle(self, request: web.Request) -> web.Response:
        """PUT …/{bundle}/split?unload=&splitAlgorithmName=, with the positions as a JSON list."""
        positions = await body(request) or []
        if not isinstance(positions, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in positions):
            raise BadInputError("the body must be a JSON list of whole numbers: the positions to split at")
        redirect = await self._brokers.split_bundle(
            namespace_of(request),
            request.match_info["bundle"],
            algorithm=request.query.get("splitAlgorithmName") or None,
            positions=positions,
            unload=flag(request, "unload"),
        )
        return no_content(redirect, request)


def _object(document: object) -> dict[str, object]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise web.HTTPBadRequest(reason="the body must be a JSON object")
    return document
