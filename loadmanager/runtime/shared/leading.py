"""The leader, and the load manager while this broker leads, for the other parts of the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from loadmanager.core.errors import ConflictError
from loadmanager.ports.election import Leader
from loadmanager.ports.operating import Overview, Plans


class ResourceQuotas(Protocol):
    """The loads that bundles are expected to carry; None: bundles without a quota of their own."""

    def quota(self, bundle: str | None) -> dict[str, Any]:
        """The quota of a bundle, or the default one."""
        ...

    async def set_quota(self, bundle: str | None, document: dict[str, Any]) -> None:
        """Store a quota. Raises `BadInputError`."""
        ...

    async def reset_quota(self, bundle: str) -> None:
        """Delete a quota. Raises `NotFoundError`."""
        ...


class LoadManagement(Protocol):
    """The methods of the leader's load manager that other parts of its broker call."""

    not_moved: int
    """Bundles that were to move in this term and did not; `not_split` likewise."""
    not_split: int

    async def place(self, bundle: str) -> str:
        """Choose a broker for a bundle without an owner; returns its brokerId.

        The placement is pending until a load report contains the bundle. Raises `OperationalError`
        when no broker qualifies.
        """
        ...

    def failed(self, step: str, error: Exception) -> None:
        """List the failure of a step among the decisions."""
        ...


class LeaderOperations(Protocol):
    """Does what operators ask of the leader: see `runtime.leader.operations.Operations`."""

    @property
    def overview(self) -> Overview:
        """The cluster as the leader sees it."""
        ...

    @property
    def plans(self) -> Plans:
        """Dry runs and sealed plans."""
        ...

    async def move(
        self, bundle: str, destination: str, *, pin_s: float | None = None, note: str = ""
    ) -> dict[str, Any]:
        """Move a bundle, and pin it; returns the move."""
        ...

    def list_moves(self, limit: int) -> dict[str, Any]:
        """The moves, and the pause."""
        ...

    def cancel(self, move_id: str | None) -> int:
        """Cancel a move that waits, or all; returns how many."""
        ...

    async def pause(self, seconds: float | None, note: str = "") -> dict[str, Any] | None:
        """Pause the queue of moves, or let it go on."""
        ...

    def pins(self) -> dict[str, Any]:
        """Bundle → its pin."""
        ...

    async def unpin(self, bundle: str) -> None:
        """Remove a pin."""
        ...

    def cordons(self) -> list[dict[str, Any]]:
        """The cordoned brokers with the progress of their drains."""
        ...

    async def cordon(
        self, broker: str, *, drain: bool, until_restart: bool = False, note: str = ""
    ) -> dict[str, Any]:
        """Cordon a broker, and drain it."""
        ...

    async def uncordon(self, broker: str) -> None:
        """End a cordon."""
        ...

    async def merge(self, left: str, right: str) -> str:
        """Merge two neighbouring bundles; returns the name of the new one."""
        ...


class HeatMap(Protocol):
    """The hottest bundles over time (`runtime.leader.heat_map.HeatMap`)."""

    def document(self, limit: int) -> dict[str, Any]:
        """Samples of that many bundles."""
        ...


@dataclass(slots=True)
class Leading:
    """The present leader, and the load manager if this broker leads.

    `runtime.leader` sets it; lookups and the admin API read it.
    """

    leader: Leader | None = None
    load_manager: LoadManagement | None = None
    quotas: ResourceQuotas | None = None
    """Set by the last term of this broker."""
    operations: LeaderOperations | None = None
    """Set by the last term of this broker."""
    heat: HeatMap | None = None
    """Set by the last term of this broker."""
    epoch: int = 0
    """The epoch of the latest term that this broker has read."""

    def follow(self, leader: Leader | None) -> None:
        """Follow this leader from now on; None: there is no leader."""
        self.leader = leader
        if leader is not None:
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
