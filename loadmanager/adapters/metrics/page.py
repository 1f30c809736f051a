"""The metrics page for Prometheus: the broker's metrics, and those of a Python process."""

from __future__ import annotations

import asyncio
import math
from functools import lru_cache

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from loadmanager.ports.telemetry import Sample, Telemetry

SLICE = 100
"""After this many samples the broker does other work first: less than 1 ms. A message that arrives
meanwhile waits for some slices.
"""
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class MetricsPage:
    """Renders the page, from a registry of its own: several brokers may run in one process."""

    def __init__(self, telemetry: Telemetry, *, cluster: str, broker: str) -> None:
        self._telemetry = telemetry
        self._cluster = _label("cluster", cluster)
        self._broker = f"{self._cluster},{_label('broker', broker)}"
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)
        self._rendering = asyncio.Lock()
        self._asked = 0
        self._served = 0
        """The last of those who asked before the end of the last rendering."""
        self._page = b""
        """Kept until that one has it."""

    async def render(self) -> tuple[bytes, str]:
        """The page's text and its content type. Whoever asks while it is rendered gets the same."""
        self._asked += 1
        number = self._asked
        async with self._rendering:
            if number > self._served:
                self._page = await self._rendered()
                self._served = self._asked
            page = self._page
            if number == self._served:
                self._page = b""
        return page, CONTENT_TYPE_LATEST

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
