"""Statistics of topics, and what acts on an open topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from loadmanager.broker.admin.subscriptions import first_failure
from loadmanager.broker.admin.topic_owners import TopicOwners, documents
from loadmanager.kit.errors import NotFoundError
from loadmanager.kit.http.answers import TOPIC, RefusedError, flag, topic_of
from loadmanager.kit.http.operation import Query, of_owner, operation

Document = dict[str, Any]

LARGEST = (
    "producerId",
    "oldestBacklogMessageAgeSeconds",
    "backlogQuotaLimitSize",
    "backlogQuotaLimitTime",
)
"""Numbers that do not add up: of several partitions, the largest one is shown; and so of times."""
TIMES = ("Timestamp", "TimeStamp")
PER_PARTITION = Query(name="perPartition", doc="List each partition, too.", kind=bool, default=True)


class StatsRoutes:
    """Statistics of topics."""

    def __init__(self, owners: TopicOwners) -> None:
        self._owners = owners

    def routes(self) -> list[web.RouteDef]:
        path = f"/admin/v2/{TOPIC}"
        return [
            web.get(path + "/stats", self.stats),
            web.get(path + "/partitioned-stats", self.partitioned_stats),
            web.get(path + "/lastMessageId", self.last_message_id),
            web.put(path + "/unload", self.unload),
        ]

    @of_owner(Document)
    async def stats(self, request: web.Request) -> web.Response:
        """Traffic, producers and subscriptions of a topic; a topic that is not open is opened.

        Counters and backlogs are those of the moment, rates those of the last stats period.
        `msgBacklog` counts entries, as in Pulsar: a batch is one.
        """
        topic = topic_of(request)
        host = await self._owners.serve(request, topic)
        return web.json_response(await host.stats(topic))

    @operation(Document, query=(PER_PARTITION,), also={404: "the topic is not partitioned"})
    async def partitioned_stats(self, request: web.Request) -> web.Response:
        """The sums over the partitions of a topic; `?perPartition=true` lists each of them, too."""
        topic, each = topic_of(request), flag(request, "perPartition", default=True)
        partitions = await self._owners.partitions(topic)
        if not partitions:
            raise NotFoundError(f"Partitioned Topic {topic} not found")
        answers = await self._owners.ask_each(request, partitions, "stats")
        first_failure(answers, but=404)
        stats = documents(partitions, answers)
        return web.json_response(
            {
                **total(stats.values()),
                "metadata": {"partitions": len(partitions), "deleted": False},
                "partitions": stats if each else {},
            }
        )

    @of_owner(Document, also={405: "a non-persistent topic"})
    async def last_message_id(self, request: web.Request) -> web.Response:
        """The id of a topic's newest message; entry −1 in an empty topic."""
        topic = topic_of(request)
        host = await self._owners.serve(request, topic)
        if not topic.persistent:
            raise RefusedError(405, "GetLastMessageId on a non-persistent topic is not allowed")
        return web.json_response(await host.last_message_id(topic))

    @of_owner()
    async def unload(self, request: web.Request) -> web.Response:
        """Close a topic, or all its partitions: the clients come back; of topics in memory, unread
        messages are lost.
        """
        topic = topic_of(request)
        partitions = await self._owners.partitions(topic)
        if partitions:
            first_failure(await self._owners.ask_each(request, partitions), but=404)
        else:
            await (await self._owners.serve(request, topic)).unload(topic)
        return web.Response(status=204)


def total(documents: Iterable[Document]) -> Document:
    """The sum of the stats of partitions, as in Pulsar: numbers add up; clients and subscriptions
    of one name are one.
    """
    summed: Document = {}
    for document in documents:
        summed = _sum(summed, document)
    for name in ("ownerBroker", "deduplicationStatus"):  # of one partition
        summed.pop(name, None)
    return summed


def _sum(first: Document, second: Document) -> Document:
    summed = {**second, **{name: _both(name, first[name], second.get(name)) for name in first}}
    if "averageMsgSize" in summed:
        rate = summed["msgRateIn"]
        summed["averageMsgSize"] = summed["msgThroughputIn"] / rate if rate else 0.0
    return summed


def _both(name: str, first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        return _sum(first, second)
    if isinstance(first, list) and isinstance(second, list):
        return list(_sum(_by_name(first), _by_name(second)).values())
    if isinstance(first, bool):
        return first or second
    if isinstance(first, int | float) and isinstance(second, int | float):
        is_largest = name in LARGEST or name.endswith(TIMES)
        return max(first, second) if is_largest else first + second
    return second if first is None else first


def _by_name(clients: list[Document]) -> Document:
    return {client.get("producerName") or client["consumerName"]: client for client in clients}
