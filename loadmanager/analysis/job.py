"""The nightly job: segments of a day → typed Parquet → a table for each question → the report."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.analysed_days import AnalysedDays, gone_count
from loadmanager.analysis.day import Day, Finding, many
from loadmanager.analysis.history_source import HistorySource, SeenSegment
from loadmanager.analysis.ingest import Ingest, Ingested, SegmentsMovedError, first_line
from loadmanager.analysis.questions import (
    broker_usage,
    flapping,
    hot_bundles,
    hot_topics,
    idle_brokers,
    imbalance,
    moves,
    namespaces,
    sensors,
    splits,
    throttling,
)
from loadmanager.analysis.report import plots
from loadmanager.analysis.report.page import render
from loadmanager.analysis.session import stored
from loadmanager.core.errors import BadInputError, OperationalError
from loadmanager.core.strategies.settings import StrategySettings

QUESTIONS: tuple[ModuleType, ...] = (
    broker_usage,
    imbalance,
    hot_bundles,
    hot_topics,
    flapping,
    moves,
    splits,
    throttling,
    idle_brokers,
    sensors,
    namespaces,
)
"""Each question comes after those that it builds on."""
ROWS_JUDGED_MAX = 20_000
"""Findings are drawn from this many rows of a table."""
ROWS_SHOWN_MAX = 500
"""Rows of a table in the report; the stored table has all."""
FINDINGS_MAX = 5
OTHERS_NAMED_MAX = 20
READS_MAX = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """The first rows of a question's table, and how many rows it has."""

    rows: list[Any] = field(default_factory=list)
    total: int = 0
    failed: str | None = None
    """Why there is no answer."""


@dataclass(slots=True)
class Outcome:
    """One analysed day."""

    cluster: str
    date: str
    rows: int
    problems: list[str]
    findings: list[Finding]
    report: str
    seconds: float
    steps: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Questions that could not be answered."""


class Job:
    """Analyses days of one cluster. Raises `BadInputError` for a cluster that is not there."""

    def __init__(
        self,
        spark: SparkSession,
        source: HistorySource,
        output: str,
        *,
        cluster: str | None,
        settings: StrategySettings,
        quiet: bool = False,
        questions: Sequence[ModuleType] = QUESTIONS,
    ) -> None:
        self._questions = questions
        self._spark = spark
        self._source = source
        self._settings = settings
        self._quiet = quiet
        found = source.clusters()
        if cluster is None and len(found) != 1:
            known = (
                f"there are {', '.join(found)}: choose with --cluster"
                if found
                else "there is none (cluster=…/kind=…/date=… is expected below it)"
            )
            raise BadInputError(f"{source.url}: which cluster? {known}")
        self.cluster = cluster if cluster is not None else found[0]
        if self.cluster not in found:
            raise BadInputError(
                f"{source.url} has no history of cluster {self.cluster}; it has "
                f"{', '.join(found) or 'none'}"
            )
        self._days = AnalysedDays(output, self.cluster)

    def late(self, date: str) -> list[str]:
        """Days before `date` whose segments came late; see `AnalysedDays.late`."""
        return self._days.late(date, self._source, self.cluster)

    def run(self, date: str) -> Outcome | None:
        """Analyse one day; None when it has no segments at all."""
        started_s = time.monotonic()
        steps: dict[str, float] = {}
        read = self._read(date, steps)
        if read is None:
            return None
        ingest, ingested, seen = read
        problems = list(ingested.problems)
        before = self._days.segments(date)
        if gone := gone_count(before, seen):
            problems.append(
                f"{many(gone, 'segment')} of this day that an earlier run analysed are gone: the "
                "tables have what is left"
            )
        day = Day(self.cluster, date, ingest, self._settings)
        answers: dict[str, Answer] = {}
        findings: list[Finding] = []
        for number, question in enumerate(self._questions, start=1):
            with self._step(
                f"{date}: question {number}/{len(self._questions)}, {question.NAME}",
                steps,
                question.NAME,
            ):
                answers[question.NAME], found = self._ask(question, day)
            findings += found
        failed = {name: answer.failed for name, answer in answers.items() if answer.failed}
        problems += [f"{name} could not be answered: {reason}" for name, reason in failed.items()]
        findings.sort(key=lambda finding: (-finding.importance, finding.title))
        with self._step(f"{date}: report", steps, "report"):
            report = self._report(day, ingested, problems, answers, findings)
        self._days.remember(date, seen, _rows(ingested))
        return Outcome(
            self.cluster,
            date,
            ingested.rows,
            problems,
            findings,
            report,
            time.monotonic() - started_s,
            steps,
            list(failed),
        )

    def _ask(self, question: ModuleType, day: Day) -> tuple[Answer, list[Finding]]:
        """A question's answer and findings. If it fails, only the questions that build on it fail.

        Raises what Spark raises when its Java process is gone.
        """
        try:
            day.tables[question.NAME] = table = self._stored(question, day)
            rows = table.orderBy(*map(_ordered, question.ORDER)).limit(ROWS_JUDGED_MAX).collect()
            total = len(rows) if len(rows) < ROWS_JUDGED_MAX else table.count()
            return Answer(rows, total), _the_worst(question, question.findings(rows, day))
        except (Py4JNetworkError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - contained: the report names it
            day.tables.pop(question.NAME, None)
            # The table of an earlier run would be taken for this run's.
            self._days.remove(self._table_path(question, day))
            return Answer(failed=first_line(error)), []

    def _read(
        self, date: str, steps: dict[str, float]
    ) -> tuple[Ingest, Ingested, set[SeenSegment]] | None:
        """List and read the segments; again, if brokers sealed or deleted some meanwhile."""
        for attempt in range(READS_MAX):
            listing = self._source.day(self.cluster, date)
            if not listing.segments and not listing.left_out:
                return None
            with self._step(f"{date}: reading {len(listing.segments)} segments", steps, "read"):
                ingest = Ingest(
                    self._spark, self._source, self._days.spark_root, date, remove=self._days.remove
                )
                try:
                    return ingest, ingest.run(listing), set(listing.seen)
                except SegmentsMovedError:
                    if attempt == READS_MAX - 1:
                        raise OperationalError(
                            f"the segments of {date} do not stay as they are long enough to be read"
                        ) from None
        raise AssertionError("unreachable")

    def _table_path(self, question: ModuleType, day: Day) -> str:
        return f"{self._days.spark_root}/tables/{question.NAME}/date={day.date}"

    def _stored(self, question: ModuleType, day: Day) -> Any:
        path = self._table_path(question, day)
        table = question.table(day)
        table.write.mode("overwrite").parquet(path)
        self._spark.catalog.clearCache()
        return stored(self._spark, table.schema, path)

    def _report(
        self,
        day: Day,
        ingested: Ingested,
        problems: list[str],
        answers: Mapping[str, Answer],
        findings: Sequence[Finding],
    ) -> str:
        tables = {
            question.NAME: {
                "about": question.ABOUT,
                "failed": answers[question.NAME].failed,
                "total": answers[question.NAME].total,
                "rows": [
                    row.asDict(recursive=True)
                    for row in answers[question.NAME].rows[:ROWS_SHOWN_MAX]
                ],
            }
            for question in self._questions
        }
        drawn = self._plots(day, answers, problems)
        document = {
            "version": 1,
            "cluster": day.cluster,
            "date": day.date,
            "records": _rows(ingested),
            "input": {
                "problems": problems,
                "leftOut": [
                    {"segment": path, "reason": reason} for path, reason in ingested.left_out
                ],
                "quarantined": {
                    kind: {
                        "rows": read.quarantined,
                        "reasons": read.put_aside,
                        "samples": read.samples,
                    }
                    for kind, read in ingested.kinds.items()
                    if read.quarantined
                },
            },
            "totals": _totals(answers),
            "findings": [asdict(finding) for finding in findings],
            "tables": tables,
        }
        self._days.write(
            f"reports/{day.date}.json",
            json.dumps(_finite(document), indent=1, default=str, allow_nan=False),
        )
        return self._days.write(
            f"reports/{day.date}.html",
            render(document, drawn, overloaded=self._settings.overloaded_percent / 100),
        )

    def _plots(self, day: Day, answers: Mapping[str, Answer], problems: list[str]) -> plots.Plots:
        """What the plots show: nothing if they fail, or build on a question that failed."""
        try:
            return plots.gather(day, {name: answer.rows for name, answer in answers.items()})
        except (Py4JNetworkError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - contained, as a question is
            problems.append(f"the plots could not be drawn: {first_line(error)}")
            return plots.Plots(day.start_ms)

    @contextmanager
    def _step(self, text: str, steps: dict[str, float], name: str) -> Iterator[None]:
        """Progress on standard error, and how long it took."""
        if not self._quiet:
            print(f"{text} …", end=" ", file=sys.stderr, flush=True)
        started_s = time.monotonic()
        try:
            yield
        finally:
            steps[name] = time.monotonic() - started_s
            if not self._quiet:
                print(f"{steps[name]:.1f} s", file=sys.stderr, flush=True)


def _totals(answers: Mapping[str, Answer]) -> dict[str, int | None]:
    """The day's figures; None where the question failed."""

    def of(name: str, figure: Callable[[Answer], int]) -> int | None:
        return None if answers[name].failed else figure(answers[name])

    return {
        "brokers": of("broker_usage", lambda answer: answer.total),
        "bundles": of("namespaces", lambda answer: sum(row.cut_into or 0 for row in answer.rows)),
        "moves": of("moves", lambda answer: answer.total),
        "splits": of("splits", lambda answer: answer.total),
        "limitsThatHeldClients": of(
            "throttling", lambda answer: sum(row.hours_held > 0 for row in answer.rows)
        ),
    }


def _ordered(text: str) -> Any:
    name, _, direction = text.partition(" ")
    return F.desc(name) if direction == "DESC" else F.asc(name)


def _rows(ingested: Ingested) -> dict[str, int]:
    return {kind: read.rows for kind, read in ingested.kinds.items()}


def _finite(value: Any) -> Any:
    """A value for JSON: NaN and infinity become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _the_worst(question: ModuleType, findings: Sequence[Finding]) -> list[Finding]:
    """The worst findings of a question, and one that names the others."""
    ranked = sorted(findings, key=lambda finding: (-finding.importance, finding.title))
    if len(ranked) <= FINDINGS_MAX:
        return ranked
    rest = ranked[FINDINGS_MAX:]
    others = "; ".join(finding.title for finding in rest[:OTHERS_NAMED_MAX]) + (
        " …" if len(rest) > OTHERS_NAMED_MAX else ""
    )
    more = Finding(
        importance=rest[0].importance,
        question=question.NAME,
        title=f"And {len(rest)} more like these: {question.NAME.replace('_', ' ')}",
        text=f"{others}.",
        advice="The table below has them, the stored table all of them.",
        numbers={"more": len(rest)},
    )
    return [*ranked[:FINDINGS_MAX], more]
