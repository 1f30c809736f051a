"""Metrics: each is declared once, and its samples are plain numbers, read at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one metric. `kind` is gauge, counter or summary."""

    name: str
    """The name of a counter has no `_total`, which the page adds."""
    doc: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    kind: str = "gauge"
    suffix: str = ""
    """For a summary: `_count`, `_sum`, or empty for a quantile."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as the reference page lists it: name, help text, label names and kind."""

    name: str
    doc: str
    labels: tuple[str, ...] = ()
    kind: str = "gauge"

    def sample(self, value: float, *labels: str, suffix: str = "") -> Sample:
        """One sample; `labels` are the values of the metric's labels, in their order."""
        named = tuple(zip(self.labels, labels, strict=True))
        return Sample(self.name, self.doc, value, named, self.kind, suffix)


def counter(name: str, doc: str, *labels: str) -> Metric:
    """Declare a metric that only grows while the process lives."""
    return Metric(name, doc, labels, "counter")


def gauge(name: str, doc: str, *labels: str) -> Metric:
    """Declare a metric that goes up and down."""
    return Metric(name, doc, labels)


Source = Callable[[], Iterable[Sample]]
"""Reads the present samples of one part of the broker."""


@dataclass(slots=True)
class Telemetry:
    """The sources of a broker's samples."""

    sources: list[Source] = field(default_factory=list)

    def collect(self) -> Iterable[Sample]:
        """All samples now."""
        for source in self.sources:
            yield from source()
