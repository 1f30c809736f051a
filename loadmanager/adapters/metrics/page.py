"""The metrics page for Prometheus: the broker's metrics, and those of a Python process."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from loadmanager.ports.telemetry import Telemetry


class _Samples(Collector):
    """Turns the broker's samples into metric families, each sample with the common labels."""

    def __init__(self, telemetry: Telemetry, labels: dict[str, str]) -> None:
        self._telemetry = telemetry
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        """The present families."""
        families: dict[str, Metric] = {}
        for sample in self._telemetry.collect():
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = Metric(sample.name, sample.doc, sample.kind)
            suffix = "_total" if sample.kind == "counter" else sample.suffix
            family.add_sample(
                sample.name + suffix, {**self._labels, **dict(sample.labels)}, sample.value
            )
        return families.values()


class MetricsPage:
    """Renders the page, from a registry of its own: several brokers may run in one process."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, telemetry: Telemetry, *, cluster: str, broker: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Samples(telemetry, {"cluster": cluster, "broker": broker}))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        """The page's text."""
        return generate_latest(self._registry)
