"""Lookups and topics."""

from __future__ import annotations

from aiohttp import web

from loadmanager.broker.admin.documents import Partitions
from loadmanager.broker.admin.topic_owners import TopicOwners
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError
from loadmanager.kit.http.answers import (
    TOPIC,
    RefusedError,
    body,
    flag,
    listener_of,
    namespace_of,
    redirect_to,
    shown,
    topic_of,
)
from loadmanager.kit.http.operation import (
    AUTHORITATIVE,
    FORCE,
    TEXT,
    Document,
    Names,
    Query,
    Texts,
    of_owner,
    operation,
)
from loadmanager.kit.names import TopicName

BUNDLE = "{bundle:0x[0-9a-f]{8}_0x[0-9a-f]{8}}"
PARTITIONED_METADATA = "application/vnd.partitioned-topic-metadata+json"
"""The body of a Java client that creates a partitioned topic with properties."""
DOMAIN = "{domain:persistent|non-persistent}"
LISTENER = Query(name="listenerName", doc="The advertised listener whose addresses are wanted.")
OF_BUNDLE = Query(name="bundle", doc="Only those of this range.")
AUTO_CREATION = Query(
    name="checkAllowAutoCreation", doc="True: create a missing topic if that may be.", kind=bool
)


class TopicRoutes:
    """Lookups and topics."""

    def __init__(self, use: UseCases, owners: TopicOwners) -> None:
        self._use = use
        self._owners = owners

    def routes(self) -> list[web.RouteDef]:
        """All routes; fixed paths come before those with a variable.

        A slash in a topic's name is written %2F.
        """
        path = f"/admin/v2/{TOPIC}"
        return [
            web.get(f"/lookup/v2/topic/{TOPIC}/bundle", self.bundle),
            web.get(f"/lookup/v2/topic/{TOPIC}", self.lookup),
            web.get(f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}", self.list),
            web.get(
                f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}/partitioned", self.list_partitioned
            ),
            web.get("/admin/v2/non-persistent/{tenant}/{namespace}/" + BUNDLE, self.list_volatile),
            web.get(path + "/partitions", self.partitions),
            web.put(path + "/partitions", self.create_partitioned),
            web.post(path + "/partitions", self.update_partitioned),
            web.delete(path + "/partitions", self.delete_partitioned),
            web.post(path + "/createMissedPartitions", self.create_missed),
            web.put(path, self.create),
            web.delete(path, self.delete),
        ]

    @operation(Texts, query=(AUTHORITATIVE, LISTENER), elsewhere="the broker that must be asked")
    async def lookup(self, request: web.Request) -> web.Response:
        """The broker that serves a topic; places its bundle if it has no owner.

        `brokerUrlTls` must be in the answer: C++ clients crash without it.
        """
        lookup = await self._use.directory.lookup(
            topic_of(request), authoritative=flag(request, "authoritative")
        )
        broker = lookup.broker.of(listener_of(request))
        if lookup.redirect:
            return redirect_to(broker, request, authoritative=lookup.authoritative)
        return web.json_response(
            {
                "brokerUrl": broker.service_url,
                "brokerUrlTls": broker.service_url_tls,
                "brokerUrlSsl": broker.service_url_tls,
                "httpUrl": broker.web_url,
                "httpUrlTls": broker.web_url_tls,
                "nativeUrl": broker.service_url,
            }
        )

    @operation(str, media=TEXT)
    async def bundle(self, request: web.Request) -> web.Response:
        """The hash range of the bundle of a topic."""
        topic = topic_of(request)
        bundles = await self._use.namespaces.bundles(topic.namespace)
        return web.Response(text=split_bundle_name(bundles.bundle_of_topic(str(topic)))[1])

    @operation(Names, query=(OF_BUNDLE,))
    async def list(self, request: web.Request) -> web.Response:
        """The topics of a namespace, or of one `?bundle=`; each partition is a topic."""
        return await self._list(request, _mode(request), request.query.get("bundle"))

    @operation(Names)
    async def list_volatile(self, request: web.Request) -> web.Response:
        """The non-persistent topics of a bundle."""
        return await self._list(request, "NON_PERSISTENT", request.match_info["bundle"])

    async def _list(self, request: web.Request, mode: str, bundle: str | None) -> web.Response:
        namespace = namespace_of(request)
        names = await self._use.directory.topics_of_namespace(namespace, mode)
        if bundle:
            bundles = await self._use.namespaces.bundles(namespace)
            full = f"{namespace}/{bundle}"
            names = [name for name in names if bundles.bundle_of_topic(name) == full]
        return web.json_response(names)

    @operation(Names)
    async def list_partitioned(self, request: web.Request) -> web.Response:
        """The partitioned topics of a namespace."""
        names = await self._use.directory.topics_of_namespace(namespace_of(request), _mode(request))
        parents = {
            topic.partitioned_topic for topic in map(TopicName.parse, names) if topic.partition >= 0
        }
        return web.json_response(
            [
                str(parent)
                for parent in sorted(parents)
                if await self._use.directory.partitions(parent, create=True)
            ]
        )

    @of_owner(
        Partitions,
        query=(AUTO_CREATION,),
        also={404: "it does not exist, and is not created when first used"},
    )
    async def partitions(self, request: web.Request) -> web.Response:
        """The number of partitions of a topic; 0 if it is not partitioned."""
        topic, creatable = topic_of(request), flag(request, "checkAllowAutoCreation")
        if not creatable and not await self._use.topics.exists(topic):
            if topic.persistent:
                raise NotFoundError(f"Topic {topic} not found")
            await self._owners.serve(request, topic)
        return shown(
            Partitions(partitions=await self._use.directory.partitions(topic, create=True))
        )

    @operation(
        body=int | Document,
        also={406: "the number is not allowed", 409: "it exists already", 501: "properties"},
    )
    async def create_partitioned(self, request: web.Request) -> web.Response:
        """Create a partitioned topic; body: the number of partitions, or with the media type
        `application/vnd.partitioned-topic-metadata+json` an object with `partitions`.
        """
        topic, count = topic_of(request), await _new_count(request)
        try:
            await self._use.topics.create_partitioned(topic, count)
        except BadInputError as error:
            if type(error) is not BadInputError:
                raise
            raise RefusedError(406, str(error)) from None  # where Pulsar answers "not acceptable"
        return web.Response(status=204)

    @operation(
        body=int, also={409: "the topic is not partitioned", 422: "the number is not allowed"}
    )
    async def update_partitioned(self, request: web.Request) -> web.Response:
        """Add partitions, with the subscriptions of the first one, up to the number in the body."""
        topic, count = topic_of(request), await _count(request)
        try:
            await self._use.topics.update_partitioned(topic, count)
        except BadInputError as error:
            if type(error) is not BadInputError:
                raise
            raise RefusedError(422, str(error)) from None
        return web.Response(status=204)

    @operation()
    async def create_missed(self, request: web.Request) -> web.Response:
        """Record the partitions of a partitioned topic that do not exist yet."""
        await self._use.topics.create_missed(topic_of(request))
        return web.Response(status=204)

    @operation(
        body=Texts,
        body_required=False,
        also={
            409: "it exists already",
            412: "it is non-persistent, or a partition beyond those of its topic",
            501: "properties",
        },
    )
    async def create(self, request: web.Request) -> web.Response:
        """Create a persistent topic without partitions.

        Pulsar opens a non-persistent topic at its owner until it is idle for a while. Here it
        exists only while clients are attached, so that the request is refused.
        """
        topic = topic_of(request)
        _refuse_properties(await body(request))
        if await self._exists(topic) or await self._exists(topic.partition_name(0)):
            raise ConflictError("This topic already exists")
        if not topic.persistent:
            raise RefusedError(
                412,
                f"{topic} was not created: a non-persistent topic without partitions exists while "
                "producers or consumers are attached; attach one",
            )
        await self._use.directory.open_topic(topic)
        return web.Response(status=204)

    async def _exists(self, topic: TopicName) -> bool:
        """True if a topic is recorded, or open here."""
        return self._owners.host.is_open(topic) or await self._use.topics.exists(topic)

    @operation(query=(FORCE,), also={409: "it is partitioned", 412: "it is in use"})
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a topic; `?force=true` although it has clients or subscriptions."""
        topic = topic_of(request)
        if await self._use.directory.partitions(topic, create=False):
            raise ConflictError(
                f"{topic} is a partitioned topic, instead of calling delete topic, please call "
                "delete-partitioned-topic."
            )
        return await self.delete_partitioned(request)

    @operation(query=(FORCE,), also={412: "it is in use"})
    async def delete_partitioned(self, request: web.Request) -> web.Response:
        """Delete a topic with its partitions; `?force=true` although it has clients or
        subscriptions.
        """
        try:
            await self._use.deleting.topic(topic_of(request), force=flag(request, "force"))
        except ConflictError as error:
            raise RefusedError(412, str(error)) from None
        return web.Response(status=204)


def _mode(request: web.Request) -> str:
    return "PERSISTENT" if request.match_info["domain"] == "persistent" else "NON_PERSISTENT"


async def _count(request: web.Request) -> int:
    return _checked_count(await body(request))


async def _new_count(request: web.Request) -> int:
    """The number of partitions of a new topic. Raises `RefusedError` (400, 501)."""
    if request.content_type != PARTITIONED_METADATA:
        return await _count(request)
    metadata = await body(request)
    if not isinstance(metadata, dict) or metadata.keys() - {"partitions", "properties", "deleted"}:
        raise RefusedError(400, "the body must be an object with partitions and properties")
    _refuse_properties(metadata.get("properties"))
    return _checked_count(metadata.get("partitions"))


def _checked_count(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool):
        raise RefusedError(400, "the body must be the number of partitions")
    return count


def _refuse_properties(properties: object) -> None:
    """Raise `RefusedError`: 400 unless it is an object of texts, 501 unless it is empty."""
    if properties is None:
        return
    if not isinstance(properties, dict) or not all(
        isinstance(value, str) for value in properties.values()
    ):
        raise RefusedError(400, "the properties of a topic must be a JSON object of texts")
    if properties:
        raise RefusedError(501, "loadmanager does not serve properties of a topic")
