"""Network cards that cannot be right: one carries at least what clients send and receive.

Where the cards of most brokers show far less than that, clients do not come over them (but over
the loopback interface, or another card), and they are believed as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array, BrokerColumns
from loadmanager.engine.load.usage import Weights

IN = 2
"""The first of a card's two directions among the resources."""
BYTES_OF_KBIT = 125
SHOWS_PART, SHOWS_LESS = 0.65, 0.1
"""A card that shows less than this part of what its clients' messages take contradicts them, if it
is so much of its speed.
"""
TOO_MUCH = 1.2
"""A card whose clients send more than this part of its speed has another speed than it says."""
COUNTS_FROM, MOST_CONTRADICT = 0.02, 2 / 3
"""Of the cards whose clients' messages take at least so much of their speed, as many may contradict
these. If more do, two at least, clients do not come over the cards.
"""


class NetworkCards:
    """What the cards of all brokers show, and what they carry at least. Arrays are `[in and out,
    row]`, in parts of the cards' speeds.
    """

    def __init__(self, columns: BrokerColumns, weights: Weights, usages: Array) -> None:
        self.shown = usages[IN:]
        speeds = columns.limits[IN:] * BYTES_OF_KBIT
        weight = np.array([[weights.bandwidth_in], [weights.bandwidth_out]])
        carried = columns.ways * weight
        takes = np.divide(carried, speeds, out=np.zeros_like(carried), where=speeds > 0)
        takes[takes > TOO_MUCH] = 0.0
        below, counts = self.shown < SHOWS_PART * takes, takes >= COUNTS_FROM
        less = int((below & counts).any(axis=0).sum())
        if less >= 2 and less > MOST_CONTRADICT * int(counts.any(axis=0).sum()):
            takes = np.zeros_like(takes)
        self.at_least = takes
        """What clients' messages take; 0 where they do not come over the cards, or one does not say
        its true speed.
        """
        self.wrong: NDArray[np.bool_] = below & (takes - self.shown >= SHOWS_LESS)
        """Which cards contradict their clients."""

    @property
    def used(self) -> Array:
        """What the cards show, or what the messages take where that contradicts it."""
        used: Array = np.where(self.wrong, self.at_least, self.shown)
        return used

    def doubts(self) -> Iterator[tuple[int, str]]:
        """The row of each broker whose card is wrong, and what to tell of it."""
        for row in np.flatnonzero(self.wrong.any(axis=0)).tolist():
            way = int(self.wrong[:, row].argmax())
            shown, carried = self.shown[way, row], self.at_least[way, row]
            does = ("receives", "sends")[way]
            text = f"its network card shows that it {does} {shown:.0%} of the card's speed, but "
            yield row, text + f"messages of clients alone take {carried:.0%}, which counts"
