"""The metrics page for Prometheus: the broker's metrics, and those of a Python process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from functools import lru_cache

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

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
        self._kept_from_s, self._kept_max_s = kept_from_s, kept_max_s
        self._rendering = asyncio.Lock()
        self._asked = 0
        self._served = 0
        """The last of those who asked before the end of the last rendering."""
        self._waiting = 0
        self._page = b""
        """Kept until that one has it, and for a moment."""
        self._fresh_until_s = 0.0

    async def render(self) -> tuple[bytes, str]:
        """The page's text and its content type. Whoever asks while it is rendered, or a moment
        later, gets the same.
        """
        self._asked += 1
        self._waiting += 1
        try:
            return await self._current(), CONTENT_TYPE_LATEST
        finally:
            self._waiting -= 1

    async def _current(self) -> bytes:
        number, loop = self._asked, asyncio.get_running_loop()
        async with self._rendering:
            if number > self._served and loop.time() >= self._fresh_until_s:
                began_s = loop.time()
                self._page = await self._rendered()
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

    async def _rendered(self) -> bytes:
        families: dict[str, list[str]] = {}
        for number, sample in enumerate(self._telemetry.collect(), 1):
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = [_head(sample)]
            family.append(self._line(sample))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        parts: list[bytes] = []
        for family in families.values():
            parts.append("".join(family).encode())
            await asyncio.sleep(0)
        parts.append(generate_latest(self._process))
        return b"".join(parts)

    def _line(self, sample: Sample) -> str:
        labels = self._broker if sample.broker else self._cluster
        for name, value in sample.labels:
            labels += f",{_label(name, value)}"
        suffix = "_total" if sample.kind == "counter" else sample.suffix
        return f"{sample.name}{suffix}{{{labels}}} {_number(sample.value)}\n"


@lru_cache(maxsize=8192)
def _label(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'


def _head(sample: Sample) -> str:
    name = sample.name + ("_total" if sample.kind == "counter" else "")
    doc = sample.doc.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {doc}\n# TYPE {name} {sample.kind}\n"


def _number(value: float) -> str:
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else ("+Inf" if number > 0 else "-Inf")
