"""Splits of bundles that are too big: advised, made when approved, or made at once.

A split cannot be undone, for Pulsar merges no bundles. So each one is approved by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from loadmanager.core.conf import Live
from loadmanager.core.errors import OperationalError
from loadmanager.core.strategies.budget import is_quiet, quiet_spans
from loadmanager.core.strategies.plan import Plan, Split
from loadmanager.core.strategies.sealed import LIFE_MS, Drift
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.core.units import HOUR_MS
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.runtime.fleet.acting import Acting
from loadmanager.runtime.fleet.advice import Advice
from loadmanager.runtime.fleet.operating import FleetHold, FleetPlans
from loadmanager.runtime.fleet.settings import ACT, APPROVE, FleetSettings
from loadmanager.runtime.leader.load_manager import LoadManager
from loadmanager.runtime.leader.plans import Kept, refusal

log = structlog.get_logger("fleet")


@dataclass(slots=True, kw_only=True)
class FleetSplitting:
    """Carries out, or only shows, the splits that the leader wants."""

    load_manager: LoadManager
    acting: Acting
    hold: FleetHold
    advice: Advice
    plans: FleetPlans
    settings: Live[FleetSettings]
    strategies: Live[StrategySettings]
    splits: Live[SplitSettings]
    _waiting: dict[str, str] = field(default_factory=dict)
    """Bundle → the plan that waits for approval."""
    _split_ms: dict[str, float] = field(default_factory=dict)
    """Bundle → when it was split; infinity while it is."""

    async def step(self) -> None:
        """Look for bundles that are too big, unless something keeps the daemon from deciding."""
        if self.hold.reason() is None:
            oldest_ms = self.acting.clock.now_ms() - HOUR_MS
            self._split_ms = {
                bundle: at_ms for bundle, at_ms in self._split_ms.items() if at_ms > oldest_ms
            }
            if self.splits.value.enabled:
                await self.take(await self.load_manager.too_big())

    async def take(self, chosen: Sequence[tuple[BrokerAddress, Split]]) -> None:
        """Advise the splits of this check, and make them in `act`, one after the other."""
        first = chosen[: self.splits.value.splits_per_cycle_max]
        mode = self.settings.value.mode
        self._waiting = {split.bundle: self._sealed(split) for _, split in first if mode == APPROVE}
        self.advice.take_splits(first, self._waiting, unload=self.splits.value.unload_after)
        if mode == ACT:
            for owner, split in first:
                if self._waits():
                    return
                if self.acting.moves.queue.move_of(split.bundle) is None:
                    await self.split(owner, split)

    def _waits(self) -> bool:
        """True if no split may begin: as moves, they wait for a pause to end, and quiet hours."""
        quiet = quiet_spans(self.settings.value.quiet_hours)
        return (
            self.acting.moves.wishes.pause() is not None
            or is_quiet(self.acting.clock.now_ms(), quiet)
            or self.hold.reason() is not None
            or self.acting.note_problem is not None
        )

    def _sealed(self, split: Split) -> str:
        """The plan of a split: the one that waits already, or a new one."""
        waiting = self._waiting.get(split.bundle)
        if waiting is not None and self.plans.is_ready(waiting):
            return waiting
        strategies = self.strategies.value
        snapshot = self.load_manager.snapshot(strategies)
        plan = Plan("BundleSplitterTask", splits=(split,))
        kept = self.plans.keep(snapshot, plan, strategies, {})
        log.info("a split waits for approval", plan=kept.id, bundle=split.bundle)
        return kept.id

    async def split(self, owner: BrokerAddress, split: Split) -> Split:
        """Have a bundle split; until Pulsar has measured again, its load counts with its parts."""
        report = self.acting.picture.reports.get(owner.broker_id)
        stats = None if report is None else report.last_stats.get(split.bundle)
        self._split_ms[split.bundle] = math.inf
        try:
            ended = await self.load_manager.split_at(owner, split)
        finally:
            self._split_ms[split.bundle] = self.acting.clock.now_ms()
        if ended.end is not None and not ended.end.sent:
            self.load_manager.split_ms.pop(split.bundle, None)
            self.acting.write_note()
        if stats is not None and ended.end is not None:
            self.acting.carry_parts(ended.end.children, stats)
        return ended

    def is_busy(self, bundle: str, broker: str) -> bool:
        """True if a bundle is being split, or was split after its broker was last read."""
        report = self.acting.picture.reports.get(broker)
        read_ms = 0 if report is None else report.last_update
        return self._split_ms.get(bundle, -math.inf) >= read_ms

    async def execute(self, kept: Kept) -> None:
        """Make the split of a plan. Raises `DriftError` naming what has changed since, and
        `OperationalError` if Pulsar did not split the bundle.
        """
        (split,) = kept.sealed.plan.splits
        bundle, now_ms = split.bundle, self.acting.clock.now_ms()
        gone = await self.plans.gone([bundle])
        too_big = {one.bundle: (owner, one) for owner, one in await self.load_manager.too_big()}
        found = []
        if now_ms > kept.sealed.expires_ms:
            text = f"the plan was made more than {LIFE_MS // 1000} s ago"
            found.append(Drift("expired", text))
        if kept.executed_ms is not None:
            found.append(Drift("executed", "it was carried out already"))
        elif bundle in gone:
            found.append(Drift("bundle", gone[bundle], bundle))
        elif bundle not in too_big:
            found.append(Drift("load", "no broker that answers reports it as too big", bundle))
        if (moving := self.acting.moves.queue.move_of(bundle)) is not None:
            found.append(Drift("move", f"move {moving.id} is under way", bundle))
        if found:
            raise refusal(kept.id, found)
        kept.executed_ms = now_ms
        ended = await self.split(*too_big[bundle])
        if ended.end is not None and not ended.end.children:
            raise OperationalError(f"{bundle} was not split: {ended.end.text}")
