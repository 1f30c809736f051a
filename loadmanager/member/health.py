"""The health and the readiness of this broker, and what it has seen last of the others."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.leader.documents.last_seen import LastSeen
from loadmanager.member.base import Base, Cluster
from loadmanager.member.last_reports import LastReports
from loadmanager.member.ownership.ownership import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The checks behind Pulsar's health and readiness endpoints."""

    base: Base
    cluster: Cluster
    ownership: Ownership
    last_reports: LastReports

    def ready(self) -> bool:
        """True if this broker is registered, knows a leader and takes lookups."""
        registered = self.base.me.broker_id in self.cluster.brokers.registered
        return self.ownership.accepting and registered and self.cluster.leading.leader is not None

    def why_no_leader(self) -> str:
        """Why this broker may know none, after "there is no leader now"; empty: not known."""
        lease, now_s = self.base.store.lease, self.base.clock.monotonic_s()
        if lease.held(now_s):
            return ""
        took = f", for {now_s - lease.answered_s:.0f} s now" if lease.answered_s else ""
        return f": {lease.why_not_held}{took}"

    def store_silent_ms(self) -> int | None:
        """For how long the metadata store has not answered, where it should have; None: it does."""
        lease = self.base.store.lease
        if not lease.unanswered:
            return None
        return round(1000 * max(0.0, self.base.clock.monotonic_s() - lease.answered_s))

    def last_seen(self, limit: int) -> LastSeen:
        """All brokers as this one has seen them last, at most so many."""
        return self.last_reports.shown(limit, self.store_silent_ms())

    async def check(self) -> None:
        """Write to the store and read the value back.

        Raises `OperationalError` when that fails, or when this broker is stopping.
        """
        if not self.ownership.accepting:
            raise OperationalError("this broker is stopping")
        path = f"{paths.HEALTH}/{self.base.me.broker_id}"
        version = await self.base.store.put(path, b"")
        node = await self.base.store.get(path)
        if node is None or node.version < version:
            raise OperationalError("the metadata store lost a write")
