"""Dry runs, and the sealed plans that they leave behind for one term.

A plan is carried out exactly, through the queue of moves, or not at all: whatever has drifted since
the dry run is named, and nothing is queued.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import structlog
from msgspec import structs

from loadmanager.engine.bundles.ranges import NamespaceBundles, NoSuchBundleError, split_bundle_name
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.moves.move import Author, Move
from loadmanager.engine.strategies import registry, sealed
from loadmanager.engine.strategies.inputs import inputs_of
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.plan_document import Drift, Inputs, PlanShown
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError, NotFoundError
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.documents.plans import BasedOn, SealedPlan, SealedPlans, SealedSummary
from loadmanager.leader.load_manager import LoadManager
from loadmanager.leader.moves import Moves
from loadmanager.leader.ports.operating import DriftError

KEPT = 50
MOVES_KEPT = 20_000
"""Moves and refusals of all kept plans together."""
SHEDDING = "loadBalancerLoadSheddingStrategy"
PLACING = "loadBalancerLoadPlacementStrategy"
"""The extensible manager does not use this key unless a dry run names it."""
NAMED_MAX = 5
"""Differences that the reason of a refusal names; the answer lists all."""

log = structlog.get_logger("plans")


@dataclass(slots=True, eq=False)
class Kept:
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
class Plans:
    """Implements `leader.ports.operating.Plans`."""

    epoch: int
    load_manager: LoadManager
    moves: Moves
    settings_with: Callable[[Mapping[str, str]], StrategySettings]
    """Settings of strategies in force, with some keys of broker.conf changed."""
    boundaries: Callable[[NamespaceName], Awaitable[NamespaceBundles]]
    _kept: dict[str, Kept] = field(default_factory=dict)
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
        if self.load_manager.view.knows_owners and SHEDDING in given:
            _check_shedder(changed)
        if self.load_manager.view.knows_owners and PLACING in given:
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
    ) -> Kept:
        """Seal a plan and keep it; `given`: the settings that it differs by from those in force."""
        self._number += 1
        kept = Kept(
            f"{self.epoch}-p{self._number}",
            sealed.seal(plan, snapshot, settings),
            given,
            inputs_of(
                snapshot,
                settings,
                [name for move in plan.unloads for name in (move.source, move.destination or "")],
            ),
        )
        self._kept[kept.id] = kept
        while len(self._kept) > KEPT or (
            len(self._kept) > 1 and sum(one.weight for one in self._kept.values()) > MOVES_KEPT
        ):
            del self._kept[next(iter(self._kept))]
        return kept

    def list(self, limit: int) -> SealedPlans:
        """The plans of this term, the newest first."""
        newest = list(reversed(self._kept.values()))[:limit]
        return SealedPlans(plans=[self._summary(kept) for kept in newest])

    def plan(self, plan_id: str) -> SealedPlan:
        """One plan with its moves. Raises `NotFoundError`."""
        return self._shown(self.find(plan_id))

    async def execute(self, plan_id: str) -> SealedPlan:
        """Queue exactly the moves of a plan, or refuse with every difference."""
        epoch, separator, _ = plan_id.partition("-p")
        if separator and epoch.isdecimal() and epoch != str(self.epoch):
            text = f"it was made in term {epoch}, and this is term {self.epoch}: plans end with it"
            raise refusal(plan_id, [Drift("term", text)])
        kept = self.find(plan_id)
        unloads = kept.sealed.plan.unloads
        gone = await self.gone([move.bundle for move in unloads])
        owners = {move.bundle: await self.moves.owner(move.bundle) for move in unloads}
        # From here on nothing is awaited: what is checked is what is queued.
        if not unloads:
            raise refusal(plan_id, [Drift("empty", "it has no moves")])
        if kept.executed_ms is not None:
            raise refusal(plan_id, [Drift("executed", "it was carried out already")])
        found = list(
            sealed.drift(
                kept.sealed, self.load_manager.snapshot(kept.sealed.settings), owners, gone
            )
        )
        found += [
            Drift("move", f"move {moving.id} is under way", bundle)
            for bundle in owners
            if (moving := self.moves.queue.move_of(bundle)) is not None
        ]
        if found:
            raise refusal(plan_id, found)
        kept.moves = self.moves.queue_all(unloads, Author.PLAN)
        kept.executed_ms = self.moves.clock.now_ms()
        log.info("plan carried out", plan=plan_id, moves=len(kept.moves), epoch=self.epoch)
        return self._shown(kept)

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
            known = present[name]
            if known is None:
                gone[bundle] = f"namespace {name} was deleted"
                continue
            try:
                known.require(span)
            except NoSuchBundleError:
                gone[bundle] = "it was split or merged"
        return gone

    def find(self, plan_id: str) -> Kept:
        """One plan. Raises `NotFoundError`."""
        kept = self._kept.get(plan_id)
        if kept is None:
            raise NotFoundError(
                f"there is no plan {plan_id[:60]}: the last {KEPT} of a term are kept"
            )
        return kept

    def is_ready(self, plan_id: str) -> bool:
        """True if a plan is kept, and neither carried out nor expired."""
        kept = self._kept.get(plan_id)
        return kept is not None and self._state(kept) == "ready"

    def _state(self, kept: Kept) -> Literal["ready", "expired", "executed"]:
        if kept.executed_ms is not None:
            return "executed"
        return "ready" if self.moves.clock.now_ms() <= kept.sealed.expires_ms else "expired"

    def _summary(self, kept: Kept) -> SealedSummary:
        settings, plan = kept.sealed.settings, kept.sealed.plan
        return SealedSummary(
            id=kept.id,
            state=self._state(kept),
            created_at=kept.sealed.made_ms,
            expires_at=kept.sealed.expires_ms,
            executed_at=kept.executed_ms,
            epoch=self.epoch,
            shedder=plan.strategy,
            placement=registry.short_name(settings.placement),
            settings=dict(kept.given),
            unload_count=len(plan.unloads),
        )

    def _shown(self, kept: Kept) -> SealedPlan:
        plan = PlanShown.of(kept.sealed.plan)
        for unload in plan.unloads:
            unload.load = kept.sealed.loads.get(unload.bundle)
        return SealedPlan(
            **structs.asdict(self._summary(kept)),
            based_on=BasedOn(at=kept.sealed.made_ms, **structs.asdict(kept.inputs)),
            bounds=sealed.BOUNDS,
            plan=plan,
            moves=kept.moves,
        )


def _check_shedder(settings: StrategySettings) -> None:
    if not registry.shedder(settings.shedder).extensible:
        raise BadInputError(
            f"{registry.short_name(settings.shedder)} cannot read the reports of the extensible "
            f"load manager; {registry.EXTENSIBLE_SHEDDER.name} can"
        )


def refusal(plan_id: str, found: list[Drift]) -> DriftError:
    """Make the error that refuses a plan which has drifted."""
    texts = [
        f"{drift.bundle}: {drift.reason}" if drift.bundle else drift.reason
        for drift in found[:NAMED_MAX]
    ]
    if len(found) > NAMED_MAX:
        texts.append(f"and {len(found) - NAMED_MAX} more differences")
    return DriftError(f"plan {plan_id} is not carried out: {'; '.join(texts)}", found)
