"""A histogram for the metrics page of how long bundles had no owner when they moved."""

from __future__ import annotations

import math
from collections.abc import Iterator

from loadmanager.kit.telemetry import Exemplar, Metric, Sample

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PAUSE = (
    "loadmanager_move_pause_seconds",
    "How long bundles that left this broker by a move were without an owner",
)
BUCKETS = Metric(*_PAUSE, ("le",), "histogram")
TOTALS = Metric(*_PAUSE, (), "histogram")


class Pauses:
    """Counts pauses."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0
        self._exemplars: dict[int, Exemplar] = {}
        """Bucket → the last pause in it that was traced."""

    def add(self, pause_ms: float, traceparent: str = "") -> None:
        """A bundle was without an owner for so long, in a move with this trace, or none."""
        pause_s = pause_ms / 1000
        at = next((at for at, bound in enumerate(BOUNDS_S) if pause_s <= bound), len(BOUNDS_S))
        self._counts[at] += 1
        self._sum_s += pause_s
        if traceparent:
            self._exemplars[at] = Exemplar(traceparent.split("-")[1], pause_s)

    def samples(self) -> Iterator[Sample]:
        total = 0
        for at, bound in enumerate((*BOUNDS_S, math.inf)):
            total += self._counts[at]
            name = "+Inf" if bound == math.inf else repr(bound)
            yield BUCKETS.sample(total, name, suffix="_bucket", exemplar=self._exemplars.get(at))
        yield TOTALS.sample(self._sum_s, suffix="_sum")
        yield TOTALS.sample(total, suffix="_count")
