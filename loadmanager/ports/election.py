"""Leader election: one leader per term."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

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


class Election(Protocol):
    """Competes for one leadership through an ephemeral node (Pulsar `LeaderElection`)."""

    async def campaign(self) -> Term:
        """Wait until this process leads, and return its term. Raises `OperationalError` when the store does not answer."""
        ...

    async def lost(self, term: Term) -> None:
        """Return when the term is over: the session is lost, or the node is no longer ours."""
        ...

    def session_lost(self) -> None:
        """The session cannot be proven: a term of this process is over now."""
        ...

    async def resign(self, *, stand_again: bool = False) -> None:
        """Give up the leadership, if it is ours, so that another broker can take it at once; by default this process campaigns no more."""
        ...

    @property
    def leader(self) -> Leader | None:
        """The leader as last seen; None while there is none."""
        ...

    def leaders(self) -> AsyncIterator[Leader | None]:
        """Every change of leader, the present one first."""
        ...
