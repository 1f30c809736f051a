"""Looks after state records, for the leader of the extensible manager: it assigns the bundles of
brokers that died, repairs records that got stuck, and removes old ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.ownership import state_records as records
from loadmanager.engine.ownership.state_records import IN_FLIGHT, StateRecord, UnitState
from loadmanager.engine.strategies.plan import Placement
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.sessions import session_over
from loadmanager.kit.metadata.store import OPERATIONS_MAX, Check, Operation
from loadmanager.kit.tasks import sleep
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.state_cache import CachedRecord, StateCache, Writes
from loadmanager.member.settings import StateSettings

ROUNDS_MAX = 3
"""How often a batch is tried when records change meanwhile; then each bundle by itself."""
SUSPECTS_S = 1.0
"""How soon the bundles of a broker that is not registered, but whose session lives, are looked at
again.
"""

log = get_logger("leader")


class Placer(Protocol):
    """Chooses brokers (`member.assigning.Assigning`)."""

    def choose_all(self, bundles: Sequence[str]) -> list[Placement]:
        """Choose a broker for each bundle."""
        ...


@dataclass(slots=True, kw_only=True)
class StateMonitor:
    """Repairs records during one term."""

    base: Base
    cluster: Cluster
    cache: StateCache
    placer: Placer
    checks: Sequence[Check]
    lives: Callable[[str | None, int], bool]
    """Whether a broker is registered in a session."""
    placed: Callable[[str, str], None]
    """Called with each bundle and its new broker."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    # Orphans

    def _on_broker(self, _broker_id: str, _report: LocalBrokerData | None) -> None:
        """A broker came, went or began another session."""
        self._wake.set()

    async def follow_brokers(self) -> None:
        """Assign the bundles of brokers that died, until cancelled."""
        self.cluster.brokers.listeners.append(self._on_broker)
        self._wake.set()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self.base.steps.run("orphans", self.reassign)
        finally:
            self.cluster.brokers.listeners.remove(self._on_broker)

    async def reassign(self) -> None:
        """Assign every bundle whose owner's session is over, or whose destination is gone."""
        orphans, suspects = await self._orphans()
        if suspects:
            self.base.scope.spawn(self._look_again(), "suspects")
        if not orphans:
            return
        began_s = self.base.clock.monotonic_s()
        left = dict(orphans)
        for _ in range(ROUNDS_MAX):
            await self._assign_batches(left)
            left, _ = await self._orphans(among=left)
            if not left:
                break
        for bundle, stored in left.items():
            await self._assign_batches({bundle: stored})
        assigned_s = self.base.clock.monotonic_s() - began_s
        self.base.scope.spawn(self._tell(orphans, began_s, assigned_s), "tell-orphans")

    async def _look_again(self) -> None:
        await sleep(SUSPECTS_S)
        self._wake.set()

    async def _orphans(
        self, among: dict[str, CachedRecord] | None = None
    ) -> tuple[dict[str, CachedRecord], bool]:
        """The bundles to assign, and whether there are others whose owner is not registered."""
        suspects: dict[int, dict[str, CachedRecord]] = {}
        orphans: dict[str, CachedRecord] = {}
        if among is not None:
            await self.cache.read(list(among))
        for bundle, stored in self.cache.all():
            record = stored.record
            if record is None or (among is not None and bundle not in among):
                continue
            if record.owner is not None:
                if not self.lives(*record.owner):
                    suspects.setdefault(record.owner[1], {})[bundle] = stored
            elif (
                record.state is UnitState.ASSIGNING
                and record.dst_broker not in self.cluster.brokers.registered
            ) or record.state in (UnitState.OWNED, UnitState.RELEASING, UnitState.SPLITTING):
                orphans[bundle] = stored
        nodes = await self.base.store.get_many(
            [paths.session(session_id) for session_id in suspects]
        )
        living = False
        for of_session, node in zip(suspects.values(), nodes, strict=True):
            if node is None:
                orphans.update(of_session)
            else:
                living = True
        return orphans, living

    async def _assign_batches(self, orphans: dict[str, CachedRecord]) -> None:
        bundles = sorted(orphans)
        choices = self.placer.choose_all(bundles)
        changes: list[Writes] = []
        sessions: dict[int, None] = {}
        for bundle, choice in zip(bundles, choices, strict=True):
            owner = _owner(orphans[bundle])
            new_sessions = owner is not None and owner[1] not in sessions
            if self._size(changes, sessions) + 1 + 2 * new_sessions > OPERATIONS_MAX:
                await self._commit(changes, sessions)
                changes, sessions = [], {}
            if owner is not None:
                sessions[owner[1]] = None
            changes.append(self._assigned(bundle, orphans[bundle], choice.broker))
        await self._commit(changes, sessions)

    def _size(self, changes: list[Writes], sessions: dict[int, None]) -> int:
        return len(self.checks) + len(changes) + 2 * len(sessions)

    def _assigned(self, bundle: str, stored: CachedRecord, broker_id: str | None) -> Writes:
        writes = Writes(bundle, stored)
        assert stored.record is not None
        if broker_id is None:
            writes.become(records.freed(stored.record, self.base.clock.now_ms(), force=True))
        else:
            writes.become(
                records.assigned(stored.record, broker_id, self.base.clock.now_ms(), force=True)
            )
        return writes

    async def _commit(self, changes: list[Writes], sessions: dict[int, None]) -> None:
        if not changes:
            return
        over: list[Operation] = [
            operation for session_id in sessions for operation in session_over(session_id)
        ]
        if await self.cache.commit([*self.checks, *over], changes) is None:
            return
        for writes in changes:
            if writes.record is not None and writes.record.dst_broker:
                self.placed(writes.bundle, writes.record.dst_broker)

    async def _tell(
        self, orphans: dict[str, CachedRecord], began_s: float, assigned_s: float
    ) -> None:
        """Log how many bundles were assigned again, and how long it took until they were owned."""
        until_s = began_s + self.base.settings.live(StateSettings).value.in_flight_ms / 1000

        def served(record: StateRecord | None) -> bool:
            return record is None or record.state is not UnitState.ASSIGNING

        owned = 0
        for bundle in orphans:
            left_s = max(0.0, until_s - self.base.clock.monotonic_s())
            owned += await self.cache.until(bundle, served, left_s)
        log.warning(
            "the bundles of brokers that died were assigned again",
            brokers=sorted({owner[0] for stored in orphans.values() if (owner := _owner(stored))}),
            bundles=len(orphans),
            owned_again=owned,
            assigned_s=round(assigned_s, 3),
            took_s=round(self.base.clock.monotonic_s() - began_s, 3),
        )

    # The monitor

    async def monitor(self) -> None:
        """Repair what got stuck, and remove old records."""
        await self.reassign()
        now_s, in_flight_s = (
            self.base.clock.monotonic_s(),
            self.base.settings.live(StateSettings).value.in_flight_ms / 1000,
        )
        oldest_ms = (
            self.base.clock.now_ms()
            - self.base.settings.live(StateSettings).value.tombstone_delay_s * 1000
        )
        old: list[Writes] = []
        for bundle, stored in self.cache.all():
            record = stored.record
            if record is None:
                continue
            stuck = stored.corrupt or record.state in IN_FLIGHT
            if stuck and now_s - stored.since_s > in_flight_s:
                await self._repair(bundle, stored)
            elif (
                record.state in (UnitState.FREE, UnitState.DELETED) and record.timestamp < oldest_ms
            ):
                old.append(Writes(bundle, stored))
                old[-1].remove()
        size = OPERATIONS_MAX - len(self.checks)
        for start in range(0, len(old), size):
            await self.cache.commit(self.checks, old[start : start + size])

    async def _repair(self, bundle: str, stored: CachedRecord) -> None:
        """Change a record that got stuck, unless only its owner can."""
        record, writes = stored.record, Writes(bundle, stored)
        assert record is not None
        conditions: list[Operation] = list(self.checks)
        if stored.corrupt:
            if record.owner is not None:
                if self.lives(*record.owner):
                    return  # the owner restores it
                conditions += session_over(record.owner[1])
            writes.remove()
        elif record.state is UnitState.ASSIGNING:
            (choice,) = self.placer.choose_all([bundle])
            other = choice.broker if choice.broker != record.dst_broker else None
            writes = self._assigned(bundle, stored, other)
        elif record.state is UnitState.RELEASING:
            to = record.dst_broker if record.dst_broker in self.cluster.brokers.registered else None
            writes.become(records.releasing(record, to, self.base.clock.now_ms(), force=True))
        else:
            return  # the owner restores it
        done = await self.cache.commit(conditions, [writes])
        log.warning(
            "a state record got stuck"
            + ("; it is repaired" if done is not None else ", and changed while it was repaired"),
            bundle=bundle,
            state="corrupt" if stored.corrupt else record.state.value,
            now=writes.state.value,
            stuck_s=round(self.base.clock.monotonic_s() - stored.since_s, 1),
        )


def _owner(stored: CachedRecord) -> tuple[str, int] | None:
    return None if stored.record is None else stored.record.owner
