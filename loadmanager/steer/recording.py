"""Records what a daemon reads, decides and does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadmanager.engine.history.archived import ARCHIVED
from loadmanager.engine.history.records import broker_load, bundle_loads, decisions, move_record
from loadmanager.engine.load.usage import max_weighted_usage
from loadmanager.engine.moves.move import Move
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.clock import Clock
from loadmanager.kit.conf import Live
from loadmanager.kit.history.archive import Archive
from loadmanager.kit.history.history import FileHistory
from loadmanager.kit.history.port import History
from loadmanager.kit.history.settings import HistorySettings
from loadmanager.leader.decision_telemetry import Counts
from loadmanager.steer.ports.cluster_reader import BrokerReading
from loadmanager.steer.settings import FleetSettings

WRITER = "fleet"
"""Who writes the history of a daemon, in the names of its files."""


@dataclass(slots=True, kw_only=True)
class FleetRecorder:
    """The records of one cluster, and the counts for its metrics."""

    cluster: str
    """The cluster's name in the daemon's configuration."""
    epoch: int
    clock: Clock
    history: History | None
    settings: Live[FleetSettings]
    strategies: Live[StrategySettings]
    counts: Counts = field(default_factory=Counts)
    _read_ms: dict[str, int] = field(default_factory=dict)
    """Broker → when it was last recorded."""

    def planned(self, cycle: int, plan: Plan, ids: Sequence[str]) -> None:
        """As `LeaderRecords.planned`; `moved`: as its `moved`."""
        self.counts.on_plan(plan)
        now_ms = self.clock.now_ms()
        self.append(*decisions(now_ms, self.cluster, plan, epoch=self.epoch, cycle=cycle, ids=ids))

    def moved(self, cycle: int, move: Move, life: int | None, ids: Sequence[str]) -> None:
        self.counts.on_move(move)
        now_ms, head = self.clock.now_ms(), {"epoch": self.epoch, "cycle": cycle}
        self.append(move_record(now_ms, self.cluster, move, **head, life=life, ids=ids))

    def read(self, broker: str, reading: BrokerReading) -> None:
        """Record what a broker told of its load."""
        now_ms, report = self.clock.now_ms(), reading.report
        since_ms = self._read_ms.get(broker)
        interval_ms = round(self.settings.value.read_interval_s * 1000)
        if since_ms is not None:
            interval_ms = max(1, min(now_ms - since_ms, 2 * interval_ms))
        self._read_ms[broker] = now_ms
        self.append(
            broker_load(
                now_ms,
                broker,
                report,
                usage=max_weighted_usage(report, self.strategies.value.weights),
                interval_ms=interval_ms,
                faults=list(reading.faults),
            ),
            *bundle_loads(
                now_ms,
                broker,
                report.last_stats,
                interval_ms=interval_ms,
                stored=reading.stored,
            ),
        )

    def append(self, *records: Any) -> None:
        """Record these, if there is a history."""
        if self.history is not None:
            self.history.append(*records)


@asynccontextmanager
async def history_of(cluster: str, folder: Path, clock: Clock) -> AsyncIterator[FileHistory]:
    """The history of one cluster below a folder, with its archive; its records name Pulsar's
    brokers.
    """
    settings = HistorySettings(directory=str(folder / "history"))
    archive = Archive(settings, ARCHIVED, cluster=cluster, broker=WRITER, clock=clock)
    history = FileHistory(settings, cluster=cluster, broker=WRITER, clock=clock, archive=archive)
    await history.start()
    try:
        yield history
    finally:
        await history.close()
