"""Leader election: one leader per term."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads. `epoch` grows with every term; `path` and it fence a leader's writes (`ports.store.Check`)."""

    broker_id: str
    service_url: str
    epoch: int


class Election(Protocol):
    """Competes for one leadership through an ephemeral node (Pulsar `LeaderElection`)."""

    async def campaign(self) -> Leader:
        """Wait until this process leads, and return its own term. Raises `OperationalError` when the session is lost meanwhile."""
        ...

    async def lost(self) -> None:
        """Return when the term that `campaign` returned is over: the session is lost, or the node is no longer ours."""
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
