"""What brokers use by the model, whatever strategy is in force: for operators, goals and metrics.

`BalancedShedder` learns the model in its own memory; where it does not act, as while balancing is
off, this does, and gives it back what it learned meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from loadmanager.engine.load.headroom import Headroom
from loadmanager.engine.load.learned import NOTHING_LEARNED, Learned
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_fit import fit, just_moved
from loadmanager.engine.load.usage_model import UsageModel
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Skip
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import balanced
from loadmanager.engine.strategies.shedding.balanced import BalancedMemory
from loadmanager.kit.reason import Reason

HEADROOM_MS = 300_000
"""Headroom is the median of what the cycles of so long said: one moment's samples make it jump."""


@dataclass(slots=True)
class SteadyHeadroom:
    """The headroom of the last minutes."""

    resource: str
    """The resource that ends first as traffic grows."""
    room: Headroom
    looks: int
    """The number of cycles that it is the median of."""
    since_ms: int
    """When the first of them was."""
    last_ms: int
    """And the last one."""
    closed: int = 0
    """How many brokers had a cordon in them, and so no room."""


@dataclass(slots=True)
class HeadroomLately:
    """What the last cycles said of headroom with the same brokers and the same limit."""

    _of: object = None
    _looks: list[tuple[int, str, Headroom]] = field(default_factory=list)

    def steady(
        self, now_ms: int, of: object, present: tuple[str, Headroom] | None
    ) -> SteadyHeadroom | None:
        """Take up what a cycle says; `of`: what else it depends on. None: it says nothing."""
        if present is None or of != self._of:
            self._of, self._looks = of, []
        if present is None:
            return None
        resource, room = present
        self._looks = [each for each in self._looks if now_ms - each[0] < HEADROOM_MS]
        self._looks.append((now_ms, resource, room))
        same = [each for each in self._looks if each[1] == resource]
        rooms = [each[2] for each in same]
        middle = Headroom(
            median(each.times for each in rooms),
            median(each.times_without_one for each in rooms),
            median(each.carried_usage for each in rooms),
            median(each.least for each in rooms),
            median(each.least_without_one for each in rooms),
        )
        return SteadyHeadroom(resource, middle, len(same), same[0][0], same[-1][0])


@dataclass(slots=True)
class ModelledUsage:
    """What the model says of the brokers since the last cycle."""

    learned: Learned = NOTHING_LEARNED
    """What the model was made of; goals that look between two cycles learn here, too, if `own`."""
    own: bool = True
    """Whether `BalancedShedder` did not learn in the last cycle."""
    usages: dict[str, tuple[float, float]] = field(default_factory=dict)
    """brokerId → the usage of its most used resource, and the mean error of that; fractions."""
    headroom: SteadyHeadroom | None = None
    """How much more of what ends first all brokers carry; None: nothing says it."""
    _lately: HeadroomLately = field(default_factory=HeadroomLately)
    doubts: dict[str, Reason] = field(default_factory=dict)
    """brokerId → why its sensor does not count."""
    doubted_since: dict[str, int] = field(default_factory=dict)
    """brokerId → the cycle that began to doubt its sensor, in milliseconds since the epoch."""

    def counted(self, broker: str, shown: float) -> float:
        """What a broker uses, as decisions count it: what its sensors show, or by the model, where
        these do not count.
        """
        modelled = self.usages.get(broker)
        return shown if modelled is None or broker not in self.doubts else modelled[0]

    def resumed(self, memories: Memories, settings: StrategySettings) -> Memories:
        """The memories with which a cycle begins: `BalancedShedder` goes on with what was learned
        while it did not learn.
        """
        return self.remembered(memories) if settings.shedder == balanced.SHEDDER.name else memories

    def remembered(self, memories: Memories) -> Memories:
        """The memories with the model, for the next leader, whatever strategy is in force there."""
        if not self.own or not self.learned.brokers:
            return memories
        memory: BalancedMemory = memories.of(balanced.SHEDDER)
        return memories.remember(balanced.SHEDDER, replace(memory, model=self.learned))

    def base(self, memories: Memories) -> Learned:
        """What is learned so far, here or by an earlier leader's `BalancedShedder`."""
        remembered: Learned = memories.of(balanced.SHEDDER).model
        return self.learned if self.learned.brokers else remembered

    def look(
        self,
        snapshot: ClusterSnapshot,
        settings: StrategySettings,
        memories: Memories,
        *,
        by_shedder: bool,
    ) -> tuple[Skip, ...]:
        """Take up the reports of a cycle, in the extensible manager what was published as such;
        returns the sensors that are doubted since this one, and that no strategy tells.
        `by_shedder`: `BalancedShedder` has learned from them, and tells.
        """
        if not snapshot.reports:
            return ()
        self.own = not by_shedder
        if by_shedder:
            self.learned = memories.of(balanced.SHEDDER).model
        model = self._fitted(snapshot, settings, self.base(memories), learning=self.own)
        carried = model.used.tolist()
        errors = model.error.tolist()
        names = snapshot.columns.names
        self.usages = {
            name: (usage, error) for name, usage, error in zip(names, carried, errors, strict=True)
        }
        self.learned = model.learned
        cordons = snapshot.wishes.cordons
        closed = np.array([name in cordons for name in names], np.bool_)
        limit = settings.overloaded_percent
        of = tuple(names), closed.tobytes(), limit
        present = model.headroom(limit / 100, closed)
        headroom = self._lately.steady(snapshot.now_ms, of, present)
        self.headroom = headroom and replace(headroom, closed=int(closed.sum()))
        before = self.doubts
        self.doubts = {doubt.broker: Reason(doubt.code, doubt.text) for doubt in model.doubts}
        self.doubted_since = {
            name: self.doubted_since.get(name, snapshot.now_ms) for name in self.doubts
        }
        if by_shedder:
            return ()
        return tuple(
            Skip(name, why.code, why.text)
            for name, why in self.doubts.items()
            if name not in before or before[name].code != why.code
        )

    def with_more(
        self,
        snapshot: ClusterSnapshot,
        settings: StrategySettings,
        more: Mapping[str, Sequence[tuple[str, float]]],
    ) -> dict[str, tuple[float, float, float]]:
        """brokerId → its usage now, that with these bundles and their bytes/s in addition, and the
        mean error of these; empty: nothing says it, or no cycle has looked yet. Nothing is learned.
        """
        if not snapshot.reports or not self.usages:
            return {}
        model = self._fitted(snapshot, settings, self.learned, learning=False)
        if not model.trusted.any():
            return {}
        names = snapshot.columns.names
        by_row = {row: more[name] for row, name in enumerate(names) if name in more}
        figures = (model.usage_with({}), model.usage_with(by_row), model.error)
        columns = (each.tolist() for each in figures)
        return {
            name: (now, then, error) for name, now, then, error in zip(names, *columns, strict=True)
        }

    @staticmethod
    def _fitted(
        snapshot: ClusterSnapshot, settings: StrategySettings, learned: Learned, *, learning: bool
    ) -> UsageModel:
        columns, averages = snapshot.columns, snapshot.averages
        moved = just_moved(snapshot.recently_unloaded_ms, snapshot.now_ms) if learning else ()
        return fit(columns, averages, settings.weights, learned, learning=learning, moved=moved)
