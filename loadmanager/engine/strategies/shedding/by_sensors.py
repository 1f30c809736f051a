"""What brokers' own sensors show, beside the model: what a full broker takes and gives.

The model may be wrong about what bundles cost. A sensor that is believed bounds the harm: a broker
whose sensor shows that it is full takes nothing, whatever the model says of it; and one that is
full while the model explains far less gives bundles away that are dearer than they seem.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.usage_model import CPU, UsageModel

SHOWN_FULL = 0.98
"""A broker whose sensor shows more than this is full."""
SHOWN_MORE = 0.05
"""A sensor that shows more than another one by this does so whatever their noise."""
UNEXPLAINED = 0.1
"""A full broker that uses more than others by this part of its CPU, beside what its traffic costs,
has bundles that may be dearer than they seem.
"""
GIVES_MAX = 0.15
"""So much usage leaves such a broker in one cycle, if they are."""

Brokers = Rows | list[int]


class BySensors:
    """`[broker]`; `most`: what moves may bring each broker to. `downhill`: whether a bundle goes to
    no broker whose sensor shows more than that of its own one, and more than the mean: beside one
    that shows too little, all others show more.
    """

    def __init__(self, model: UsageModel, most: Array, *, downhill: bool) -> None:
        self._downhill = downhill
        self._beside = model.base[CPU] - np.median(model.base[CPU])
        """What brokers use more than others beside traffic."""
        self.shown = np.where(model.trusted, model.measured, 0.0)
        """What sensors show; 0 for one that is not believed."""
        self.full = self.shown > np.minimum(most, SHOWN_FULL)
        """Whether a broker's sensor shows more than moves may bring it to."""
        counts = self.shown > 0
        mean = self.shown.sum() / max(int(counts.sum()), 1)
        high = self.shown - SHOWN_MORE
        self._high = np.where(high > mean, high, 0.0)
        self._low = np.where(counts, self.shown, np.inf)
        self._gives = np.full(len(self.shown), np.inf)

    def doubt(self, rows: list[int]) -> None:
        """The sensors of these brokers show too little: what leaves them goes where others show
        more.
        """
        self._low[rows] = np.inf

    def refused(self, sources: Brokers, takers: Brokers) -> NDArray[np.bool_]:
        """Whether bundles may not go: `[bundle]`."""
        refused: NDArray[np.bool_] = self.full[takers] | (self._gives[sources] <= 0)
        if self._downhill:
            refused |= self._high[takers] > self._low[sources]
        return refused

    @property
    def unexplained(self) -> NDArray[np.bool_]:
        """Whether a broker uses far more than others beside what its traffic costs."""
        unexplained: NDArray[np.bool_] = (self._beside > UNEXPLAINED) & (self.shown > 0)
        return unexplained

    def take_for_dearer(self, which: NDArray[np.bool_], usage: Array) -> tuple[Array, Array]:
        """The bundles of some brokers are dearer than they seem: returns what these use more than
        `usage`, or less, and what their bundles do.
        """
        self._gives[which] = GIVES_MAX
        more = np.where(which, self.shown - usage, 0.0)
        return more, np.where(which, np.maximum(more + self._beside, 0.0), 0.0)

    def gave(self, row: int, usage: float) -> None:
        """Bundles left a broker."""
        self._gives[row] -= usage

    @property
    def given(self) -> dict[int, float]:
        """Brokers that bundles left which were taken for dearer than they seem → the usage that
        left with them.
        """
        gave = np.isfinite(self._gives) & (self._gives < GIVES_MAX)
        return {row: GIVES_MAX - float(self._gives[row]) for row in np.flatnonzero(gave).tolist()}
