"""Runs `loadmanager analyze` on a small history in this process, and reads what it wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
from pyspark.sql.pandas.types import to_arrow_schema

from bench import _history as history
from loadmanager.cli import main
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.source import HistorySource, Segment
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly import reading
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.job import QUESTIONS, Job
from loadmanager.nightly.schema import numbers_of, required_of, schema_of


def analyze(folder: Path, *arguments: str, date: str = history.DATE) -> int:
    """Analyse a day of `folder/history` into `folder/analysis`; later arguments win."""
    where = ["--history", str(folder / "history"), "--output", str(folder / "analysis")]
    how = ["--master", "local[1]", "--quiet", "--spark", "spark.driver.memory=1g"]
    return main(["analyze", "--date", date, *where, *how, *arguments])


def report(
    folder: Path, date: str = history.DATE, cluster: str = history.CLUSTER
) -> dict[str, Any]:
    """The report of a day, as JSON."""
    path = folder / f"analysis/cluster={cluster}/reports/{date}.json"
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def rows(report: dict[str, Any], table: str, key: str) -> dict[str, dict[str, Any]]:
    """A table's rows by one of their fields."""
    return {row[key]: row for row in report["tables"][table]["rows"]}


def rules_of(kind: str) -> reading.RecordFormat:
    """What a line must be to be a record of the designed day."""
    end_ms = history.START_MS + DAY_MS
    schema = to_arrow_schema(schema_of(kind))
    return reading.RecordFormat(
        schema, required_of(kind), numbers_of(kind), history.START_MS, end_ms, {}
    )


def task_of(
    kind: str, segments: Sequence[Segment], folder: Path, plain_bytes_max: int
) -> reading.SegmentTask:
    """What Spark would have a task do, without sums."""
    return reading.SegmentTask(
        kind=kind,
        segments=[(one.path, one.name) for one in segments],
        rules=rules_of(kind),
        plain_bytes_max=plain_bytes_max,
        source=fsspec.filesystem("file"),
        target=fsspec.filesystem("file"),
        path=str(folder / "lines.parquet"),
        sums=(),
    )


def job_of(
    spark: Any, source: HistorySource, folder: Path, questions: Sequence[ModuleType] = QUESTIONS
) -> Job:
    """A job over `source` that writes to `folder/analysis`."""
    days = AnalysedDays(str(folder / "analysis"), source.chosen(None))
    return Job(spark, source, days, settings=StrategySettings(), quiet=True, questions=questions)
