"""How long bundles stay at a broker because they were moved."""

from __future__ import annotations

import math

from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage import Weights, max_weighted_usage

FULL = 0.95
"""A broker whose sensors show this usage is full."""
CORRECTED_MS = 300_000
"""What a move has come to is known after this time: sensors are late, and the model has learned."""


def stays_since_ms(snapshot: ClusterSnapshot, broker: str, weights: Weights) -> float:
    """The bundles stay at a broker that were moved after this time (ms since the epoch).

    Those are all that were moved within the grace period. But what a bundle costs may become known
    only when it has moved. So a full broker may give bundles away five minutes after they came:
    otherwise a single wrong guess overloads it for the whole grace period.
    """
    report = snapshot.reports.get(broker)
    if report is None or max_weighted_usage(report, weights) < FULL:
        return -math.inf
    return snapshot.now_ms - CORRECTED_MS
