"""Lookups and topics."""

from __future__ import annotations

from aiohttp import web

from loadmanager.adapters.admin.answers import (
    RefusedError,
    body,
    flag,
    namespace_of,
    redirect_to,
    topic_of,
)
from loadmanager.adapters.admin.use_cases import UseCases
from loadmanager.core.bundles.names import TopicName
from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError

DOMAIN = "{domain:persistent|non-persistent}"


class TopicRoutes:
    """Lookups and topics."""

    def __init__(self, use: UseCases) -> None:
        self._use = use

    def routes(self) -> list[web.RouteDef]:
        """All routes; fixed paths come before those with a variable.

        A slash in a topic's name is written %2F.
        """
        path = f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}"
        return [
            web.get(
                f"/lookup/v2/topic/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}/bundle", self.bundle
            ),
            web.get(f"/lookup/v2/topic/{DOMAIN}/{{tenant}}/{{namespace}}/{{topic}}", self.lookup),
            web.get(f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}", self.list),
            web.get(
                f"/admin/v2/{DOMAIN}/{{tenant}}/{{namespace}}/partitioned", self.list_partitioned
            ),
            web.get(path + "/partitions", self.partitions),
            web.put(path + "/partitions", self.create_partitioned),
            web.delete(path + "/partitions", self.delete),
            web.get(path + "/stats", self.stats),
            web.put(path, self.create),
            web.delete(path, self.delete),
        ]

    async def lookup(self, request: web.Request) -> web.Response:
        """The broker that serves a topic; places its bundle if it has no owner.

        `brokerUrlTls` must be in the answer: C++ clients crash without it.

        Answers: 200, JSON; 307 to the broker that must be asked.
        """
        lookup = await self._use.directory.lookup(
            topic_of(request), authoritative=flag(request, "authoritative")
        )
        broker = lookup.broker
        if lookup.redirect:
            return redirect_to(broker.web_url, request, authoritative=lookup.authoritative)
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
        """The hash range of the bundle of a topic.

        Answers: 200, text.
        """
        topic = topic_of(request)
        bundles = await self._use.namespaces.bundles(topic.namespace)
        return web.Response(text=split_bundle_name(bundles.bundle_of_topic(str(topic)))[1])

    async def list(self, request: web.Request) -> web.Response:
        """The topics of a namespace; each partition is a topic."""
        return web.json_response(
            await self._use.directory.topics_of_namespace(namespace_of(request), _mode(request))
        )

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

    async def partitions(self, request: web.Request) -> web.Response:
        """How many partitions a topic has; 0 also for a topic that does not exist yet."""
        # A topic that does not exist yet has no partitions: asking never fails where it could be
        # created.
        return web.json_response(
            {"partitions": await self._use.directory.partitions(topic_of(request), create=True)}
        )

    async def create_partitioned(self, request: web.Request) -> web.Response:
        """Create a partitioned topic; body: the number of partitions.

        Answers: 204; 406 when the number is not allowed.
        """
        topic, count = topic_of(request), await body(request)
        if not isinstance(count, int) or isinstance(count, bool):
            raise RefusedError(400, "the body must be the number of partitions")
        try:
            await self._use.topics.create_partitioned(topic, count)
        except BadInputError as error:
            if type(error) is not BadInputError:
                raise
            raise RefusedError(406, str(error)) from None  # where Pulsar answers "not acceptable"
        return web.Response(status=204)

    async def create(self, request: web.Request) -> web.Response:
        """Create a persistent topic without partitions.

        Pulsar opens a non-persistent topic at its owner until it is idle for a while. Here it
        exists only while clients are attached, so that the request is refused.
        """
        topic = topic_of(request)
        present = await self._use.directory.topics_of_namespace(topic.namespace, _mode(request))
        if str(topic) in present or str(topic.partition_name(0)) in present:
            raise ConflictError("This topic already exists")
        if not topic.persistent:
            raise RefusedError(
                412,
                f"{topic} was not created: a non-persistent topic without partitions exists while "
                "producers or consumers are attached; attach one",
            )
        await self._use.directory.open_topic(topic)
        return web.Response(status=204)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a topic; `?force=true` although it has clients."""
        await self._use.deleting.topic(topic_of(request), force=flag(request, "force"))
        return web.Response(status=204)

    async def stats(self, request: web.Request) -> web.Response:
        """Traffic of an open topic over the last period, under Pulsar's names where it has them.

        Answers: 200, JSON; 307 to the owner; 404 when the topic is not open.
        """
        topic = topic_of(request)
        bundle = await self._use.directory.owned_bundle(topic)
        traffic = self._use.hosting.topics(bundle).get(str(topic)) if bundle else None
        if traffic is None:
            owner = await self._use.directory.lookup(
                topic, authoritative=flag(request, "authoritative")
            )
            if owner.broker.broker_id == self._use.self_address.broker_id:
                raise NotFoundError(f"Topic {topic} is not open")
            return redirect_to(owner.broker.web_url, request, authoritative=owner.authoritative)
        return web.json_response(
            {
                "msgRateIn": traffic.msg_rate_in,
                "msgRateOut": traffic.msg_rate_out,
                "msgThroughputIn": traffic.msg_throughput_in,
                "msgThroughputOut": traffic.msg_throughput_out,
                "producersCount": traffic.producers,
                "consumersCount": traffic.consumers,
                "msgBacklog": traffic.backlog_messages,
                "publishRateLimitedTimes": traffic.publish_limited_times,
            }
        )


def _mode(request: web.Request) -> str:
    return "PERSISTENT" if request.match_info["domain"] == "persistent" else "NON_PERSISTENT"
