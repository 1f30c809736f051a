"""Does what operators ask of a daemon, in the modes that may move something."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.engine.moves.move import Author
from loadmanager.kit.errors import ConflictError
from loadmanager.leader.documents.goals import GoalShown
from loadmanager.leader.documents.moves import (
    CordonShown,
    Moved,
    MovesShown,
    NothingMoved,
    PauseShown,
)
from loadmanager.leader.documents.plans import SealedPlan
from loadmanager.leader.goals import TermGoals
from loadmanager.leader.operations import Operations
from loadmanager.leader.plans import TermPlans
from loadmanager.steer.acting import Acting
from loadmanager.steer.hold import FleetHold, check_mode
from loadmanager.steer.split_orders import SplitOrders


@dataclass(slots=True, kw_only=True)
class FleetPlans(TermPlans):
    """Sealed plans, which are carried out in the modes that may move something."""

    hold: FleetHold
    split_orders: SplitOrders

    async def execute(self, plan_id: str) -> SealedPlan:
        """See the base class. Raises `ConflictError` where nothing may be moved. A plan with a
        split is carried out when this returns; raises `OperationalError` if the split failed.
        """
        self.hold.check(Author.PLAN)
        if not self.is_split(plan_id):
            return await TermPlans.execute(self, plan_id)
        term_plan = self.find(plan_id)
        gone = await self.gone([split.bundle for split in term_plan.sealed.plan.splits])
        before_ms = term_plan.executed_ms
        try:
            await self.split_orders.execute(term_plan, gone)
        finally:
            if before_ms is None and term_plan.executed_ms is not None:
                self.records.executed(self._summary(term_plan), [], term_plan.executed_ms)
        return self.plan(plan_id)

    def is_split(self, plan_id: str) -> bool:
        """True if a plan is kept, and splits a bundle."""
        return plan_id in self._plans and bool(self.find(plan_id).sealed.plan.splits)


@dataclass(slots=True, kw_only=True)
class FleetGoals(TermGoals):
    """Orders to reach goals, which are carried out in the modes that may move something."""

    fleet_hold: FleetHold

    async def approve(self, order_id: str, from_ms: int | None = None) -> GoalShown:
        """See the base class. Raises `ConflictError` where nothing may be moved."""
        check_mode(self.fleet_hold.settings.value.mode)
        return await TermGoals.approve(self, order_id, from_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOperations(Operations):
    """Does what operators ask for, in the modes that may move something."""

    hold: FleetHold
    acting: Acting

    async def move(
        self, bundle: str, destination: str, *, pin_s: float | None = None, note: str = ""
    ) -> Moved | NothingMoved:
        """See the base class. Raises `ConflictError` where nothing may be moved."""
        self.hold.check()
        return await Operations.move(self, bundle, destination, pin_s=pin_s, note=note)

    async def cordon(
        self, broker: str, *, drain: bool, until_restart: bool = False, note: str = ""
    ) -> CordonShown:
        """See the base class. Raises `ConflictError` for a drain where nothing may be moved."""
        if drain:
            self.hold.check()
        return await Operations.cordon(
            self, broker, drain=drain, until_restart=until_restart, note=note
        )

    def list_moves(self, limit: int) -> MovesShown:
        """See the base class. The open circuit breaker is a pause."""
        moves, reason = Operations.list_moves(self, limit), self.hold.stopped()
        if moves.paused is None and reason is not None:
            moves.paused = PauseShown(until=self.hold.breaker.until_ms, note=str(reason))
        return moves

    async def resume(self) -> bool:
        """See the base class. The end of a pause also closes the circuit breaker."""
        was_open = self.acting.resume()
        return await Operations.resume(self) or was_open


class NoMerging:
    """Pulsar cannot merge bundles."""

    async def step(self) -> None:
        """Do nothing."""

    async def merge(self, left: str, right: str, reason: str, *, epoch: int | None) -> str:
        """Raises `ConflictError`."""
        raise ConflictError("Pulsar cannot merge bundles")
