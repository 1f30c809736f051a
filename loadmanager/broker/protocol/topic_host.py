"""Does what operators ask of topics served here; implements `broker.ports.topics.TopicHost`."""

from __future__ import annotations

import asyncio

from loadmanager.broker.messaging.consumers import Consumer
from loadmanager.broker.messaging.subscription import Subscription, SubscriptionType
from loadmanager.broker.ports.topics import ClientsFound, Document, Position
from loadmanager.broker.protocol.client_search import ClientSearch
from loadmanager.broker.protocol.durable import close_consumers, create_durable, seek
from loadmanager.broker.protocol.hosted import HostedTopic
from loadmanager.broker.protocol.serving import Serving
from loadmanager.broker.protocol.topic_stats import topic_stats
from loadmanager.broker.wire.frames import last_batch_index_of
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.names import TopicName, check_name

SKIPPED_AT_ONCE = 1_000
"""Entries that are skipped before clients have their turn."""


class ServedTopics:
    """The topics that are served here."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._search = ClientSearch(serving.open_bundles, serving.clock)

    async def find_clients(self, text: str, most: int) -> ClientsFound:
        return await self._search.find(text, most, self._serving.directory.self_address.broker_id)

    def is_open(self, topic: TopicName) -> bool:
        """True if the topic is open here."""
        return self._serving.topics.served(str(topic)) is not None

    async def stats(self, topic: TopicName) -> Document:
        """Pulsar's `TopicStats`."""
        return self._stats(await self._serving.topics.host(topic))

    def _stats(self, hosted: HostedTopic) -> Document:
        serving = self._serving
        return topic_stats(
            hosted,
            owner=serving.directory.self_address.broker_id,
            unacked_max=serving.settings.value.unacked_per_consumer_max,
            now_ms=serving.clock.now_ms(),
        )

    def open_stats(self) -> dict[str, dict[str, Document]]:
        """Bundle → open topic → Pulsar's `TopicStats`."""
        return {
            bundle: {
                name: self._stats(hosted)
                for name, hosted in opened.topics.items()
                if not hosted.fenced
            }
            for bundle, opened in self._serving.open_bundles.items()
        }

    async def unload(self, topic: TopicName) -> None:
        """Save the cursors of the topic and close it, if it is open."""
        hosted = self._serving.topics.served(str(topic))
        if hosted is not None and hosted.stored is not None:
            await hosted.stored.save()
        self._serving.topics.close(str(topic), force=True)

    async def subscriptions(self, topic: TopicName) -> list[str]:
        return list((await self._serving.topics.host(topic)).core.subscriptions)

    async def create_subscription(self, topic: TopicName, name: str, position: Position) -> None:
        if not check_name(name, "subscription name"):
            raise BadInputError("Empty subscription name")
        hosted = await self._serving.topics.host(topic)
        if name in hosted.core.subscriptions:
            raise ConflictError("Subscription already exists for topic")
        start_id = await _entry_id(hosted, position)
        await create_durable(self._serving, hosted, name, SubscriptionType.EXCLUSIVE, start_id)

    async def delete_subscription(self, topic: TopicName, name: str, *, force: bool) -> None:
        """Delete a subscription with its record."""
        _, subscription = await self._find(topic, name)
        if subscription.consumers and not force:
            raise BadInputError("Subscription has active connected consumers")
        await self._serving.directory.forget_subscription(topic, name)
        hosted = await self._serving.topics.host(
            topic
        )  # another life of its bundle may have opened it
        present = hosted.core.subscriptions.get(name)
        if present is not None:
            close_consumers(self._serving, hosted, present)  # forced, or attached meanwhile
            self._serving.dispatcher.deliver()
            hosted.core.unsubscribe(name)
            hosted.limits.close_gate(name, self._serving.clock.monotonic_ns())

    async def skip(self, topic: TopicName, name: str, entries: int | None) -> None:
        """Acknowledge the oldest entries of a subscription."""
        hosted, subscription = await self._find(topic, name)
        log = hosted.core.log
        left = subscription.backlog_entries if entries is None else entries
        if left >= subscription.backlog_entries:
            subscription.rewind_to(log.end_id)
            left = 0
        nobody, entry_id, stepped = Consumer(""), subscription.mark, 0
        while left > 0 and entry_id < log.end_id and not hosted.fenced:
            before = subscription.backlog_entries
            subscription.ack(nobody, entry_id)
            left -= before - subscription.backlog_entries
            entry_id, stepped = entry_id + 1, stepped + 1
            if stepped % SKIPPED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if hosted.stored is not None:
            hosted.stored.moved()
        self._serving.dispatcher.touch(hosted)
        self._serving.dispatcher.deliver()

    async def expire(self, topic: TopicName, name: str | None, older_s: int) -> None:
        """Have old entries count as acknowledged."""
        serving = self._serving
        hosted = await serving.topics.host(topic)
        time_ms = serving.clock.now_ms() - older_s * 1000
        young = await _entry_id(hosted, Position(time_ms=time_ms))
        if name is not None:
            hosted, subscription = await self._find(topic, name)
            chosen = [subscription]
        else:
            chosen = list(hosted.core.subscriptions.values())
        if not sum(subscription.expire_until(young) for subscription in chosen):
            raise ConflictError(f"Topic {topic} has no message of that age to expire")
        if hosted.stored is not None:
            hosted.stored.moved()
        serving.dispatcher.touch(hosted)
        serving.dispatcher.deliver()

    async def reset(self, topic: TopicName, name: str, position: Position) -> None:
        """Have a subscription go on from another position."""
        hosted, _ = await self._find(topic, name)
        entry_id = await _entry_id(hosted, position)
        hosted, subscription = await self._find(topic, name)
        seek(self._serving, hosted, subscription, entry_id)
        self._serving.dispatcher.deliver()

    async def last_message_id(self, topic: TopicName) -> Document:
        """Pulsar's id of the newest message."""
        hosted = await self._serving.topics.host(topic)
        core = hosted.core
        entry = await hosted.fetch(core.log.end_id - 1)
        return {
            "ledgerId": core.ledger_id,
            "entryId": -1 if entry is None else entry.entry_id,
            "partitionIndex": core.partition,
            "batchIndex": -1 if entry is None else last_batch_index_of(entry.tail),
            "batchSize": 0,
        }

    async def _find(self, topic: TopicName, name: str) -> tuple[HostedTopic, Subscription]:
        hosted = await self._serving.topics.host(topic)
        subscription = hosted.core.subscriptions.get(name)
        if subscription is None:
            raise NotFoundError(f"Subscription {name} not found for topic {topic}")
        return hosted, subscription


async def _entry_id(hosted: HostedTopic, position: Position) -> int:
    """The entry that a position means, among those that the topic holds. Ledgers of earlier owners
    come before its own; ledger −1 is the earliest position, the greatest number the latest.
    """
    log, time_ms = hosted.core.log, position.time_ms
    if time_ms is not None:
        entry_id = await hosted.published_since(time_ms, lambda: not hosted.fenced)
        if entry_id is None:
            raise OperationalError(f"topic {hosted.name} is being unloaded; try again")
        return entry_id
    if position.ledger_id != hosted.core.ledger_id:
        return log.first_id if position.ledger_id < hosted.core.ledger_id else log.end_id
    entry = await hosted.fetch(position.entry_id)
    last = -1 if entry is None else last_batch_index_of(entry.tail)
    passed = position.excluded and (position.batch_index < 0 or position.batch_index >= last)
    return min(max(position.entry_id + passed, log.first_id), log.end_id)
