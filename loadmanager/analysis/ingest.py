"""JSON lines of one day → typed Parquet, in one pass; running it again gives the same result.

Lines that are not valid records are stored beside the others with the reason, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import LongType, StringType, StructField, StructType

from loadmanager.analysis.analysed_days import AnalysedDays
from loadmanager.analysis.history_source import (
    DAMAGED,
    DUPLICATE_OF,
    SAME_NAME,
    HistorySource,
    Listing,
    Segment,
)
from loadmanager.analysis.schema import CORRUPT, measured_of, numbers_of, required_of, schema_of
from loadmanager.analysis.session import stored
from loadmanager.core.errors import OperationalError
from loadmanager.core.history.layout import COMPRESSED, day_of, day_start_ms
from loadmanager.core.history.records import KINDS, OwnershipStep
from loadmanager.core.ownership.states import Cause
from loadmanager.core.units import DAY_MS

CLOCK_TOLERANCE_MS = 600_000
"""A record may be this far outside of its day: clocks differ."""
LINE_BYTES_MAX = 16 << 20
"""Records are shorter. Spark holds each line in memory, and skips longer ones."""
LINE_BYTES_OPTION = "mapreduce.input.linerecordreader.line.maxlength"
PROBLEM = "problem"
ASIDE = StructType([StructField(PROBLEM, StringType()), StructField("text", StringType())])
"""Columns that are null for valid records."""
FROM = StructType([StructField("segment", StringType()), StructField("lineBytes", LongType())])
SAMPLES_MAX = 5
SAMPLE_CHARS_MAX = 300


class SegmentsMovedError(Exception):
    """Segments were sealed, compressed or deleted between listing and reading: list them again."""


@dataclass(slots=True)
class KindRead:
    """The outcome of reading one kind of records."""

    rows: int = 0
    put_aside: dict[str, int] = field(default_factory=dict)
    """Reason → number of lines that are no valid records."""
    samples: list[dict[str, str]] = field(default_factory=list)
    broken_segments: list[str] = field(default_factory=list)
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
        found = []
        for kind, read in self.kinds.items():
            if read.put_aside:
                reasons = "; ".join(
                    f"{reason}: {count:,}" for reason, count in sorted(read.put_aside.items())
                )
                found.append(
                    f"{kind}: {read.quarantined:,} rows are no records and were put "
                    f"aside ({reasons})"
                )
            found += [f"{kind}: {text}" for text in read.broken_segments]
        return found + [
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
        self._empty: set[str] = set()
        """Kinds without a good record: questions about them start no job."""

    def run(self, listing: Listing) -> Ingested:
        """Read all kinds. Raises `SegmentsMovedError`, and `OperationalError` if Spark cannot."""
        kinds = {kind: self._kind(kind, listing.of(kind)) for kind in KINDS}
        self._empty = {kind for kind, read in kinds.items() if not read.rows}
        return Ingested(kinds, listing.left_out)

    def records(self, kind: str) -> DataFrame:
        """The good records of the day, as `run` wrote them."""
        if kind in self._empty:
            return self._spark.createDataFrame([], schema_of(kind)).limit(0)
        return self._good(kind, self._date)

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
        schema = StructType([*schema_of(kind).fields, *ASIDE.fields])
        lines = stored(self._spark, schema, self._days.records(kind, date))
        return lines.where(F.col(PROBLEM).isNull()).drop(*ASIDE.names)

    def _path(self, kind: str) -> str:
        return self._days.records(kind, self._date)

    def _kind(self, kind: str, segments: list[Segment]) -> KindRead:
        if not segments:
            return self._nothing(kind)
        read, plain_bytes = self._read(kind, segments)
        told = sum(segment.plain_bytes for segment in segments if segment.compressed)
        if plain_bytes == told:
            return read
        broken = self._source.broken(self._doubtful(kind, segments))
        bounded = [one for one in segments if broken.get(one, DAMAGED) == DAMAGED]
        if len(bounded) < len(segments):
            read = self._read(kind, bounded)[0] if bounded else self._nothing(kind)
        read.broken_segments = [f"{one.name} {fault}" for one, fault in broken.items()]
        return read

    def _doubtful(self, kind: str, segments: list[Segment]) -> list[Segment]:
        """Compressed segments of which other bytes were read than their trailers tell."""
        lines = self._spark.read.parquet(self._path(kind)).groupBy("segment")
        rows = lines.agg(F.sum(F.col("lineBytes") + 1).alias("bytes")).collect()
        read = {row["segment"]: row["bytes"] for row in rows}
        return [
            segment
            for segment in segments
            if segment.compressed
            and read.get(self._source.file_name(segment), 0) != segment.plain_bytes
        ]

    def _nothing(self, kind: str) -> KindRead:
        """No line of this kind: what an earlier run stored goes."""
        self._days.remove_records(kind, self._date)
        return KindRead()

    def _read(self, kind: str, segments: list[Segment]) -> tuple[KindRead, int]:
        """Write every line, typed, in one pass; returns what was read, and how many bytes of
        compressed segments. Of a damaged file, what comes before the damage is read.
        """
        lines = self._parsed(kind, segments)
        seen = Observation()
        size = F.when(F.col("segment").endswith(COMPRESSED), F.col("lineBytes") + 1).otherwise(0)
        observed = lines.observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.count(PROBLEM).alias("bad"),
            F.sum(size.cast("long")).alias("bytes"),
        )
        # Measured values and times hardly repeat: a dictionary would not make them smaller.
        plain = {
            f"parquet.enable.dictionary#{name}": "false" for name in ("ts", *measured_of(kind))
        }
        try:
            observed.write.mode("overwrite").options(**plain).parquet(self._path(kind))
        except (PySparkException, Py4JError) as error:
            if self._source.gone(segments):
                raise SegmentsMovedError from None
            raise OperationalError(f"{kind} cannot be read: {first_line(error)}") from None
        counts = seen.get
        read = KindRead(rows=counts["rows"] - counts["bad"])
        if counts["bad"]:
            self._describe(kind, read)
        return read, counts["bytes"] or 0

    def _parsed(self, kind: str, segments: list[Segment]) -> DataFrame:
        """Columns: the record's fields; problem, why the line is no valid record (null for one),
        with its text; segment and lineBytes, where it comes from and how long it was.
        """
        schema = StructType([*schema_of(kind).fields, StructField(CORRUPT, StringType())])
        reader = self._spark.read.option("ignoreCorruptFiles", True).option(
            LINE_BYTES_OPTION, LINE_BYTES_MAX
        )
        lines_read = reader.text(self._source.spark_paths(segments)).where(F.col("value") != "")
        text = lines_read.select(
            "value",
            F.col("_metadata.file_name").alias("segment"),
            F.octet_length("value").cast("long").alias("lineBytes"),
            F.from_json(
                "value", schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
            ).alias("record"),
        )
        lines = text.select("record.*", "value", "segment", "lineBytes")
        if kind == OwnershipStep.kind:
            lines = _with_cause_and_parent(lines)
        lines = lines.withColumn(PROBLEM, self._problem(kind))
        return lines.select(
            *schema_of(kind).names,
            PROBLEM,
            F.when(F.col(PROBLEM).isNotNull(), F.col("value")).alias("text"),
            *FROM.names,
        )

    def _problem(self, kind: str) -> Column:
        start = day_start_ms(self._date)
        ts = F.col("ts")
        problem = F.when(F.col(CORRUPT).isNotNull(), "not JSON, or a wrong type")
        for name in required_of(kind):
            problem = problem.when(F.col(name).isNull(), f"{name} is missing")
        for name, low, high in numbers_of(kind):
            problem = problem.when(~F.col(name).between(low, high), f"{name} is impossible")
        problem = problem.when(
            ts >= start + DAY_MS + CLOCK_TOLERANCE_MS, "its time is after the day"
        )
        return problem.when(ts < start - CLOCK_TOLERANCE_MS, "its time is before the day")

    def _describe(self, kind: str, read: KindRead) -> None:
        """Count the lines that are no records by reason, and show some."""
        schema = StructType([*ASIDE.fields, *FROM.fields])
        lines = stored(self._spark, schema, self._path(kind)).where(F.col(PROBLEM).isNotNull())
        read.put_aside = {
            row[PROBLEM]: row["count"] for row in lines.groupBy(PROBLEM).count().collect()
        }
        some = lines.orderBy("segment", "text").limit(SAMPLES_MAX)
        text = F.substring("text", 1, SAMPLE_CHARS_MAX).alias("text")
        read.samples = [row.asDict() for row in some.select(PROBLEM, "segment", text).collect()]


def _with_cause_and_parent(steps: DataFrame) -> DataFrame:
    """Ownership records of version 1 say in `reason` what later ones have fields for."""
    reason, old = F.col("reason"), F.col("v") == 1
    cause = F.when(old & (reason == "broker stops"), Cause.STOP.value).when(
        old & (reason == "admin"), Cause.OPERATOR.value
    )
    namespace = F.substring_index("bundle", "/", 2)
    parent = F.concat_ws("/", namespace, F.substring_index("reason", " ", -1))
    return steps.withColumn("cause", F.coalesce("cause", cause)).withColumn(
        "parent", F.coalesce("parent", F.when(old & reason.startswith("split of "), parent))
    )


def first_line(error: Exception) -> str:
    """The first line of a Spark error, without the stack."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
