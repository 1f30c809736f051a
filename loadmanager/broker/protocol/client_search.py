"""Finds producers, consumers and subscriptions that are served here by a part of a name, of a
client's address or of a role, and open topics by a part of their name. It looks at what is
attached, and never at a message.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Generic, TypeVar

from loadmanager.broker.ports.topics import (
    ClientFound,
    ClientKind,
    ClientsFound,
    TopicFound,
    topic_rank,
)
from loadmanager.broker.protocol.hosted import (
    AttachedConsumer,
    AttachedProducer,
    HostedTopic,
    OpenBundle,
)
from loadmanager.kit.clock import Clock
from loadmanager.kit.tasks import sleep

T = TypeVar("T")

LOOKED_AT_ONCE = 200
"""Names that are compared before clients have their turn."""
LOOKED_MAX = 200_000
"""Names that one search compares on a broker."""


class ClientSearch:
    """Searches, one after the other."""

    def __init__(self, bundles: Mapping[str, OpenBundle], clock: Clock) -> None:
        self._bundles, self._clock = bundles, clock
        self._in_turn = asyncio.Lock()

    async def find(self, text: str, most: int, broker: str) -> ClientsFound:
        """At most so many, those with exactly this name first; `broker`: this one."""
        async with self._in_turn:
            return await self._find(text.casefold(), most, broker)

    async def _find(self, wanted: str, most: int, broker: str) -> ClientsFound:
        clients, open_topics = _Best[ClientFound](most), _Best[TopicFound](most)
        looked = 0
        topics = chain.from_iterable(
            list(opened.topics.values()) for opened in list(self._bundles.values())
        )
        for hosted in topics:
            if hosted.fenced:
                continue
            name = str(hosted.name)
            looked += 1
            if (rank := topic_rank(name, wanted)) is not None:
                open_topics.add(rank, name, _topic_of(hosted, broker))
            for each in list(_all_of(hosted, broker, self._clock)):
                looked += 1
                if looked % LOOKED_AT_ONCE == 0:
                    await sleep(0)
                if (rank := _rank(each, wanted)) is not None:
                    clients.add(rank, each.name, each)
            if looked >= LOOKED_MAX:
                break
        return ClientsFound(
            clients=clients.first(),
            total=clients.total,
            topics=open_topics.first(),
            topics_total=open_topics.total,
            all_searched=looked < LOOKED_MAX,
        )


class _Best(Generic[T]):
    """The first of what was looked at."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._best: list[tuple[bool, str, int, T]] = []
        self.total = 0

    def add(self, rank: bool, name: str, each: T) -> None:
        """One more."""
        self.total += 1
        self._best.append((rank, name, self.total, each))
        if len(self._best) > 2 * self._most:
            self._best = heapq.nsmallest(self._most, self._best)

    def first(self) -> list[T]:
        """The first ones."""
        return [each for *_, each in heapq.nsmallest(self._most, self._best)]


def _topic_of(hosted: HostedTopic, broker: str) -> TopicFound:
    return TopicFound(
        topic=str(hosted.name),
        bundle=hosted.bundle,
        broker=broker,
        producers=len(hosted.producers),
        consumers=len(hosted.attached),
        rate_in=hosted.traffic.msg_rate_in,
        rate_out=hosted.traffic.msg_rate_out,
        published=hosted.last_published_ms or None,
    )


def _all_of(hosted: HostedTopic, broker: str, clock: Clock) -> Iterator[ClientFound]:
    topic, bundle = str(hosted.name), hosted.bundle
    now_ns, now_ms = clock.monotonic_ns(), clock.now_ms()

    def entry(
        kind: ClientKind,
        name: str,
        client: AttachedProducer | AttachedConsumer | None,
        within: str = "",
    ) -> ClientFound:
        shown = ClientFound(
            kind=kind,
            name=name,
            topic=topic,
            bundle=bundle,
            broker=broker,
            subscription=within or None,
            client=None,
            roles=[],
            since=None,
        )
        if client is not None:
            connection, shown.since = client.connection, client.since_ms
            shown.client = connection.peer
            shown.roles = [role for role in connection.roles if role]
            shown.rate, shown.throughput = client.rates.messages_per_s, client.rates.bytes_per_s
            throttle = connection.throttle
            if throttle.paused:
                holds = throttle.holds(now_ns)
                shown.held_by = [hold.cause.value for hold in holds]
                shown.held_for = sorted({each.topic for it in holds for each in it.holders})
            since_ns = throttle.limited_since_ns(now_ns)
            if since_ns is not None and throttle.last_holder is not None:
                cause, holder = throttle.last_holder
                holders = throttle.holders
                if not holders:  # held again and again, but not at this moment
                    holders = {holder}
                    shown.held_by, shown.held_for = [*shown.held_by, cause.value], [holder.topic]
                # others may have held it before
                begun_ns = [it.held_again_since_ns for it in holders]
                since_ns = max(since_ns, min((it for it in begun_ns if it >= 0), default=0))
                shown.held_since = now_ms - (now_ns - since_ns) // 1_000_000
        return shown

    for name in hosted.core.subscriptions:
        yield entry("subscription", name, None)
    for name, producer in hosted.producers.items():
        yield entry("producer", name, producer)
    for consumer in hosted.attached.values():
        yield entry("consumer", consumer.core.name, consumer, consumer.subscription.name)


def _rank(each: ClientFound, wanted: str) -> bool | None:
    """False, which comes first, for exactly this name or address; None: it is another one."""
    client = each.client or ""
    names = [each.name.casefold(), client, client.rpartition(":")[0]]
    names += [role.casefold() for role in each.roles]
    if wanted in names:
        return False
    return True if any(wanted in name for name in names) else None
