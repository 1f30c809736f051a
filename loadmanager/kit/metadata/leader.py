"""The leader and its term; `kit.metadata.election` runs the election."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.metadata.store import Check


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader. `epoch` grows with every term of any broker."""

    broker_id: str
    service_url: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Term:
    """A term of this process.

    Every transaction of the leader contains `checks`, so that it fails with `VersionConflictError`
    once a newer term has begun, or this process has resigned.
    """

    leader: Leader
    checks: tuple[Check, ...] = ()

    @property
    def epoch(self) -> int:
        """The term's number."""
        return self.leader.epoch
