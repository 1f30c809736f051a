"""What a tenant that serves topics asks the runtime; `ports.hosting` is the other direction.

Errors: `BadInputError` (the caller is wrong), `NotFoundError`, `ConflictError`, and
`OperationalError` (try again later).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.ports.session import Lease


@dataclass(frozen=True, slots=True)
class Lookup:
    """Answer of a lookup: go to `broker`.

    With `redirect` the client must look up again there, passing `authoritative` on.
    """

    broker: BrokerAddress
    redirect: bool = False
    authoritative: bool = False


class Directory(Protocol):
    """Where topics belong, what is recorded of them, and whether this broker may serve at all."""

    @property
    def lease(self) -> Lease:
        """Proof of the session; a tenant serves nothing while it is not held."""
        ...

    def fence(self) -> None:
        """The lease is not held: give up all bundles, here and in the tenant, before anything else
        happens.
        """
        ...

    @property
    def self_address(self) -> BrokerAddress:
        """This broker."""
        ...

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> Lookup:
        """Who serves the topic (Pulsar `NamespaceService`, modular load manager).

        Raises `NotFoundError` when the namespace does not exist, `OperationalError` while the
        bundle is in transit or no broker is available (texts contain Pulsar's "is being unloaded"
        where clients are to retry on the same connection).
        """
        ...

    async def owned_bundle(self, topic: TopicName) -> str | None:
        """Name of the topic's bundle if this broker owns it at this moment (lock held, session
        proven, not being unloaded), else None.
        """
        ...

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Number of partitions (0: not partitioned).

        Raises `NotFoundError` for a missing namespace, or topic when `create` is False.
        """
        ...

    async def topics_of_namespace(self, namespace: NamespaceName, mode: str) -> list[str]:
        """Full names of the namespace's topics, partitions one by one; mode is PERSISTENT,
        NON_PERSISTENT or ALL. Sorted.
        """
        ...

    async def open_topic(self, topic: TopicName) -> tuple[str, ...]:
        """Record that a topic exists (persistent ones outlive their owner); returns its durable
        subscriptions, recorded by earlier owners.
        """
        ...

    async def record_subscription(self, topic: TopicName, subscription: str) -> None:
        """Record a durable subscription of a persistent topic before its consumer is told of
        success.
        """
        ...

    async def forget_subscription(self, topic: TopicName, subscription: str) -> None:
        """Forget a durable subscription."""
        ...

    async def next_ledger_id(self) -> int:
        """A number that no topic anywhere in the cluster used as ledger id before, and greater than
        all earlier ones of the same topic.
        """
        ...
