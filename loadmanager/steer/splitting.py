"""Splits of bundles that are too big: advised, made when approved, or made at once.

A split cannot be undone, for Pulsar merges no bundles. So each one is approved by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadmanager.engine.strategies.plan import Plan, Split
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.conf import Live
from loadmanager.kit.logger import get_logger
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.may_move import Asker
from loadmanager.steer.acting import Acting
from loadmanager.steer.advice import Advice
from loadmanager.steer.hold import FleetHold
from loadmanager.steer.operating import FleetPlans
from loadmanager.steer.settings import ACT, APPROVE, FleetSettings
from loadmanager.steer.split_orders import SplitOrders

log = get_logger("fleet")


@dataclass(slots=True, kw_only=True)
class FleetSplitting:
    """Carries out, or only shows, the splits that the leader wants."""

    load_manager: LoadManager
    acting: Acting
    hold: FleetHold
    advice: Advice
    plans: FleetPlans
    orders: SplitOrders
    settings: Live[FleetSettings]
    _waiting: dict[str, str] = field(default_factory=dict)
    """Bundle → the plan that waits for approval."""

    async def step(self) -> None:
        """Look for bundles that are too big, unless something keeps the daemon from deciding."""
        if self.hold.reason() is None and self.load_manager.splits.value.enabled:
            await self.take(await self.load_manager.too_big())

    async def take(self, chosen: Sequence[tuple[BrokerAddress, Split]]) -> None:
        """Advise the splits of this check, and make them in `act`, one after the other."""
        first = chosen[: self.load_manager.splits.value.splits_per_cycle_max]
        mode = self.settings.value.mode
        self._waiting = {split.bundle: self._sealed(split) for _, split in first if mode == APPROVE}
        self.advice.take_splits(
            first, self._waiting, unload=self.load_manager.splits.value.unload_after
        )
        if mode == ACT:
            for owner, split in first:
                if self._waits():
                    return
                if self.acting.moves.queue.move_of(split.bundle) is None:
                    await self.orders.split(owner, split)

    def _waits(self) -> bool:
        """True if no split may begin: as moves, they wait for a pause to end, and quiet hours."""
        return (
            self.acting.moves.cluster.wishes.pause() is not None
            or self.hold.why_not(Asker.SPLIT) is not None
        )

    def _sealed(self, split: Split) -> str:
        """The plan of a split: the one that waits already, or a new one."""
        waiting = self._waiting.get(split.bundle)
        if waiting is not None and self.plans.is_ready(waiting):
            return waiting
        strategies = self.load_manager.strategies.value
        snapshot = self.load_manager.snapshot(strategies)
        plan = Plan("BundleSplitterTask", splits=(split,))
        term_plan = self.plans.keep(snapshot, plan, strategies, {})
        log.info("a split waits for approval", plan=term_plan.id, bundle=split.bundle)
        return term_plan.id
