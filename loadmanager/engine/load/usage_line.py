"""The line of usage over traffic: what is used without any, and what traffic adds."""

from __future__ import annotations

import numpy as np

from loadmanager.engine.load.columns import Array

VARIES = 0.05
"""Traffic that varies by less, as a part of its mean, says nothing about what it costs."""


def usage_line(traffic: Array, usage: Array) -> tuple[float, float] | None:
    """Usage for each unit of traffic, and beside it; None if these points do not tell."""
    if not traffic.std() > VARIES * traffic.mean() > 0:
        return None
    slope, beside = (float(value) for value in np.polyfit(traffic, usage, 1))
    return (slope, beside) if slope > 0 and beside >= 0 else None
