"""JSON lines of one day → typed Parquet, in one pass; running it again gives the same result.

Lines that are not valid records are stored beside the others with the reason, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from loadmanager.engine.history.records import KINDS, OwnershipStep
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.history import blocks
from loadmanager.kit.history.layout import day_of, day_start_ms
from loadmanager.kit.history.source import DUPLICATE_OF, SAME_NAME, HistorySource, Listing, Segment
from loadmanager.kit.spark import first_line, stored
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly import reading
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.schema import numbers_of, required_of, schema_of

CLOCK_TOLERANCE_MS = 600_000
"""A record may be this far outside of its day: clocks differ."""
TASK_BYTES = 32 << 20
"""Segments of one task: so many bytes, compressed, become one file."""
PROCESSES_MAX = 4
"""On one machine, however many cores it has: each may take half a gigabyte."""
SUMS_OF = {
    "bundle_load": {"bundles": ("bundle", "broker"), "namespaces": ("namespace", "hour")},
    "topic_load": {"topics": ("topic", "bundle")},
}
"""Kind → sums of its loads, each with its two columns."""
OLD_CAUSES = {"broker stops": LifeCause.STOP.value, "admin": LifeCause.OPERATOR.value}

for _travels in (reading, blocks):
    cloudpickle.register_pickle_by_value(_travels)


class SegmentsMovedError(Exception):
    """Segments were sealed, compressed or deleted between listing and reading: list them again."""


@dataclass(slots=True)
class KindRead:
    """The outcome of reading one kind of records."""

    rows: int = 0
    put_aside: dict[str, int] = field(default_factory=dict)
    """Reason → number of lines that are no valid records."""
    samples: list[dict[str, str]] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    """Segments that are cut off, damaged or too large, with what is wrong."""

    @property
    def quarantined(self) -> int:
        """Number of lines that are not valid records."""
        return sum(self.put_aside.values())


@dataclass(slots=True)
class Ingested:
    """The outcome of reading one day."""

    kinds: dict[str, KindRead]
    left_out: tuple[tuple[str, str], ...]

    @property
    def rows(self) -> int:
        """Number of valid records."""
        return sum(kind.rows for kind in self.kinds.values())

    @property
    def problems(self) -> list[str]:
        """The problems of the day's records, a sentence each."""
        problems = []
        for kind, read in self.kinds.items():
            if read.put_aside:
                reasons = "; ".join(
                    f"{reason}: {count:,}" for reason, count in sorted(read.put_aside.items())
                )
                problems.append(
                    f"{kind}: {read.quarantined:,} rows are no records and were put "
                    f"aside ({reasons})"
                )
            problems += [f"{kind}: {name} {fault}" for name, fault in sorted(read.faults.items())]
        return problems + [
            f"{path.rpartition('cluster=')[2]}: left out, {reason}"
            for path, reason in self.left_out
            if reason != SAME_NAME and not reason.startswith(DUPLICATE_OF)
        ]


class Ingest:
    """Reads one day of one cluster, and stores its records among the analysed days."""

    def __init__(
        self, spark: SparkSession, source: HistorySource, days: AnalysedDays, date: str
    ) -> None:
        self._spark = spark
        self._source = source
        self._days = days
        self._date = date
        self._files: dict[str, list[str]] = {}
        """Kind → the files with its lines."""
        self._empty: set[str] = set()
        """Kinds without a good record: questions about them start no job."""

    @property
    def history_url(self) -> str:
        return self._source.url

    def run(self, listing: Listing) -> Ingested:
        """Read all kinds. Raises `SegmentsMovedError`, and `OperationalError` if Spark cannot."""
        for kind in KINDS:
            self._remove(kind)
        tasks = [task for kind in KINDS for task in self._tasks(kind, listing.of(kind))]
        kinds = {kind: KindRead() for kind in KINDS}
        try:
            outcomes = self._each(reading.run, tasks)
        except (PySparkException, Py4JError) as error:
            reason = first_line(error)
            if "ModuleNotFoundError" in reason:
                reason += (
                    "; every executor needs Python with pyarrow, fsspec and the package of the "
                    "file system"
                )
            raise OperationalError(f"the day cannot be read: {reason}") from None
        for task, outcome in zip(tasks, outcomes, strict=True):
            if outcome.gone:
                raise SegmentsMovedError
            if outcome.unwritten:
                raise OperationalError(f"{task.path} cannot be written: {outcome.unwritten}")
            read = kinds[outcome.kind]
            read.rows += outcome.rows
            if outcome.rows:
                self._files.setdefault(task.kind, []).append(task.path)
            read.put_aside = dict(Counter(read.put_aside) + outcome.put_aside)
            read.samples = [*read.samples, *outcome.samples][: reading.SAMPLES_MAX]
            read.faults |= outcome.faults
        for kind, read in kinds.items():
            if not read.rows + read.quarantined:
                self._remove(kind)
        self._empty = {kind for kind, read in kinds.items() if not read.rows}
        return Ingested(kinds, listing.left_out)

    def _remove(self, kind: str) -> None:
        self._days.remove("records", kind, self._date)
        for name in SUMS_OF.get(kind, ()):
            self._days.remove("sums", name, self._date)

    def _each(self, run: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """What comes of each item, a task each. Raises what Spark raises."""
        if not items:
            return []
        context = self._spark.sparkContext
        at_once = PROCESSES_MAX if context.master.startswith("local") else len(items)
        spread = context.parallelize(items, min(len(items), at_once))
        results: list[Any] = spread.map(run).collect()
        return results

    def _tasks(self, kind: str, segments: list[Segment]) -> Iterator[reading.SegmentTask]:
        """The segments of a kind, in groups of about `TASK_BYTES`."""
        start = day_start_ms(self._date)
        rules = reading.RecordFormat(
            schema=to_arrow_schema(schema_of(kind)),
            required=required_of(kind),
            numbers=numbers_of(kind),
            first_ms=start - CLOCK_TOLERANCE_MS,
            end_ms=start + DAY_MS + CLOCK_TOLERANCE_MS,
            causes=OLD_CAUSES if kind == OwnershipStep.kind else {},
        )
        starts = accumulate((segment.size for segment in segments), initial=0)
        numbers = {segment: at // TASK_BYTES for segment, at in zip(segments, starts, strict=False)}
        for number, group in groupby(segments, key=numbers.__getitem__):
            yield reading.SegmentTask(
                kind=kind,
                segments=[(segment.path, segment.name) for segment in group],
                rules=rules,
                plain_bytes_max=self._source.plain_bytes_max,
                source=self._source.files,
                target=self._days.files,
                path=f"{self._days.folder('records', kind, self._date)}/{number:05}.parquet",
                sums=[
                    (keys, f"{self._days.folder('sums', name, self._date)}/{number:05}.parquet")
                    for name, keys in SUMS_OF.get(kind, {}).items()
                ],
            )

    def records(self, kind: str) -> DataFrame:
        """The good records of the day, as `run` wrote them."""
        if kind in self._empty:
            return self._spark.createDataFrame([], schema_of(kind)).limit(0)
        return self._good(kind, self._date)

    def sums(self, kind: str, name: str) -> DataFrame:
        """Sums of its loads, one of `SUMS_OF`; their columns may have several rows alike."""
        whole = ("hour", "samples", "first_ts", "last_ts", "topics_max", "backlog_max")
        keys = SUMS_OF[kind][name]
        schema = StructType()
        for column in (*keys, *reading.SUMS):
            text = column in keys and column != "hour"
            number = LongType() if column in whole else DoubleType()
            schema.add(column, StringType() if text else number)
        if kind in self._empty:
            return self._spark.createDataFrame([], schema).limit(0)
        return stored(self._spark, schema, self._days.spark_path("sums", name, self._date))

    def throughputs(self, kind: str, column: str, names: Sequence[str]) -> pa.Table:
        """`broker`, `ts` and `throughput` of the loads whose column has one of these names."""
        search = reading.RecordSearch(self._days.files, column, names)
        return pa.concat_tables(self._each(search.run, self._files[kind]))

    def records_before(self, kind: str) -> DataFrame | None:
        """The good records of the day before; None where it was not analysed.

        Raises as Spark does.
        """
        try:
            return self._good(kind, day_of(day_start_ms(self._date) - DAY_MS))
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return None

    def _good(self, kind: str, date: str) -> DataFrame:
        problem = StructField(reading.PROBLEM, StringType())
        schema = StructType([*schema_of(kind).fields, problem])
        lines = stored(self._spark, schema, self._days.spark_path("records", kind, date))
        return lines.where(F.col(reading.PROBLEM).isNull()).drop(reading.PROBLEM)
