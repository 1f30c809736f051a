"""Dry runs, and the sealed plans that they leave behind for one term.

A plan is carried out exactly, through the queue of moves, or not at all: whatever has drifted since
the dry run is named, and nothing is queued.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from loadmanager.engine.bundles.ranges import NamespaceBundles, NoSuchBundleError, split_bundle_name
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.moves.move import Author, Move
from loadmanager.engine.strategies import registry, sealed
from loadmanager.engine.strategies.inputs import inputs_of
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.plan_document import Drift, Inputs, PlanShown
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.audit import note_change
from loadmanager.kit.errors import BadInputError, NotFoundError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.documents.plans import BasedOn, SealedPlan, SealedPlans, SealedSummary
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.move_notes import moves_note
from loadmanager.leader.moves import Moves
from loadmanager.leader.plan_records import PlanRecords
from loadmanager.leader.ports.operating import DriftError

PLANS_MAX = 50
MOVES_MAX = 20_000
"""Moves and refusals of all kept plans together."""
SHEDDING = "loadBalancerLoadSheddingStrategy"
PLACING = "loadBalancerLoadPlacementStrategy"
"""The extensible manager does not use this key unless a dry run names it."""
NAMED_MAX = 5
"""Differences that the reason of a refusal names; the answer lists all."""

log = get_logger("plans")


@dataclass(slots=True, eq=False)
class TermPlan:
    """A plan of this term."""

    id: str
    sealed: sealed.Sealed
    given: Mapping[str, str]
    """The settings that the dry run was asked to change."""
    inputs: Inputs
    executed_ms: int | None = None
    moves: list[Move] = field(default_factory=list)

    @property
    def weight(self) -> int:
        """The share of the memory for plans that it takes: 1, and 1 for each unload and skip."""
        return 1 + len(self.sealed.plan.unloads) + len(self.sealed.plan.skipped)


@dataclass(slots=True, kw_only=True)
class TermPlans:
    """Implements `leader.ports.operating.Plans`."""

    load_manager: LoadManager
    moves: Moves
    settings_with: Callable[[Mapping[str, str]], StrategySettings]
    """Settings of strategies in force, with some keys of broker.conf changed."""
    boundaries: Callable[[NamespaceName], Awaitable[NamespaceBundles]]
    records: PlanRecords
    _plans: dict[str, TermPlan] = field(default_factory=dict)
    _number: int = 0

    def dry_run(
        self, shedder: str | None, placement: str | None, settings: Mapping[str, str]
    ) -> SealedPlan:
        """Plan a shedding cycle with these settings, as it would be now; nothing is moved."""
        given = dict(settings)
        if shedder is not None:
            given[SHEDDING] = shedder
        if placement is not None:
            given[PLACING] = placement
        changed = self.settings_with(given)
        if self.load_manager.cluster.view.knows_owners and SHEDDING in given:
            _check_shedder(changed)
        if self.load_manager.cluster.view.knows_owners and PLACING in given:
            raise BadInputError(
                f"the extensible load manager places by {registry.EXTENSIBLE_PLACEMENT.name} only"
            )
        snapshot, plan = self.load_manager.try_out(changed)
        return self._shown(self.keep(snapshot, plan, changed, given))

    def keep(
        self,
        snapshot: ClusterSnapshot,
        plan: Plan,
        settings: StrategySettings,
        given: Mapping[str, str],
    ) -> TermPlan:
        """Seal a plan and keep it; `given`: the settings that it differs by from those in force."""
        self._number += 1
        term_plan = TermPlan(
            f"{self.moves.term.epoch}-p{self._number}",
            sealed.seal(plan, snapshot, settings),
            given,
            inputs_of(
                snapshot,
                settings,
                [name for move in plan.unloads for name in (move.source, move.destination or "")],
            ),
        )
        self._plans[term_plan.id] = term_plan
        while len(self._plans) > PLANS_MAX or (
            len(self._plans) > 1 and sum(each.weight for each in self._plans.values()) > MOVES_MAX
        ):
            del self._plans[next(iter(self._plans))]
        self.records.made(self._summary(term_plan), plan)
        return term_plan

    def list(self, limit: int) -> SealedPlans:
        """The plans of this term, the newest first."""
        newest = list(reversed(self._plans.values()))[:limit]
        return SealedPlans(plans=[self._summary(term_plan) for term_plan in newest])

    def plan(self, plan_id: str) -> SealedPlan:
        """One plan with its moves. Raises `NotFoundError`."""
        return self._shown(self.find(plan_id))

    async def execute(self, plan_id: str) -> SealedPlan:
        """Queue exactly the moves of a plan, or refuse with every difference."""
        epoch, separator, _ = plan_id.partition("-p")
        now = self.moves.term.epoch
        if separator and epoch.isdecimal() and epoch != str(now):
            text = f"it was made in term {epoch}, and this is term {now}: plans end with it"
            raise refusal(plan_id, [Drift("term", text)])
        term_plan = self.find(plan_id)
        unloads = term_plan.sealed.plan.unloads
        gone = await self.gone([move.bundle for move in unloads])
        owners = {move.bundle: await self.moves.orders.owner(move.bundle) for move in unloads}
        # From here on nothing is awaited: what is checked is what is queued.
        if not unloads:
            raise refusal(plan_id, [Drift("empty", "it has no moves")])
        if term_plan.executed_ms is not None:
            raise refusal(plan_id, [Drift("executed", "it was carried out already")])
        drifts = list(
            sealed.drift(
                term_plan.sealed,
                self.load_manager.snapshot(term_plan.sealed.settings),
                owners,
                gone,
            )
        )
        drifts += [
            Drift("move", f"move {moving.id} is under way", bundle)
            for bundle in owners
            if (moving := self.moves.queue.move_of(bundle)) is not None
        ]
        if drifts:
            raise refusal(plan_id, drifts)
        term_plan.moves = self.moves.queue_all(unloads, Author.PLAN)
        term_plan.executed_ms = self.moves.term.clock.now_ms()
        orders = [move.id for move in term_plan.moves]
        self.records.executed(self._summary(term_plan), orders, term_plan.executed_ms)
        note_change(moves_note(orders))
        log.info(
            "plan carried out",
            plan=plan_id,
            moves=len(term_plan.moves),
            epoch=self.moves.term.epoch,
        )
        return self._shown(term_plan)

    async def gone(self, bundles: Sequence[str]) -> dict[str, str]:
        """Bundles that do not exist any more, and why."""
        gone: dict[str, str] = {}
        present: dict[str, NamespaceBundles | None] = {}
        for bundle in bundles:
            name, span = split_bundle_name(bundle)
            if name not in present:
                try:
                    present[name] = await self.boundaries(NamespaceName.parse(name))
                except NotFoundError:
                    present[name] = None
            ranges = present[name]
            if ranges is None:
                gone[bundle] = f"namespace {name} was deleted"
                continue
            try:
                ranges.require(span)
            except NoSuchBundleError:
                gone[bundle] = "it was split or merged"
        return gone

    def find(self, plan_id: str) -> TermPlan:
        """One plan. Raises `NotFoundError`."""
        term_plan = self._plans.get(plan_id)
        if term_plan is None:
            raise NotFoundError(
                f"there is no plan {plan_id[:60]}: the last {PLANS_MAX} of a term are kept"
            )
        return term_plan

    def knows(self, plan_id: str) -> bool:
        """Whether a plan is kept."""
        return plan_id in self._plans

    def is_ready(self, plan_id: str) -> bool:
        """True if a plan is kept, and neither carried out nor expired."""
        term_plan = self._plans.get(plan_id)
        return term_plan is not None and self._state(term_plan) == "ready"

    def _state(self, term_plan: TermPlan) -> Literal["ready", "expired", "executed"]:
        if term_plan.executed_ms is not None:
            return "executed"
        return (
            "ready" if self.moves.term.clock.now_ms() <= term_plan.sealed.expires_ms else "expired"
        )

    def _summary(self, term_plan: TermPlan) -> SealedSummary:
        settings, plan = term_plan.sealed.settings, term_plan.sealed.plan
        return SealedSummary(
            id=term_plan.id,
            state=self._state(term_plan),
            created_at=term_plan.sealed.made_ms,
            expires_at=term_plan.sealed.expires_ms,
            executed_at=term_plan.executed_ms,
            epoch=self.moves.term.epoch,
            shedder=plan.strategy,
            placement=registry.short_name(settings.placement),
            settings=dict(term_plan.given),
            unload_count=len(plan.unloads),
        )

    def _shown(self, term_plan: TermPlan) -> SealedPlan:
        plan = PlanShown.of(term_plan.sealed.plan)
        for unload in plan.unloads:
            unload.load = term_plan.sealed.loads.get(unload.bundle)
        return SealedPlan(
            **structs.asdict(self._summary(term_plan)),
            based_on=BasedOn(at=term_plan.sealed.made_ms, **structs.asdict(term_plan.inputs)),
            bounds=sealed.BOUNDS,
            plan=plan,
            moves=term_plan.moves,
            replay=self.moves.cluster.replay.shown,
        )


def _check_shedder(settings: StrategySettings) -> None:
    if not registry.shedder(settings.shedder).extensible:
        raise BadInputError(
            f"{registry.short_name(settings.shedder)} cannot read the reports of the extensible "
            f"load manager; {registry.EXTENSIBLE_SHEDDER.name} can"
        )


def refusal(plan_id: str, drifts: list[Drift]) -> DriftError:
    """Make the error that refuses a plan which has drifted."""
    texts = [
        f"{drift.bundle}: {drift.reason}" if drift.bundle else drift.reason
        for drift in drifts[:NAMED_MAX]
    ]
    if len(drifts) > NAMED_MAX:
        texts.append(f"and {len(drifts) - NAMED_MAX} more differences")
    return DriftError(f"plan {plan_id} is not carried out: {'; '.join(texts)}", drifts)
