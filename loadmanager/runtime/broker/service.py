"""One broker as the world sees it: implements `ports.control` by passing each question to the part that knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from loadmanager.core.bundles.names import NamespaceName, TopicName
from loadmanager.core.bundles.ranges import NamespaceBundles, bundle_name
from loadmanager.core.conf import Live
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.ports.control import Lookup, Redirect
from loadmanager.ports.hosting import BrokerAddress, Hosting, TopicTraffic
from loadmanager.ports.peers import Peers
from loadmanager.ports.session import Lease
from loadmanager.ports.store import Store
from loadmanager.runtime.broker.guard import SessionGuard
from loadmanager.runtime.broker.limits import Limits
from loadmanager.runtime.broker.lookup import Lookups
from loadmanager.runtime.broker.namespaces import Namespaces
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.broker.splitting import Splitting
from loadmanager.runtime.broker.topics import Topics
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.brokers import Brokers
from loadmanager.runtime.shared.leading import Desk, Leading
from loadmanager.runtime.shared.settings import BrokerSettings
from loadmanager.runtime.tasks import for_each, sleep

AT_ONCE_MAX = 20
"""How many bundles are unloaded, or topics closed, at once for one request."""
DELETE_ATTEMPTS_MAX = 5
DELETE_POLL_S = 0.2


log = structlog.get_logger("broker")


@dataclass(slots=True, kw_only=True)
class BrokerService:
    """Implements `TopicControl`, `NamespaceControl` and `BrokerControl`."""

    store: Store
    config: Live[BrokerSettings]
    self_address: BrokerAddress
    """This broker."""
    cut: Namespaces
    catalogue: Topics
    ownership: Ownership
    splitting: Splitting
    limits: Limits
    lookups: Lookups
    live: Brokers
    leading: Leading
    hosting: Hosting
    peers: Peers
    guard: SessionGuard
    last_report: Callable[[], bytes]
    settings_in_force: Callable[[], Mapping[str, str]]
    stop: Callable[[int], None]

    # TopicControl

    @property
    def lease(self) -> Lease:
        """Proof of the session."""
        return self.store.lease

    def fence(self) -> None:
        """Give up everything at once, when the lease is not held."""
        self.guard.fence_unproven()

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> Lookup:
        """Who serves the topic."""
        return await self.lookups.lookup(topic, authoritative=authoritative)

    async def owned_bundle(self, topic: TopicName) -> str | None:
        """The topic's bundle if it is served here. A lock of ours that is idle since the session recovered is put to work again."""
        cut = self.cut.cached_bundles(topic.namespace) or await self.cut.bundles(topic.namespace)
        bundle = cut.bundle_of_topic(str(topic))
        if self.ownership.served(bundle):
            return bundle
        owner = await self.ownership.owner(bundle)
        if owner is None or owner.session_id != self.store.session_id:
            return None
        try:
            await self.ownership.acquire(bundle, "the lock is ours")
        except OperationalError:
            return None
        return bundle if self.ownership.served(bundle) else None

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Number of partitions."""
        return await self.catalogue.partitions(topic, create=create)

    async def topics_of_namespace(self, namespace: NamespaceName, mode: str) -> list[str]:
        """Full names of the namespace's topics."""
        return await self.catalogue.of_namespace(namespace, mode, self._served_topics(namespace))

    def _served_topics(self, namespace: NamespaceName) -> list[str]:
        prefix = f"{namespace}/"
        return [name for bundle in self.ownership.owned() if bundle.startswith(prefix) for name in self.hosting.topics(bundle)]

    async def open_topic(self, topic: TopicName) -> tuple[str, ...]:
        """Record a topic; returns its durable subscriptions. Its limits are known before."""
        await self.limits.opening(topic.namespace)
        return await self.catalogue.opened(topic)

    async def record_subscription(self, topic: TopicName, subscription: str) -> None:
        """Record a durable subscription."""
        await self.catalogue.record_subscription(topic, subscription)

    async def forget_subscription(self, topic: TopicName, subscription: str) -> None:
        """Forget a durable subscription."""
        await self.catalogue.forget_subscription(topic, subscription)

    async def next_ledger_id(self) -> int:
        """A ledger id that nobody used before."""
        return await self.catalogue.next_ledger_id()

    # NamespaceControl

    async def clusters(self) -> list[str]:
        """Names of the clusters."""
        return await self.cut.clusters()

    async def tenants(self) -> list[str]:
        """Names of the tenants."""
        return await self.cut.tenants()

    async def tenant(self, name: str) -> dict[str, Any]:
        """What is stored of a tenant."""
        return await self.cut.tenant(name)

    async def create_tenant(self, name: str, info: Mapping[str, Any]) -> None:
        """Create or replace a tenant."""
        await self.cut.create_tenant(name, info)

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant without namespaces."""
        await self.cut.delete_tenant(name)

    async def namespaces(self, tenant: str) -> list[str]:
        """Full names of a tenant's namespaces."""
        return await self.cut.namespaces(tenant)

    async def create_namespace(self, namespace: NamespaceName, policies: Mapping[str, Any]) -> None:
        """Create a namespace."""
        await self.cut.create_namespace(namespace, policies)

    async def policies(self, namespace: NamespaceName) -> dict[str, Any]:
        """What is stored of a namespace."""
        return await self.cut.policies(namespace)

    async def delete_namespace(self, namespace: NamespaceName, *, force: bool) -> None:
        """Delete a namespace: mark it, so that nobody acquires its bundles, unload them, remove the records.

        When this fails in between (an owner does not answer), the namespace stays marked, nobody can
        use it, and deleting it again goes on.
        """
        if force and not self.config.value.delete_namespace_force:
            raise BadInputError("forced deletion of namespaces is not allowed: set forceDeleteNamespaceAllowed=true")
        if not force:
            await self._require_empty(namespace)
        await self.cut.mark_deleted(namespace)
        for _ in range(DELETE_ATTEMPTS_MAX):
            bundles = await self.cut.locked_bundles(namespace)
            if not bundles:
                await self.cut.delete_namespace(namespace)
                return
            await self._unload_all(bundles, f"namespace {namespace} is deleted")
            await sleep(DELETE_POLL_S)  # a bundle that was being opened or moved
        raise OperationalError(f"{bundles[0]} of the deleted namespace {namespace} is still owned; delete it again")

    async def _require_empty(self, namespace: NamespaceName) -> None:
        if await self.catalogue.of_namespace(namespace, "ALL", self._served_topics(namespace)):
            raise ConflictError(f"Cannot delete non empty namespace {namespace}")

    async def bundles(self, namespace: NamespaceName) -> NamespaceBundles:
        """How the namespace is cut."""
        return await self.cut.bundles(namespace)

    async def create_partitioned_topic(self, topic: TopicName, partitions: int) -> None:
        """Record a partitioned topic."""
        await self.catalogue.create_partitioned(topic, partitions)

    async def delete_topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete a topic's records, and have the owners of its partitions tell clients and forget messages.

        Unforced, a topic with subscriptions or clients is refused. Forced, the records go first, because
        clients come back at once: they make a new topic, if that is allowed.
        """
        names = await self.catalogue.names_of(topic)
        was_open = False
        if not force:
            await self.catalogue.require_unsubscribed(names)
            was_open = await self._close_topics(names, force=False)
        try:
            await self.catalogue.delete(topic, force=force)
        except NotFoundError:
            was_open = await self._close_topics(names, force=force) or was_open
            if not was_open:
                raise
        else:
            await self._close_topics(names, force=True)

    async def _close_topics(self, topics: Sequence[TopicName], *, force: bool) -> bool:
        """Close topics wherever they are open; whether any was."""
        return any(
            await for_each(
                topics,
                lambda topic: self._close_anywhere(topic, force=force),
                AT_ONCE_MAX,
                "close-topic",
            )
        )

    async def _close_anywhere(self, topic: TopicName, *, force: bool) -> bool:
        bundle = (await self.cut.bundles(topic.namespace)).bundle_of_topic(str(topic))
        if self.ownership.served(bundle):
            return self.hosting.close_topic(str(topic), force=force)
        owner = await self.ownership.owner(bundle)
        if owner is None or owner.address == self.self_address:
            return False
        return await self.peers.close_topic(owner.address, str(topic), force=force)

    async def close_topic(self, topic: TopicName, *, force: bool) -> bool:
        """Close a topic that is open here (what a peer asks for)."""
        return self.hosting.close_topic(str(topic), force=force)

    # BrokerControl

    async def brokers(self) -> list[str]:
        """The live brokers."""
        return sorted(self.live.registered)

    def leader(self) -> BrokerAddress | None:
        """The leader as last seen."""
        leader = self.leading.leader
        if leader is None:
            return None
        return self.live.address(leader.broker_id) or BrokerAddress(leader.broker_id, "", leader.service_url)

    def ready(self) -> bool:
        """Registered, proven and accepting."""
        return self.ownership.accepting and self.self_address.broker_id in self.live.registered and self.leading.leader is not None

    async def health(self) -> None:
        """A write and a read of the store in this session."""
        if not self.ownership.accepting:
            raise OperationalError("this broker is stopping")
        path = f"{paths.HEALTH}/{self.self_address.broker_id}"
        version = await self.store.put(path, b"")
        node = await self.store.get(path)
        if node is None or node.version < version:
            raise OperationalError("the metadata store lost a write")

    def load_report(self) -> bytes:
        """This broker's load report as last published."""
        return self.last_report()

    def owned(self) -> Mapping[str, Mapping[str, object]]:
        """Bundles owned here with their status."""
        return {bundle: {"broker_assignment": "shared", "is_controlled": False, "is_active": True} for bundle in self.ownership.owned()}

    async def topic_traffic(self, topic: TopicName) -> TopicTraffic | None:
        """Traffic of a topic that is open here."""
        bundle = (await self.cut.bundles(topic.namespace)).bundle_of_topic(str(topic))
        return self.hosting.topics(bundle).get(str(topic)) if self.ownership.served(bundle) else None

    async def unload_namespace(self, namespace: NamespaceName) -> None:
        """Unload all bundles of a namespace, wherever they are, a bounded number at once."""
        cut = await self.cut.bundles(namespace)
        await self._unload_all(cut.names, f"unload of namespace {namespace}")

    async def _unload_all(self, bundles: Sequence[str], reason: str) -> None:
        await for_each(
            bundles,
            lambda bundle: self._unload_anywhere(bundle, None, reason),
            AT_ONCE_MAX,
            "unload",
        )

    async def _unload_anywhere(self, bundle: str, destination: BrokerAddress | None, reason: str) -> None:
        owner = await self.ownership.owner(bundle)
        if self.ownership.served(bundle):
            await self.release_bundle(bundle, destination, reason)
        elif owner is not None and owner.address != self.self_address:
            await self.peers.release_bundle(owner.address, bundle, destination, epoch=None)

    async def unload_bundle(
        self, namespace: NamespaceName, bundle_range: str, *, authoritative: bool, destination: str | None
    ) -> Redirect | None:
        """Unload one bundle here, or say where to ask. See `ports.control.BrokerControl.unload_bundle`."""
        cut = await self.cut.bundles(namespace)
        bundle = bundle_name(str(namespace), str(cut.require(bundle_range)))
        if destination:
            return await self._unload_to(bundle, destination.partition("://")[2] or destination)
        owner = await self.ownership.owner(bundle)
        if owner is None:
            return None
        if owner.address != self.self_address:
            return Redirect(owner.address.web_url, authoritative)
        await self.release_bundle(bundle, None, "admin")
        return None

    async def _unload_to(self, bundle: str, destination: str) -> Redirect | None:
        address = self.live.address(destination)
        if address is None:
            raise ConflictError(f"Destination broker {destination} is not active: the brokers are {', '.join(sorted(self.live.reports))}")
        if self.leading.desk is None:
            leader = self.leader()
            if leader is None or leader.broker_id == self.self_address.broker_id:
                raise OperationalError("The leader is not known yet; try again")
            return Redirect(leader.web_url)
        self.leading.desk.prefer(bundle, destination)
        await self._unload_anywhere(bundle, address, "admin")
        return None

    async def release_bundle(self, bundle: str, destination: BrokerAddress | None, reason: str, *, epoch: int | None = None) -> bool:
        """Unload a bundle of ours (what a peer asks for, too); False when it is not ours. Raises `ConflictError` when it is in transit."""
        self.leading.check(epoch)
        timeout_s = self.config.value.bundle_unload_timeout_ms / 1000
        closed = await self.ownership.release(bundle, reason=reason, destination=destination, timeout_s=timeout_s, epoch=epoch)
        return closed is not None

    async def acquire_bundle(self, bundle: str, *, epoch: int | None = None) -> None:
        """Own a bundle that nobody owns (what a peer asks for). Raises `OperationalError` when somebody else has it."""
        self.leading.check(epoch)
        owner = await self.ownership.acquire(bundle, "transferred")
        if owner.address != self.self_address:
            raise OperationalError(f"{bundle} is owned by {owner.address.broker_id}")

    def address_of(self, broker_id: str) -> BrokerAddress | None:
        """Where a live broker is reached."""
        return self.live.address(broker_id)

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
        """Split a bundle here, or say where to ask."""
        self.leading.check(epoch)
        return await self.splitting.split(
            namespace, bundle_range, algorithm=algorithm, positions=positions, unload=unload, automatic=automatic
        )

    async def shutdown(self, *, max_concurrent_unload_per_s: int) -> None:
        """Begin a graceful stop; returns at once."""
        self.stop(max_concurrent_unload_per_s)

    def settings(self) -> Mapping[str, str]:
        """All settings in force."""
        return self.settings_in_force()

    async def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The leader's last decisions."""
        return self._desk().decisions(limit)

    async def dry_run(self) -> dict[str, Any]:
        """What the leader would do right now."""
        return self._desk().dry_run()

    def _desk(self) -> Desk:
        if self.leading.desk is None:
            leader = self.leader()
            where = f"ask {leader.web_url}" if leader else "and there is none now"
            raise NotFoundError(f"only the leader knows: {where}")
        return self.leading.desk
