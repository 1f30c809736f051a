"""Does what state records order of this broker: take a bundle, or give one up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from loadmanager.engine.ownership.state_records import StateRecord, UnitState
from loadmanager.engine.ownership.states import BundleState, LifeCause
from loadmanager.kit import tracing
from loadmanager.kit.errors import ConflictError, LoadManagerError, OperationalError
from loadmanager.kit.tasks import sleep
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.claims import RETRY_FIRST_S, RETRY_MAX_S
from loadmanager.member.ownership.ownership import NotOpenedError, Ownership
from loadmanager.member.ownership.state_records import StateRecords

TAKES_AT_ONCE_MAX = 64

Order = Callable[[str, StateRecord], Awaitable[None]]


class RecordOrders:
    """Follows the records; one task a bundle carries out what they order, and tries again."""

    def __init__(
        self, base: Base, cluster: Cluster, records: StateRecords, ownership: Ownership
    ) -> None:
        self._base, self._cluster = base, cluster
        self._records = records
        self._ownership = ownership
        self._working: set[str] = set()
        self._takes = asyncio.Semaphore(TAKES_AT_ONCE_MAX)

    def on_record(self, bundle: str, record: StateRecord | None) -> None:
        """A record changed; None: it is gone or cannot be read."""
        ours = record is not None and record.owner == self._me
        if not ours and self._ownership.state(bundle) is not BundleState.FREE:
            self._ownership.verify(bundle)
        if record is None:
            return
        if self._order(record) is not None and bundle not in self._working:
            self._working.add(bundle)
            self._base.scope.spawn(self._work(bundle), f"obey {bundle}")
        if record.state is UnitState.RELEASING and record.dst_broker == self._base.me.broker_id:
            self._base.scope.spawn(self._prepare(bundle), f"prepare {bundle}")

    @property
    def _me(self) -> tuple[str, int]:
        return self._base.me.broker_id, self._base.store.session_id

    def _order(self, record: StateRecord | None) -> Order | None:
        """Return the order that a record gives this broker; None: it gives none."""
        if record is None:
            return None
        if record.state is UnitState.ASSIGNING and record.dst_broker == self._base.me.broker_id:
            return self._take
        if record.state is UnitState.RELEASING and record.owner == self._me:
            return self._release
        return None

    async def _work(self, bundle: str) -> None:
        wait_s = RETRY_FIRST_S
        try:
            while True:
                record = self._records.cache.record(bundle)
                order = self._order(record)
                if order is None or record is None:
                    return
                await self._obey(order, bundle, record)
                if self._records.cache.record(bundle) is record:
                    await sleep(wait_s)  # it failed, or something else must end before
                    wait_s = min(wait_s * 2, RETRY_MAX_S)
        finally:
            self._working.discard(bundle)

    async def _obey(self, order: Order, bundle: str, record: StateRecord) -> None:
        name = "take a bundle" if record.state is UnitState.ASSIGNING else "release a bundle"
        parent = record.traceparent if isinstance(record.traceparent, str) else ""
        with tracing.part(name, parent, bundle=bundle) as span:
            if not await self._base.steps.run("obey", partial(order, bundle, record)):
                span.fail("the log has it")

    async def _take(self, bundle: str, record: StateRecord) -> None:
        transferred = bool(record.source_broker)
        reason = "transferred" if transferred else "assigned"
        try:
            async with self._takes:
                await self._ownership.acquire(
                    bundle,
                    reason,
                    LifeCause.LEADER if transferred else LifeCause.LOOKUP,
                )
        except NotOpenedError:
            await self._records.decline(bundle)
        except OperationalError:
            if not self._ownership.accepting:
                await self._records.decline(bundle)
        except LoadManagerError:  # there is no such bundle, or no such namespace
            await self._records.decline(bundle)

    async def _release(self, bundle: str, record: StateRecord) -> None:
        destination = (
            self._cluster.brokers.address(record.dst_broker) if record.dst_broker else None
        )
        try:
            await self._ownership.release(
                bundle,
                reason="leader",
                destination=destination,
                timeout_s=self._base.broker.value.bundle_unload_timeout_ms / 1000,
                cause=LifeCause.LEADER,
            )
        except ConflictError:
            return  # it is being opened or split: try again

    async def _prepare(self, bundle: str) -> None:
        await self._base.steps.run("prepare", partial(self._records.prepare, bundle))
