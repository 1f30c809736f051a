"""Metrics: each is declared once, and its samples are plain numbers, read at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One of what a bucket counts, with the trace of it."""

    trace_id: str
    value: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one metric. `kind` is gauge, counter, summary or histogram."""

    name: str
    """The name of a counter has no `_total`, which the page adds."""
    doc: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    kind: str = "gauge"
    suffix: str = ""
    """For a summary: `_count`, `_sum`, or empty for a quantile; a histogram has `_bucket`, too."""
    broker: bool = True
    """Whether the page adds the label `broker`; `cluster` is added to every sample."""
    exemplar: Exemplar | None = None
    """For a bucket."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as the reference page lists it: name, help text, label names and kind."""

    name: str
    doc: str
    labels: tuple[str, ...] = ()
    kind: str = "gauge"
    broker: bool = True
    """Whether its samples have the label `broker`. Pulsar gives it to few of its metrics."""

    def sample(
        self, value: float, *labels: str, suffix: str = "", exemplar: Exemplar | None = None
    ) -> Sample:
        """One sample; `labels` are the values of the metric's labels, in their order."""
        named = tuple(zip(self.labels, labels, strict=True))
        return Sample(self.name, self.doc, value, named, self.kind, suffix, self.broker, exemplar)


def counter(name: str, doc: str, *labels: str, broker: bool = True) -> Metric:
    """Declare a metric that only grows while the process lives."""
    return Metric(name, doc, labels, "counter", broker)


def gauge(name: str, doc: str, *labels: str, broker: bool = True) -> Metric:
    """Declare a metric that goes up and down."""
    return Metric(name, doc, labels, broker=broker)


@dataclass(frozen=True, slots=True)
class Detail:
    """The numbers of things that get samples of their own on the metrics page. Those beyond are
    summed.
    """

    namespaces: int
    topics: int
    """The number of topics, and also of subscriptions; 0: neither."""
    consumers: int
    """The number of consumers, of the topics that are shown."""


Source = Callable[[], Iterable[Sample]]
"""Reads the present samples of one part of the broker. The broker may do other work between two
samples of an iterator: iterate over a copy of what may change.
"""


@dataclass(slots=True)
class Telemetry:
    """The sources of a broker's samples."""

    sources: list[Source] = field(default_factory=list)

    def collect(self) -> Iterable[Sample]:
        for source in self.sources:
            yield from source()
