"""What the world may ask of the runtime: the protocol server and the admin API call these; `runtime.broker` implements them.

Errors: `BadInputError` (the caller is wrong), `NotFoundError`, `ConflictError`, and `OperationalError` (try again later).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.bundles.ranges import NamespaceBundles
from loadmanager.ports.hosting import BrokerAddress, TopicTraffic
from loadmanager.ports.session import Lease


@dataclass(frozen=True, slots=True)
class Lookup:
    """Answer of a lookup: go to `broker`. With `redirect` the client must look up again there, passing `authoritative` on."""

    broker: BrokerAddress
    redirect: bool = False
    authoritative: bool = False


@dataclass(frozen=True, slots=True)
class Redirect:
    """An admin request must be sent to another broker (HTTP 307), with `authoritative` if given."""

    web_url: str
    authoritative: bool | None = None


class TopicControl(Protocol):
    """What a tenant that serves topics asks: where topics belong and what is recorded of them."""

    @property
    def lease(self) -> Lease:
        """Proof of the session; a tenant serves nothing while it is not held."""
        ...

    def fence(self) -> None:
        """The lease is not held: give up all bundles, here and in the tenant, before anything else happens."""
        ...

    @property
    def self_address(self) -> BrokerAddress:
        """This broker."""
        ...

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> Lookup:
        """Who serves the topic (Pulsar `NamespaceService`, modular load manager).

        Raises `NotFoundError` when the namespace does not exist, `OperationalError` while the bundle is in transit or no broker is available
        (texts contain Pulsar's "is being unloaded" where clients are to retry on the same connection).
        """
        ...

    async def owned_bundle(self, topic: TopicName) -> str | None:
        """Name of the topic's bundle if this broker owns it at this moment (lock held, session proven, not being unloaded), else None."""
        ...

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Number of partitions (0: not partitioned). Raises `NotFoundError` for a missing namespace, or topic when `create` is False."""
        ...

    async def topics_of_namespace(self, namespace: NamespaceName, mode: str) -> list[str]:
        """Full names of the namespace's topics, partitions one by one; mode is PERSISTENT, NON_PERSISTENT or ALL. Sorted."""
        ...

    async def open_topic(self, topic: TopicName) -> tuple[str, ...]:
        """Record that a topic exists (persistent ones outlive their owner); returns its durable subscriptions, recorded by earlier owners."""
        ...

    async def record_subscription(self, topic: TopicName, subscription: str) -> None:
        """Record a durable subscription of a persistent topic before its consumer is told of success."""
        ...

    async def forget_subscription(self, topic: TopicName, subscription: str) -> None:
        """Forget a durable subscription."""
        ...

    async def next_ledger_id(self) -> int:
        """A number that no topic anywhere in the cluster used as ledger id before, and greater than all earlier ones of the same topic."""
        ...


class NamespaceControl(Protocol):
    """Tenants, namespaces, bundles, policies: what the admin API asks."""

    async def clusters(self) -> list[str]:
        """Names of the clusters."""
        ...

    async def tenants(self) -> list[str]:
        """Names of the tenants, sorted."""
        ...

    async def tenant(self, name: str) -> dict[str, Any]:
        """Stored TenantInfo; `NotFoundError` if there is none."""
        ...

    async def create_tenant(self, name: str, info: Mapping[str, Any]) -> None:
        """Create or replace a tenant (`adminRoles`, `allowedClusters`)."""
        ...

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant; `ConflictError` while it has namespaces."""
        ...

    async def namespaces(self, tenant: str) -> list[str]:
        """Full names of a tenant's namespaces, sorted; `NotFoundError` for a missing tenant."""
        ...

    async def create_namespace(self, namespace: NamespaceName, policies: Mapping[str, Any]) -> None:
        """Create a namespace; `policies` may hold `bundles` (numBundles, boundaries). `ConflictError` when it exists."""
        ...

    async def policies(self, namespace: NamespaceName) -> dict[str, Any]:
        """Stored Policies; `NotFoundError` if there is none."""
        ...

    async def delete_namespace(self, namespace: NamespaceName, *, force: bool) -> None:
        """Delete a namespace; `ConflictError` while it has topics, unless forced."""
        ...

    async def bundles(self, namespace: NamespaceName) -> NamespaceBundles:
        """How the namespace is cut."""
        ...

    async def create_partitioned_topic(self, topic: TopicName, partitions: int) -> None:
        """Record a partitioned topic; `ConflictError` when it exists."""
        ...

    async def delete_topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete a topic with all its partitions; `ConflictError` while it is in use, unless forced."""
        ...


class BrokerControl(Protocol):
    """Brokers, leadership and moves: what the admin API asks."""

    @property
    def self_address(self) -> BrokerAddress:
        """This broker."""
        ...

    async def brokers(self) -> list[str]:
        """brokerIds of the live brokers, sorted."""
        ...

    def leader(self) -> BrokerAddress | None:
        """The leader as last seen."""
        ...

    def ready(self) -> bool:
        """Whether this broker is registered, proven and takes lookups."""
        ...

    async def health(self) -> None:
        """Return if this broker can do its work now (a write and a read of the store); raise `OperationalError` otherwise."""
        ...

    def load_report(self) -> bytes:
        """This broker's LocalBrokerData as last published, JSON."""
        ...

    def owned(self) -> Mapping[str, Mapping[str, object]]:
        """Bundles owned here, with Pulsar's ownership status of each (`broker_assignment`, `is_controlled`, `is_active`)."""
        ...

    async def topic_traffic(self, topic: TopicName) -> TopicTraffic | None:
        """Traffic of a topic that is open here, else None."""
        ...

    async def unload_namespace(self, namespace: NamespaceName) -> None:
        """Unload all bundles of a namespace, wherever they are."""
        ...

    async def unload_bundle(
        self, namespace: NamespaceName, bundle_range: str, *, authoritative: bool, destination: str | None
    ) -> Redirect | None:
        """Unload one bundle here, or say where to ask. With a destination the leader records it first (Pulsar's unload affinity).

        Raises `ConflictError` when the destination is not an active broker or the bundle does not exist.
        """
        ...

    async def split_bundle(
        self,
        namespace: NamespaceName,
        bundle_range: str,
        *,
        algorithm: str | None,
        positions: Sequence[int],
        unload: bool,
        automatic: bool = False,
        epoch: int | None = None,
    ) -> Redirect | None:
        """Split a bundle (range, LARGEST or HOT) here, or say where to ask. `automatic`: only if that divides its topics.

        `epoch` as in `ports.peers.Peers`.
        """
        ...

    async def shutdown(self, *, max_concurrent_unload_per_s: int) -> None:
        """Begin a graceful stop of this broker."""
        ...

    def settings(self) -> Mapping[str, str]:
        """All settings in force, by broker.conf key."""
        ...

    async def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The last decisions of the leader, newest first, with their reasons."""
        ...

    async def dry_run(self) -> dict[str, Any]:
        """What the leader would do right now, without doing it; raises `OperationalError` where there is no leader to ask."""
        ...


class PeerControl(Protocol):
    """What other brokers ask of this one; `ports.peers.Peers` is the asking side. Orders of a deposed leader raise `ConflictError`."""

    def address_of(self, broker_id: str) -> BrokerAddress | None:
        """Where a live broker is reached."""
        ...

    async def release_bundle(self, bundle: str, destination: BrokerAddress | None, reason: str, *, epoch: int | None = None) -> bool:
        """Unload a bundle of ours; False for one that is not, so that nothing was done."""
        ...

    async def close_topic(self, topic: TopicName, *, force: bool) -> bool:
        """Close a topic that is deleted, if it is open here; see `ports.hosting.Hosting.close_topic`."""
        ...

    async def acquire_bundle(self, bundle: str, *, epoch: int | None = None) -> None:
        """Own a bundle that nobody owns. Raises `OperationalError` when somebody else has it."""
        ...
