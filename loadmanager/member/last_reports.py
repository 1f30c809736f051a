"""What this member knows last of all members: it watches their reports, also while nobody leads and
while the metadata store is silent.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.leader.documents.last_seen import BrokerSeen, LastSeen
from loadmanager.leader.reports_shown import report_shown
from loadmanager.member.base import Base, Cluster
from loadmanager.member.leading.manager import RunningManager


@dataclass(frozen=True, slots=True, kw_only=True)
class LastReports:
    """The members that are registered as far as this one has seen, with their last reports."""

    base: Base
    cluster: Cluster
    manager: RunningManager

    def shown(self, limit: int, silent_ms: int | None) -> LastSeen:
        """At most so many of them, in order of name; `silent_ms`: for how long the metadata store
        has not answered, where it should have.
        """
        now_ms, last = self.base.clock.now_ms(), self.cluster.leading.last_leader
        names = sorted(self.cluster.brokers.registered)
        return LastSeen(
            at=now_ms,
            by=self.base.broker_id,
            seen_at=now_ms - (silent_ms or 0),
            store_silent_ms=silent_ms,
            leads=self.cluster.leading.leader is not None,
            leader=None if last is None else last.broker_id,
            epoch=None if last is None else last.epoch,
            total=len(names),
            brokers=[self._broker(name, now_ms) for name in names[:limit]],
        )

    def _broker(self, name: str, now_ms: int) -> BrokerSeen:
        registered = self.cluster.brokers.reports.get(name)
        load: LocalBrokerData | BrokerLoadData | None = registered
        view = self.manager.view()
        if view.knows_owners:
            load = view.load_data.get(name)
        weights = self.base.strategies.value.weights
        return BrokerSeen(
            broker=name,
            version=None if registered is None else registered.broker_version_string,
            report=None if load is None else report_shown(load, weights, now_ms),
        )
