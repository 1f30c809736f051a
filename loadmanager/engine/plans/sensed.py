"""What brokers' own sensors show beside the usages that a plan goes by.

The traffic of bundles is averaged, so that a plan's usages follow a change within minutes; a sensor
that is right shows it at once. Where to move what is decided by the model alone; but nobody is told
that usages are exact, or that a goal is reached, while trusted sensors show something else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.usage_model import UsageModel
from loadmanager.engine.strategies.shedding.modelled import ModelledBrokers

NOTHING = 1e-9


class SensedUsage:
    """How far sensors that are trusted are from the model now, brokers as in `cluster`."""

    def __init__(self, model: UsageModel, cluster: ModelledBrokers) -> None:
        self._cluster, self._error = cluster, model.error
        off = model.measured - cluster.reported_usage
        self._off = np.where(model.trusted, off, 0.0)

    @property
    def error(self) -> float:
        """The mean error of the plan's usages: the model's usual one, or as far as a broker's
        sensor is from its usage now if that is more.
        """
        if not len(self._off):
            return 0.0
        return float(np.maximum(self._error, np.abs(self._off)).mean())

    @property
    def usage(self) -> Array:
        """The usage of each broker with the moves so far, as far as its sensor contradicts it by
        more than the model's usual error: `[broker]`.
        """
        contradicts: NDArray[np.bool_] = np.abs(self._off) > self._error
        usage: Array = self._cluster.usage + np.where(contradicts, self._off, 0.0)
        return np.maximum(usage, 0.0)

    @property
    def most(self) -> Array:
        """The higher one of that and the model's: `[broker]`."""
        most: Array = np.maximum(self._cluster.usage, self.usage)
        return most

    @property
    def farthest(self) -> float:
        """As `ModelledBrokers.farthest`, by this usage."""
        cluster = self._cluster
        return cluster.reach.farthest(self.usage, cluster.size, cluster.compared)

    def of_mean(self, row: int) -> float:
        """The usage of a broker as a part of the mean of all that can help it."""
        usage, size = self.usage, self._cluster.size
        group = next(rows for rows in self._cluster.reach.together if row in rows)
        mean = float((usage[group] * size[group]).sum() / size[group].sum())
        return float(usage[row]) / max(mean, NOTHING)
