"""Places bundles on lookup, on whichever broker is asked (the extensible manager's rule).

The asked broker chooses the destination, writes it into the state record, and answers when the
destination owns the bundle. If two brokers choose at once, the compare-and-set of the record
decides, and the loser follows the winner. No leader is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.ownership.state_records import IN_FLIGHT, StateRecord, UnitState
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Placement, Plan
from loadmanager.engine.strategies.plan_document import (
    placement_reason,
    refusals,
)
from loadmanager.engine.strategies.registry import EXTENSIBLE_PLACEMENT
from loadmanager.kit import tracing
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.base import snapshot_of
from loadmanager.leader.decisions import Decisions
from loadmanager.leader.documents.decisions import of_placement
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ownership.state_records import StateRecords
from loadmanager.member.ports.lookup import Lookup

Observe = Callable[[int, int, Plan, Sequence[str]], None]
"""Called with the epoch, the cycle and the plan of decisions, and the ids of these if this broker
leads: else nobody is shown them.
"""
PLACEMENTS_MAX = 3
"""A search that chose so often in vain fails; the client asks again."""

log = get_logger("lookup")


@dataclass(slots=True, kw_only=True)
class Assigning:
    """Finds the owner of a bundle, or has a broker become it."""

    records: StateRecords
    ownership: Ownership
    view: ClusterView
    base: Base
    cluster: Cluster
    rng: cycle.Rng
    decisions: Decisions
    observe: Observe
    """Called with the epoch, the cycle (0) and the plan of each placement."""
    placed: int = field(default=0, init=False)
    """Bundles that this broker placed; `unplaced`: without finding a broker."""
    unplaced: int = field(default=0, init=False)
    _memories: Memories = field(default_factory=Memories)

    async def find(self, bundle: str) -> Lookup:
        """The owner of a bundle. Raises `OperationalError` if there is none in time."""
        until_s = self.base.clock.monotonic_s() + self.records.in_flight_s
        placements, waited_for_opening = 0, False
        while (left_s := until_s - self.base.clock.monotonic_s()) > 0:
            record = self.records.cache.record(bundle)
            if self.records.openings.elsewhere(record) and not waited_for_opening:
                waited_for_opening = True
                until_s += self.records.openings.limit_s
                left_s += self.records.openings.limit_s
            if self._in_transit(record):
                await self.records.cache.until(
                    bundle, lambda now: not self._in_transit(now), left_s
                )
                continue
            owner = await self.ownership.owner(bundle)
            if owner is not None:
                return await self._owned_by(bundle, owner.address)
            if placements == PLACEMENTS_MAX:
                break
            placements += 1
            with tracing.part("place", bundle=bundle) as span:
                span.note(broker=await self._place(bundle))
        raise OperationalError(
            f"Failed to acquire ownership of {bundle}: no broker took it in time; try again"
        )

    def _in_transit(self, record: StateRecord | None) -> bool:
        """True if a live broker is about to change a record."""
        if self.records.openings.elsewhere(record):
            return True
        if record is None or record.state not in IN_FLIGHT:
            return False
        if record.state is UnitState.ASSIGNING:
            return record.dst_broker in self.cluster.brokers.registered
        return record.owner is not None and self.records.lives(*record.owner)

    async def _owned_by(self, bundle: str, address: BrokerAddress) -> Lookup:
        if address == self.base.me and not self.ownership.served(bundle):
            address = (await self.ownership.acquire(bundle, "its session owns it")).address
            if address == self.base.me and not self.ownership.served(bundle):
                raise OperationalError(
                    f"Namespace bundle {bundle} is being unloaded: an earlier session of this "
                    "broker owns it until it expires"
                )
        if address != self.base.me and address.broker_id not in self.cluster.brokers.registered:
            raise OperationalError(
                f"Namespace bundle {bundle} is being unloaded: its owner {address.broker_id} is "
                "not registered"
            )
        return Lookup(address)

    async def _place(self, bundle: str) -> str | None:
        """Choose a broker and have it take the bundle, and return it, unless somebody else decides
        meanwhile.
        """
        namespace, span = split_bundle_name(bundle)
        boundaries = await self.cluster.namespaces.bundles(NamespaceName.parse(namespace))
        boundaries.require(span)
        choice = self._choose(bundle)
        if choice.broker is None:
            self.unplaced += 1
            raise OperationalError(
                f"Failed to acquire ownership of {bundle}: no broker qualifies: "
                f"{refusals(choice.rejected)}"
            )
        self.view.placed(bundle, choice.broker, self.base.clock.now_ms())
        if not await self._assign(bundle, choice.broker, boundaries.version):
            self.view.not_placed(bundle)
            return None
        self.placed += 1
        reason = placement_reason(choice.candidates, choice.rejected)
        epoch = self.cluster.leading.epoch
        decision = self.decisions.remember(
            "place", partial(of_placement, choice), epoch=epoch, cycle=0
        )
        plan = Plan(EXTENSIBLE_PLACEMENT.name, placements=(choice,))
        self.observe(epoch, 0, plan, self.cluster.leading.shown_ids(decision))
        log.info("bundle assigned", bundle=bundle, to=choice.broker, reason=reason)
        return choice.broker

    async def _assign(self, bundle: str, broker_id: str, boundaries_version: int) -> bool:
        """Have a broker take a bundle; False if another broker decided: follow it."""
        if broker_id != self.base.me.broker_id:
            return await self.records.assign(bundle, broker_id, boundaries_version)
        try:
            owner = await self.ownership.acquire(bundle, "placed by this broker")
        except OperationalError:
            self.view.not_placed(bundle)
            if self._in_transit(self.records.cache.record(bundle)):
                return False
            raise
        return owner.address == self.base.me

    def _choose(self, bundle: str) -> Placement:
        settings = self.base.strategies.value
        (choice,), self._memories = cycle.place(
            self.snapshot(), [bundle], settings, self._memories, self.rng
        )
        return choice

    def choose_all(self, bundles: Sequence[str]) -> list[Placement]:
        """Choose brokers for many bundles; each choice counts for the next."""
        settings = self.base.strategies.value
        choices, self._memories = cycle.place(
            self.snapshot(passing=False), bundles, settings, self._memories, self.rng
        )
        return choices

    def snapshot(self, *, passing: bool = True) -> ClusterSnapshot:
        """The cluster as this broker sees it now."""
        now_ms, settings = self.base.clock.now_ms(), self.base.strategies.value
        return snapshot_of(self.cluster, self.view, now_ms, settings, passing=passing)
