"""What the history is told of sealed plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadmanager.engine.history.cycles import moves_of
from loadmanager.engine.history.plans import MOVES_MAX, PlanStep
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.plan_document import PlanShown, plan_lines
from loadmanager.kit.history.port import History
from loadmanager.leader.documents.plans import SealedSummary


@dataclass(frozen=True, slots=True)
class PlanRecords:
    """Records the plans of one term; without a history, none."""

    broker: str
    """Who records."""
    history: History | None

    def made(self, sealed: SealedSummary, plan: Plan) -> None:
        """A plan was sealed."""
        first = replace(
            plan,
            unloads=plan.unloads[:MOVES_MAX],
            splits=plan.splits[:MOVES_MAX],
            skipped=plan.skipped[:MOVES_MAX],
        )
        self._append(
            sealed,
            sealed.created_at,
            event="made",
            shedder=sealed.shedder,
            placement=sealed.placement,
            settings=sealed.settings,
            expires_at=sealed.expires_at,
            unload_count=sealed.unload_count,
            moves=moves_of(first),
            lines=plan_lines(PlanShown.of(first))[:MOVES_MAX],
        )

    def executed(self, sealed: SealedSummary, orders: Sequence[str], now_ms: int) -> None:
        """It was carried out: these moves are queued."""
        self._append(sealed, now_ms, event="executed", orders=list(orders[:MOVES_MAX]))

    def _append(self, sealed: SealedSummary, at_ms: int, **fields: Any) -> None:
        if self.history is not None:
            step = PlanStep(
                ts=at_ms, broker=self.broker, epoch=sealed.epoch, plan=sealed.id, **fields
            )
            self.history.append(step)
