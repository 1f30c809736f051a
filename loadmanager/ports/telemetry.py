"""What a broker can be asked for its metrics page: plain numbers, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one metric. `kind` is gauge, counter (its name is without
    `_total`) or summary.
    """

    name: str
    doc: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
    kind: str = "gauge"
    suffix: str = ""
    """Of a summary: `_count`, `_sum`, or empty for a quantile."""


Source = Callable[[], Iterable[Sample]]
"""Gives the present samples of one part of the broker."""


@dataclass(slots=True)
class Telemetry:
    """The parts that have something to say."""

    sources: list[Source] = field(default_factory=list)

    def collect(self) -> Iterable[Sample]:
        """All samples now."""
        for source in self.sources:
            yield from source()
