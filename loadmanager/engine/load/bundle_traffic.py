"""The traffic of many bundles in columns, with the class of namespaces that each belongs to."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load.columns import Array, Rows

COST_CLASSES = 512


def cost_class_of(bundle: str) -> int:
    """The number of the class that a bundle's namespace belongs to: what traffic costs is learned
    for classes of namespaces, so that it is bounded. Few namespaces share one.
    """
    return zlib.crc32(bundle.rpartition("/")[0].encode()) % COST_CLASSES


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of the bundles of some brokers, those of the first one first."""

    bytes_s: Array
    cost_classes: Rows
    counts: Rows
    """How many bundles each broker has."""
    rows: Rows | None = None
    """Where each bundle is in the averages."""

    def totals(self, amounts: Array) -> Array:
        """The sums of some amount of each bundle, for each broker: the same for equal brokers."""
        totals, some = np.zeros(len(self.counts)), self.counts > 0
        if some.any():
            begins = np.cumsum(self.counts) - self.counts
            totals[some] = np.add.reduceat(amounts, begins[some])
        return totals
