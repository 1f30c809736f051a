"""Subscriptions of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from loadmanager.broker.admin.topic_owners import TopicOwners, documents
from loadmanager.broker.ports.topics import Position
from loadmanager.kit.errors import BadInputError, NotFoundError
from loadmanager.kit.http.answers import TOPIC, RefusedError, body_object, flag, topic_of
from loadmanager.kit.http.operation import FORCE, Document, Names, Query, of_owner
from loadmanager.kit.names import TopicName

LATEST = (1 << 63) - 1
AGE_DIGITS_MAX = 10
REPLICATED = Query(name="replicated", doc="Refused if true.", kind=bool)


class SubscriptionRoutes:
    """Subscriptions; requests about a partitioned topic concern each of its partitions."""

    def __init__(self, owners: TopicOwners) -> None:
        self._owners = owners

    def routes(self) -> list[web.RouteDef]:
        path = f"/admin/v2/{TOPIC}"
        subscription = path + "/subscription/{name:[^/]+}"
        return [
            web.get(path + "/subscriptions", self.list),
            web.put(subscription, self.create),
            web.delete(subscription, self.delete),
            web.post(subscription + r"/skip/{entries:-?[0-9]{1,10}}", self.skip),
            web.post(subscription + "/skip_all", self.skip_all),
            web.post(subscription + "/expireMessages/{age}", self.expire),
            web.post(path + "/all_subscription/expireMessages/{age}", self.expire),
            web.post(subscription + r"/resetcursor/{time:[0-9]{1,18}}", self.reset_to_time),
            web.post(subscription + "/resetcursor", self.reset),
        ]

    @of_owner(Names)
    async def list(self, request: web.Request) -> web.Response:
        """The names of a topic's subscriptions."""
        topic = topic_of(request)
        partitions = await self._owners.partitions(topic)
        if not partitions:
            host = await self._owners.serve(request, topic)
            return web.json_response(await host.subscriptions(topic))
        answers = await self._owners.ask_each(request, partitions)
        first_failure(answers, but=404)
        names = documents(partitions, answers).values()
        return web.json_response(sorted(set().union(*names)))

    @of_owner(
        body=Document,
        body_required=False,
        query=(REPLICATED,),
        also={409: "it exists already", 501: "replicated ones, and properties"},
    )
    async def create(self, request: web.Request) -> web.Response:
        """Create a durable subscription; body: where it begins, as a message id (default: at the
        end).
        """
        topic, name, document = topic_of(request), _name(request), await body_object(request)
        if not topic.persistent:
            raise RefusedError(
                400, "Create subscription on non-persistent topic can only be done through client"
            )
        if flag(request, "replicated") or document.get("properties"):
            raise RefusedError(501, "subscriptions are not replicated, and have no properties here")
        partitions = await self._owners.partitions(topic)
        if partitions:
            answers = await self._owners.ask_each(request, partitions)
            exists_everywhere = all(status == 409 for status, _ in answers)
            first_failure(answers, but=None if exists_everywhere else 409)
            return web.Response(status=204)
        position = _position(document or {"ledgerId": LATEST, "entryId": LATEST})
        await (await self._owners.serve(request, topic)).create_subscription(topic, name, position)
        return web.Response(status=204)

    @of_owner(query=(FORCE,), also={412: "it has consumers"})
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a subscription; `?force=true` although it has consumers."""
        topic, name, force = topic_of(request), _name(request), flag(request, "force")
        if not await self._each_partition(request, topic, missing="Subscription not found"):
            host = await self._owners.serve(request, topic)
            await host.delete_subscription(topic, name, force=force)
        return web.Response(status=204)

    @of_owner(also={405: "a partitioned topic", 412: "fewer than 1"})
    async def skip(self, request: web.Request) -> web.Response:
        """Acknowledge so many of a subscription's oldest entries: a batch is one."""
        topic, name, entries = topic_of(request), _name(request), int(request.match_info["entries"])
        if entries < 1:
            raise BadInputError(f"skip {entries}: 1 or more entries can be skipped")
        if await self._owners.partitions(topic):
            raise RefusedError(405, "Skip messages on a partitioned topic is not allowed")
        host = await self._owners.serve(request, topic)
        await host.skip(topic, name, entries)
        return web.Response(status=204)

    @of_owner()
    async def skip_all(self, request: web.Request) -> web.Response:
        """Acknowledge everything that a subscription has not acknowledged."""
        topic, name = topic_of(request), _name(request)
        missing = f"Subscription {name} not found for topic {topic}"
        if not await self._each_partition(request, topic, missing=missing):
            await (await self._owners.serve(request, topic)).skip(topic, name, None)
        return web.Response(status=204)

    @of_owner(also={405: "a topic that is not persistent", 409: "nothing is that old"})
    async def expire(self, request: web.Request) -> web.Response:
        """Have entries published so many seconds ago or earlier count as acknowledged, for
        one subscription or all.
        """
        topic, name = topic_of(request), request.match_info.get("name")
        age = request.match_info["age"]
        if not (age.isascii() and age.isdigit() and len(age) <= AGE_DIGITS_MAX):
            raise RefusedError(400, f"{age[:40]} is not a number of seconds")
        if not topic.persistent:
            raise RefusedError(405, "Expire messages on a non-persistent topic is not allowed")
        if not await self._each_partition(request, topic):
            host = await self._owners.serve(request, topic)
            await host.expire(topic, name, int(age))
        return web.Response(status=204)

    @of_owner()
    async def reset_to_time(self, request: web.Request) -> web.Response:
        """Have a subscription go on from the first message published at or after a time, in
        milliseconds since the epoch; its consumers reconnect.
        """
        topic, name = topic_of(request), _name(request)
        if not await self._each_partition(request, topic):
            position = Position(time_ms=int(request.match_info["time"]))
            await (await self._owners.serve(request, topic)).reset(topic, name, position)
        return web.Response(status=204)

    @of_owner(body=Document, also={405: "a partitioned topic"})
    async def reset(self, request: web.Request) -> web.Response:
        """Have a subscription go on from a message id, the body; its consumers reconnect."""
        topic, name, document = topic_of(request), _name(request), await body_object(request)
        position = _position(document)
        if await self._owners.partitions(topic):
            raise RefusedError(405, "Reset-cursor at position is not allowed for partitioned-topic")
        host = await self._owners.serve(request, topic)
        if "ledgerId" not in document or "entryId" not in document:
            raise RefusedError(400, "the body must be a message id: ledgerId and entryId")
        await host.reset(topic, name, position)
        return web.Response(status=204)

    async def _each_partition(
        self, request: web.Request, topic: TopicName, *, missing: str = ""
    ) -> bool:
        """Repeat the request for each partition; False for a topic without partitions.

        Raises what the first partition that fails answers; `missing`: its words for 404.
        """
        partitions = await self._owners.partitions(topic)
        if not partitions:
            return False
        answers = await self._owners.ask_each(request, partitions)
        if missing and any(status == 404 for status, _ in answers):
            raise NotFoundError(missing)
        first_failure(answers)
        return True


def first_failure(answers: Iterable[tuple[int, str]], *, but: int | None = None) -> None:
    """Raise `RefusedError` with the first answer that is a failure; a status may be left out."""
    for status, text in answers:
        if status >= 300 and status != but:
            try:
                reason = msgspec.json.decode(text)["reason"]
            except (ValueError, KeyError, TypeError):
                reason = text
            raise RefusedError(status, str(reason)[:300])


def _name(request: web.Request) -> str:
    return request.match_info["name"]


def _position(document: Mapping[str, Any]) -> Position:
    """A message id as Pulsar's `ResetCursorData`. Raises `RefusedError` (400)."""
    numbers = {
        field: document.get(field, default)
        for field, default in (("ledgerId", 0), ("entryId", 0), ("batchIndex", -1))
    }
    excluded = document.get("excluded", document.get("isExcluded", False))
    if not all(type(number) is int for number in numbers.values()) or type(excluded) is not bool:
        raise RefusedError(400, "a message id is ledgerId, entryId, batchIndex and excluded")
    return Position(numbers["ledgerId"], numbers["entryId"], numbers["batchIndex"], excluded)
