"""Samples the hottest bundles while this broker leads, for the page of operators."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.heat import Heat, HeatShown
from loadmanager.kit.clock import Clock
from loadmanager.leader.owner_tracker import OwnerTracker

INTERVAL_MIN_S = 2.0
WATCHED_S = 60.0
"""For this long after somebody looked, data that cost reads of the store are read."""


@dataclass(slots=True, kw_only=True)
class TermHeatMap:
    """The heat of one term's bundles; implements `leader.ports.operating.HeatMap`."""

    view: ClusterView
    owners: OwnerTracker
    refresh: Callable[[], Awaitable[None]]
    """Reads the reports that do not come by themselves."""
    report_interval_ms: Callable[[], float]
    """How far apart reports are at least."""
    clock: Clock
    _heat: Heat = field(default_factory=Heat)
    _looked_s: float = -math.inf

    def interval_s(self) -> float:
        """Samples are as far apart as reports may come, and at least two seconds."""
        return max(self.report_interval_ms() / 1000, INTERVAL_MIN_S)

    async def step(self) -> None:
        """Take a sample."""
        if self.clock.monotonic_s() - self._looked_s < WATCHED_S:
            await self.refresh()
        self._heat.sample(self.view.traffic(), self.clock.now_ms(), self.owners.measured)

    def shown(self, limit: int) -> HeatShown:
        """See `engine.load.heat.Heat.shown`."""
        self._looked_s = self.clock.monotonic_s()
        owned = self.owners.by_bundle
        there = owned.keys() | self.owners.on_the_way()
        return self._heat.shown(limit, there.__contains__, self.interval_s(), total=len(owned))
