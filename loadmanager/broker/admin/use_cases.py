"""The use cases that routes call: objects of the runtime, which `wiring` passes in.

An adapter may not import the runtime. Each class here therefore declares the methods that routes
call; the runtime's class of the same name says what they do and raise. mypy compares the signatures
in `broker.wiring.parts`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from loadmanager.broker.ports.directory import Directory
from loadmanager.broker.ports.refused import RefusedToken
from loadmanager.broker.ports.topics import TopicHost
from loadmanager.engine.bundles.ranges import NamespaceBundles
from loadmanager.engine.policies.isolation import IsolationPolicy
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import Audit, ChangeShown
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.names import NamespaceName, TopicName
from loadmanager.leader.http.use import Leading
from loadmanager.leader.ports.mover import Released
from loadmanager.leader.ports.operating import Events
from loadmanager.limits.report import BrokerHolds
from loadmanager.member.ports.hosting import Hosting

Document = dict[str, Any]
T = TypeVar("T")
R = TypeVar("R")


class Brokers(Protocol):
    """The live brokers."""

    @property
    def registered(self) -> set[str]: ...
    def address(self, broker_id: str) -> BrokerAddress | None: ...
    def of_leader(self, leader: Leader) -> BrokerAddress: ...


class Health(Protocol):
    """The checks of this broker's health."""

    def ready(self) -> bool: ...
    async def check(self) -> None: ...


class Ownership(Protocol):
    """The bundles that this broker owns."""

    def owned(self) -> list[str]: ...


class Namespaces(Protocol):
    """Tenants, namespaces and their bundles."""

    async def clusters(self) -> list[str]: ...
    async def tenants(self) -> list[str]: ...
    async def tenant(self, name: str) -> Document: ...
    async def create_tenant(self, name: str, info: Mapping[str, Any]) -> None: ...
    async def update_tenant(self, name: str, info: Mapping[str, Any]) -> None: ...
    async def delete_tenant(self, name: str) -> None: ...
    async def namespaces(self, tenant: str) -> list[str]: ...
    async def create_namespace(
        self, namespace: NamespaceName, policies: Mapping[str, Any]
    ) -> None: ...
    async def policies(self, namespace: NamespaceName) -> Document: ...
    async def update_policies(
        self, namespace: NamespaceName, change: Callable[[Document], Document]
    ) -> None: ...
    async def bundles(self, namespace: NamespaceName) -> NamespaceBundles: ...


class Topics(Protocol):
    """Records of topics."""

    async def create_partitioned(self, topic: TopicName, partitions: int) -> None: ...
    async def update_partitioned(self, topic: TopicName, partitions: int) -> None: ...
    async def create_missed(self, topic: TopicName) -> None: ...
    async def exists(self, topic: TopicName) -> bool: ...


class Deleting(Protocol):
    """Deletes topics and namespaces."""

    async def namespace(self, namespace: NamespaceName, *, force: bool) -> None: ...
    async def topic(self, topic: TopicName, *, force: bool) -> None: ...


class Unloading(Protocol):
    """Unloads bundles of any broker."""

    async def namespace(self, namespace: NamespaceName) -> None: ...
    async def bundle(
        self, namespace: NamespaceName, bundle_range: str, *, destination: str | None = None
    ) -> BrokerAddress | None: ...


class Splitting(Protocol):
    """Splits bundles of this broker."""

    async def choose(self, namespace: NamespaceName, wanted: str) -> str: ...
    async def split(
        self,
        namespace: NamespaceName,
        bundle_range: str,
        *,
        algorithm: str | None = None,
        positions: Sequence[int] = (),
        unload: bool,
    ) -> BrokerAddress | list[str]: ...


class Orders(Protocol):
    """Carries out the orders of other brokers."""

    async def acquire(self, bundle: str, *, epoch: int | None = None) -> None: ...
    async def release(
        self, bundle: str, destination: BrokerAddress | None, *, epoch: int | None = None
    ) -> Released | None: ...
    async def merge(self, left: str, right: str, *, epoch: int | None = None) -> str: ...
    def released(self, bundle: str) -> Released | None: ...
    def served(self, bundle: str | None) -> dict[str, int]: ...
    async def split(
        self, namespace: NamespaceName, bundle_range: str, *, unload: bool, epoch: int | None = None
    ) -> list[str]: ...


class Limits(Protocol):
    """Rate limits and dynamic settings."""

    async def namespace_limit(self, namespace: NamespaceName, field: str) -> Document | None: ...
    async def set_namespace_limit(
        self, namespace: NamespaceName, field: str, rate: Document | None
    ) -> None: ...
    async def namespace_group(self, namespace: NamespaceName) -> str | None: ...
    async def set_namespace_group(self, namespace: NamespaceName, group: str | None) -> None: ...
    async def topic_policies(self, topic: TopicName) -> Document: ...
    async def applied_limit(self, topic: TopicName, path: tuple[str, ...]) -> Document | None: ...
    async def set_topic_policy(
        self, topic: TopicName, path: tuple[str, ...], rate: Document | None
    ) -> None: ...
    async def resource_groups(self) -> list[str]: ...
    async def resource_group(self, name: str) -> Document: ...
    async def put_resource_group(self, name: str, group: Document) -> None: ...
    async def delete_resource_group(self, name: str) -> None: ...
    def dynamic_names(self) -> list[str]: ...
    async def dynamic_values(self) -> dict[str, str]: ...
    async def set_dynamic(self, name: str, value: str | None) -> None: ...
    def broker_throttling(self) -> Document: ...
    def held_lately(self, waiters_max: int) -> BrokerHolds: ...
    def topic_throttling(self, topic: TopicName) -> Document | None: ...


class PlacementPolicies(Protocol):
    """Namespace isolation, failure domains, anti-affinity groups."""

    async def isolation_policies(self) -> dict[str, Document]: ...
    async def isolation_in_force(self) -> Mapping[str, IsolationPolicy]: ...
    async def set_isolation_policy(
        self, name: str, policy: Document | None
    ) -> list[NamespaceName]: ...
    async def failure_domains(self) -> dict[str, list[str]]: ...
    async def set_failure_domain(self, domain: str, brokers: list[str] | None) -> None: ...
    async def anti_affinity_group(self, namespace: NamespaceName) -> str | None: ...
    async def set_anti_affinity_group(
        self, namespace: NamespaceName, group: str | None
    ) -> None: ...
    async def namespaces_of_group(self, group: str) -> list[str]: ...


class RefusedTokens(Protocol):
    """The tokens that are refused before they end."""

    def shown(self) -> dict[str, RefusedToken]: ...
    async def refuse(self, token_id: str, *, until_ms: int | None, note: str) -> None: ...
    async def allow(self, token_id: str) -> None: ...


class ForEach(Protocol):
    """Does work for several items at once."""

    async def __call__(
        self, items: Sequence[T], work: Callable[[T], Awaitable[R]], at_once_max: int
    ) -> list[R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """The use cases of one broker."""

    self_address: BrokerAddress
    brokers: Brokers
    leading: Leading
    health: Health
    ownership: Ownership
    namespaces: Namespaces
    topics: Topics
    topic_host: TopicHost | None
    """None: the host serves something else than Pulsar's topics."""
    directory: Directory
    hosting: Hosting
    unloading: Unloading
    splitting: Splitting
    deleting: Deleting
    orders: Orders
    limits: Limits
    policies: PlacementPolicies
    events: Events
    for_each: ForEach
    load_report: Callable[[], bytes]
    """The load report, JSON."""
    extensible: bool
    """Whether this broker runs the extensible manager, which publishes no load report."""
    settings: Callable[[], Mapping[str, str]]
    """broker.conf key → value in force."""
    refused_tokens: RefusedTokens | None
    """None: without authentication."""
    disconnect: Callable[[str], int]
    """Ends the connections of a role here; returns how many."""
    audit: Audit
    tell_listeners: Callable[[Sequence[ChangeShown]], None]
    """Tells those who listen to events of changes."""
    stop: Callable[[int], None]
    """Begins a graceful stop that unloads at most so many bundles/s (0: any number)."""

    def addresses(self) -> Iterator[BrokerAddress]:
        """The addresses of the live brokers."""
        found = map(self.brokers.address, self.brokers.registered)
        return (address for address in found if address is not None)

    def address_of(self, leader: Leader) -> BrokerAddress:
        """The address at which the leader answers."""
        return self.brokers.of_leader(leader)
