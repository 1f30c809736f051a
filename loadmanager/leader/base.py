"""What the parts of a term share, each passed whole: what they stand on, the cluster that is led,
and how its bundles change hands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import ResourceUsage, disks_of
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies.eligibility import versions_of
from loadmanager.engine.strategies.cycle import Rng
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.clock import Clock
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.leader.last_replay import LastReplay
from loadmanager.leader.ports.fleet import LiveBrokers, Policies
from loadmanager.leader.ports.mover import Mover, Release
from loadmanager.leader.ports.wishes import WishBook


@dataclass(frozen=True, slots=True, kw_only=True)
class TermBase:
    """What each part of a term stands on."""

    epoch: int
    """The number of the term, which every order carries."""
    clock: Clock
    rng: Rng
    """What chance decides in this term."""
    scope: Scope
    """Its tasks end with the term."""
    steps: Steps
    """Runs and counts what is done again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedCluster:
    """The cluster that a term leads, as its leader knows it."""

    view: ClusterView
    brokers: LiveBrokers
    policies: Policies
    wishes: WishBook
    bundle_count: Callable[[NamespaceName], Awaitable[int]]
    """How many bundles a namespace has; 0 for one that does not exist. May raise
    `OperationalError`.
    """
    unusable: Callable[[], Mapping[str, Reason]] = dict
    """brokerId → why nothing goes there or comes from there, beside what reports say."""
    fleet: str | None = None
    """Its name in the daemon beside a Pulsar that leads it; None: one of its brokers does."""
    replay: LastReplay = field(default_factory=LastReplay, init=False)
    """How far off replays of its days are."""

    def disks(self, broker: str) -> dict[str, ResourceUsage]:
        """What is stored there → how full that disk of a broker is, as it told last."""
        if self.view.knows_owners:
            return disks_of(self.view.clients.get(broker))
        return disks_of(self.brokers.reports.get(broker))


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOrders:
    """How bundles change hands under one of Pulsar's load managers, and how their owner is read."""

    mover: Mover
    release: Release
    owner: Callable[[str], Awaitable[str | None]]
    """Bundle → the brokerId of its owner, as stored."""
    assign: Callable[[str, str], Awaitable[bool]] | None = None
    """Has a broker acquire a bundle that nobody owns; None: its next lookup does."""


class PolicedCluster(Protocol):
    """The live brokers, and the policies and wishes that bind whoever places bundles on them."""

    @property
    def brokers(self) -> LiveBrokers: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def wishes(self) -> WishBook: ...


def snapshot_of(
    cluster: PolicedCluster,
    view: ClusterView,
    now_ms: int,
    settings: StrategySettings,
    *,
    leaving: Mapping[str, str] | None = None,
    passing: bool = False,
) -> ClusterSnapshot:
    """The cluster now, for strategies with these settings; see `ClusterView.snapshot`."""
    versions = versions_of(cluster.brokers.reports) if settings.prefer_later_versions else {}
    return view.snapshot(
        now_ms,
        settings,
        isolation_policies=cluster.policies.isolation,
        anti_affinity_groups=cluster.policies.groups,
        failure_domains=cluster.policies.domains,
        versions=versions,
        wishes=cluster.wishes.now(),
        leaving=leaving or {},
        passing=passing,
    )
