"""Runs `loadmanager analyze` on a small history in this process, and reads what it wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec

from bench import _history as history
from loadmanager.cli import main
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.source import HistorySource, Segment
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly import reading
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.engine import Engine
from loadmanager.nightly.job import QUESTIONS, Job
from loadmanager.nightly.schema import numbers_of, required_of, schema_of

ON_SPARK = ("--master", "local[1]", "--spark", "spark.driver.memory=1g")


def analyze(folder: Path, *arguments: str, date: str = history.DATE) -> int:
    """Analyse a day of `folder/history` into `folder/analysis`, in this process without `ON_SPARK`;
    later arguments win.
    """
    where = ["--history", str(folder / "history"), "--output", str(folder / "analysis")]
    return main(["analyze", "--date", date, *where, "--quiet", *arguments])


def report(
    folder: Path, date: str = history.DATE, cluster: str = history.CLUSTER
) -> dict[str, Any]:
    """The report of a day, as JSON."""
    path = folder / f"analysis/cluster={cluster}/reports/{date}.json"
    document: dict[str, Any] = json.loads(path.read_text())
    return document


NOTHING = 1e-12
"""What sums in another order leave of 0."""


def the_same_on_spark(folder: Path, date: str = history.DATE) -> None:
    """Spark's report has the same as that of this process, which is there already."""
    assert analyze(folder, *ON_SPARK, "--output", str(folder / "spark"), date=date) in (0, 3)
    there = f"cluster={history.CLUSTER}/reports/{date}.json"
    here = json.loads((folder / "analysis" / there).read_text())
    assert rounded(json.loads((folder / "spark" / there).read_text())) == rounded(here)


def rounded(value: Any) -> Any:
    """Sums are added in another order."""
    if isinstance(value, float):
        return float(f"{value:.9g}") if abs(value) > NOTHING else 0.0
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def rows(report: dict[str, Any], table: str, key: str) -> dict[str, dict[str, Any]]:
    """A table's rows by one of their fields."""
    return {row[key]: row for row in report["tables"][table]["rows"]}


def rules_of(kind: str) -> reading.RecordFormat:
    """What a line must be to be a record of the designed day."""
    end_ms = history.START_MS + DAY_MS
    return reading.RecordFormat(
        schema_of(kind), required_of(kind), numbers_of(kind), history.START_MS, end_ms, {}
    )


def task_of(
    kind: str, segments: Sequence[Segment], folder: Path, plain_bytes_max: int
) -> reading.SegmentTask:
    """What a task is to do, without sums."""
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
    engine: Engine, source: HistorySource, folder: Path, questions: Sequence[ModuleType] = QUESTIONS
) -> Job:
    """A job over `source` that writes to `folder/analysis`."""
    days = AnalysedDays(str(folder / "analysis"), source.chosen(None))
    return Job(engine, source, days, settings=StrategySettings(), quiet=True, questions=questions)
