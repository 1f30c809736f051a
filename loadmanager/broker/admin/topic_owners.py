"""Finds the brokers that answer for a topic and for its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from loadmanager.broker.admin.calls import Calls, UnansweredError
from loadmanager.broker.admin.following import ANSWER_BYTES_MAX
from loadmanager.broker.admin.use_cases import UseCases
from loadmanager.broker.ports.topics import TopicHost
from loadmanager.kit.errors import NotFoundError, OperationalError
from loadmanager.kit.http.answers import ElsewhereError, RefusedError, body, flag, topic_of
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import TopicName
from loadmanager.kit.tasks import for_each

log = get_logger("admin")
PARTITION_TIMEOUT_S = 30.0
ASKED_AT_ONCE = 16
"""Partitions that requests are repeated for at a time, all requests together."""
TOPIC_ELEMENT = 6
"""Which element of a path is the topic: /admin/v2/domain/tenant/namespace/topic."""


def documents(topics: Iterable[TopicName], answers: Iterable[tuple[int, str]]) -> dict[str, Any]:
    """Topic → its answer 200, parsed. What is not JSON is left out, as a topic that is gone is."""
    parsed = {}
    for topic, (status, text) in zip(topics, answers, strict=True):
        if status == 200:
            try:
                parsed[str(topic)] = msgspec.json.decode(text)
            except ValueError:
                log.warning("an answer for a partition is not JSON", topic=str(topic))
    return parsed


class TopicOwners:
    """Requests about topics go to the owners of their bundles."""

    def __init__(self, use: UseCases, calls: Calls) -> None:
        self._use = use
        self._calls = calls
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    @property
    def host(self) -> TopicHost:
        """The host of Pulsar's topics. Raises `RefusedError` (501) when this service hosts none."""
        if self._use.topic_host is None:
            raise RefusedError(501, "this service does not host Pulsar's topics")
        return self._use.topic_host

    async def serve(self, request: web.Request, topic: TopicName) -> TopicHost:
        """The host, if this broker serves a topic that exists.

        Raises `NotFoundError` in Pulsar's words, and `ElsewhereError` at any other broker.
        """
        host = self.host
        recorded = await self._use.topics.exists(topic)
        partitions = await self._use.directory.partitions(topic, create=True)
        if partitions or (topic.persistent and not recorded):
            raise await self._missing(topic)
        if await self._use.directory.owned_bundle(topic) is None:
            owner = await self._use.directory.lookup(
                topic, authoritative=flag(request, "authoritative")
            )
            if owner.broker.broker_id != self._use.self_address.broker_id:
                raise ElsewhereError(owner.broker, authoritative=owner.authoritative)
        if not recorded and not host.is_open(topic):
            raise await self._missing(topic)
        return host

    async def existing(self, request: web.Request) -> TopicName:
        """The topic of the path, which exists, or whose partition it would be.

        Raises `NotFoundError`, and `ElsewhereError` when only its owner knows, as of a
        non-persistent topic.
        """
        topic, exists = topic_of(request), self._use.topics.exists
        if not await exists(topic.partitioned_topic) and not await exists(topic):
            await self.serve(request, topic)
        return topic

    async def _missing(self, topic: TopicName) -> NotFoundError:
        parent = topic.partitioned_topic
        if topic.partition < 0:
            return NotFoundError(f"Topic {topic} not found")
        if await self._use.directory.partitions(parent, create=True):
            return NotFoundError("Topic partitions were not yet created")
        return NotFoundError(f"Partitioned Topic not found: {topic} has zero partitions")

    async def partitions(self, topic: TopicName) -> list[TopicName]:
        """The partitions of a partitioned topic; empty for any other topic."""
        count = await self._use.directory.partitions(topic, create=True)
        return [topic.partition_name(index) for index in range(count)]

    async def ask_each(
        self, request: web.Request, topics: list[TopicName], what: str = ""
    ) -> list[tuple[int, str]]:
        """Repeat the request for each of these topics at its owner, at several at once; the
        statuses and bodies.

        `what` replaces the end of the path. Raises `OperationalError` when a broker does not
        answer.
        """
        document = await body(request)
        path = request.rel_url.raw_path.rstrip("/").split("/")
        if what:
            path[-1] = what

        async def ask(topic: TopicName) -> tuple[int, str]:
            path_here = [*path]
            path_here[TOPIC_ELEMENT] = quote(topic.local, safe="")
            async with self._asking:
                return await self._ask(request, topic, "/".join(path_here), document)

        return await for_each(topics, ask, ASKED_AT_ONCE)

    async def _ask(
        self, request: web.Request, topic: TopicName, path: str, document: object
    ) -> tuple[int, str]:
        lookup = await self._use.directory.lookup(topic)
        authoritative = "true" if lookup.authoritative else "false"
        method = "GET" if request.method == "HEAD" else request.method  # the bodies are needed
        try:
            answer = await self._calls.ask(
                lookup.broker,
                method,
                path,
                {**request.query, "authoritative": authoritative},
                timeout_s=PARTITION_TIMEOUT_S,
                bytes_max=ANSWER_BYTES_MAX,
                document=document,
                redirects=True,
            )
        except UnansweredError as error:
            raise OperationalError(f"{error}, for {topic}") from None
        return answer.status, answer.body.decode(errors="replace")
