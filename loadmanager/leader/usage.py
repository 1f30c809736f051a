"""What brokers use by the model, whatever strategy is in force: for operators, goals and metrics.

`BalancedShedder` learns the model in its own memory; while another strategy is in force, this does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from loadmanager.engine.load import usage_model
from loadmanager.engine.load.headroom import Headroom
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_model import NOTHING_LEARNED, Learned
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Skip
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import balanced
from loadmanager.kit.reason import Reason


@dataclass(slots=True)
class ModelledUsage:
    """What the model says of the brokers since the last cycle."""

    learned: Learned = NOTHING_LEARNED
    usages: dict[str, tuple[float, float]] = field(default_factory=dict)
    """brokerId → the usage of its most used resource, and the mean error of that; fractions."""
    headroom: tuple[str, Headroom] | None = None
    """The resource that ends first as traffic grows, and how much more of it all brokers carry."""
    doubts: dict[str, Reason] = field(default_factory=dict)
    """brokerId → why its sensor does not count."""

    def look(
        self, snapshot: ClusterSnapshot, settings: StrategySettings, memories: Memories
    ) -> tuple[Skip, ...]:
        """Take up the reports of a cycle, in the extensible manager what was published as such;
        returns the sensors that are doubted since this one, and that no strategy tells.
        """
        if not snapshot.reports:
            return ()
        remembered: Learned = memories.of(balanced.SHEDDER).model
        by_shedder = bool(remembered.brokers)
        model = usage_model.fit(
            snapshot.columns,
            snapshot.averages,
            settings.weights,
            remembered if by_shedder else self.learned,
            learning=not by_shedder,
        )
        carried = model.usage(snapshot.columns.throughputs).tolist()
        errors = model.error.tolist()
        names = snapshot.columns.names
        self.usages = {
            name: (usage, error) for name, usage, error in zip(names, carried, errors, strict=True)
        }
        self.learned = model.learned
        cordons = snapshot.wishes.cordons
        closed = np.array([name in cordons for name in names], np.bool_)
        self.headroom = model.headroom(settings.overloaded_percent / 100, closed)
        before = self.doubts
        self.doubts = {doubt.broker: Reason(doubt.code, doubt.text) for doubt in model.doubts}
        if by_shedder:
            return ()
        return tuple(
            Skip(name, why.code, why.text)
            for name, why in self.doubts.items()
            if name not in before or before[name].code != why.code
        )
