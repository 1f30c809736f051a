"""The leader's decisions, by result and reason: metrics of Pulsar's extensible load manager.

The reasons are the codes of our decisions. Of Pulsar's `sunit_state_chn` metrics only
the number of owned bundles is here: locks in ZooKeeper take the place of that channel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loadmanager.engine.load.headroom import measurable_from
from loadmanager.engine.moves.move import ENDED, Author, Move
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.splitting.settings import SPLITTERS
from loadmanager.kit.reason import UNKNOWN, from_sentence
from loadmanager.kit.telemetry import Metric, Sample, counter, gauge
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.leader.usage import ModelledUsage

REASONS_MAX = 50
"""Strategies of third parties have reasons of their own; beyond this, reasons are Unknown."""
"""What the plans of the two managers' rules of splitting are called."""

UNLOAD_CYCLES = counter(
    "pulsar_lb_unload_broker", "Shedding cycles that moved bundles, as leader", "metric"
)
UNLOADED_BUNDLES = counter(
    "pulsar_lb_unload_bundle", "Bundles that this broker moved as leader", "metric"
)
MOVES = counter(
    "loadmanager_moves",
    "As leader: moves that have ended, by who wanted them and by how they ended",
    "author",
    "state",
)
MOVES_WAITING = gauge("loadmanager_moves_waiting", "As leader: moves that have not begun")
MOVES_RUNNING = gauge("loadmanager_moves_running", "As leader: moves under way")
MOVES_PAUSED = gauge("loadmanager_moves_paused", "As leader: 1 while the queue of moves is paused")
SENSORS = gauge(
    "loadmanager_sensors_mistrusted",
    "As leader: brokers whose CPU sensor does not count, because it contradicts their traffic or "
    "is missing",
)
HEADROOM = gauge(
    "loadmanager_headroom_ratio",
    "As leader: the traffic that the brokers could carry, spread evenly, as a multiple of the "
    "present one; all of them, or without the one that has most room. At least so much, where the "
    "traffic uses too little to tell",
    "brokers",
)
DECISIONS = counter(
    "loadmanager_decisions",
    "As leader: bundles that a strategy wanted to move or split (Decided), and cycles in which it "
    "wanted nothing (Nothing), by the code of its reason",
    "strategy",
    "outcome",
    "reason",
)
_BREAKDOWN = ("metric", "result", "reason")
UNLOADS = counter(
    "pulsar_lb_unload_broker_breakdown",
    "As leader: bundles that were to move (Success) and did not (Failure), cycles without (Skip)",
    *_BREAKDOWN,
)
SPLITS = counter(
    "pulsar_lb_bundles_split_breakdown",
    "As leader: bundles that were to be split (Success), were not (Failure) or cannot be (Skip)",
    *_BREAKDOWN,
)
ASSIGNMENTS = counter(
    "pulsar_lb_assign_broker_breakdown",
    "As leader: bundles placed (Success), placed before (Skip), and without a broker (Failure)",
    "metric",
    "result",
)


@dataclass(slots=True)
class Counts:
    """Counters of the plans that this broker made as leader."""

    unloaded_bundles: int = 0
    unload_cycles: int = 0
    placed: int = 0
    unloads: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Result and reason → times; likewise `splits`."""
    splits: Counter[tuple[str, str]] = field(default_factory=Counter)

    decisions: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """Strategy, outcome and reason → times."""
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Author and state of moves that have ended → times."""

    def on_move(self, move: Move) -> None:
        self.moves[move.author.value, move.state.value] += 1

    def on_plan(self, plan: Plan) -> None:
        self.placed += len(plan.placements)
        self.unload_cycles += bool(plan.unloads)
        self.unloaded_bundles += len(plan.unloads)
        for unload in plan.unloads:
            code = from_sentence(unload.reason).code  # third parties may tell more than a word
            _count(self.unloads, "Success", code)
            _count(self.decisions, plan.strategy, "Decided", code)
        for split in plan.splits:
            if split.end is not None:
                continue  # it was counted when it was decided
            _count(self.splits, "Success", split.reason)
            _count(self.decisions, plan.strategy, "Decided", split.reason)
        if not plan.unloads and not plan.placements:
            skips = self.splits if plan.strategy in SPLITTERS else self.unloads
            for code in {skip.code for skip in plan.skipped}:
                _count(skips, "Skip", code)
                if not plan.splits:
                    _count(self.decisions, plan.strategy, "Nothing", code)


def _count(counts: Counter[Any], *named: str) -> None:
    """Count one; the last name is a reason's code. Beyond `REASONS_MAX` codes are Unknown."""
    has_room = named in counts or len(counts) < REASONS_MAX
    counts[named if has_room else (*named[:-1], UNKNOWN)] += 1


def samples(
    counts: Counts, placements: tuple[int, int], leading: PresentLeader
) -> Iterator[Sample]:
    """All samples of the leader's decisions; `placements`: the bundles that lookups had placed
    here, and those for which they found no broker.
    """
    yield UNLOAD_CYCLES.sample(counts.unload_cycles, "bundleUnloading")
    yield UNLOADED_BUNDLES.sample(counts.unloaded_bundles, "bundleUnloading")
    leader = leading.load_manager
    yield from () if leader is None else usage_samples(leader.usage)
    failures = (0, 0) if leader is None else (leader.not_moved, leader.not_split)
    yield from _breakdown(UNLOADS, "bundleUnloading", counts.unloads, failures[0])
    yield from _breakdown(SPLITS, "bundlesSplit", counts.splits, failures[1])
    for named, times in sorted(counts.decisions.items()):
        yield DECISIONS.sample(times, *named)
    for author in Author:
        for state in sorted(ENDED, key=lambda state: state.value):
            times = counts.moves[author.value, state.value]
            yield MOVES.sample(times, author.value, state.value)
    operations = None if leader is None else leading.operations
    moves = None if operations is None else operations.list_moves(0)
    yield MOVES_WAITING.sample(0 if moves is None else moves.waiting)
    yield MOVES_RUNNING.sample(0 if moves is None else moves.running)
    yield MOVES_PAUSED.sample(moves is not None and moves.paused is not None)
    placed, unplaced = placements
    for result, times in (
        ("Success", counts.placed),
        ("Skip", max(0, placed - counts.placed)),
        ("Failure", unplaced),
    ):
        yield ASSIGNMENTS.sample(times, "assign", result)


def usage_samples(usage: ModelledUsage) -> Iterator[Sample]:
    """What the model of usage says of the cluster."""
    yield SENSORS.sample(len(usage.doubts))
    if usage.headroom is not None:
        room = usage.headroom.room
        times = (room.times, room.times_without_one)
        if room.carried_usage < measurable_from([error for _, error in usage.usages.values()]):
            times = (room.least, room.least_without_one)
        for count, brokers in zip(times, ("all", "without one"), strict=True):
            yield HEADROOM.sample(count, brokers)


def _breakdown(
    metric: Metric, kind: str, counts: Counter[tuple[str, str]], failures: int
) -> Iterator[Sample]:
    """A series for each reason that occurred, and one for each result."""
    shown = {
        ("Success", UNKNOWN): 0,
        ("Skip", UNKNOWN): 0,
        **counts,
        ("Failure", UNKNOWN): failures,
    }
    for (result, reason), times in sorted(shown.items()):
        yield metric.sample(times, kind, result, reason)
