"""What the routes of a leader call."""

from __future__ import annotations

from typing import Protocol

from loadmanager.engine.bundles.ranges import NamespaceBundles
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.http.answers import ElsewhereError
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.ports.operating import (
    Absences,
    Findings,
    HeatMap,
    LeaderOperations,
    Quotas,
)


class Leading(Protocol):
    """The leader, and the load manager if this broker leads."""

    @property
    def leader(self) -> Leader | None: ...
    @property
    def load_manager(self) -> object | None: ...
    @property
    def quotas(self) -> Quotas | None: ...
    @property
    def operations(self) -> LeaderOperations | None: ...
    @property
    def heat(self) -> HeatMap | None: ...
    @property
    def members(self) -> Absences | None: ...
    @property
    def findings(self) -> Findings | None: ...


class BundlesOf(Protocol):
    """The bundles of namespaces."""

    async def bundles(self, namespace: NamespaceName) -> NamespaceBundles: ...


class LeaderUse(Protocol):
    """What the routes of the leader need; our brokers and the daemon beside a Pulsar cluster
    implement it.
    """

    @property
    def self_address(self) -> BrokerAddress: ...
    @property
    def leading(self) -> Leading: ...
    @property
    def namespaces(self) -> BundlesOf: ...
    def address_of(self, leader: Leader) -> BrokerAddress: ...
    def why_no_leader(self) -> str:
        """Why there may be none, after "there is no leader now"; empty: not known."""
        ...

    def store_silent_ms(self) -> int | None:
        """For how long the metadata store has not answered, where it should have; None: it does."""
        ...


def operations(use: LeaderUse) -> LeaderOperations:
    """The load manager's side of the operators' API, on the leader.

    Raises `ElsewhereError` on another broker, `OperationalError` (503) without a leader.
    """
    leader = use.leading.leader
    if leader is None:
        raise OperationalError(f"there is no leader now{use.why_no_leader()}; try again")
    if leader.broker_id != use.self_address.broker_id:
        raise ElsewhereError(use.address_of(leader))
    if use.leading.load_manager is None or use.leading.operations is None:
        raise OperationalError("this broker's term as leader begins or ends; try again")
    return use.leading.operations
