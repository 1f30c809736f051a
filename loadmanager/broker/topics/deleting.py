"""Deletes topics and namespaces, and closes them on every broker."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from loadmanager.broker.topics.directory import TopicDirectory
from loadmanager.broker.topics.topics import Topics
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.kit.tasks import for_each, sleep
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.unloading import Unloading

ATTEMPTS_MAX = 5
POLL_S = 0.2
AT_ONCE_MAX = 20
"""How many topics are closed at once for one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleting:
    """Deletes the records, and tells the owners of the bundles to close the topics."""

    base: Base
    cluster: Cluster
    topics: Topics
    directory: TopicDirectory
    ownership: Ownership
    unloading: Unloading
    hosting: Hosting

    async def namespace(self, namespace: NamespaceName, *, force: bool) -> None:
        """Delete a namespace: mark it as deleted, unload its bundles, then delete the records.

        No broker can acquire a bundle of a marked namespace. If an owner does not answer, the
        namespace stays marked, and deleting it again goes on from there. Raises `ConflictError`
        while the namespace has topics, unless forced.
        """
        if force and not self.base.broker.value.delete_namespace_force:
            raise BadInputError(
                "Broker doesn't allow forced deletion of namespaces: set "
                "forceDeleteNamespaceAllowed=true"
            )
        # A namespace that is marked already has no topics to list: its deletion goes on.
        with contextlib.suppress(NotFoundError):
            if not force and await self.directory.topics_of_namespace(namespace, "ALL"):
                raise ConflictError(f"Cannot delete non empty namespace {namespace}")
        await self.cluster.namespaces.mark_deleted(namespace)
        for _ in range(ATTEMPTS_MAX):
            bundles = await self.cluster.namespaces.claimed_bundles(namespace)
            if not bundles:
                await self.topics.delete_logs(namespace)
                await self.cluster.namespaces.delete_namespace(namespace)
                return
            await self.unloading.all_of(bundles, f"namespace {namespace} is deleted")
            await sleep(POLL_S)  # until bundles in transit can be unloaded
        raise OperationalError(
            f"{bundles[0]} of the deleted namespace {namespace} is still owned; delete it again"
        )

    async def topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete a topic's records, and close the topic or its partitions on their owners.

        Raises `ConflictError` for a topic with subscriptions or clients, unless forced. When
        forced, the records are deleted first, because clients reconnect at once, and then may
        create the topic again.
        """
        names = await self.topics.names_of(topic)
        was_open = False
        if not force:
            await self.topics.require_unsubscribed(names)
            was_open = await self._close_topics(names, force=False)
        try:
            await self.topics.delete(
                topic, force=force, close=lambda: self._close_topics(names, force=True)
            )
        except NotFoundError:
            was_open = await self._close_topics(names, force=force) or was_open
            if not was_open:
                raise

    async def _close_topics(self, topics: Sequence[TopicName], *, force: bool) -> bool:
        """Close topics on their owners; returns whether any topic was open."""
        return any(
            await for_each(
                topics,
                lambda topic: self._close_anywhere(topic, force=force),
                AT_ONCE_MAX,
                "close-topic",
            )
        )

    async def _close_anywhere(self, topic: TopicName, *, force: bool) -> bool:
        bundle = await self.cluster.namespaces.bundle_of(topic)
        if self.ownership.served(bundle):
            return self.hosting.close_topic(str(topic), force=force)
        owner = await self.ownership.owner(bundle)
        if owner is None or owner.address == self.base.me:
            return False
        return await self.base.peers.close_topic(owner.address, str(topic), force=force)
