"""Shows operators what the leader sees, and does what they order; quotas aside, beyond
Pulsar's API.

Times are milliseconds since the epoch, rates messages/s, throughputs bytes/s, usages fractions
of 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

from loadmanager.engine.load.heat import HeatShown
from loadmanager.engine.load.quotas import ResourceQuota
from loadmanager.engine.plans.goals import Goal, PlanLimits
from loadmanager.engine.strategies.plan_document import Drift
from loadmanager.kit.errors import ConflictError
from loadmanager.leader.documents.cluster import BundlesShown, ClusterShown, Sort
from loadmanager.leader.documents.decisions import BundleStory, DecisionsShown
from loadmanager.leader.documents.findings import FindingsShown
from loadmanager.leader.documents.goals import GoalShown, GoalsShown
from loadmanager.leader.documents.loss import LossShown
from loadmanager.leader.documents.members import MembersShown
from loadmanager.leader.documents.moves import (
    CordonShown,
    Moved,
    MovesShown,
    NothingMoved,
    PauseShown,
    PinShown,
)
from loadmanager.leader.documents.plans import SealedPlan, SealedPlans
from loadmanager.leader.documents.undo import Undone
from loadmanager.leader.undo_documents import Draft, UndoOrder

SORTS: tuple[Sort, ...] = get_args(Sort)


class DriftError(ConflictError):
    """A sealed plan is not carried out, because the cluster is not what it was made for."""

    def __init__(self, reason: str, drift: Sequence[Drift]) -> None:
        super().__init__(reason)
        self.drift = list(drift)
        """Each difference."""


class Overview(Protocol):
    """The cluster as the leader sees it."""

    def cluster(self, limit: int, *, listener: str = "", secure: bool = False) -> ClusterShown:
        """The leader, the queue of moves, and each broker with its load; `url` of each for who
        asks by that listener, over TLS or without.
        """
        ...

    async def bundles(
        self, *, sort: str, namespace: str | None, owner: str | None, limit: int
    ) -> BundlesShown:
        """The bundles of the last reports, in one of the orders of `SORTS`."""
        ...

    async def bundle(self, bundle: str, replaced_by: Sequence[str], limit: int) -> BundleStory:
        """One bundle: its owner, its load, what replaced it, and the decisions that concern it."""
        ...

    async def loss(self, brokers: Sequence[str], limit: int) -> LossShown:
        """Where the bundles of these brokers would go if they were lost now. Raises `BadInputError`
        for brokers that are not there, and if no other one would be left.
        """
        ...

    def has_decided_about(self, bundle: str) -> bool:
        """True if a decision that is still kept names this bundle."""
        ...

    def decisions(
        self,
        *,
        bundle: str | None,
        broker: str | None,
        since_ms: int | None,
        until_ms: int | None,
        limit: int,
    ) -> DecisionsShown:
        """The last decisions with their reasons, newest first."""
        ...


class Plans(Protocol):
    """Dry runs, and the sealed plans that they leave behind."""

    def dry_run(
        self, shedder: str | None, placement: str | None, settings: Mapping[str, str]
    ) -> SealedPlan:
        """Plan a shedding cycle with these settings, as it would be now; nothing is moved.

        Raises `BadInputError` for an unknown strategy or key, and for a value that is not allowed.
        """
        ...

    def list(self, limit: int) -> SealedPlans:
        """The plans of this term, the newest first."""
        ...

    def plan(self, plan_id: str) -> SealedPlan:
        """One plan with its moves. Raises `NotFoundError`."""
        ...

    async def execute(self, plan_id: str) -> SealedPlan:
        """Queue exactly the moves of a plan; returns the plan.

        Raises `NotFoundError`, `DriftError` naming every difference, and `ConflictError` if the
        queue of moves has no room. Then no move is queued.
        """
        ...


class Goals(Protocol):
    """Orders to reach goals."""

    async def propose(
        self, goal: Goal, limits: PlanLimits, note: str = "", *, approve: bool = False
    ) -> GoalShown:
        """Plan the moves to a goal, and keep the order until it is approved."""
        ...

    def list(self) -> GoalsShown:
        """All orders, the newest first."""
        ...

    def goal(self, order_id: str) -> GoalShown:
        """One order. Raises `NotFoundError`."""
        ...

    async def approve(self, order_id: str, from_ms: int | None = None) -> GoalShown:
        """Let an order be carried out. Raises `NotFoundError`, `ConflictError`."""
        ...

    async def stop(self, order_id: str) -> GoalShown:
        """End an order. Raises `NotFoundError`, `ConflictError`."""
        ...


class Undo(Protocol):
    """Undoes changes of operators and decisions of the leader."""

    async def draft(self, order: UndoOrder) -> Draft:
        """What undoing would do now. Raises `BadInputError`."""
        ...

    async def carry_out(self, order: UndoOrder, seal: str) -> Undone:
        """Do what the plan with this seal says. Raises `ConflictError` for another plan."""
        ...


class LeaderOperations(Protocol):
    """Does what operators ask of the leader."""

    @property
    def overview(self) -> Overview:
        """The cluster as the leader sees it."""
        ...

    @property
    def plans(self) -> Plans:
        """Dry runs and sealed plans."""
        ...

    @property
    def undo(self) -> Undo | None:
        """Undoing; None beside a Pulsar cluster, whose documents are its own."""
        ...

    @property
    def goals(self) -> Goals:
        """Orders to reach goals."""
        ...

    async def move(
        self, bundle: str, destination: str, *, pin_s: float | None = None, note: str = ""
    ) -> Moved | NothingMoved:
        """Move a bundle, and pin it; returns the move."""
        ...

    def list_moves(self, limit: int) -> MovesShown:
        """The moves, and the pause."""
        ...

    def cancel(self, move_id: str | None) -> int:
        """Cancel a move that waits, or all; returns how many."""
        ...

    async def pause(self, seconds: float | None, note: str = "") -> PauseShown | None:
        """Pause the queue of moves, or let it go on."""
        ...

    def pins(self) -> dict[str, PinShown]:
        """Bundle → its pin."""
        ...

    async def unpin(self, bundle: str) -> None:
        """Remove a pin."""
        ...

    def cordons(self) -> list[CordonShown]:
        """The cordoned brokers with the progress of their drains."""
        ...

    async def cordon(
        self, broker: str, *, drain: bool, until_restart: bool = False, note: str = ""
    ) -> CordonShown:
        """Cordon a broker, and drain it."""
        ...

    async def uncordon(self, broker: str) -> None:
        """End a cordon."""
        ...

    async def merge(self, left: str, right: str, reason: str = "Operator") -> str:
        """Merge two neighbouring bundles; returns the name of the new one."""
        ...


class HeatMap(Protocol):
    """The hottest bundles over time."""

    def shown(self, limit: int) -> HeatShown:
        """Samples of that many bundles."""
        ...


class Quotas(Protocol):
    """Pulsar's resource quotas: the loads that bundles are expected to carry.

    None stands for the bundles without a quota of their own.
    """

    def quota(self, bundle: str | None) -> ResourceQuota:
        """The quota of a bundle, or the default one."""
        ...

    async def set_quota(self, bundle: str | None, document: dict[str, Any]) -> None:
        """Store a quota. Raises `BadInputError`."""
        ...

    async def reset_quota(self, bundle: str) -> None:
        """Delete a quota. Raises `NotFoundError`."""
        ...


class EventStream(Protocol):
    """The events for one listener."""

    async def next(self) -> tuple[str, str, bytes] | None:
        """The next event: its id, its kind and its JSON; None when there are no more."""
        ...


class Events(Protocol):
    """Tells what happens in the cluster, as it happens."""

    def listen(self, after: str | None) -> EventStream:
        """Begin after the event of that id, as far as it is kept; None: now.

        Raises `OperationalError` when there are too many listeners.
        """
        ...

    def leave(self, stream: Any) -> None:
        """Listen no more."""
        ...


class Findings(Protocol):
    """What is wrong in the cluster now."""

    def shown(self) -> FindingsShown:
        """As the API shows it."""
        ...


class Absences(Protocol):
    """Who is there, and who left."""

    def shown(self) -> MembersShown:
        """Both, as the API shows them."""
        ...

    async def forget(self, broker: str) -> None:
        """Forget a broker that left. Raises `NotFoundError` if it is not remembered."""
        ...
