"""Reads of a Pulsar cluster what an outside observer can see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.policies.isolation import IsolationPolicy
from loadmanager.kit.model import Shape

AGENT = "loadmanager-fleet"
"""How the requests of a daemon that steers a cluster name themselves. The API of such a daemon
refuses them: a cluster that lists it as a broker must not give it orders for another one.
"""


@dataclass(frozen=True, slots=True)
class BrokerReading:
    """One broker, as it described itself. `report.last_update` is when the answer came."""

    report: LocalBrokerData
    faults: tuple[str, ...] = ()
    """What of the report could not be read, and is left at 0."""
    stored: Mapping[str, int] | None = None
    """Bundle → the bytes that its topics have stored; None: the broker does not say."""


@dataclass(frozen=True, slots=True)
class PoliciesReading:
    """The policies that restrict where bundles may be placed, as read."""

    isolation: Mapping[str, IsolationPolicy] = field(default_factory=dict)
    domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    """Namespace → anti-affinity group."""


class Cost(Shape):
    """The requests to the cluster since the daemon began to watch, their failures and
    their bytes.
    """

    requests: int
    failures: int
    bytes_read: int


class ClusterReader(Protocol):
    """Reads a cluster, a request at a time, at a bounded pace and each bounded in time and size.

    Each method raises `OperationalError` when the cluster does not answer, or not usefully.
    """

    @property
    def cost(self) -> Cost:
        """The cost of all requests so far."""
        ...

    async def brokers(self) -> list[str]:
        """brokerIds of the registered brokers, sorted. One that died may be in the list until its
        session ends.
        """
        ...

    async def leader(self) -> str | None:
        """brokerId of the leader."""
        ...

    async def settings(self, broker_id: str | None = None) -> Mapping[str, str]:
        """broker.conf key → value in force, of the keys that concern load balancing only; on any
        broker if none is named.
        """
        ...

    async def read(self, broker_id: str) -> BrokerReading:
        """One broker and its bundles."""
        ...

    async def policies(self, cluster: str, namespaces: Iterable[str]) -> PoliciesReading:
        """The policies of a cluster; anti-affinity groups of these namespaces."""
        ...

    async def boundaries(self, namespace: str) -> list[str]:
        """The boundaries of a namespace's bundles, as Pulsar spells them."""
        ...

    async def boundaries_if_any(self, namespace: str) -> list[str] | None:
        """The same; None for a namespace that does not exist."""
        ...
