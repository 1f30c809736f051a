"""The leader's load manager: it places bundles, sheds load, has bundles split, and keeps its
decisions with their reasons. It lives for one term.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from msgspec import UNSET

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.moves.move import Author, Move, MoveState
from loadmanager.engine.plans import published
from loadmanager.engine.strategies import cycle, filters, newcomers, registry
from loadmanager.engine.strategies.inputs import inputs_of
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Placement, Plan, Skip, Split, SplitEnd, Unload
from loadmanager.engine.strategies.plan_document import (
    SplitShown,
    log_fields,
    placement_reason,
    refusals,
    split_end,
)
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import balanced
from loadmanager.engine.strategies.splitting import threshold
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName, is_system_namespace
from loadmanager.kit.reason import Reason
from loadmanager.kit.tasks import in_pieces
from loadmanager.leader.base import LedCluster, TermBase, snapshot_of
from loadmanager.leader.cycle_log import CycleLog, Draws
from loadmanager.leader.decisions import Decisions, RecentDecision
from loadmanager.leader.documents.decisions import (
    DecisionShown,
    of_cycle,
    of_move,
    of_placement,
    of_split,
)
from loadmanager.leader.moves import Moves
from loadmanager.leader.ports.mover import NotSentError
from loadmanager.leader.usage import ModelledUsage

NEWCOMERS_AGAIN = 10
"""Brokers that stay nearly empty are reported again after this many cycles."""
UNCOUNTED_MAX = 5
"""A split check fails once the bundles of this many namespaces in a row cannot be counted."""

log = get_logger("leader")


class LeaderHold(Protocol):
    """Keeps a leader from deciding for a while (`leader.warm_up.WarmUp`,
    `steer.hold.FleetHold`).
    """

    def reason(self) -> Reason | None:
        """Why nothing is decided now; None: decide."""
        ...


@dataclass(frozen=True, slots=True)
class FirstHold:
    """Holds a leader while one of several does; implements `LeaderHold`."""

    first: Callable[[], Reason | None]
    second: Callable[[], Reason | None]

    def reason(self) -> Reason | None:
        """The reason of the first that has one."""
        return self.first() or self.second()


CarryOut = Callable[[ClusterSnapshot, Plan], Sequence[Move]]
"""What becomes of a cycle's plan; returns the moves that were queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRecords:
    """Where a leader's decisions go."""

    decisions: Decisions
    """The last ones, for operators."""
    planned: Callable[[int, Plan, Sequence[str]], None]
    """Called with the cycle, each plan, and the ids of the decisions that show it."""
    moved: Callable[[int, Move, int | None, Sequence[str]], None]
    """Called with the cycle, a move that has ended, the life that it ended, and the ids of the
    decisions that show it: its own, and the one that ordered it.
    """
    log: CycleLog | None = None
    """Records what cycles saw, used and decided."""


@dataclass(slots=True, kw_only=True)
class LoadManager:
    """Implements `leader.present_leader.LoadManagement`."""

    moves: Moves
    strategies: Live[StrategySettings]
    splits: Live[SplitSettings]
    records: LeaderRecords
    slow_s: float = math.inf
    """A strategy that takes longer has kept the broker from everything else for too long, which
    counts as a failure.
    """
    memories: Memories = field(default_factory=Memories)
    usage: ModelledUsage = field(default_factory=ModelledUsage, init=False)
    """What the brokers use by the model."""
    term: TermBase = field(init=False)
    """That of its moves, as `cluster`."""
    cluster: LedCluster = field(init=False)
    split_ms: dict[str, int] = field(default_factory=dict, init=False)
    """Bundle → when the order to split it was last sent."""
    cycles: int = field(default=0, init=False)
    not_moved: int = field(default=0, init=False)
    not_split: int = field(default=0, init=False)
    _ordered_by: dict[str, str] = field(default_factory=dict)
    """Move that has not ended → the decision that ordered it."""
    _hold_reason: Reason | None = None
    """What held the last cycle."""
    _last_newcomers: tuple[frozenset[str], int] = (frozenset(), 0)
    """The nearly empty brokers that were last told, and in which cycle."""
    _unsplittable_ms: dict[str, int] = field(default_factory=dict)
    """Bundle → when the warning was last logged that it is too big and is not split."""

    def __post_init__(self) -> None:
        """Put the moves among the decisions."""
        self.term, self.cluster = self.moves.term, self.moves.cluster
        self.moves.on_record.append(self.moved)

    def observe(self, broker_id: str, report: LocalBrokerData | BrokerLoadData) -> None:
        """Show a broker's report to the strategies."""
        if self.records.log is not None and isinstance(report, LocalBrokerData):
            self.records.log.taken_up(
                broker_id, report
            )  # first: a strategy of a third party may raise
        self.memories = cycle.observe(broker_id, report, self.strategies.value, self.memories)

    # Placing

    async def place(self, bundle: str) -> str:
        """The broker for an unowned bundle; the same one until it reports the bundle or goes.

        Raises `OperationalError` if no broker qualifies.
        """
        preferred = self.moves.preferred.take(bundle)
        if preferred is not None and preferred in self.cluster.brokers.reports:
            return self._placed(bundle, preferred, "preferred by the unload before")
        under_way = self.cluster.view.under_way(bundle, self.term.clock.now_ms())
        if under_way is not None:
            if not self._is_out_of_place(bundle, under_way):
                return under_way
            self.cluster.view.not_placed(bundle)
        settings = self.strategies.value
        try:
            rule = registry.placement(settings.placement).name
            began_s = self.term.clock.monotonic_s()
            choice = self._choose(bundle, settings)
            if (slow := self._slowness(rule, began_s)) is None:
                self.term.steps.succeeded("place")
            else:
                self.term.steps.failed("place", slow)
        except Exception as error:  # noqa: BLE001 - a strategy that fails must not leave bundles without an owner
            self.term.steps.failed("place", error)
            rule = registry.FALLBACK_PLACEMENT.name
            choice = self._choose(bundle, dataclasses.replace(settings, placement=rule))
        if choice.broker is None:
            raise OperationalError(
                f"Failed to acquire ownership of {bundle}: no broker qualifies: "
                f"{refusals(choice.rejected)}"
            )
        decision = self._remember("place", partial(of_placement, choice))
        self._planned(Plan(rule, placements=(choice,)), decision)
        return self._placed(
            bundle, choice.broker, placement_reason(choice.candidates, choice.rejected)
        )

    def _is_out_of_place(self, bundle: str, broker_id: str) -> bool:
        """True if a broker could not open the bundle, or it is pinned to another one to which
        placement may send it.
        """
        wishes = self.cluster.wishes.now()
        pin = wishes.pin_of(bundle)
        if wishes.refuses(broker_id, bundle):
            return True
        if pin is None or pin.broker == broker_id:
            return False
        snapshot = self.snapshot(self.strategies.value, passing=True)
        allowed, _ = filters.may_serve(snapshot, split_bundle_name(bundle)[0])
        return pin.broker in filters.uncordoned(snapshot, allowed)[0]

    def _choose(self, bundle: str, settings: StrategySettings) -> Placement:
        (choice,), self.memories = cycle.place(
            self.snapshot(settings, passing=True), [bundle], settings, self.memories, self.term.rng
        )
        return choice

    def _placed(self, bundle: str, broker_id: str, reason: str) -> str:
        self.cluster.view.placed(bundle, broker_id, self.term.clock.now_ms())
        log.info(
            "bundle assigned", bundle=bundle, to=broker_id, reason=reason, epoch=self.term.epoch
        )
        return broker_id

    # Shedding

    async def shed(self, hold: LeaderHold | None = None, carry_out: CarryOut | None = None) -> None:
        """One cycle, unless something holds it: decide, and queue the moves or `carry_out`. What
        the cycle before wanted and has not begun is decided again, from the figures of now.
        """
        settings = self.strategies.value
        if self._holds(hold, settings):
            return
        view = self.cluster.view
        if view.knows_owners:
            pieces = published.as_reported(self.snapshot(settings), dict(view.owners))
            self._look_at_usage(await in_pieces(pieces), settings, by_shedder=False)
        began_s = self.term.clock.monotonic_s()
        self.moves.look_again()
        snapshot = self.snapshot(settings)
        before, draws = self.usage.resumed(self.memories, settings), Draws(self.term.rng)
        self.memories = before
        plan, self.memories = self._plan(snapshot, settings, draws)
        if (slow := self._slowness(settings.shedder, began_s)) is not None:
            raise slow  # the lease may have run out meanwhile
        self.cycles += 1
        if not snapshot.extensible:
            models = [each.of(balanced.SHEDDER).model for each in (before, self.memories)]
            by_shedder = models[0] is not models[1]
            self._look_at_usage(snapshot, settings, by_shedder=by_shedder)
        self._tell_newcomers(newcomers.left_out(snapshot, plan), plan.strategy)
        if carry_out is None:
            moves: Sequence[Move] = self.moves.decide(plan.unloads, Author.CYCLE)
        else:
            moves = carry_out(snapshot, plan)
        self.not_moved += len(plan.unloads) - len(moves)
        decided = self._paused(plan) if carry_out is None else plan
        self._planned(decided, self._remember_cycle(decided, snapshot, moves))
        if self.records.log is not None:
            self.records.log.cycle(
                self.cycles,
                view,
                snapshot,
                settings,
                before,
                plan=plan,
                draws=draws.values,
            )

    def _paused(self, plan: Plan) -> Plan:
        """A plan of moves that says so if they wait, because an operator paused them."""
        if not plan.unloads or self.cluster.wishes.pause() is None:
            return plan
        skip = Skip("cluster", "Paused", "what is decided waits until moves go on")
        return dataclasses.replace(plan, skipped=(skip, *plan.skipped))

    def _look_at_usage(
        self, reported: ClusterSnapshot, settings: StrategySettings, *, by_shedder: bool
    ) -> None:
        """Take up the reports of a cycle in the model, and record the sensors that it doubts."""
        if doubts := self.usage.look(reported, settings, self.memories, by_shedder=by_shedder):
            self.record_plan(Plan("UsageModel", skipped=doubts))

    def _remember_cycle(
        self, plan: Plan, snapshot: ClusterSnapshot, moves: Sequence[Move]
    ) -> RecentDecision:
        """Put a cycle among the decisions; one that moves nothing together with others like it."""
        named = [name for move in plan.unloads for name in (move.source, move.destination or "")]
        counted = {"counted": self.usage.counted} if plan.strategy == balanced.SHEDDER.name else {}
        inputs = inputs_of(snapshot, self.strategies.value, named, **counted)
        move_of = {move.bundle: move for move in moves}
        stay = frozenset((skip.what, skip.code) for skip in plan.skipped)
        same = None if plan.unloads else (plan.strategy, stay)
        decision = self.records.decisions.remember(
            "shed",
            partial(of_cycle, plan, move_of, inputs),
            epoch=self.term.epoch,
            cycle=self.cycles,
            weight=1 + len(plan.unloads) + len(plan.skipped) + len(inputs.loads),
            same=same,
        )
        self._ordered_by |= {move.id: decision.id for move in moves if not move.ended}
        return decision

    def _tell_newcomers(self, skips: tuple[Skip, ...], strategy: str) -> None:
        """Say why brokers stay nearly empty: when that begins or ends, and every so many cycles."""
        brokers = frozenset(skip.what for skip in skips)
        since = self.cycles - self._last_newcomers[1]
        if not skips or (brokers == self._last_newcomers[0] and since < NEWCOMERS_AGAIN):
            if not skips:
                self._last_newcomers = brokers, self.cycles
            return
        self._last_newcomers = brokers, self.cycles
        plan = Plan(strategy, skipped=skips)
        self._planned(plan, self._remember("newcomers", partial(of_cycle, plan, None, UNSET)))

    def _holds(self, hold: LeaderHold | None, settings: StrategySettings) -> bool:
        """Record that something holds the cycles, and that this is over; True while it does."""
        reason, before = None if hold is None else hold.reason(), self._hold_reason
        why = reason or (before and Reason("HoldOver", f"{before.code} no longer holds cycles"))
        if why is not None:
            plan = Plan(settings.shedder, skipped=(Skip("cluster", why.code, why.text),))
            self._hold_reason = reason
            decision = self.records.decisions.remember(
                "shed",
                partial(of_cycle, plan, None, UNSET),
                epoch=self.term.epoch,
                cycle=self.cycles,
                same=why.code,
            )
            self._planned(plan, decision)
        return reason is not None

    def try_out(self, settings: StrategySettings) -> tuple[ClusterSnapshot, Plan]:
        """Plan a shedding cycle with these settings, as it would be now; returns the snapshot, too.

        Changes neither memories nor the state of the random generator.
        """
        snapshot = self.snapshot(settings)
        return snapshot, self._plan(snapshot, settings, copy.deepcopy(self.term.rng))[0]

    def _plan(
        self, snapshot: ClusterSnapshot, settings: StrategySettings, rng: cycle.Rng
    ) -> tuple[Plan, Memories]:
        plan, memories = cycle.shed(snapshot, settings, self.memories)
        return cycle.destinations(snapshot, plan, settings, memories, rng)

    def snapshot(self, settings: StrategySettings, *, passing: bool = False) -> ClusterSnapshot:
        """The cluster now, for strategies with these settings; see `ClusterView.snapshot`."""
        snapshot = snapshot_of(
            self.cluster,
            self.cluster.view,
            self.term.clock.now_ms(),
            settings,
            leaving=self.moves.queue.sources(),
            passing=passing,
        )
        unusable = self.cluster.unusable()
        if unusable:
            snapshot = snapshot.having(unusable=unusable)
        if passing:  # a placement moves nobody
            return snapshot
        return snapshot.having(pause_s=self.moves.pauses.expected().measured_s)

    def _slowness(self, strategy: str, began_s: float) -> OperationalError | None:
        took_s = self.term.clock.monotonic_s() - began_s
        if took_s <= self.slow_s:
            return None
        return OperationalError(
            f"the strategy {strategy} took {took_s:.1f} s, in which this broker did nothing else"
        )

    # Splitting

    async def split(self) -> None:
        """Have the owners of bundles that are too big split them (modular rule).

        An owner that finds no useful boundary gets the order again after the grace period. Nothing
        is split while moves are paused.
        """
        if self.splits.value.enabled and self.cluster.wishes.pause() is None:
            for owner, split in await self.too_big():
                await self.split_at(owner, split)

    async def too_big(self) -> Sequence[tuple[BrokerAddress, Split]]:
        """The bundles to split now, with their owners; without those that were ordered lately."""
        settings, strategies = self.splits.value, self.strategies.value
        snapshot = self.snapshot(strategies)
        oldest_ms = self.term.clock.now_ms() - strategies.grace_period_minutes * 60_000
        self.split_ms = _since(oldest_ms, self.split_ms)
        self._unsplittable_ms = _since(oldest_ms, self._unsplittable_ms)
        names = threshold.namespaces_to_count(snapshot, settings)
        counts = await self._bundle_counts(
            [name for name in names if not is_system_namespace(name)]
        )
        owners = {
            bundle: broker
            for broker in snapshot.brokers
            for bundle in snapshot.reports[broker].last_stats
        }
        chosen = threshold.modular(snapshot, settings, None, counts)
        for skip in chosen.skipped:
            # one warning in a grace period
            if skip.what in owners and skip.what not in self._unsplittable_ms:
                self._unsplittable_ms[skip.what] = self.term.clock.now_ms()
                self.records.planned(self.cycles, Plan("BundleSplitterTask", skipped=(skip,)), ())
                log.warning(
                    "a bundle is too big and is not split", bundle=skip.what, reason=skip.reason
                )
        return [
            (owner, split)
            for split in chosen.splits
            if split.bundle not in self.split_ms
            and (owner := self.cluster.brokers.address(owners[split.bundle])) is not None
        ]

    async def _bundle_counts(self, names: Sequence[str]) -> dict[str, int]:
        """The number of bundles of each namespace; 0 for one that cannot be counted.

        Raises `OperationalError` after `UNCOUNTED_MAX` failures in a row.
        """
        counts: dict[str, int] = {}
        failed = 0
        for name in names:
            try:
                counts[name] = await self.cluster.bundle_count(NamespaceName.parse(name))
                failed = 0
            except OperationalError as error:
                counts[name], failed = 0, failed + 1
                log.warning(
                    "the bundles of a namespace cannot be counted",
                    namespace=name,
                    error=str(error),
                )
                if failed >= UNCOUNTED_MAX:
                    raise
        return counts

    async def split_at(self, owner: BrokerAddress, split: Split) -> Split:
        """Have the owner split a bundle; the decision is told at once, and its outcome after.

        Returns the split with its end; it raises nothing for one that failed.
        """
        self.split_ms[split.bundle] = self.term.clock.now_ms()
        decision = self._remember("split", partial(of_split, split, owner.broker_id))
        self._planned(Plan("BundleSplitterTask", splits=(split,)), decision)
        log.info(
            "bundle splits",
            **log_fields(SplitShown.of(split), "bundle", "boundaries", "reason"),
            owner=owner.broker_id,
            epoch=self.term.epoch,
        )
        try:
            children = await self.moves.orders.mover.split_bundle(
                owner, split.bundle, unload=self.splits.value.unload_after, epoch=self.term.epoch
            )
            end = split_end(children)
        except OperationalError as error:
            self.not_split += 1
            end = SplitEnd((), str(error), sent=not isinstance(error, NotSentError))
            log.warning("a bundle was not split", bundle=split.bundle, error=str(error))
        ended = dataclasses.replace(split, end=end)
        self._planned(Plan("BundleSplitterTask", splits=(ended,)), decision)
        self.records.decisions.changed(decision, partial(of_split, ended, owner.broker_id))
        return ended

    # Decisions

    def _remember(self, kind: str, details: Callable[..., DecisionShown]) -> RecentDecision:
        return self.records.decisions.remember(
            kind, details, epoch=self.term.epoch, cycle=self.cycles
        )

    def _planned(self, plan: Plan, decision: RecentDecision) -> None:
        self.records.planned(self.cycles, plan, (decision.id,))

    def moved(self, move: Move, life: int | None = None) -> None:
        """Record a move that has ended, and put it among the decisions of that time: its outcome
        beside its reason.
        """
        if move.state is MoveState.FAILED and move.author is Author.CYCLE:
            self.not_moved += 1
        decision = self.records.decisions.remember(
            "move",
            partial(of_move, copy.copy(move)),
            epoch=self.term.epoch,
            cycle=self.cycles,
            at_ms=move.ended_at,
        )
        order = self._ordered_by.pop(move.id, None)
        ids = (decision.id,) if order is None else (decision.id, order)
        self.records.moved(self.cycles, move, life, ids)

    def merged(self, left: str, right: str, bundle: str, broker: str, reason: str) -> None:
        """Put a merge among the decisions."""
        parts = [left, right]
        details = partial(DecisionShown, bundle=bundle, parts=parts, broker=broker, reason=reason)
        self._remember("merge", details)

    def record_plan(self, plan: Plan) -> None:
        """Record a plan that another part of the leader made, and put it among the decisions."""
        self._planned(plan, self._remember("skip", partial(of_cycle, plan, None, UNSET)))

    def destinations(
        self, source: str, bundles: Sequence[str], reason: str
    ) -> tuple[tuple[Unload, ...], tuple[Skip, ...]]:
        """Choose destinations for bundles of a broker by the placement rule; the skips say why some
        stay.
        """
        settings = self.strategies.value
        snapshot = self.snapshot(settings)
        why = {"broker": source}
        unloads = tuple(Unload(bundle, source, None, reason, why) for bundle in bundles)
        plan, self.memories = cycle.destinations(
            snapshot, Plan(reason, unloads), settings, self.memories, self.term.rng
        )
        return plan.unloads, plan.skipped

    def failed(self, step: str, error: Exception) -> None:
        """Put the failure of a step among the decisions, where people look for reasons."""
        text = f"{type(error).__name__}: {error}"[:1000]
        self._remember("failure", partial(DecisionShown, step=step, error=text))


def _since(oldest_ms: float, times_ms: dict[str, int]) -> dict[str, int]:
    return {bundle: at_ms for bundle, at_ms in times_ms.items() if at_ms > oldest_ms}
