"""The present leader, and the load manager while this broker leads, for the rest of the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from loadmanager.kit.errors import ConflictError
from loadmanager.kit.metadata.leader import Leader
from loadmanager.leader.decisions import RecentDecision
from loadmanager.leader.documents.findings import BacklogsShown
from loadmanager.leader.ports.operating import (
    Absences,
    Findings,
    HeatMap,
    LeaderOperations,
    Quotas,
)
from loadmanager.leader.usage import ModelledUsage
from loadmanager.limits.report import BrokerHolds


class LoadManagement(Protocol):
    """The methods of the leader's load manager that other parts of its broker call."""

    not_moved: int
    """Bundles that were to move in this term and did not; `not_split` likewise."""
    not_split: int
    usage: ModelledUsage
    """What the brokers use by the model."""

    async def place(self, bundle: str) -> str:
        """Choose a broker for a bundle without an owner; returns its brokerId.

        The placement is pending until a load report contains the bundle. Raises `OperationalError`
        when no broker qualifies.
        """
        ...

    def failed(self, step: str, error: Exception) -> None:
        """List the failure of a step among the decisions."""
        ...


@dataclass(slots=True)
class PresentLeader:
    """The present leader, and the load manager if this broker leads.

    `member.leading` sets it; lookups and the admin API read it.
    """

    leader: Leader | None = None
    load_manager: LoadManagement | None = None
    quotas: Quotas | None = None
    """Set by the last term of this broker."""
    operations: LeaderOperations | None = None
    """Set by the last term of this broker."""
    heat: HeatMap | None = None
    """Set by the last term of this broker."""
    members: Absences | None = None
    """Set while this broker leads."""
    findings: Findings | None = field(default=None, init=False)
    """Set while this broker leads."""
    holds: Callable[[], Awaitable[Mapping[str, BrokerHolds]]] | None = field(
        default=None, init=False
    )
    """Asks brokers which of their limits hold somebody; None: there are no limits to ask for."""
    backlogs: Callable[[], Awaitable[BacklogsShown]] | None = field(default=None, init=False)
    """Asks brokers for their greatest backlogs; None: there are no topics to ask for."""
    epoch: int = 0
    """The epoch of the latest term that this broker has read."""
    last_leader: Leader | None = field(default=None, init=False)
    """The leader, or the last one, while there is none."""

    def end(self) -> None:
        """This broker's term is over."""
        self.load_manager = self.members = self.findings = None

    def shown_ids(self, decision: RecentDecision) -> tuple[str, ...]:
        """The id by which operators are shown a decision of this broker; none unless it leads."""
        return () if self.load_manager is None else (decision.id,)

    def follow(self, leader: Leader | None) -> None:
        """Follow this leader from now on; None: there is no leader."""
        self.leader = leader
        if leader is not None:
            self.last_leader = leader
            self.learn_of(leader)

    def learn_of(self, leader: Leader) -> None:
        """Refuse the orders of earlier terms from now on.

        The epoch may be smaller than the last one, if an operator deleted the counter of epochs:
        brokers must obey the leader in the store even then.
        """
        self.epoch = leader.epoch

    def check(self, epoch: int | None) -> None:
        """Raise `ConflictError` for the order of a deposed leader; None: an operator's order."""
        if epoch is not None and epoch < self.epoch:
            raise ConflictError(
                f"the order is of epoch {epoch}, but epoch {self.epoch} has begun: its "
                "leader was deposed"
            )
