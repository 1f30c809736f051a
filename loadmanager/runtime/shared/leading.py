"""Who leads, and the leader's placing, as the rest of the broker sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from loadmanager.core.errors import ConflictError
from loadmanager.ports.election import Leader


class LoadManagement(Protocol):
    """What the leader's load manager does for the other parts of its broker, during one term."""

    async def place(self, bundle: str) -> str:
        """brokerId where an unowned bundle belongs; counts as pending until the bundle is reported.

        Raises `OperationalError` when no broker qualifies.
        """
        ...

    def prefer(self, bundle: str, broker_id: str) -> None:
        """The next placement of this bundle goes to this broker (Pulsar's unload affinity)."""
        ...

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The last decisions with their reasons, newest first."""
        ...

    def dry_run(self) -> dict[str, Any]:
        """What a shedding cycle would do right now."""
        ...

    def failed(self, step: str, error: Exception) -> None:
        """A step of the leader failed: it belongs among the decisions."""
        ...


@dataclass(slots=True)
class Leading:
    """The present leader, and the load manager if this broker leads.

    `runtime.leader` sets it; lookups and the admin API read it.
    """

    leader: Leader | None = None
    load_manager: LoadManagement | None = None
    epoch: int = 0
    """The newest term that this broker knows of."""

    def follow(self, leader: Leader | None) -> None:
        """Somebody else leads from now on, or nobody.

        The store has the last word: should somebody have deleted the counter of epochs, so that a
        new term has a smaller one, its leader must be obeyed all the same.
        """
        self.leader = leader
        if leader is not None:
            self.know(leader)

    def know(self, leader: Leader) -> None:
        """That term has begun: orders of older ones are refused from now on."""
        self.epoch = leader.epoch

    def check(self, epoch: int | None) -> None:
        """Raise `ConflictError` for an order of a leader that was deposed; None is an operator's
        order.
        """
        if epoch is not None and epoch < self.epoch:
            raise ConflictError(
                f"the order is of epoch {epoch}, but epoch {self.epoch} has begun: its "
                "leader was deposed"
            )
