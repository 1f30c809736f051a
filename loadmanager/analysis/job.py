"""The nightly job: segments of a day → typed Parquet → a table for each question → the report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

import fsspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from loadmanager.analysis.day import Day, Finding
from loadmanager.analysis.ingest import Ingest, Ingested
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
from loadmanager.analysis.segments import Listing, Source
from loadmanager.core.errors import BadInputError
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
"""In an order in which each finds the tables of those that it builds on."""
ROWS_SHOWN_MAX = 500
"""Of a table, so many rows reach the report; all are stored."""
LATE_DAYS = 3
MANIFEST = "_manifest.json"


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


class Job:
    """Analyses days of one cluster. Raises `BadInputError` for a cluster that is not there."""

    def __init__(
        self, spark: SparkSession, source: Source, output: str, *, cluster: str | None, settings: StrategySettings, quiet: bool = False
    ) -> None:
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
            raise BadInputError(f"{source.url} has no history of cluster {self.cluster}; it has {', '.join(found) or 'none'}")
        fs, root = fsspec.core.url_to_fs(output)
        self._fs: Any = fs
        self._root = f"{root.rstrip('/')}/cluster={self.cluster}"
        self._spark_root = fs.unstrip_protocol(self._root).replace("s3://", "s3a://", 1)

    def late(self, date: str) -> list[str]:
        """Days before `date` that were analysed and whose segments changed since."""
        earlier = [day for day in self._source.dates(self.cluster) if day < date][-LATE_DAYS:]
        return [day for day in earlier if self._fingerprint(day) not in (None, self._source.fingerprint(self.cluster, day))]

    def _fingerprint(self, date: str) -> str | None:
        path = f"{self._root}/records/date={date}{MANIFEST}"
        if not self._fs.exists(path):
            return None
        with self._fs.open(path, "r") as file:
            found = json.load(file).get("fingerprint")
        return found if isinstance(found, str) else None

    def run(self, date: str) -> Outcome | None:
        """Analyse one day; None when it has no segments at all."""
        started_s = time.monotonic()
        listing = self._source.day(self.cluster, date)
        if not listing.segments and not listing.left_out:
            return None
        steps: dict[str, float] = {}
        with self._step(f"{date}: reading {len(listing.segments)} segments", steps, "read"):
            ingest = Ingest(self._spark, self._source, self._spark_root, date)
            ingested = ingest.run(listing)
        day = Day(self.cluster, date, ingest, self._settings)
        shown: dict[str, list[Any]] = {}
        findings: list[Finding] = []
        for number, question in enumerate(QUESTIONS, start=1):
            with self._step(f"{date}: question {number}/{len(QUESTIONS)}, {question.NAME}", steps, question.NAME):
                day.tables[question.NAME] = self._stored(question, day)
                shown[question.NAME] = day.tables[question.NAME].orderBy(*map(_ordered, question.ORDER)).limit(ROWS_SHOWN_MAX).collect()
                findings += question.findings(shown[question.NAME], day)
        findings.sort(key=lambda finding: (-finding.importance, finding.title))
        with self._step(f"{date}: report", steps, "report"):
            report = self._report(day, ingested, shown, findings)
        self._write(f"records/date={date}{MANIFEST}", json.dumps(_manifest(listing, ingested), indent=1))
        return Outcome(self.cluster, date, ingested.rows, ingested.problems, findings, report, time.monotonic() - started_s, steps)

    def _stored(self, question: ModuleType, day: Day) -> Any:
        path = f"{self._spark_root}/tables/{question.NAME}/date={day.date}"
        question.table(day).write.mode("overwrite").parquet(path)
        self._spark.catalog.clearCache()
        return self._spark.read.parquet(path)

    def _report(self, day: Day, ingested: Ingested, shown: dict[str, list[Any]], findings: Sequence[Finding]) -> str:
        tables = {
            question.NAME: {"about": question.ABOUT, "rows": [row.asDict(recursive=True) for row in shown[question.NAME]]}
            for question in QUESTIONS
        }
        document = {
            "version": 1,
            "cluster": day.cluster,
            "date": day.date,
            "records": {kind: read.rows for kind, read in ingested.kinds.items()},
            "input": {
                "problems": ingested.problems,
                "leftOut": [{"segment": path, "reason": reason} for path, reason in ingested.left_out],
                "quarantined": {
                    kind: {"rows": read.quarantined, "samples": read.samples} for kind, read in ingested.kinds.items() if read.quarantined
                },
            },
            "findings": [asdict(finding) for finding in findings],
            "tables": tables,
        }
        self._write(f"reports/{day.date}.json", json.dumps(document, indent=1, default=str))
        return self._write(
            f"reports/{day.date}.html", render(document, plots.gather(day, shown), overloaded=self._settings.overloaded_percent / 100)
        )

    def _write(self, name: str, text: str) -> str:
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._fs.open(path, "w") as file:
            file.write(text)
        return str(self._fs.unstrip_protocol(path)) if "file" not in self._fs.protocol else path

    @contextmanager
    def _step(self, text: str, steps: dict[str, float], name: str) -> Iterator[None]:
        """Progress on standard error, and how long it took."""
        if not self._quiet:
            print(f"{text} …", end=" ", file=sys.stderr, flush=True)
        started_s = time.monotonic()
        yield
        steps[name] = time.monotonic() - started_s
        if not self._quiet:
            print(f"{steps[name]:.1f} s", file=sys.stderr, flush=True)


def _ordered(text: str) -> Any:
    name, _, direction = text.partition(" ")
    return F.desc(name) if direction == "DESC" else F.asc(name)


def _manifest(listing: Listing, ingested: Ingested) -> dict[str, Any]:
    return {
        "fingerprint": listing.fingerprint,
        "segments": [{"kind": segment.kind, "name": segment.name, "bytes": segment.size} for segment in listing.segments],
        "rows": {kind: read.rows for kind, read in ingested.kinds.items()},
    }
