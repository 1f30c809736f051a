"""What `BalancedShedder` makes least: the objective, derived on its page in docs/."""

from __future__ import annotations

import numpy as np

from loadmanager.engine.load.columns import Array

KNEE = 0.7
"""Above this usage a broker counts as on its way to overload."""
MEAN_OF_KNEE = 0.65
"""If the mean of all is above this, the knee rises twice as fast: where all brokers are near
overload, none can help another, and the same few points of difference are not worth five times as
much as before.
"""
KNEE_WEIGHT = 4.0
OVERLOAD, OVERLOAD_ABOVE, FULL = 0.85, 0.1, 1.0
"""No move brings a broker above this usage, or so far above the mean of all if that is more; but
never above all that it has: where the others are full, too, they could do no more of the work.
"""
UNDONE_WEIGHT = 10.0
"""What a broker has above FULL is work that it cannot do."""


def knee_of(usage: Array, size: Array) -> float:
    """The usage above which a broker counts more, in a cluster of these brokers."""
    mean = float((usage * size).sum() / size.sum())
    return KNEE + 2 * max(mean - MEAN_OF_KNEE, 0)


def objective(usage: Array, knee: float = KNEE) -> Array:
    """The part of the objective that a broker of size 1 with this usage (a fraction) adds."""
    worth: Array = usage * usage
    if usage.size and usage.flat[usage.argmax()] > knee:
        worth += KNEE_WEIGHT * np.maximum(usage - knee, 0) ** 2
        worth += UNDONE_WEIGHT * np.maximum(usage - FULL, 0)
    return worth
