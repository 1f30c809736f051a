"""Recorded cycles are decided again exactly, from what the leader's log has of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import pytest

from loadmanager.broker import settings as conf
from loadmanager.engine.history.cycles import CYCLE_KINDS, Averages, Cycle, ReportRecord
from loadmanager.engine.history.records import Record
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.units import MINUTE_MS
from loadmanager.lab.closed_loop import ClosedLoop, Costs
from loadmanager.lab.days import DaySize, make_day
from loadmanager.lab.exact import exactness, lines, when
from loadmanager.leader.cycle_log import CycleLog, Draws

MINUTES = 100
KEYS = {
    "AvgShedder": {"loadBalancerLoadPlacementStrategy": "AvgShedder"},
    "BalancedShedder": {"loadBalancerLoadPlacementStrategy": "BalancedPlacement"},
    "OverloadShedder": {"loadBalancerBrokerOverloadedThresholdPercentage": "65"},
    "ThresholdShedder": {
        "loadBalancerLoadPlacementStrategy": "LeastResourceUsageWithWeight",
        "loadBalancerBrokerThresholdShedderPercentage": "5",
    },
    "TransferShedder": {"loadBalancerBrokerLoadTargetStd": "0.05"},
    "UniformLoadShedder": {"loadBalancerMsgRateDifferenceShedderThreshold": "20"},
}


def of_keys(keys: Mapping[str, str]) -> StrategySettings:
    """Settings, as `replay --exact` makes them."""
    return conf.KEYS.parse(keys).leaf(StrategySettings)


@dataclass
class RecordedHistory:
    """A history as it is read again: every record went through its JSON."""

    records: list[Record] = field(default_factory=list)

    def append(self, *records: Record) -> None:
        """Keep a record's JSON, decoded."""
        for record in records:
            decoded = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
            self.records.append(decoded)


class Clock:
    """The simulated time."""

    now = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.now

    def monotonic_s(self) -> float:
        """Seconds."""
        return self.now / 1000


class _View(ClusterView):
    """Tells the log what a leader's feed tells it."""

    log: CycleLog | None = None

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()

    def observe(self, broker_id: str, report: LocalBrokerData, now_ms: int) -> None:  # type: ignore[override]
        """A broker reported."""
        super().observe(broker_id, report, now_ms)
        self.clock.now = now_ms
        if self.log is not None:
            self.log.taken_up(broker_id, report)


class _Leader(ClosedLoop):
    """The closed loop, whose cycles are recorded as the live leader records them."""

    def __init__(
        self, history: RecordedHistory, keys: Mapping[str, str], *, events: bool = True
    ) -> None:
        day = make_day(6, DaySize(brokers=5, bundles=60, minutes=MINUTES, events=events))
        super().__init__(day, of_keys(keys))
        view = _View()
        self._view = view
        self.log = view.log = CycleLog(history, "leader:1", 7, view.clock)
        self.log.begin(view)
        self._cycles = 0

    def decide(self, now_ms: int) -> Plan:
        """The leader's cycle, with its log."""
        snapshot: ClusterSnapshot = self._snapshot(now_ms)
        before, draws = self.memories, Draws(self._rng)
        plan, memories = cycle.shed(snapshot, self._settings, before)
        plan, self.memories = cycle.destinations(snapshot, plan, self._settings, memories, draws)
        self._cycles += 1
        self.log.cycle(
            self._cycles,
            self._view,
            snapshot,
            self._settings,
            before,
            plan=plan,
            draws=draws.values,
        )
        return plan


def keys_of(shedder: str) -> dict[str, str]:
    """The configuration with a shedder."""
    return {"loadBalancerLoadSheddingStrategy": shedder, **KEYS[shedder]}


def recorded(shedder: str) -> list[Record]:
    """The records of a leader of a day with a death, a newcomer and restarts."""
    history = RecordedHistory()
    leader = _Leader(history, keys_of(shedder))
    for minute in range(MINUTES):
        leader.minute(minute)
    return sorted(history.records, key=when)


@pytest.mark.parametrize("shedder", sorted(KEYS))
def test_every_move_comes_out_again(shedder: str) -> None:
    """With every strategy, from the JSON of the records alone."""
    records = recorded(shedder)
    assert {each.pause_s for each in records if isinstance(each, Cycle)} == {Costs().pause_s}
    result = exactness(records, of_keys)
    assert result.moves > 0
    assert (result.cycles, result.same) == (MINUTES, MINUTES), lines(result)
    assert result.reproduced == result.moves
    assert result.share == 1
    assert not result.passed_over


def test_a_history_that_begins_in_a_term() -> None:
    """Nothing is decided before everything was named again, within the hour; then nearly all is."""
    records = [
        record for record in recorded("BalancedShedder") if record.ts > 1_700_000_000_000 + 600_000
    ]
    result = exactness(records, of_keys)
    assert result.cycles >= MINUTES - 70
    assert result.share > 0.9
    assert sum(result.passed_over.values()) + result.cycles == MINUTES - 11


def test_what_differs_is_explained() -> None:
    """Of other settings than recorded, each live move that stays has a reason."""

    def calmer(keys: Mapping[str, str]) -> StrategySettings:
        return of_keys({**keys, "loadManagerBalancedDifferencePercent": "1e6"})

    result = exactness(recorded("BalancedShedder"), calmer)
    assert result.reproduced == 0 < result.moves
    reasons = {each.why.split(":")[1].strip() for each in result.differences}
    assert "NotWorthIt" in reasons
    assert reasons <= {"NotWorthIt", "SensorMistrusted"}
    assert all(each.live for each in result.differences)
    assert f"{result.moves} moves of the live leader, 0 (0.0%) again" in lines(result)


def test_a_move_that_is_made_here_only_has_its_figures() -> None:
    """Its gain and price tell why it is made, and by how little, say, it was not made live."""

    def eager(keys: Mapping[str, str]) -> StrategySettings:
        return of_keys({**keys, "loadManagerBalancedDifferencePercent": "1"})

    result = exactness(recorded("BalancedShedder"), eager)
    here = [each.why for each in result.differences if not each.live]
    assert here
    assert all(why.startswith("Gain: gain ") and "price " in why for why in here)


def test_what_cannot_be_decided_again_is_counted() -> None:
    """Another format, an unknown strategy, a report that was lost."""
    records = recorded("BalancedShedder")

    def without_first_reports() -> Iterator[Record]:
        lost = {"broker-0001:8080"}
        for record in records:
            if (
                isinstance(record, ReportRecord)
                and record.of in lost
                and record.bundles is not None
            ):
                continue
            yield record

    missing = exactness(without_first_reports(), of_keys)
    assert missing.lost_reports > 0
    assert "the report of broker-0001:8080 is missing" in missing.passed_over
    later = [msgspec.structs.replace(each, format=99) for each in records]  # type: ignore[type-var]
    assert exactness(later, of_keys).passed_over == {
        "format 99: a later version wrote it": sum(isinstance(each, Cycle) for each in records)
    }

    def unknown(keys: Mapping[str, str]) -> StrategySettings:
        return of_keys({**keys, "loadBalancerLoadSheddingStrategy": "Nobody"})

    result = exactness(records, unknown)
    assert result.cycles == 0
    assert sum(result.passed_over.values()) == MINUTES

    cycles = [record for record in records if isinstance(record, Cycle)]
    cycles[3].memories = {
        "shedder BalancedShedder": msgspec.Raw(b'{"model": {"brokers": {"\xff": []}}}')
    }
    damaged = exactness(records, of_keys)
    assert damaged.cycles == MINUTES - 1
    assert [why.partition(":")[0] for why in damaged.passed_over] == ["UnicodeDecodeError"]


@pytest.mark.parametrize("kind", [ReportRecord, Cycle])
def test_lost_records_are_told(kind: type[Record]) -> None:
    """A difference after lost records says so: no other reason stands alone."""
    records = recorded("BalancedShedder")
    first = min(record.ts for record in records if isinstance(record, Cycle))
    lost = range(first + 40 * MINUTE_MS, first + 45 * MINUTE_MS)
    kept = [each for each in records if not (isinstance(each, kind) and each.ts in lost)]
    result = exactness(kept, of_keys)
    after = 60 if kind is ReportRecord else 55
    assert result.after_loss == after
    assert result.differences or kind is Cycle
    assert all(each.why.startswith("records of its term are lost; ") for each in result.differences)
    assert f"{after} of these cycles come after records of their term" in "\n".join(lines(result))


def test_a_report_in_the_millisecond_of_a_cycle() -> None:
    """The leader counted what the cycle saw, so that a report right after it is not taken for one
    right before it.
    """
    records = recorded("BalancedShedder")
    cycles = sorted({each.ts for each in records if isinstance(each, Cycle)})
    before = dict(zip(cycles[1:], cycles, strict=False))
    for each in records:
        if isinstance(each, ReportRecord) and each.of == "broker-0003:8080" and not each.again:
            each.ts = before.get(each.ts, each.ts)
    result = exactness(sorted(records, key=when), of_keys)
    assert (result.same, result.after_loss) == (MINUTES, 0)


def test_a_clock_that_is_set_back() -> None:
    """The records of a kind are in the order in which they were made; their times are not."""
    history = RecordedHistory()
    leader = _Leader(history, keys_of("BalancedShedder"), events=False)
    for minute in (*range(50), *range(30, 60)):
        leader.minute(minute)
    streams = [
        [each for each in history.records if isinstance(each, kind)]
        for kind in CYCLE_KINDS.values()
    ]
    result = exactness(heapq.merge(*streams, key=when), of_keys)
    assert result.moves > 0
    assert (result.cycles, result.same, result.after_loss) == (80, 80, 0), lines(result)


def test_records_that_are_there_twice_count_once() -> None:
    """A segment was copied under another name."""
    records = recorded("BalancedShedder")
    assert exactness((each for each in records for _ in range(2)), of_keys) == exactness(
        records, of_keys
    )


def test_it_is_compact() -> None:
    """Bundles are named when they change: the other records are short."""
    records = recorded("BalancedShedder")
    sizes = dict.fromkeys(CYCLE_KINDS.values(), 0)
    for record in records:
        sizes[type(record)] += len(msgspec.json.encode(record))
    assert (
        sizes[ReportRecord] / MINUTES / 60 < 110
    )  # bytes for each bundle and cycle, not compressed
    assert sizes[Cycle] / MINUTES < 5_000  # each bundle that moved lately adds some 100
    assert sizes[Averages] < sizes[ReportRecord]


def test_memories_are_those_from_before() -> None:
    """A cycle's record has what the strategy remembered when the cycle began."""
    cycles = [record for record in recorded("BalancedShedder") if isinstance(record, Cycle)]

    assert (
        msgspec.json.decode(cycles[0].memories["shedder BalancedShedder"])["model"]["brokers"] == {}
    )
    assert cycles[0].planned == {}
    assert (
        len(msgspec.json.decode(cycles[1].memories["shedder BalancedShedder"])["model"]["brokers"])
        == 5
    )
