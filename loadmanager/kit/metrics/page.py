"""The metrics page for Prometheus: the broker's metrics, and those of a Python process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from loadmanager.kit.telemetry import Sample, Telemetry

SLICE = 100
"""After this many samples the broker does other work first: less than 1 ms. A message that arrives
meanwhile waits for some slices.
"""
KEPT_FROM_S = 0.005
KEPT_TIMES = 20
KEPT_MAX_S = 1.0
"""A page that took longer than this is given out again for so many times as long, and at most so
long: making it takes at most a twentieth of the broker's time, however many ask.
"""
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_ESCAPES_OF_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
OPENMETRICS = "application/openmetrics-text"


def process_registry() -> CollectorRegistry:
    """The metrics of any Python process."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def process_samples(registry: CollectorRegistry) -> Iterator[Sample]:
    """The same as samples."""
    for family in registry.collect():
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            kind = "counter" if family.type == "counter" else "gauge"
            yield Sample(family.name, family.documentation, sample.value, labels, kind)


class MetricsPage:
    """Renders the page, from a registry of its own: several brokers may run in one process."""

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        cluster: str = "",
        broker: str = "",
        member: str = "",
        kept_from_s: float = KEPT_FROM_S,
        kept_max_s: float = KEPT_MAX_S,
    ) -> None:
        """The labels of all samples: `cluster`, and `broker` if it is one of a broker; or `member`
        alone.
        """
        self._telemetry = telemetry
        self._cluster = _label("cluster", cluster)
        self._broker = f"{self._cluster},{_label('broker', broker)}"
        if member:
            self._cluster = self._broker = _label("member", member)
        self._process = process_registry()
        self._pages = {
            exact: _Shared(partial(self._rendered, openmetrics=exact), kept_from_s, kept_max_s)
            for exact in (False, True)
        }

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page's text and its content type: OpenMetrics if `accept`, a header of HTTP, has it.
        Whoever asks while it is rendered, or a moment later, gets the same.
        """
        exact = OPENMETRICS in accept
        kind = OPENMETRICS_TYPE if exact else CONTENT_TYPE_LATEST
        return await self._pages[exact].page(), kind

    async def _rendered(self, *, openmetrics: bool) -> bytes:
        families: dict[str, list[str]] = {}
        for number, sample in enumerate(self._telemetry.collect(), 1):
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = [_head(sample, openmetrics=openmetrics)]
            family.append(self._line(sample, openmetrics=openmetrics))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        parts: list[bytes] = []
        for family in families.values():
            parts.append("".join(family).encode())
            await asyncio.sleep(0)
        parts.append((generate_openmetrics if openmetrics else generate_latest)(self._process))
        return b"".join(parts)

    def _line(self, sample: Sample, *, openmetrics: bool) -> str:
        labels = self._broker if sample.broker else self._cluster
        for name, value in sample.labels:
            labels += f",{_label(name, value)}"
        suffix = "_total" if sample.kind == "counter" else sample.suffix
        line = f"{sample.name}{suffix}{{{labels}}} {_number(sample.value)}"
        if openmetrics and (exemplar := sample.exemplar):
            line += f' # {{trace_id="{exemplar.trace_id}"}} {_number(exemplar.value)}'
        return f"{line}\n"


class _Shared:
    """A page for all who ask for it at one time."""

    def __init__(
        self, render: Callable[[], Awaitable[bytes]], kept_from_s: float, kept_max_s: float
    ) -> None:
        self._render = render
        self._kept_from_s, self._kept_max_s = kept_from_s, kept_max_s
        self._rendering = asyncio.Lock()
        self._asked = 0
        self._served = 0
        """The last of those who asked before the end of the last rendering."""
        self._waiting = 0
        self._page = b""
        """Kept until that one has it, and for a moment."""
        self._fresh_until_s = 0.0

    async def page(self) -> bytes:
        """The page, rendered since this was asked or a moment before."""
        self._asked += 1
        self._waiting += 1
        try:
            return await self._current()
        finally:
            self._waiting -= 1

    async def _current(self) -> bytes:
        number, loop = self._asked, asyncio.get_running_loop()
        async with self._rendering:
            if number > self._served and loop.time() >= self._fresh_until_s:
                began_s = loop.time()
                self._page = await self._render()
                self._served, ended_s = self._asked, loop.time()
                took_s = ended_s - began_s
                kept_s = KEPT_TIMES * took_s if took_s >= self._kept_from_s else 0.0
                kept_s = min(kept_s, self._kept_max_s)
                self._fresh_until_s = ended_s + kept_s
                loop.call_at(self._fresh_until_s, self._forget)
            self._served = max(self._served, number)
            return self._page

    def _forget(self) -> None:
        """Give the memory of an old page back, unless somebody waits for one."""
        if asyncio.get_running_loop().time() >= self._fresh_until_s and not self._waiting:
            self._page = b""


@lru_cache(maxsize=8192)
def _label(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'


def _head(sample: Sample, *, openmetrics: bool) -> str:
    suffixed = sample.kind == "counter" and not openmetrics
    name = f"{sample.name}_total" if suffixed else sample.name
    doc = sample.doc.translate(_ESCAPES if openmetrics else _ESCAPES_OF_HELP)
    return f"# HELP {name} {doc}\n# TYPE {name} {sample.kind}\n"


def _number(value: float) -> str:
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else ("+Inf" if number > 0 else "-Inf")
