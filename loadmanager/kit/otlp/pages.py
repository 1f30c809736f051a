"""Sends the samples of the metrics page, from a thread: one page at a time, the latest."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from loadmanager.kit.otlp.counts import FAILED, FULL, Shipped
from loadmanager.kit.otlp.settings import METRICS
from loadmanager.kit.otlp.transport import BoundedSession
from loadmanager.kit.telemetry import Sample

POINTS_MAX = 5_000
"""Of one request."""
CUMULATIVE = AggregationTemporality.CUMULATIVE
Labels = tuple[tuple[str, str], ...]


class PageSender:
    """Sends pages to `url`. While one is being sent, the next ones are left out and counted."""

    def __init__(self, url: str, resource: Resource, version: str, began_ms: int) -> None:
        self.counts = Shipped(METRICS)
        self._exporter = OTLPMetricExporter(
            url, session=BoundedSession(), max_export_batch_size=POINTS_MAX
        )
        self._resource = resource
        self._scope = InstrumentationScope("loadmanager", version)
        self._began_ns = began_ms * 1_000_000
        self._waiting: queue.Queue[tuple[Sequence[Sample], int] | None] = queue.Queue(maxsize=1)
        self._busy = False
        # A daemon: nothing waits for a collector when the process ends.
        threading.Thread(target=self._run, name="otlp-metrics", daemon=True).start()

    def send(self, samples: Sequence[Sample], now_ms: int) -> None:
        """Have a page sent, if the last one was."""
        if self._busy:
            self.counts.lost[FULL] += 1
            return
        self._busy = True
        self._waiting.put_nowait((samples, now_ms))

    def stop(self) -> None:
        """End the thread once it has sent what it sends."""
        self._exporter.shutdown()
        if not self._busy:
            self._waiting.put_nowait(None)

    def _run(self) -> None:
        while (page := self._waiting.get()) is not None:
            try:
                result = self._exporter.export(self._page(*page))
            except Exception:  # noqa: BLE001 - a page is lost; the next one may be sent
                result = MetricExportResult.FAILURE
            if result is MetricExportResult.SUCCESS:
                self.counts.sent += 1
            else:
                self.counts.lost[FAILED] += 1
            self._busy = False

    def _page(self, samples: Sequence[Sample], now_ms: int) -> MetricsData:
        metrics = [*metrics_of(samples, self._began_ns, now_ms * 1_000_000)]
        scope = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


def metrics_of(samples: Sequence[Sample], began_ns: int, now_ns: int) -> Iterator[Metric]:
    """The metrics of samples, with the names, labels and values of the metrics page. What is a
    summary there is a gauge with the label `quantile`, and two sums, `…_count` and `…_sum`.
    """
    families: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        suffix = sample.suffix if sample.kind == "summary" else ""
        families.setdefault((sample.name, suffix), []).append(sample)
    for (name, suffix), family in families.items():
        first = family[0]
        if first.kind == "histogram":
            data: Gauge | Sum | Histogram = _histogram(family, began_ns, now_ns)
        elif first.kind == "counter" or suffix:
            data = Sum(_points(family, began_ns, now_ns), CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(_points(family, began_ns, now_ns))
        yield Metric(name + suffix, first.doc, "", data)


def _points(family: Sequence[Sample], began_ns: int, now_ns: int) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(dict(sample.labels), began_ns, now_ns, float(sample.value))
        for sample in family
    ]


def _histogram(family: Sequence[Sample], began_ns: int, now_ns: int) -> Histogram:
    """Prometheus' buckets count what is below their bounds, those of OTLP what is between."""
    buckets: dict[Labels, dict[float, int]] = {}
    totals: dict[tuple[Labels, str], float] = {}
    for sample in family:
        if sample.suffix == "_bucket":
            labels = tuple(label for label in sample.labels if label[0] != "le")
            bound = float(dict(sample.labels)["le"])
            buckets.setdefault(labels, {})[bound] = int(sample.value)
        else:
            totals[sample.labels, sample.suffix] = sample.value
    points = []
    for labels, below in buckets.items():
        bounds = sorted(below)
        counts = [0, *(below[bound] for bound in bounds)]
        points.append(
            HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                count=int(totals.get((labels, "_count"), counts[-1])),
                sum=totals.get((labels, "_sum"), 0.0),
                bucket_counts=[after - before for before, after in pairwise(counts)],
                explicit_bounds=[bound for bound in bounds if math.isfinite(bound)],
                min=None,  # type: ignore[arg-type]  # not known, which the encoder leaves out
                max=None,  # type: ignore[arg-type]
            )
        )
    return Histogram(points, CUMULATIVE)
