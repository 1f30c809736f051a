"""The owners and the records of topics, for the host that serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadmanager.broker.ports.directory import TopicRecords
from loadmanager.broker.ports.log import LogRecord
from loadmanager.broker.topics.limits import Limits
from loadmanager.broker.topics.schemas import StoredSchemas
from loadmanager.broker.topics.topics import Topics
from loadmanager.engine.ownership.states import BundleState
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.lease import Lease
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.member.base import Base, Cluster
from loadmanager.member.lookup import Lookups
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.ports.lookup import Lookup
from loadmanager.member.session_keeper import SessionKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDirectory:
    """Implements `broker.ports.directory.Directory`."""

    base: Base
    cluster: Cluster
    session_keeper: SessionKeeper
    topics: Topics
    schemas: StoredSchemas
    ownership: Ownership
    lookups: Lookups
    limits: Limits
    hosting: Hosting

    @property
    def self_address(self) -> BrokerAddress:
        return self.base.me

    @property
    def lease(self) -> Lease:
        return self.base.store.lease

    def fence(self) -> None:
        """Fence all bundles and the leadership at once."""
        self.session_keeper.fence_unproven()

    @property
    def _proven(self) -> bool:
        return self.lease.held(self.base.clock.monotonic_s())

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> Lookup:
        if not self._proven:  # at once, while the store is silent
            raise OperationalError(f"{self.lease.why_not_held}; try again")
        return await self.lookups.lookup(topic, authoritative=authoritative)

    def lookup_in_memory(self, topic: TopicName) -> Lookup | None:
        return self.lookups.lookup_in_memory(topic) if self._proven else None

    async def owned_bundle(self, topic: TopicName) -> str | None:
        """The topic's bundle if this broker serves it, else None.

        Waits while this broker is taking it: others may have heard of that before, and sent their
        clients here. Acquires it again if this session holds an idle claim (`Ownership.release`).
        """
        if not self._proven:
            return None
        bundle = await self.cluster.namespaces.bundle_of(topic)
        if self.ownership.served(bundle):
            return bundle
        if self.ownership.state(bundle) not in (BundleState.ASSIGNING, BundleState.OPENING):
            owner = await self.ownership.owner(bundle)
            if owner is None or owner.session_id != self.base.store.session_id:
                return None
        try:
            await self.ownership.acquire(bundle, "this session holds the lock")
        except OperationalError:
            return None
        return bundle if self.ownership.served(bundle) else None

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        return await self.topics.partitions(topic, create=create)

    async def topics_of_namespace(self, namespace: NamespaceName, mode: str) -> list[str]:
        """The recorded topics, and those open here: non-persistent topics have no record."""
        prefix = f"{namespace}/"
        owned = [bundle for bundle in self.ownership.owned() if bundle.startswith(prefix)]
        served = [topic for bundle in owned for topic in self.hosting.topics(bundle)]
        return await self.topics.of_namespace(namespace, mode, served)

    async def open_topic(self, topic: TopicName) -> TopicRecords:
        """Read the topic's limits, then record the topic; returns what is recorded of it."""
        await self.limits.opening(topic.namespace)
        return await self.topics.opened(topic)

    async def record_subscription(
        self, topic: TopicName, subscription: str, cursor: bytes = b""
    ) -> None:
        await self.topics.record_subscription(topic, subscription, cursor)

    async def forget_subscription(self, topic: TopicName, subscription: str) -> None:
        await self.topics.forget_subscription(topic, subscription)

    async def save_log_record(self, topic: TopicName, record: LogRecord) -> LogRecord:
        return await self.topics.logs.save(topic, record)

    async def cursors(self, topic: TopicName, subscriptions: Sequence[str]) -> list[bytes]:
        return await self.topics.logs.cursors(topic, subscriptions)

    async def save_cursors(
        self, topic: TopicName, record: LogRecord, cursors: Mapping[str, bytes]
    ) -> None:
        await self.topics.logs.save_cursors(topic, record, cursors)

    async def next_ledger_id(self) -> int:
        return await self.topics.next_ledger_id()

    async def topic_epoch(self, topic: TopicName) -> int:
        return await self.topics.epoch(topic)

    async def next_topic_epoch(self, topic: TopicName) -> int:
        return await self.topics.next_epoch(topic)
