"""What every question gets: one day's typed records, and the settings that the operator goes by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from loadmanager.analysis.ingest import Ingest
from loadmanager.core.errors import OperationalError
from loadmanager.core.history.layout import day_start_ms
from loadmanager.core.strategies.settings import StrategySettings

BUCKET_MS = 300_000
"""Comparisons go in steps of five minutes."""
HOUR_MS = 3_600_000
MIB = 1024 * 1024


@dataclass(slots=True)
class Day:
    """One UTC day of one cluster."""

    cluster: str
    date: str
    ingest: Ingest
    settings: StrategySettings
    tables: dict[str, DataFrame] = field(default_factory=dict)
    """Stored tables of earlier questions that did not fail."""

    def answer(self, question: str) -> DataFrame:
        """The table of an earlier question. Raises `OperationalError` when that question failed."""
        if question not in self.tables:
            raise OperationalError(f"it builds on {question}, which failed")
        return self.tables[question]

    @property
    def start_ms(self) -> int:
        """When it began."""
        return day_start_ms(self.date)

    def records(self, kind: str) -> DataFrame:
        """The good records of one kind."""
        return self.ingest.records(kind)

    def records_before(self, kind: str) -> DataFrame | None:
        """The good records of the day before; None if it was not analysed."""
        return self.ingest.records_before(kind)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: its text, its numbers, and advice."""

    importance: float
    """0 (a remark) to 100 (clients suffer now)."""
    question: str
    title: str
    text: str
    advice: str
    numbers: dict[str, Any] = field(default_factory=dict)


def bucket(ts: str = "ts") -> Column:
    """The start of the time step that a record falls into, in ms."""
    return F.col(ts) - F.col(ts) % BUCKET_MS


def number(name: str) -> Column:
    """An optional number of a record; 0 where it is missing."""
    return F.coalesce(F.col(name), F.lit(0))


def throughput() -> Column:
    """Bytes/s in and out."""
    return number("msgThroughputIn") + number("msgThroughputOut")


def rate() -> Column:
    """Messages/s in and out."""
    return number("msgRateIn") + number("msgRateOut")


def ratio(over: Column, under: Column) -> Column:
    """`over / under`; null where `under` is not positive (Spark's ANSI mode fails
    the query on 0).
    """
    return F.when(under > 0, over / under)


def namespace(bundle: str = "bundle") -> Column:
    """`tenant/namespace` of a bundle."""
    return F.substring_index(bundle, "/", 2)


def hours(value_ms: Column) -> Column:
    """Milliseconds as hours."""
    return value_ms / F.lit(float(HOUR_MS))


def mib(value: float) -> str:
    """Bytes/s for a person."""
    return f"{value / MIB:.1f} MiB/s" if value >= MIB / 10 else f"{value / 1024:.1f} KiB/s"


def lasting(value_h: float) -> str:
    """Hours for a person."""
    return f"{value_h:.1f} hours" if value_h >= 1 else many(max(round(value_h * 60), 1), "minute")


def many(count: int, what: str) -> str:
    """`1 move`, `2 moves`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def clock(ts_ms: float) -> str:
    """Time of day in UTC for a person."""
    minutes = int(ts_ms // 60_000) % 1440
    return f"{minutes // 60:02}:{minutes % 60:02}"
