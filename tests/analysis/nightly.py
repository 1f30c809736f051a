"""Runs `loadmanager analyze` on a small history in this process, and reads what it wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bench import _history as history
from loadmanager.analysis.analysed_days import AnalysedDays
from loadmanager.analysis.history_source import HistorySource
from loadmanager.analysis.job import QUESTIONS, Job
from loadmanager.cli import main
from loadmanager.core.strategies.settings import StrategySettings


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


def job_of(
    spark: Any, source: HistorySource, folder: Path, questions: Sequence[ModuleType] = QUESTIONS
) -> Job:
    """A job over `source` that writes to `folder/analysis`."""
    days = AnalysedDays(str(folder / "analysis"), source.chosen(None))
    return Job(spark, source, days, settings=StrategySettings(), quiet=True, questions=questions)
