"""Sends a process's spans and metrics to an OpenTelemetry collector, if somebody asked for it.

Otherwise nothing of OpenTelemetry is imported. Nothing waits for the collector: spans wait in a
bounded queue, and of the metrics one page is sent at a time, by threads. What is lost is counted,
and logged once a minute.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from loadmanager.kit import tracing
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metrics.page import SLICE, process_registry, process_samples
from loadmanager.kit.otlp.counts import Shipped
from loadmanager.kit.otlp.settings import HOW, METRICS, TRACES, OtlpSettings, wanted
from loadmanager.kit.tasks import Steps, every
from loadmanager.kit.telemetry import Sample, Telemetry

if TYPE_CHECKING:
    from loadmanager.kit.otlp.pages import PageSender
    from loadmanager.kit.otlp.spans import SpanSender

INTERVAL_MS = 60_000
INTERVAL_MS_MIN = 100

log = get_logger("otlp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Who sends."""

    cluster: str
    broker: str
    version: str

    def attributes(self) -> dict[str, str]:
        """As OpenTelemetry names them."""
        return {
            "service.name": "loadmanager",
            "service.namespace": self.cluster,
            "service.instance.id": self.broker,
            "service.version": self.version,
        }

    def labels(self, sample: Sample) -> tuple[tuple[str, str], ...]:
        """Those of a sample on the metrics page."""
        cluster = ("cluster", self.cluster)
        own = (cluster, ("broker", self.broker)) if sample.broker else (cluster,)
        return own + sample.labels


def sending(
    settings: OtlpSettings,
    process: Process,
    clock: Clock,
    environ: Mapping[str, str] = os.environ,
) -> Sending | None:
    """What sends, if anything is to be sent and OpenTelemetry is installed: else the log says so.
    (`require_installed` refuses to start where broker.conf wants it.)
    """
    where = wanted(settings, environ)
    for problem in where.problems:
        log.warning("OpenTelemetry: not sent", problem=problem)
    if not where.urls:
        return None
    try:
        return Sending(where.urls, process, clock, _interval_s(environ))
    except ImportError as error:
        log.warning("traces and metrics are not sent", error=str(error), how=HOW)
        return None


def _interval_s(environ: Mapping[str, str]) -> float:
    text = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    given = text.strip().isdecimal()
    return (max(INTERVAL_MS_MIN, int(text[:9])) if given else INTERVAL_MS) / 1000


class Sending:
    """Sends from now on, until `stop`."""

    def __init__(
        self, urls: Mapping[str, str], process: Process, clock: Clock, interval_s: float
    ) -> None:
        from loadmanager.kit.otlp.identity import resource_of
        from loadmanager.kit.otlp.pages import PageSender
        from loadmanager.kit.otlp.spans import SpanSender
        from loadmanager.kit.otlp.transport import keep_quiet

        keep_quiet()
        self._process, self._clock, self._interval_s = process, clock, interval_s
        resource, version = resource_of(process.attributes()), process.version
        self._spans: SpanSender | None = None
        self._pages: PageSender | None = None
        self._counts: list[Shipped] = []
        self._uninstall: Callable[[], None] = lambda: None
        if TRACES in urls:
            self._spans = SpanSender(urls[TRACES], resource, version)
            self._counts.append(self._spans.counts)
            self._uninstall = tracing.install(self._spans)
        if METRICS in urls:
            self._pages = PageSender(urls[METRICS], resource, version, clock.now_ms())
            self._counts.append(self._pages.counts)
        self._registry = process_registry()
        self._lost_before = 0
        self._to = ", ".join(sorted({_shown(url) for url in urls.values()}))
        log.info("traces and metrics are sent by OTLP", signals=sorted(urls), to=self._to)

    def samples(self) -> Iterator[Sample]:
        """How much was sent, and how much lost."""
        for counts in self._counts:
            yield from counts.samples()

    async def run(self, telemetry: Telemetry, steps: Steps) -> None:
        """Send the metrics again and again, until cancelled; then the spans that wait."""
        interval_s = self._interval_s
        turn = partial(self._turn, telemetry)
        try:
            await every(lambda: interval_s, turn, "otlp", steps, first_after_s=interval_s)
        finally:
            await self.stop()

    async def _turn(self, telemetry: Telemetry) -> None:
        if self._pages is not None:
            self._pages.send(await self._collected(telemetry), self._clock.now_ms())
        lost = sum(counts.lost.total() for counts in self._counts)
        new, self._lost_before = lost - self._lost_before, lost
        if new:
            raise OperationalError(
                f"{self._to} did not take {new} spans or pages of metrics; they are lost"
            )

    async def _collected(self, telemetry: Telemetry) -> list[Sample]:
        """The samples with the labels of the page; other work goes on meanwhile."""
        samples = [*process_samples(self._registry)]
        for number, each in enumerate(telemetry.collect(), 1):
            labels = self._process.labels(each)
            samples.append(Sample(each.name, each.doc, each.value, labels, each.kind, each.suffix))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return samples

    async def stop(self) -> None:
        """Send the spans that wait, for a moment at most, and nothing more."""
        self._uninstall()
        if self._pages is not None:
            self._pages.stop()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.stop)


def _shown(url: str) -> str:
    """The host and port; a URL may have a password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2]
