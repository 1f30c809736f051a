"""How much was sent to the collector, and how much was lost on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from loadmanager.kit.telemetry import Sample, counter

SENT = counter(
    "loadmanager_otlp_sent",
    "Spans, and pages of metrics, that the OpenTelemetry collector took",
    "signal",
)
LOST = counter(
    "loadmanager_otlp_lost",
    "Spans, and pages of metrics, that are lost: `full`, because too many waited for the "
    "collector; `failed`, because it did not take them",
    "signal",
    "why",
)
FULL, FAILED = "full", "failed"


class Shipped:
    """Of one signal. What waits is counted by the event loop, what was sent by one thread."""

    def __init__(self, signal: str) -> None:
        self.signal = signal
        self.sent = 0
        self.lost = Counter[str]()

    def samples(self) -> Iterator[Sample]:
        """The figures now."""
        yield SENT.sample(self.sent, self.signal)
        for why in (FULL, FAILED):
            yield LOST.sample(self.lost[why], self.signal, why)
