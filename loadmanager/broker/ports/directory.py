"""What a host that serves topics asks of its member; `member.ports.hosting` is the other direction.

They raise `BadInputError` (wrong arguments), `NotFoundError`, `ConflictError`, and
`OperationalError` (try again later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadmanager.broker.messaging.schema import Schema, StoredSchema
from loadmanager.broker.ports.log import LogRecord
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.metadata.lease import Lease
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.member.ports.lookup import Lookup


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """The records of a topic in the metadata store."""

    subscriptions: tuple[str, ...] = ()
    """The durable ones."""
    log: LogRecord | None = None
    """The record of its log; None before it was opened the first time, and in memory."""


class Schemas(Protocol):
    """The schemas of topics; partitions share their topic's."""

    async def get(self, topic: TopicName) -> StoredSchema | None:
        """The schema of a topic; None if it has none."""
        ...

    async def add(self, topic: TopicName, schema: Schema) -> int:
        """The version of a topic's schema, which is stored if the topic has none.

        Raises `IncompatibleSchemaError` if the topic has another schema, and its subclass
        `InvalidSchemaError` for a definition that defines none.
        """
        ...

    async def delete(self, topic: TopicName) -> int | None:
        """Delete a topic's schema; returns the version of the deletion, None without a schema."""
        ...


class Directory(Protocol):
    """The owners and records of topics, and the lease of this broker."""

    @property
    def lease(self) -> Lease:
        """Proof of the session; without it, a host serves only what has a fence of its own, and
        opens nothing.
        """
        ...

    @property
    def schemas(self) -> Schemas:
        """The schemas of topics."""
        ...

    def fence(self) -> None:
        """Fence at once whatever only the lease protects: the host noticed that it is not held.

        A host with a fence of its own is asked what goes on (`member.ports.hosting.SelfFencing`).
        """
        ...

    @property
    def self_address(self) -> BrokerAddress:
        """This broker."""
        ...

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> Lookup:
        """Find the broker that serves the topic (Pulsar `NamespaceService`, modular load manager).

        Raises `NotFoundError` when the namespace does not exist, `OperationalError` while the
        bundle is in transit or no broker is available. Where clients are to retry on the same
        connection, the text contains Pulsar's "is being unloaded".
        """
        ...

    def lookup_in_memory(self, topic: TopicName) -> Lookup | None:
        """The answer of `lookup` if it is in memory, without waiting for anything. Raises
        `NotFoundError` if that is the answer.
        """
        ...

    async def owned_bundle(self, topic: TopicName) -> str | None:
        """The topic's bundle if this broker serves it now, else None."""
        ...

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Number of partitions; 0: not partitioned.

        Raises `NotFoundError` for an unknown namespace, or unless `create`, for an unknown topic.
        """
        ...

    async def topics_of_namespace(self, namespace: NamespaceName, mode: str) -> list[str]:
        """Full names of the namespace's topics, sorted; partitions are listed one by one.

        `mode` is PERSISTENT, NON_PERSISTENT or ALL.
        """
        ...

    async def open_topic(self, topic: TopicName) -> TopicRecords:
        """Record that a topic exists; returns what is recorded of it.

        The records of persistent topics outlive the owner.
        """
        ...

    async def record_subscription(
        self, topic: TopicName, subscription: str, cursor: bytes = b""
    ) -> None:
        """Record a durable subscription with its cursor, before its consumer is answered."""
        ...

    async def forget_subscription(self, topic: TopicName, subscription: str) -> None:
        """Delete the record of a durable subscription."""
        ...

    async def save_log_record(self, topic: TopicName, record: LogRecord) -> LogRecord:
        """Write the record if it has the same version still; returns it with the new one.

        Raises `ConflictError`.
        """
        ...

    async def cursors(self, topic: TopicName, subscriptions: Sequence[str]) -> list[bytes]:
        """The cursors of durable subscriptions; empty without one."""
        ...

    async def save_cursors(
        self, topic: TopicName, record: LogRecord, cursors: Mapping[str, bytes]
    ) -> None:
        """Write cursors of subscriptions that still exist.

        Raises `ConflictError` when the log has been opened again since `record` was written.
        """
        ...

    async def next_ledger_id(self) -> int:
        """A new ledger id, greater than all earlier ids in the cluster."""
        ...

    async def topic_epoch(self, topic: TopicName) -> int:
        """The topic epoch of the last exclusive producer; 0 if there was none."""
        ...

    async def next_topic_epoch(self, topic: TopicName) -> int:
        """Store and return the next topic epoch: earlier exclusive producers are fenced."""
        ...
