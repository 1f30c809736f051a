"""Ends the producers and consumers whose role lost its permission.

Pulsar does the same when the policies of a namespace change (`Producer.checkPermissionsAsync`,
`Consumer.checkPermissionsAsync`): the client is told that its producer or consumer is closed, and
is refused when it comes back.
"""

from __future__ import annotations

import asyncio

from loadmanager.broker.ports.access import Access
from loadmanager.broker.protocol.hosted import AttachedConsumer, AttachedProducer, HostedTopic
from loadmanager.broker.protocol.serving import Serving
from loadmanager.engine.policies.permissions import CONSUME, PRODUCE
from loadmanager.kit.errors import ForbiddenError, LoadManagerError, OperationalError
from loadmanager.kit.refused_clients import ClientRefusals

CHECKED_AT_ONCE = 100
"""Producers and consumers that are checked before other tasks get their turn."""
CHANGED_MAX = 1_000
"""Beyond so many changed namespaces, everything that is attached is checked."""
RETRY_S = 0.2
"""The store did not answer: when to try again. Until then who is attached stays."""

Changed = dict[tuple[str, str], None]
"""Tenants and namespaces. An empty namespace stands for all of the tenant, an empty tenant for all
of them.
"""
EVERYTHING = ("", "")


class Rights:
    """Checks who is attached again when permissions change: those of the changed namespace only."""

    def __init__(self, access: Access, serving: Serving, refusals: ClientRefusals) -> None:
        self._access, self._refusals = access, refusals
        self._serving = serving
        self._changed: Changed = {}
        self._wake = asyncio.Event()
        self.checked = 0
        """How many producers and consumers have been checked again so far."""
        access.on_permissions(self.changed)

    def changed(self, tenant: str, namespace: str) -> None:
        """The permissions on a namespace may have changed; see `Changed`."""
        self._changed[tenant, namespace] = None
        if len(self._changed) > CHANGED_MAX or EVERYTHING in self._changed:
            self._changed = {EVERYTHING: None}
        self._wake.set()

    async def run(self) -> None:
        """Check what changed, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._changed:
                await self._check(next(iter(self._changed)))

    async def _check(self, changed: tuple[str, str]) -> None:
        del self._changed[changed]
        try:
            for hosted in self._serving.open_topics.below(*changed):
                await self._check_topic(hosted)
        except OperationalError:
            await asyncio.sleep(RETRY_S)
            self.changed(*changed)
        finally:
            self._serving.dispatcher.deliver()

    async def _check_topic(self, hosted: HostedTopic) -> None:
        for producer in list(hosted.producers.values()):
            await self.check_producer(producer)
        for consumer in list(hosted.attached.values()):
            await self.check_consumer(consumer)

    async def check_producer(self, producer: AttachedProducer) -> None:
        """Close a producer that may not produce any more. Raises `OperationalError` when the store
        does not answer.
        """
        hosted = producer.hosted
        why = await self._forbidden(producer, PRODUCE, "")
        if why and hosted.producers.get(producer.core.name) is producer and not hosted.fenced:
            self._refusals.forbidden(producer.connection.address, f"{why} {hosted.name} any more")
            self._serving.attachments.close_producer(
                producer, None, f"{why} {hosted.name} any more"
            )

    async def check_consumer(self, consumer: AttachedConsumer) -> None:
        """Close a consumer that may not consume any more. See `check_producer`."""
        hosted = consumer.hosted
        why = await self._forbidden(consumer, CONSUME, consumer.subscription.name)
        if why and hosted.attached.get(consumer.core) is consumer and not hosted.fenced:
            self._refusals.forbidden(consumer.connection.address, f"{why} {hosted.name} any more")
            self._serving.attachments.close_consumer(
                consumer, None, f"{why} {hosted.name} any more"
            )

    async def _forbidden(
        self, client: AttachedProducer | AttachedConsumer, action: str, subscription: str
    ) -> str:
        """Why the roles of a client may not do it; empty if they may."""
        self.checked += 1
        if self.checked % CHECKED_AT_ONCE == 0:
            self._serving.dispatcher.deliver()
            await asyncio.sleep(0)
        try:
            await self._access.require_topic(
                client.connection.roles,
                (action,),
                client.hosted.name,
                subscription=subscription,
                what=action,
            )
        except ForbiddenError as error:
            return str(error)
        except OperationalError:
            raise
        except LoadManagerError as error:
            return str(error)  # as a new client would be answered
        return ""
