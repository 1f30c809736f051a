"""Who leads, and for which term; `runtime.shared.election` elects."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.ports.store import Check


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads. `epoch` grows with every term of anybody."""

    broker_id: str
    service_url: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Term:
    """A term that this process won.

    `fence` belongs into every transaction that the leader commits: the transaction fails with
    `VersionConflictError` once a newer term has begun or this one was given up.
    """

    leader: Leader
    fence: tuple[Check, ...] = ()

    @property
    def epoch(self) -> int:
        """The term's number."""
        return self.leader.epoch
