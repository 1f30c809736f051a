"""Builds the audit log of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadmanager.broker.service import Outside
from loadmanager.broker.settings import KEYS
from loadmanager.kit.audit import ChangeShown
from loadmanager.leader.audit import AuditLog
from loadmanager.leader.events import EventHub
from loadmanager.member.base import Cluster


@dataclass(frozen=True, slots=True)
class Telling:
    """Tells those who listen at the leader of changes."""

    outside: Outside
    cluster: Cluster
    events: EventHub

    async def tell(self, changes: Sequence[ChangeShown]) -> bool:
        """Tell the leader; False if there is none now. Raises `OperationalError`."""
        leader = self.cluster.leading.leader
        if leader is None:
            return False
        if leader.broker_id == self.outside.me.broker_id:
            self.events.publish_changes(changes)
        else:
            await self.outside.peers.tell_changes(self.cluster.brokers.of_leader(leader), changes)
        return True


def build_audit(outside: Outside, telling: Telling) -> AuditLog:
    return AuditLog(
        broker_id=outside.me.broker_id,
        clock=outside.clock,
        history=outside.history,
        archive=outside.archive,
        secret=is_secret,
        tell=telling.tell,
    )


def is_secret(name: str) -> bool:
    """Whether a key of broker.conf holds a secret."""
    declared = KEYS.by_name().get(name)
    return declared is not None and declared.key.secret
