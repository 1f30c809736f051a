"""Decides recorded cycles again, with what they saw and used, and compares.

Everything that a decision depends on is in the records (`engine.history.cycles`), so that each move
of the live leader comes out again, or there is a reason: figures are recorded with 7 digits, a
strategy is not installed here, the history has lost records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loadmanager.engine.history.cycles import (
    FORMAT,
    Averages,
    Cycle,
    ReportReader,
    ReportRecord,
    averages_of,
)
from loadmanager.engine.history.records import Record
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.pending import Pending
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import Wishes
from loadmanager.engine.policies.isolation import IsolationPolicies
from loadmanager.engine.strategies import cycle as cycles
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import Shedder, Strategy
from loadmanager.kit.errors import LoadManagerError

DIFFERENCES_MAX = 1_000
WAITING_MAX = 2_000
"""So many reports at most wait for the cycle that sees them."""
Move = tuple[str, str, str | None]
"""Bundle, source, destination."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A move that only one of both made, and why."""

    ts: int
    epoch: int
    cycle: int
    move: Move
    live: bool
    """Whether the live leader made it."""
    why: str


@dataclass(slots=True)
class Exactness:
    """A count of the live decisions that were reproduced, and of those that were not."""

    cycles: int = 0
    same: int = 0
    """Cycles with exactly the same moves."""
    moves: int = 0
    """Moves of the live leader."""
    reproduced: int = 0
    """Live moves decided again: the same bundle, source and destination in the same cycle."""
    differences: list[Difference] = field(default_factory=list)
    """The first ones."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Why cycles were not decided again."""
    lost_reports: int = 0
    after_loss: int = 0
    """Cycles that were decided again though records of their term before them are lost."""

    @property
    def share(self) -> float:
        """The part of the live moves that was reproduced; 1 without moves."""
        return self.reproduced / self.moves if self.moves else 1.0


class _Recorded:
    """The generator that gave what chance said; at its end, 0."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = iter(values)

    def randrange(self, stop: int, /) -> int:
        return next(self._values, 0) % stop


class _Term:
    """One term of one leader."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self.reports = ReportReader()
        self.followed = False
        """Whether everything since the term's beginning was read, or since averages."""
        self.recorded: dict[str, Any] = {}
        """What the last cycles said, of what is recorded when it changes."""
        self.lost = False
        """Whether records of the term were lost before this one."""
        self.named = True
        """Whether everything was named since then."""
        self.cycle: Cycle | None = None
        """The last one."""
        self._last: dict[str, ReportRecord] = {}
        """The last record of each broker."""
        self._waiting: list[ReportRecord] = []
        """Reports that no cycle has seen."""
        self._taken = 0
        """Reports that were taken up since the last cycle."""

    def add(self, record: ReportRecord) -> list[ReportRecord]:
        """A report, which waits for a cycle; of records that are there twice, one counts. Returns
        what has waited too long.
        """
        if self._last.get(record.of) != record:
            self._last[record.of] = record
            self._waiting.append(record)
        return self.take(max(len(self._waiting) - WAITING_MAX, 0))

    def begin(self, record: Cycle) -> list[ReportRecord] | None:
        """The reports that a cycle saw and none before it; None for a cycle that is there twice.

        The leader counted them: of the same millisecond, or when its clock was set back, times do
        not tell. Notices lost records.
        """
        before, reports = self.cycle, 0 if self.followed else None
        if before is not None:
            reports = before.reports
            if before.cycle == record.cycle:
                return None
            if before.cycle + 1 != record.cycle:
                self.lose()
        due = len(self._waiting)
        if reports is not None and record.reports is not None:
            due = record.reports - reports - self._taken
            if not 0 <= due <= len(self._waiting):
                self.lose()
                due = len(self._waiting)
        self.cycle = record
        taken = self.take(due)
        self._taken = 0
        return taken

    def take(self, count: int | None = None) -> list[ReportRecord]:
        """The first reports (None: all) that no cycle has seen; now one has."""
        taken = self._waiting[:count]
        del self._waiting[: len(taken)]
        self._taken += len(taken)
        return taken

    def lose(self) -> None:
        """A record was lost."""
        self.lost, self.named = True, False


def when(record: Record) -> tuple[int, int]:
    """The order of records: by time; a cycle saw whatever has its time."""
    if isinstance(record, Averages):
        return record.ts, 2 if record.again else 0
    return record.ts, 3 if isinstance(record, Cycle) else 1


def exactness(
    records: Iterable[Record], settings_of: Callable[[Mapping[str, str]], StrategySettings]
) -> Exactness:
    """Decide the cycles of these records again, which are in the order of `when`. `settings_of`:
    keys of broker.conf → settings.
    """
    result, terms = Exactness(), dict[tuple[str, int], _Term]()
    for each in records:
        if not isinstance(each, Averages | ReportRecord | Cycle):
            continue
        if each.format > FORMAT:
            if isinstance(each, Cycle):
                result.passed_over[f"format {each.format}: a later version wrote it"] += 1
            continue
        term = terms.setdefault((each.broker, each.epoch), _Term())
        if isinstance(each, Averages):
            if not (term.followed and term.named):
                _observe(term.take(), term, result)
            term.followed = term.followed or not each.again
            if not (each.again and term.followed):
                averages = {**term.view.bundle_data, **averages_of(each)}
                term.view.restore(averages, each.ts)
            term.named = True
        elif isinstance(each, ReportRecord):
            _observe(term.add(each), term, result)
        elif (taken := term.begin(each)) is not None:
            _observe(taken, term, result)
            _again(each, term, settings_of, result)
    return result


def _observe(records: Sequence[ReportRecord], term: _Term, result: Exactness) -> None:
    for record in records:
        report = term.reports.report(record)
        if report is None:
            result.lost_reports += 1
            term.lose()
        elif not term.named or not (record.again and record.of in term.view.reports):
            term.view.observe(record.of, report, record.ts)


def _again(
    record: Cycle,
    term: _Term,
    settings_of: Callable[[Mapping[str, str]], StrategySettings],
    result: Exactness,
) -> None:
    for name in ("brokers", "settings", "isolation", "groups", "failure_domains"):
        value = getattr(record, name)
        if value is not None:
            term.recorded[name] = IsolationPolicies(value) if name == "isolation" else value
    if "settings" not in term.recorded or "brokers" not in term.recorded:
        result.passed_over["the history begins later than its term: settings are missing"] += 1
        return
    term.followed = True
    for broker in sorted(term.view.reports.keys() - set(term.recorded["brokers"])):
        term.view.gone(broker, record.ts)
    if missing := set(term.recorded["brokers"]) - term.view.reports.keys():
        result.passed_over[f"the report of {min(missing)} is missing"] += 1
        return
    try:
        settings = settings_of(term.recorded["settings"])
        memories = _memories(record, settings)
        snapshot = _snapshot(record, term, settings)
        plan, memories = cycles.shed(snapshot, settings, memories)
        rng = _Recorded(record.draws)
        plan, _ = cycles.destinations(snapshot, plan, settings, memories, rng)
    except (LoadManagerError, msgspec.MsgspecError) as error:
        result.passed_over[str(error)] += 1
        return
    except Exception as error:  # noqa: BLE001 - a damaged record, or a third party's strategy, costs its cycle only
        result.passed_over[f"{type(error).__name__}: {error}"] += 1
        return
    _compare(record, plan, result, lost=term.lost)


def _snapshot(record: Cycle, term: _Term, settings: StrategySettings) -> ClusterSnapshot:
    snapshot = term.view.snapshot(
        record.ts,
        settings,
        isolation_policies=term.recorded.get("isolation", {}),
        anti_affinity_groups=term.recorded.get("groups", {}),
        failure_domains=term.recorded.get("failure_domains", {}),
        wishes=Wishes(record.pins, record.cordons, record.refusals),
        leaving=record.leaving,
    )
    pending = Pending()
    for bundle, broker in record.pending.items():
        pending.add(bundle, broker, snapshot.data_of(bundle))
    return snapshot.having(
        pending=pending,
        recently_unloaded_ms=record.moved,
        recently_unloaded_brokers_ms=record.moved_brokers,
        pause_s=record.pause_s,
    )


def _memories(record: Cycle, settings: StrategySettings) -> Memories:
    memories = Memories(planned=record.planned)
    strategies: tuple[Strategy, ...] = (
        registry.shedder(settings.shedder),
        registry.placement(settings.placement),
    )
    for strategy in strategies:
        kind = "shedder" if isinstance(strategy, Shedder) else "placement"
        raw = record.memories.get(f"{kind} {strategy.name}")
        if raw is not None and strategy.stored is not None:
            memory = msgspec.json.decode(raw, type=strategy.stored)
            memories = memories.remember(strategy, memory)
    return memories


def _compare(record: Cycle, plan: Plan, result: Exactness, *, lost: bool) -> None:
    live = {(str(move[0]), str(move[1]), move[2]) for move in record.moves if len(move) == 3}
    again: set[Move] = {(move.bundle, move.source, move.destination) for move in plan.unloads}
    result.cycles += 1
    result.after_loss += lost
    result.same += live == again
    result.moves += len(live)
    result.reproduced += len(live & again)
    for move in sorted(live ^ again, key=str):
        if len(result.differences) < DIFFERENCES_MAX:
            why = "records of its term are lost; " if lost else ""
            why += _why(move, plan) if move in live else _why_here(move, plan)
            result.differences.append(
                Difference(record.ts, record.epoch, record.cycle, move, move in live, why)
            )


def _why(move: Move, plan: Plan) -> str:
    """Why a live move did not come out again."""
    bundle, source, _ = move
    for other in plan.unloads:
        if other.bundle == bundle:
            return f"goes from {other.source} to {other.destination} here"
    reasons = {skip.what: skip.reason for skip in plan.skipped}
    for what in (bundle, source, "cluster"):
        if what in reasons:
            return f"stays here: {reasons[what]}"
    chosen = len(plan.unloads)
    return f"stays here: {plan.strategy} chose {chosen} other bundle{'s' * (chosen != 1)}"


def _why_here(move: Move, plan: Plan) -> str:
    unload = next(unload for unload in plan.unloads if unload.bundle == move[0])
    figures = [
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in unload.why.items()
    ]
    return f"{unload.reason}: {', '.join(figures)}"


def lines(result: Exactness, shown: int = 20) -> list[str]:
    """The outcome for people."""
    made = ["no cycle could be decided again: leaders of the modular load manager record them"]
    if result.cycles:
        made = [
            f"{result.cycles} cycles decided again, {result.same} with the same moves",
            (
                f"{result.moves} moves of the live leader, {result.reproduced} "
                f"({result.share:.1%}) again"
            ),
        ]
    if result.after_loss:
        made.append(
            f"{result.after_loss} of these cycles come after records of their term that are lost"
        )
    if result.lost_reports:
        made.append(f"{result.lost_reports} reports refer to records that are not here")
    made += [
        f"{count} {'cycle was' if count == 1 else 'cycles were'} passed over: {why}"
        for why, count in result.passed_over.items()
    ]
    for each in result.differences[:shown]:
        bundle, source, destination = each.move
        who = "live only" if each.live else "here only"
        made.append(
            f"  term {each.epoch}, cycle {each.cycle}: {bundle} {source} -> {destination} "
            f"({who}): {each.why}"
        )
    if len(result.differences) > shown:
        made.append(f"  and {len(result.differences) - shown} more")
    return made
