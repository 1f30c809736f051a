"""The nightly job: segments of a day → typed Parquet → a few sums → a table for each question → the
report.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import pyarrow as pa

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.failures import first_line
from loadmanager.kit.history.layout import day_start_ms
from loadmanager.kit.history.source import HistorySource, ListedSegment
from loadmanager.nightly import causes
from loadmanager.nightly.analysed_days import AnalysedDays, Manifest
from loadmanager.nightly.day import Columns, Day, Finding, Row, many
from loadmanager.nightly.drafts import DayDraft
from loadmanager.nightly.engine import Engine
from loadmanager.nightly.facts import Facts
from loadmanager.nightly.ingest import Ingest, Ingested, SegmentsMovedError
from loadmanager.nightly.listed_segments import gone_count
from loadmanager.nightly.questions import (
    broker_usage,
    capacity,
    clocks,
    flapping,
    forecasts,
    growth,
    headroom,
    hot_bundles,
    hot_topics,
    hourly,
    idle_brokers,
    imbalance,
    lapses,
    leaders,
    moves,
    namespaces,
    news,
    outages,
    remade,
    sensors,
    slow_brokers,
    splits,
    tenants,
    throttling,
)
from loadmanager.nightly.report import plots
from loadmanager.nightly.report.page import render


class Question(Protocol):
    """A question to a day: a module of `questions`, or an object like one."""

    NAME: str
    ABOUT: str
    COLUMNS: Columns

    def table(self, day: Day) -> pa.Table | list[Row]:
        """Its answer."""

    def findings(self, rows: Sequence[Any], day: Day) -> list[Finding]:
        """What the answer says that somebody should know."""


QUESTIONS: tuple[Question, ...] = (
    outages,
    lapses,
    leaders,
    broker_usage,
    slow_brokers,
    imbalance,
    hot_bundles,
    hot_topics,
    flapping,
    moves,
    splits,
    throttling,
    idle_brokers,
    sensors,
    clocks,
    namespaces,
    remade,
    tenants,
    headroom,
    hourly,
    news,
    growth,
    forecasts,
    capacity,
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
class TableHead:
    """The first rows of a question's table, and how many rows it has."""

    rows: list[Any] = field(default_factory=list)
    total: int = 0
    failed: str | None = None
    """Why there is no answer."""


@dataclass(slots=True)
class AnalysedDay:
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
    removed: list[str] = field(default_factory=list)
    """What the run deleted of other days, a sentence each."""


class Job:
    """Analyses days of one cluster."""

    def __init__(
        self,
        engine: Engine,
        source: HistorySource,
        days: AnalysedDays,
        *,
        settings: StrategySettings,
        configured: str = "",
        quiet: bool = False,
        questions: Sequence[Question] = QUESTIONS,
    ) -> None:
        self._questions = questions
        self._engine = engine
        self._source = source
        self._settings = settings
        self._configured = configured
        self._quiet = quiet
        self.cluster = days.cluster
        self._days = days

    def run(
        self, date: str, removed: Sequence[str] = (), *, now_ms: float = math.inf
    ) -> AnalysedDay | None:
        """Analyse one day; None when it has no segments at all. `removed`: what this run deleted
        of other days, for the report. `now_ms`: the time, since the day may not be over.
        """
        started_s = time.monotonic()
        steps: dict[str, float] = {}
        read = self._read(date, steps)
        if read is None:
            return None
        ingest, ingested, listed, draft = read
        problems = list(ingested.problems)
        before = self._days.manifest(date).seen
        if gone := gone_count(before, listed):
            problems.append(
                f"{many(gone, 'segment')} of this day that an earlier run analysed are gone: the "
                "tables have what is left"
            )
        facts = Facts(ingest, self._settings, day_start_ms(date))
        day = Day(self.cluster, date, facts, self._settings, self._days.rows, self._configured)
        day.now_ms = now_ms if day.start_ms <= now_ms < day.end_ms else None
        answers: dict[str, TableHead] = {}
        findings: list[Finding] = []
        for number, question in enumerate(self._questions, start=1):
            with self._step(
                f"{date}: question {number}/{len(self._questions)}, {question.NAME}",
                steps,
                question.NAME,
            ):
                answers[question.NAME], new_findings = self._ask(question, day, draft)
            findings += new_findings
        problems += facts.notices
        failed = {name: answer.failed for name, answer in answers.items() if answer.failed}
        problems += [f"{name} could not be answered: {reason}" for name, reason in failed.items()]
        findings = causes.joined(findings, day)
        with self._step(f"{date}: report", steps, "report"):
            report = self._report(day, ingested, (problems, removed), answers, findings)
        manifest = Manifest(tuple(listed), _rows(ingested), draft.publish())
        self._days.commit(date, manifest)
        return AnalysedDay(
            self.cluster,
            date,
            ingested.rows,
            problems,
            findings,
            report,
            time.monotonic() - started_s,
            steps,
            list(failed),
            list(removed),
        )

    def _ask(
        self, question: Question, day: Day, draft: DayDraft
    ) -> tuple[TableHead, list[Finding]]:
        """A question's answer and findings. If it fails, only the questions that build on it fail.

        Raises `ConnectionError` when the engine is gone.
        """
        try:
            table = _typed(question, question.table(day))
            rows = table.slice(0, ROWS_JUDGED_MAX).to_pylist()
            day.answers[question.NAME] = (
                rows if table.num_rows <= ROWS_JUDGED_MAX else table.to_pylist()
            )
            judged = [SimpleNamespace(**row) for row in rows]
            findings = question.findings(judged, day)
            draft.write_table(question.NAME, table)
            return TableHead(rows[:ROWS_SHOWN_MAX], table.num_rows), _the_worst(question, findings)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - contained: the report names it
            day.answers.pop(question.NAME, None)
            return TableHead(failed=first_line(error)), []

    def _read(
        self, date: str, steps: dict[str, float]
    ) -> tuple[Ingest, Ingested, set[ListedSegment], DayDraft] | None:
        """List and read the segments; again, if brokers sealed or deleted some meanwhile."""
        for attempt in range(READS_MAX):
            listing = self._source.day(self.cluster, date)
            if not listing.segments and not listing.left_out:
                return None
            draft = self._days.draft(date)
            with self._step(f"{date}: reading {len(listing.segments)} segments", steps, "read"):
                ingest = Ingest(self._engine, self._source, self._days, draft, date)
                try:
                    return ingest, ingest.run(listing), set(listing.listed), draft
                except SegmentsMovedError:
                    if attempt == READS_MAX - 1:
                        raise OperationalError(
                            f"the segments of {date} do not stay as they are long enough to be read"
                        ) from None
        raise AssertionError("unreachable")

    def _report(
        self,
        day: Day,
        ingested: Ingested,
        notes: tuple[list[str], Sequence[str]],
        answers: Mapping[str, TableHead],
        findings: Sequence[Finding],
    ) -> str:
        """`notes`: the problems, and what was deleted."""
        problems, removed = notes
        drawn = plots.gather(day, first_line)
        problems += [f"a plot could not be drawn: {reason}" for reason in drawn.failed]
        failed = [name for name, answer in answers.items() if answer.failed]
        document = {
            "version": 2,
            "cluster": day.cluster,
            "date": day.date,
            "headline": causes.headline(findings, failed, problems),
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
            "totals": _totals(answers, day.answers),
            "findings": [asdict(finding) for finding in findings],
            "removed": list(removed),
            "timeline": [asdict(event) for event in drawn.events],
            "tables": {
                question.NAME: _table(question, answers[question.NAME])
                for question in self._questions
            },
        }
        self._days.write(
            f"reports/{day.date}.json",
            json.dumps(_finite(document), indent=1, default=str, allow_nan=False),
        )
        return self._days.write(
            f"reports/{day.date}.html",
            render(document, drawn, overloaded=self._settings.overloaded_percent / 100),
        )

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


def _typed(question: Question, answer: pa.Table | list[dict[str, Any]]) -> pa.Table:
    """A question's table with the columns that it declares."""
    schema = pa.schema([(name, of_type) for name, (of_type, _) in question.COLUMNS.items()])
    if isinstance(answer, list):
        return pa.Table.from_pylist(answer, schema)
    return answer.select(schema.names).cast(schema)


def _table(question: Question, answer: TableHead) -> dict[str, Any]:
    return {
        "about": question.ABOUT,
        "columns": {name: meaning for name, (_, meaning) in question.COLUMNS.items()},
        "failed": answer.failed,
        "total": answer.total,
        "rows": answer.rows,
    }


def _totals(
    answers: Mapping[str, TableHead], rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, int | None]:
    """The day's figures; None where the question failed. `rows`: all of them."""
    bundles, limits, moved = (rows.get(name) for name in ("namespaces", "throttling", "moves"))

    def of(name: str) -> int | None:
        return None if answers[name].failed else answers[name].total

    return {
        "brokers": of("broker_usage"),
        "bundles": None if bundles is None else sum(row["cut_into"] or 0 for row in bundles),
        "moves": None if moved is None else sum(not row["forced"] for row in moved),
        "takenOver": None if moved is None else sum(row["forced"] for row in moved),
        "splits": of("splits"),
        "limitsThatHeldClients": None
        if limits is None
        else sum(row["hours_held"] > 0 for row in limits),
    }


def _rows(ingested: Ingested) -> dict[str, int]:
    return {kind: read.rows for kind, read in ingested.kinds.items()}


def _finite(value: Any) -> Any:
    """A value for JSON: NaN and infinity become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _the_worst(question: Question, findings: Sequence[Finding]) -> list[Finding]:
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
        hurt=rest[0].hurt,
        numbers={"more": len(rest)},
    )
    return [*ranked[:FINDINGS_MAX], more]
