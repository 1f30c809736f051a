"""Records what each cycle of a term saw, used and decided, so that it can be decided again
(`engine.history.cycles`).

Of the modular manager only: in the extensible one, what a leader reads is not kept by report.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadmanager.engine.history.cycles import (
    Cycle,
    ReportWriter,
    averages_record,
    moves_of,
    settings_document,
)
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.cycle import Rng
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.strategy import Shedder
from loadmanager.kit.clock import Clock
from loadmanager.kit.history.layout import day_of
from loadmanager.kit.history.port import History
from loadmanager.kit.model import encoded

AFRESH_MS = 3_600_000
"""A reader may begin in the middle of a term: everything is named again so often."""
BUNDLES_AT_ONCE = 1_000
"""Averages in a record."""
AVERAGES_MAX = 20_000
"""Averages of more bundles are not recorded: making the records would hold up the event loop."""


class Draws:
    """A generator of random numbers that keeps what it gave."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self.values: list[int] = []

    def randrange(self, stop: int, /) -> int:
        self.values.append(self._rng.randrange(stop))
        return self.values[-1]


class CycleLog:
    """The records of one term."""

    def __init__(self, history: History, broker: str, epoch: int, clock: Clock) -> None:
        self._history = history
        self._broker = broker
        self._epoch = epoch
        self._clock = clock
        self._reports = ReportWriter(broker, epoch)
        self._count = 0
        """`seen` records."""
        self._before: dict[str, Any] = {}
        """The values that are recorded only when they change, as they were recorded last."""
        self._afresh_ms: int | None = None
        self._day = ""

    def begin(self, view: ClusterView) -> None:
        """The term begins with these averages."""
        self._afresh(view, self._clock.now_ms(), again=False)

    def _afresh(self, view: ClusterView, now_ms: int, *, again: bool) -> None:
        self._afresh_ms, self._day = now_ms, day_of(now_ms)
        self._before.clear()
        self._reports.afresh()
        names = sorted(view.bundle_data) if len(view.bundle_data) <= AVERAGES_MAX else []
        for start in range(0, max(len(names), 1), BUNDLES_AT_ONCE):
            part = {name: view.bundle_data[name] for name in names[start : start + BUNDLES_AT_ONCE]}
            self._history.append(
                averages_record(now_ms, self._broker, self._epoch, part, again=again)
            )
        for broker in sorted(view.reports):
            self._record_report(now_ms, broker, view.reports[broker], again=True)

    def taken_up(self, broker_id: str, report: LocalBrokerData) -> None:
        """The leader took up a report."""
        self._record_report(self._clock.now_ms(), broker_id, report, again=False)

    def _record_report(
        self, now_ms: int, broker: str, report: LocalBrokerData, *, again: bool
    ) -> None:
        self._count += 1
        self._history.append(self._reports.record(now_ms, broker, report, again=again))

    def cycle(
        self,
        number: int,
        view: ClusterView,
        snapshot: ClusterSnapshot,
        settings: StrategySettings,
        memories: Memories,
        *,
        plan: Plan,
        draws: list[int],
    ) -> None:
        """A cycle decided; `memories` are those from before."""
        if snapshot.extensible:
            return
        if self._expired(snapshot.now_ms):
            self._afresh(view, snapshot.now_ms, again=True)
        changed: dict[str, Any] = {
            "brokers": list(snapshot.columns.names),
            "settings": settings_document(settings),
            "isolation": dict(snapshot.isolation_policies),
            "groups": dict(snapshot.anti_affinity_groups),
            "failure_domains": {
                name: list(brokers) for name, brokers in snapshot.failure_domains.items()
            },
        }
        news = {
            name: value
            for name, value in changed.items()
            if name not in self._before or self._before[name] != value
        }
        self._before.update(news)
        self._history.append(
            Cycle(
                ts=snapshot.now_ms,
                broker=self._broker,
                epoch=self._epoch,
                cycle=number,
                strategy=plan.strategy,
                reports=self._count,
                pins=dict(snapshot.wishes.pins),
                cordons=dict(snapshot.wishes.cordons),
                refusals=dict(snapshot.wishes.refusals),
                leaving=dict(snapshot.leaving),
                pending=dict(snapshot.under_way.bundles),
                moved=dict(snapshot.recently_unloaded_ms),
                moved_brokers=dict(snapshot.recently_unloaded_brokers_ms),
                pause_s=snapshot.pause_s,
                memories=_memories(settings, memories),
                planned=dict(memories.planned),
                draws=draws,
                moves=moves_of(plan),
                **news,
            )
        )

    def _expired(self, now_ms: int) -> bool:
        began_ms = self._afresh_ms
        return (
            began_ms is None
            or not 0 <= now_ms - began_ms < AFRESH_MS
            or day_of(now_ms) != self._day
        )


def _memories(settings: StrategySettings, memories: Memories) -> dict[str, msgspec.Raw]:
    """The configured strategies' memories in stored form, without those that cannot be stored."""
    stored = {}
    for strategy in (registry.shedder(settings.shedder), registry.placement(settings.placement)):
        if strategy.stored is not None:
            kind = "shedder" if isinstance(strategy, Shedder) else "placement"
            raw = encoded(memories.of(strategy))
            stored[f"{kind} {strategy.name}"] = msgspec.Raw(raw)
    return stored
