"""Who leads, and the leader's placing, as the rest of the broker sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from loadmanager.ports.election import Leader


class Desk(Protocol):
    """What the leader does for others during its term."""

    async def place(self, bundle: str) -> str:
        """brokerId where an unowned bundle belongs; counts as pending until the bundle is reported. Raises `OperationalError` when no broker qualifies."""
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


@dataclass(slots=True)
class Leading:
    """The present leader, and the desk if that is this broker. `runtime.leader` sets it; lookups and the admin API read it."""

    leader: Leader | None = None
    desk: Desk | None = None
