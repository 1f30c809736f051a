"""Looks once a minute for what is wrong in a Pulsar cluster, as a leader of our own brokers does.

What a daemon cannot see from beside is not looked for: clocks (reports are read when the daemon
wants them, and not when they are written), limits that hold clients, backlogs, which Pulsar's load
reports do not have, and brokers that stand still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from loadmanager.engine.findings.finding import FindingShown
from loadmanager.engine.findings.leaders import LeaderChange
from loadmanager.engine.findings.lost import LostBroker, lost
from loadmanager.engine.findings.recorded import FindingRecords
from loadmanager.engine.findings.watch import Look, Watch
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.kit.units import DAY_MS
from loadmanager.leader.documents.findings import FindingsShown
from loadmanager.leader.findings import stays_of, usages_of
from loadmanager.leader.load_manager import LoadManager
from loadmanager.steer.picture import Picture
from loadmanager.steer.recording import FleetRecorder

LOOK_S = 60.0
NO_ANSWER = "did not answer any more"
CHANGES_MAX = 50


@dataclass(slots=True)
class _Report:
    """A broker's last report, and when it was first read so: it may be read again and again."""

    content: LocalBrokerData
    since_ms: int


@dataclass(slots=True, kw_only=True)
class FleetFindings:
    """Implements `leader.ports.operating.Findings` for one cluster."""

    picture: Picture
    load_manager: LoadManager
    recorder: FleetRecorder
    watch: Watch = field(default_factory=Watch, init=False)
    _findings: list[FindingShown] = field(default_factory=list)
    _looked_ms: int | None = None
    _leader: str | None = None
    _changes: deque[LeaderChange] = field(default_factory=lambda: deque(maxlen=CHANGES_MAX))
    _reports: dict[str, _Report] = field(default_factory=dict)
    _records: FindingRecords = field(init=False)

    def __post_init__(self) -> None:
        """Begin the records of this term."""
        self._records = FindingRecords(self.recorder.cluster, self.recorder.epoch)

    async def step(self) -> None:
        """Look."""
        now_ms = self.load_manager.term.clock.now_ms()
        self._look_at_the_leader(now_ms)
        view = self.load_manager.cluster.view
        self._findings = self.watch.step(
            Look(
                now_ms=now_ms,
                strategies=self.load_manager.strategies.value,
                splits=self.load_manager.splits.value,
                loads=self._loads(now_ms),
                published=view.traffic(),
                doubts=self.load_manager.usage.doubts,
                doubted_since=self.load_manager.usage.doubted_since,
                leaders=tuple(self._changes),
                lost=self._lost(now_ms),
                usages=usages_of(self.load_manager),
                stays=stays_of(self.load_manager),
            )
        )
        self._looked_ms = now_ms
        self.recorder.append(*self._records.step(self._findings, now_ms))

    def _look_at_the_leader(self, now_ms: int) -> None:
        """A change between two looks counts once. A leader that stopped in order is counted, too,
        unless its broker is gone from the list: that may have been a restart.
        """
        leader = self.picture.leader
        if leader is None:
            return
        before, self._leader = self._leader, leader
        if before not in (None, leader):
            gone = before not in self.picture.registered
            self._changes.append(LeaderChange(now_ms, str(before), orderly=gone))

    def _loads(self, now_ms: int) -> Mapping[str, LocalBrokerData]:
        """The reports of brokers that answer, each from when it was first read so."""
        reports = self._reports
        self._reports = {}
        for broker in sorted(self.picture.answering):
            report = self.picture.reports.get(broker)
            if report is None:
                continue
            content, last = msgspec.structs.replace(report, last_update=0), reports.get(broker)
            same = last is not None and last.content == content
            self._reports[broker] = last if last is not None and same else _Report(content, now_ms)
        return {
            broker: msgspec.structs.replace(each.content, last_update=each.since_ms)
            for broker, each in self._reports.items()
        }

    def _lost(self, now_ms: int) -> list[LostBroker]:
        """Those of the last day that are not back."""
        served = {name for report in self.picture.reports.values() for name in report.bundles}
        return [
            LostBroker(
                broker=name,
                since_ms=it.since_ms,
                sign=NO_ANSWER,
                bundles=len(it.bundles),
                unserved=len(it.bundles - served),
            )
            for name, it in sorted(self.picture.lost.items())
            if now_ms - it.since_ms < DAY_MS
        ]

    def shown(self) -> FindingsShown:
        """What was wrong at the last look, and who is lost now: that is not looked for."""
        now_ms = self.load_manager.term.clock.now_ms()
        gone = lost(self._lost(now_ms)) if self.picture.lost else []
        others = (it for it in self._findings if it.kind != "lost")
        return FindingsShown(at=now_ms, looked_at=self._looked_ms, findings=[*gone, *others])
