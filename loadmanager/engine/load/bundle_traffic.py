"""The traffic of many bundles in columns, with the class of namespaces that each belongs to."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.reports import NUMBER_MAX

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


@dataclass(frozen=True, slots=True)
class BundleRows:
    """All bundles in the order of the averages: `[row]`. Rows without a bundle have no traffic."""

    row_of: Mapping[str, int]
    bytes_s: Array
    messages_s: Array
    """Over the short term: what a bundle's messages are changes slowly."""

    @property
    def mean_message(self) -> float:
        """The bytes of the mean message; 0 without messages."""
        messages = float(self.messages_s.sum())
        return min(float(self.bytes_s.sum()) / messages, NUMBER_MAX) if messages > 0 else 0.0

    def messages_more(self, rows: Rows | slice, usual_bytes: float, most: float) -> Array:
        """How many messages more the bytes of each of these bundles are than those of usual
        messages, as a part of these: 1 for messages of half the size, no more than `most`; 0 where
        unknown.
        """
        bytes_s, messages_s = self.bytes_s[rows], self.messages_s[rows]
        times, some = np.ones(len(bytes_s)), messages_s * bytes_s > 0
        np.divide(usual_bytes * messages_s, bytes_s, out=times, where=some)
        times -= 1
        return np.minimum(times, most, out=times)

    def figures(self, of_bundles: Mapping[str, float], otherwise: float) -> Array:
        """A figure of some bundles, and another one for the others."""
        by_row = np.full(len(self.bytes_s), otherwise)
        for bundle, figure in of_bundles.items():
            if (row := self.row_of.get(bundle)) is not None:
                by_row[row] = figure
        return by_row
