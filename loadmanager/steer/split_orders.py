"""Has Pulsar split bundles, and knows which were split lately."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from loadmanager.engine.strategies.plan import Split
from loadmanager.engine.strategies.plan_document import Drift
from loadmanager.engine.strategies.sealed import LIFE_MS
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.units import HOUR_MS
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.plans import TermPlan, refusal
from loadmanager.steer.acting import Acting


@dataclass(slots=True, kw_only=True)
class SplitOrders:
    """The splits of one daemon."""

    load_manager: LoadManager
    acting: Acting
    _split_ms: dict[str, float] = field(default_factory=dict)
    """Bundle → when its split ended; infinity until then."""

    async def split(self, owner: BrokerAddress, split: Split) -> Split:
        """Have a bundle split; until Pulsar has measured again, its load counts with its parts."""
        report = self.acting.picture.reports.get(owner.broker_id)
        stats = None if report is None else report.last_stats.get(split.bundle)
        now_ms = self.acting.moves.term.clock.now_ms()
        self._split_ms = {
            bundle: at_ms for bundle, at_ms in self._split_ms.items() if at_ms > now_ms - HOUR_MS
        }
        self._split_ms[split.bundle] = math.inf
        self.load_manager.split_ms[split.bundle] = now_ms
        self.acting.write_note()  # the order waits for it
        try:
            ended = await self.load_manager.split_at(owner, split)
        finally:
            self._split_ms[split.bundle] = self.acting.moves.term.clock.now_ms()
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

    async def execute(self, term_plan: TermPlan, gone: Mapping[str, str]) -> None:
        """Make the split of a plan; `gone`: bundle → why it is no longer there. Raises `DriftError`
        naming what has changed since, and `OperationalError` if Pulsar did not split the bundle.
        """
        (split,) = term_plan.sealed.plan.splits
        bundle, now_ms = split.bundle, self.acting.moves.term.clock.now_ms()
        too_big = {
            too_big_split.bundle: (owner, too_big_split)
            for owner, too_big_split in await self.load_manager.too_big()
        }
        drifts = []
        if now_ms > term_plan.sealed.expires_ms:
            text = f"the plan was made more than {LIFE_MS // 1000} s ago"
            drifts.append(Drift("expired", text))
        if term_plan.executed_ms is not None:
            drifts.append(Drift("executed", "it was carried out already"))
        elif bundle in gone:
            drifts.append(Drift("bundle", gone[bundle], bundle))
        elif bundle not in too_big:
            drifts.append(Drift("load", "no broker that answers reports it as too big", bundle))
        if (moving := self.acting.moves.queue.move_of(bundle)) is not None:
            drifts.append(Drift("move", f"move {moving.id} is under way", bundle))
        if drifts:
            raise refusal(term_plan.id, drifts)
        term_plan.executed_ms = now_ms
        ended = await self.split(*too_big[bundle])
        if ended.end is not None and not ended.end.children:
            raise OperationalError(f"{bundle} was not split: {ended.end.text}")
