"""The bundles that are being opened, where that may take long: their records say so until they are
served, and nobody is told of an owner that does not serve yet.
"""

from __future__ import annotations

from collections.abc import Callable

from loadmanager.engine.ownership import state_records as records
from loadmanager.engine.ownership.state_records import StateRecord, UnitState
from loadmanager.engine.ownership.states import BundleLife, BundleState
from loadmanager.kit.errors import LoadManagerError, OperationalError
from loadmanager.kit.metadata.sessions import in_session
from loadmanager.kit.tasks import sleep
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.claims import RETRY_FIRST_S, RETRY_MAX_S
from loadmanager.member.ownership.state_cache import StateCache, Writes

TOLD_S = 5.0
"""How long it takes at most to tell that a bundle was given up, once its limit has passed."""


class Openings:
    """Of all members, by their records."""

    def __init__(
        self,
        base: Base,
        cluster: Cluster,
        cache: StateCache,
        lives: Callable[[str | None, int], bool],
    ) -> None:
        """`lives`: whether a member is registered in a session."""
        self._base, self._cluster, self._cache, self._lives = base, cluster, cache, lives
        self.limit_s = 0.0
        """How long a host may take to open a bundle; 0: no time, and records say nothing of it."""
        self.of_replacements = False
        """Whether it opens what replaces bundles in a split or merge, too; else that stays open."""

    @property
    def announces(self) -> bool:
        """Whether records say that a bundle is being opened."""
        return self.limit_s > 0

    @property
    def _me(self) -> tuple[str, int]:
        return self._base.broker_id, self._base.store.session_id

    def elsewhere(self, record: StateRecord | None) -> bool:
        """True while another live member is opening a bundle."""
        return (
            record is not None
            and record.opening is True
            and record.owner is not None
            and record.owner != self._me
            and self._lives(*record.owner)
        )

    async def ended(self, bundle: str) -> bool:
        """Wait until it is opened, or given up; False: not in time."""
        limit_s = self.limit_s + TOLD_S
        return await self._cache.until(bundle, lambda now: not self.elsewhere(now), limit_s)

    def holder(self, bundle: str) -> str | None:
        """The live member that owns a bundle, opens it, or is about to take it."""
        record = self._cache.record(bundle)
        if record is None:
            return None
        if record.owner is not None:
            return record.owner[0] if self._lives(*record.owner) else None
        to = record.dst_broker if record.state is UnitState.ASSIGNING else None
        return to if to in self._cluster.brokers.registered else None

    def on_opened(self, life: BundleLife) -> None:
        """This member serves a bundle from now on: say so."""
        if self.announces:
            self._base.scope.spawn(self._say(life), f"opened {life.bundle}")

    async def _say(self, life: BundleLife) -> None:
        wait_s = RETRY_FIRST_S
        while life.state is BundleState.OWNED:
            try:
                await self._opened(life)
            except LoadManagerError:
                await sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
            else:
                return

    async def _opened(self, life: BundleLife) -> None:
        stored = self._cache.get(life.bundle)
        if stored is None or stored.record is None or stored.record.owner != self._me:
            stored = await self._cache.fresh(life.bundle)  # a split or merge has just written it
        record = None if stored is None else stored.record
        if record is None or record.owner != self._me or record.opening is not True:
            return
        writes = Writes(life.bundle, stored)
        writes.become(records.opened(record, self._base.clock.now_ms()))
        conditions = [in_session(self._base.store.session_id)]
        if await self._cache.commit(conditions, [writes]) is None:
            await self._cache.fresh(life.bundle)
            raise OperationalError(f"the record of {life.bundle} changed meanwhile")
