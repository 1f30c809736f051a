"""A cluster in memory, as the admin API asks it: implements `ports.control` for each of its brokers, without a store and without traffic.

Placement is simple and predictable: the leader gives an unowned bundle to the broker that owns fewest, the first by name among equals. A split is
in the middle, whatever algorithm is named, except at given positions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadmanager.core.bundles.names import NamespaceName, TopicName, check_part
from loadmanager.core.bundles.ranges import BundleRange, NamespaceBundles, equal_boundaries, format_boundaries, parse_boundaries, topic_hash
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.core.strategies.decision import Plan, Skip
from loadmanager.core.strategies.plan_document import plan_document
from loadmanager.ports.control import Lookup, Redirect
from loadmanager.ports.hosting import BrokerAddress, TopicTraffic
from loadmanager.ports.session import Lease

CLUSTER = "standalone"
BUNDLES_DEFAULT = 4
POSITIONS = "specified_positions_divide"
ALGORITHMS = ("range_equally_divide", "topic_count_equally_divide", POSITIONS, "flow_or_qps_equally_divide")
_DOMAINS_OF_MODE = {"PERSISTENT": ("persistent",), "NON_PERSISTENT": ("non-persistent",), "ALL": ("persistent", "non-persistent")}


@dataclass(slots=True)
class MemoryCluster:
    """What all brokers of one cluster share."""

    brokers: dict[str, BrokerAddress] = field(default_factory=dict)
    leader: str | None = None
    owners: dict[str, str] = field(default_factory=dict)
    """Bundle → brokerId."""
    tenants: dict[str, dict[str, Any]] = field(default_factory=lambda: {"public": {"adminRoles": [], "allowedClusters": [CLUSTER]}})
    policies: dict[NamespaceName, dict[str, Any]] = field(default_factory=dict)
    cuts: dict[NamespaceName, NamespaceBundles] = field(default_factory=dict)
    partitions: dict[TopicName, int] = field(default_factory=dict)
    topics: dict[TopicName, set[str]] = field(default_factory=dict)
    """Open or recorded topics → their durable subscriptions."""
    preferred: dict[str, str] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    ledgers: int = 0
    reachable: bool = True
    """Whether the store answers; without it every question that needs the store fails."""

    def join(self, address: BrokerAddress) -> MemoryControl:
        """Add a broker; the first one leads."""
        self.brokers[address.broker_id] = address
        self.leader = self.leader or address.broker_id
        return MemoryControl(self, address)

    def leave(self, broker_id: str) -> None:
        """A broker dies: its bundles have no owner, and the first of the others leads."""
        del self.brokers[broker_id]
        self.owners = {bundle: owner for bundle, owner in self.owners.items() if owner != broker_id}
        if self.leader == broker_id:
            self.leader = min(self.brokers, default=None)

    def cut(self, namespace: NamespaceName) -> NamespaceBundles:
        """How a namespace is cut. Raises `OperationalError` without a store, `NotFoundError`."""
        self.require_store()
        if namespace not in self.cuts:
            raise NotFoundError(f"Namespace {namespace} does not exist")
        return self.cuts[namespace]

    def require_store(self) -> None:
        """Raise `OperationalError` while the store cannot be reached."""
        if not self.reachable:
            raise OperationalError("the metadata store cannot be reached")

    def place(self, bundle: str) -> str:
        """Where an unowned bundle belongs. Raises `OperationalError` without brokers."""
        preferred = self.preferred.pop(bundle, None)
        if preferred in self.brokers:
            return preferred
        owned = list(self.owners.values())
        chosen = min(self.brokers, key=lambda name: (owned.count(name), name), default=None)
        if chosen is None:
            raise OperationalError("no broker is available")
        self.decisions.insert(0, {"kind": "place", "bundle": bundle, "broker": chosen, "reason": "owns fewest bundles"})
        return chosen


class _Topics:
    """`TopicControl`."""

    def __init__(self, cluster: MemoryCluster, address: BrokerAddress) -> None:
        self.cluster = cluster
        self.self_address = address
        self.lease = Lease(float("inf"))

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> Lookup:
        """Who serves the topic."""
        cluster, me = self.cluster, self.self_address.broker_id
        bundle = cluster.cut(topic.namespace).bundle_of_topic(str(topic))
        owner = cluster.owners.get(bundle)
        if owner is None and not authoritative and cluster.leader != me:
            if cluster.leader is None:
                raise OperationalError("no leader is known; try again")
            return Lookup(cluster.brokers[cluster.leader], redirect=True)
        if owner is None and not authoritative:
            placed = cluster.place(bundle)
            if placed != me:
                return Lookup(cluster.brokers[placed], redirect=True, authoritative=True)
        return Lookup(cluster.brokers[cluster.owners.setdefault(bundle, me)])

    async def owned_bundle(self, topic: TopicName) -> str | None:
        """The topic's bundle if this broker owns it."""
        bundle = self.cluster.cut(topic.namespace).bundle_of_topic(str(topic))
        return bundle if self.cluster.owners.get(bundle) == self.self_address.broker_id else None

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """Number of partitions."""
        self.cluster.cut(topic.namespace)
        known = topic in self.cluster.partitions or topic in self.cluster.topics
        if not known and not create:
            raise NotFoundError(f"Topic {topic} does not exist")
        return self.cluster.partitions.get(topic, 0)

    async def topics_of_namespace(self, namespace: NamespaceName, mode: str) -> list[str]:
        """Full names of the namespace's topics."""
        if mode not in _DOMAINS_OF_MODE:
            raise BadInputError(f"mode {mode!r}: PERSISTENT, NON_PERSISTENT or ALL is expected")
        self.cluster.cut(namespace)
        found = [topic.partition_name(index) for topic, count in self.cluster.partitions.items() for index in range(count)]
        found += self.cluster.topics
        return sorted({str(topic) for topic in found if topic.namespace == namespace and topic.domain in _DOMAINS_OF_MODE[mode]})

    async def open_topic(self, topic: TopicName) -> tuple[str, ...]:
        """Record a topic; returns its durable subscriptions."""
        self.cluster.cut(topic.namespace)
        return tuple(sorted(self.cluster.topics.setdefault(topic, set())))

    async def record_subscription(self, topic: TopicName, subscription: str) -> None:
        """Record a durable subscription."""
        self.cluster.topics.setdefault(topic, set()).add(subscription)

    async def forget_subscription(self, topic: TopicName, subscription: str) -> None:
        """Forget a durable subscription."""
        self.cluster.topics.get(topic, set()).discard(subscription)

    async def next_ledger_id(self) -> int:
        """A number that is greater than all before."""
        self.cluster.ledgers += 1
        return self.cluster.ledgers


class _Namespaces:
    """`NamespaceControl`."""

    cluster: MemoryCluster

    async def clusters(self) -> list[str]:
        """The one cluster."""
        return [CLUSTER]

    async def tenants(self) -> list[str]:
        """Names of the tenants."""
        self.cluster.require_store()
        return sorted(self.cluster.tenants)

    async def tenant(self, name: str) -> dict[str, Any]:
        """What is stored of a tenant."""
        if name not in await self.tenants():
            raise NotFoundError(f"Tenant {name} does not exist")
        return self.cluster.tenants[name]

    async def create_tenant(self, name: str, info: Mapping[str, Any]) -> None:
        """Create or replace a tenant."""
        self.cluster.require_store()
        stored = {"adminRoles": list(info.get("adminRoles") or []), "allowedClusters": list(info.get("allowedClusters") or [])}
        self.cluster.tenants[check_part(name, "tenant")] = stored

    async def delete_tenant(self, name: str) -> None:
        """Delete a tenant without namespaces."""
        if await self.namespaces(name):
            raise ConflictError(f"Tenant {name} still has namespaces: delete them first")
        del self.cluster.tenants[name]

    async def namespaces(self, tenant: str) -> list[str]:
        """Full names of a tenant's namespaces."""
        await self.tenant(tenant)
        return sorted(str(name) for name in self.cluster.cuts if name.tenant == tenant)

    async def create_namespace(self, namespace: NamespaceName, policies: Mapping[str, Any]) -> None:
        """Create a namespace."""
        await self.tenant(namespace.tenant)
        wanted = policies.get("bundles") or {}
        if not isinstance(wanted, Mapping) or not isinstance(wanted.get("numBundles", 1), int):
            raise BadInputError('bundles must be {"numBundles": N} or {"boundaries": ["0x00000000", ...]}')
        boundaries = (
            parse_boundaries(wanted["boundaries"])
            if wanted.get("boundaries")
            else equal_boundaries(wanted.get("numBundles", BUNDLES_DEFAULT))
        )
        if namespace in self.cluster.cuts:
            raise ConflictError(f"Namespace {namespace} exists already")
        self.cluster.cuts[namespace] = NamespaceBundles(namespace, boundaries, 0)
        self.cluster.policies[namespace] = {"replication_clusters": [CLUSTER], **policies}

    async def policies(self, namespace: NamespaceName) -> dict[str, Any]:
        """What is stored of a namespace."""
        boundaries = self.cluster.cut(namespace).boundaries
        cut = {"boundaries": format_boundaries(boundaries), "numBundles": len(boundaries) - 1}
        return {**self.cluster.policies[namespace], "bundles": cut}

    async def delete_namespace(self, namespace: NamespaceName, *, force: bool) -> None:
        """Delete a namespace."""
        cut, inside = self.cluster.cut(namespace), self._topics_in(namespace)
        if inside and not force:
            raise ConflictError(f"Cannot delete non empty namespace {namespace}")
        for topic in inside:
            self.cluster.topics.pop(topic, None)
            self.cluster.partitions.pop(topic, None)
        for bundle in cut.names:
            self.cluster.owners.pop(bundle, None)
        del self.cluster.cuts[namespace], self.cluster.policies[namespace]

    def _topics_in(self, namespace: NamespaceName) -> list[TopicName]:
        return [topic for topic in (*self.cluster.topics, *self.cluster.partitions) if topic.namespace == namespace]

    async def bundles(self, namespace: NamespaceName) -> NamespaceBundles:
        """How the namespace is cut."""
        return self.cluster.cut(namespace)

    async def create_partitioned_topic(self, topic: TopicName, partitions: int) -> None:
        """Record a partitioned topic."""
        if partitions < 1:
            raise BadInputError(f"a topic has at least 1 partition, not {partitions}")
        self.cluster.cut(topic.namespace)
        if topic in self.cluster.partitions or topic in self.cluster.topics:
            raise ConflictError("This topic already exists")
        self.cluster.partitions[topic] = partitions

    async def delete_topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete a topic with its partitions."""
        names = [topic, *(topic.partition_name(index) for index in range(self.cluster.partitions.get(topic, 0)))]
        if topic not in self.cluster.partitions and topic not in self.cluster.topics:
            raise NotFoundError(f"Topic {topic} does not exist")
        if any(self.cluster.topics.get(name) for name in names) and not force:
            raise ConflictError(f"Topic {topic} has subscriptions; delete them first, or use force=true")
        self.cluster.partitions.pop(topic, None)
        for name in names:
            self.cluster.topics.pop(name, None)


class MemoryControl(_Topics, _Namespaces):
    """One broker: `TopicControl`, `NamespaceControl`, `BrokerControl` and `PeerControl`."""

    stopping: bool = False
    asked_unloads_per_s: int | None = None
    """What the last request to stop said."""

    async def brokers(self) -> list[str]:
        """The live brokers."""
        return sorted(self.cluster.brokers)

    def leader(self) -> BrokerAddress | None:
        """The leader."""
        return self.cluster.brokers[self.cluster.leader] if self.cluster.leader else None

    def ready(self) -> bool:
        """Registered and not stopping."""
        return self.self_address.broker_id in self.cluster.brokers and not self.stopping

    async def health(self) -> None:
        """Whether the store answers."""
        self.cluster.require_store()
        if self.stopping:
            raise OperationalError("this broker is stopping")

    def load_report(self) -> bytes:
        """The few fields of a load report that exist without traffic."""
        mine = sorted(self.owned())
        return json.dumps({"webServiceUrl": self.self_address.web_url, "numBundles": len(mine), "bundles": mine}).encode()

    def owned(self) -> Mapping[str, Mapping[str, object]]:
        """Bundles owned here."""
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        return {bundle: status for bundle, owner in self.cluster.owners.items() if owner == self.self_address.broker_id}

    async def topic_traffic(self, topic: TopicName) -> TopicTraffic | None:
        """Nothing flows here: zero for a topic that is open on this broker."""
        return TopicTraffic() if await self.owned_bundle(topic) and topic in self.cluster.topics else None

    async def unload_namespace(self, namespace: NamespaceName) -> None:
        """Unload all bundles of a namespace."""
        for bundle in self.cluster.cut(namespace).names:
            self.cluster.owners.pop(bundle, None)

    async def unload_bundle(
        self, namespace: NamespaceName, bundle_range: str, *, authoritative: bool, destination: str | None
    ) -> Redirect | None:
        """Unload one bundle here, or say where to ask."""
        cut, me = self.cluster.cut(namespace), self.self_address.broker_id
        bundle = f"{namespace}/{cut.require(bundle_range)}"
        owner = self.cluster.owners.get(bundle)
        if destination:
            wanted = destination.partition("://")[2] or destination
            if wanted not in self.cluster.brokers:
                raise ConflictError(f"Destination broker {wanted} is not active")
            leader = self.leader()
            if leader is not None and leader.broker_id != me:
                return Redirect(leader.web_url)
            self.cluster.owners.pop(bundle, None)
            self.cluster.preferred[bundle] = wanted
            return None
        if owner not in (None, me):
            return Redirect(self.cluster.brokers[str(owner)].web_url, authoritative)
        self.cluster.owners.pop(bundle, None)
        return None

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
        """Split a bundle."""
        cut, me = self.cluster.cut(namespace), self.self_address.broker_id
        if algorithm not in (None, *ALGORITHMS):
            raise BadInputError(f"split algorithm {algorithm!r}: one of {', '.join(ALGORITHMS)} is allowed")
        if bundle_range in ("LARGEST", "HOT"):
            mine = [name for name in cut.names if self.cluster.owners.get(name) == me]
            if not mine:
                raise NotFoundError(f"{me} serves no bundle of {namespace}")
            bundle_range = mine[0].rpartition("/")[2]
        span = cut.require(bundle_range)
        owner = self.cluster.owners.get(f"{namespace}/{span}")
        if owner not in (None, me):
            return Redirect(self.cluster.brokers[str(owner)].web_url)
        if algorithm != POSITIONS:
            self._split(cut, span, [(span.lower + span.upper) // 2], unload=unload)
            return None
        if not positions:
            raise BadInputError(f"{POSITIONS} needs positions")
        inside = [position for position in positions if span.lower < position < span.upper]
        if inside and self._topics_between(namespace, span) > 1:  # Pulsar's rule: a bundle of one topic is not cut
            self._split(cut, span, inside, unload=unload)
        return None

    def _topics_between(self, namespace: NamespaceName, span: BundleRange) -> int:
        return sum(topic.namespace == namespace and topic_hash(str(topic)) in span for topic in self.cluster.topics)

    def _split(self, cut: NamespaceBundles, span: BundleRange, cuts: list[int], *, unload: bool) -> None:
        after = cut.split(span, cuts)
        self.cluster.cuts[cut.namespace] = after
        owner = self.cluster.owners.pop(f"{cut.namespace}/{span}", None)
        if owner is not None and not unload:
            self.cluster.owners.update({name: owner for name in after.names if name not in cut.names})

    async def shutdown(self, *, max_concurrent_unload_per_s: int) -> None:
        """Begin to stop: nothing is served from now on."""
        self.stopping, self.asked_unloads_per_s = True, max_concurrent_unload_per_s
        for bundle in list(self.owned()):
            del self.cluster.owners[bundle]

    def settings(self) -> Mapping[str, str]:
        """What this cluster has of settings."""
        return {"clusterName": CLUSTER, "defaultNumberOfNamespaceBundles": str(BUNDLES_DEFAULT)}

    async def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The last placements, newest first."""
        return self.cluster.decisions[:limit]

    async def dry_run(self) -> dict[str, Any]:
        """There is no load, so nothing would move."""
        return plan_document(Plan("none", skipped=(Skip("cluster", "no load"),)))

    def address_of(self, broker_id: str) -> BrokerAddress | None:
        """Where a live broker is reached."""
        return self.cluster.brokers.get(broker_id)

    async def release_bundle(self, bundle: str, destination: BrokerAddress | None, reason: str, *, epoch: int | None = None) -> bool:
        """Unload a bundle of ours."""
        if bundle not in self.owned():
            return False
        del self.cluster.owners[bundle]
        if destination is not None:
            self.cluster.owners[bundle] = destination.broker_id
        return True

    async def acquire_bundle(self, bundle: str, *, epoch: int | None = None) -> None:
        """Own a bundle that nobody owns."""
        owner = self.cluster.owners.setdefault(bundle, self.self_address.broker_id)
        if owner != self.self_address.broker_id:
            raise OperationalError(f"{bundle} is owned by {owner}")
