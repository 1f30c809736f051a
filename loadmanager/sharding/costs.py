"""What it costs to move each shard now, as the service of its owner says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from loadmanager.engine.load.wishes import Pin
from loadmanager.kit.clock import Clock
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Store
from loadmanager.sharding.said import Said

EVERY_S = 5.0
STAYS_S = 60.0
NOT_NOW = math.inf


class MoveCosts:
    """`said.on_change` must be called by a watch on `paths.SERVICE`, `said.tell` each `EVERY_S`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        me: str,
        own: Callable[[], dict[str, float | str]],
    ) -> None:
        """`own`: bundle → its cost, of those that this member owns; a text: why it is not to be
        moved now.
        """
        self._clock = clock
        self.said: Said[dict[str, float | str]] = Said(
            store,
            paths.SERVICE_COSTS,
            me,
            lambda: {bundle: cost for bundle, cost in own().items() if cost != 0},
            dict[str, float | str],
        )
        self._merged_at = -1
        self._costs: dict[str, float] = {}
        self._stays: dict[str, tuple[str, str]] = {}
        """Bundle → its member, and why it stays there."""

    def _merge(self) -> None:
        """Once for each change: this is asked for with each placement."""
        if self._merged_at != self.said.changes:
            self._merged_at = self.said.changes
            self._costs, self._stays = {}, {}
            for member, costs in self.said.of.items():
                for bundle, cost in costs.items():
                    if isinstance(cost, str):
                        self._stays[bundle] = member, cost
                    else:
                        self._costs[bundle] = cost

    def of(self, bundle: str) -> float:
        """What it costs to move a bundle now, in seconds; `NOT_NOW`: it is not to be moved."""
        self._merge()
        return NOT_NOW if bundle in self._stays else self._costs.get(bundle, 0.0)

    def all(self) -> Mapping[str, float]:
        """Bundle → cost, of those that may be moved at a cost."""
        self._merge()
        return self._costs

    def stays(self) -> dict[str, Pin]:
        """The bundles that are not to be moved now, as pins."""
        self._merge()
        until_ms = self._clock.now_ms() + round(STAYS_S * 1000)
        return {
            bundle: Pin(member, until_ms, f"the service says: not now{why and f': {why}'}")
            for bundle, (member, why) in self._stays.items()
        }
