"""`/lookup/v2/topic`, `/admin/v2/persistent` and `/admin/v2/non-persistent`, `/admin/v2/schemas`."""

from __future__ import annotations

from aiohttp import web

from loadmanager.adapters.admin.answers import body, failed, flag, namespace_of, topic_of
from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.errors import BadInputError
from loadmanager.ports.control import NamespaceControl, TopicControl

DOMAIN = "{domain:persistent|non-persistent}"


class TopicRoutes:
    """Lookups and topics."""

    def __init__(self, topics: TopicControl, namespaces: NamespaceControl) -> None:
        self._topics = topics
        self._namespaces = namespaces

    def routes(self) -> list[web.RouteDef]:
        """All routes; a topic's name may hold slashes."""
        one = f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic:.+}}"
        return [
            web.get(f"/lookup/v2/topic/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic:.+}}/bundle", self.bundle),
            web.get(f"/lookup/v2/topic/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic:.+}}", self.lookup),
            web.get(f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}", self.list),
            web.get(one + "/partitions", self.partitions),
            web.put(one + "/partitions", self.create_partitioned),
            web.delete(one + "/partitions", self.delete),
            web.delete(one, self.delete),
            web.get("/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema", self.schema),
            web.get("/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema/{version}", self.schema),
        ]

    async def lookup(self, request: web.Request) -> web.Response:
        """GET /lookup/v2/topic/…: who serves a topic. `brokerUrlTls` must be there: C++ clients crash without it."""
        found = await self._topics.lookup(topic_of(request), authoritative=flag(request, "authoritative"))
        broker = found.broker
        if found.redirect:
            target = request.rel_url.with_query({**request.query, "authoritative": "true" if found.authoritative else "false"})
            return web.Response(status=307, headers={"Location": f"{broker.web_url}{target}"})
        return web.json_response(
            {
                "brokerUrl": broker.service_url,
                "brokerUrlTls": "",
                "brokerUrlSsl": "",
                "httpUrl": broker.web_url,
                "httpUrlTls": "",
                "nativeUrl": broker.service_url,
            }
        )

    async def bundle(self, request: web.Request) -> web.Response:
        """GET /lookup/v2/topic/…/bundle: the range that a topic falls into."""
        topic = topic_of(request)
        cut = await self._namespaces.bundles(topic.namespace)
        return web.Response(text=split_bundle_name(cut.bundle_of_topic(str(topic)))[1])

    async def list(self, request: web.Request) -> web.Response:
        """GET /{domain}/{tenant}/{namespace}."""
        mode = "PERSISTENT" if request.match_info["domain"] == "persistent" else "NON_PERSISTENT"
        return web.json_response(await self._topics.topics_of_namespace(namespace_of(request), mode))

    async def partitions(self, request: web.Request) -> web.Response:
        """GET …/partitions."""
        # A topic that does not exist yet has no partitions: asking never fails where it could be created.
        return web.json_response({"partitions": await self._topics.partitions(topic_of(request), create=True)})

    async def create_partitioned(self, request: web.Request) -> web.Response:
        """PUT …/partitions with the number as the body."""
        count = await body(request)
        if not isinstance(count, int) or isinstance(count, bool):
            raise BadInputError("the body must be the number of partitions")
        await self._namespaces.create_partitioned_topic(topic_of(request), count)
        return web.Response(status=204)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE a topic, or a partitioned one."""
        await self._namespaces.delete_topic(topic_of(request), force=flag(request, "force"))
        return web.Response(status=204)

    async def schema(self, request: web.Request) -> web.Response:
        """GET /schemas/…: schemas are kept by the topic's owner and served over the binary protocol only."""
        return failed(404, f"no schema of {request.match_info['topic']} over HTTP")
