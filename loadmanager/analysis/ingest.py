"""JSON lines of one day → typed Parquet; running it again gives the same result.

Lines that are not valid records are quarantined and counted, with samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from loadmanager.analysis.history_source import (
    DAMAGED,
    SAME_NAME,
    HistorySource,
    Listing,
    Segment,
)
from loadmanager.analysis.schema import CORRUPT, measured_of, numbers_of, required_of, schema_of
from loadmanager.analysis.session import stored
from loadmanager.core.errors import OperationalError
from loadmanager.core.history.layout import DAY_MS, day_of, day_start_ms, partition
from loadmanager.core.history.records import KINDS, OwnershipStep
from loadmanager.core.ownership.states import Cause

CLOCK_TOLERANCE_MS = 600_000
"""A record may be this far outside of its day: clocks differ."""
LINE_BYTES_MAX = 16 << 20
"""Records are shorter. Spark holds each line in memory, and skips longer ones."""
LINE_BYTES_OPTION = "mapreduce.input.linerecordreader.line.maxlength"
SAMPLES_MAX = 5
SAMPLE_CHARS_MAX = 300


class SegmentsMovedError(Exception):
    """Segments were sealed, compressed or deleted between listing and reading: list them again."""


@dataclass(slots=True)
class KindRead:
    """The outcome of reading one kind of records."""

    rows: int = 0
    put_aside: dict[str, int] = field(default_factory=dict)
    """Reason → number of quarantined rows."""
    samples: list[dict[str, str]] = field(default_factory=list)
    broken_segments: list[str] = field(default_factory=list)
    """Segments that are cut off, damaged or too large, with what is wrong."""

    @property
    def quarantined(self) -> int:
        """Number of rows that are not valid records."""
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
        """What was wrong, a sentence each."""
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
            if reason != SAME_NAME
        ]


class Ingest:
    """Reads one day of one cluster into `output` (`…/cluster=<name>`)."""

    def __init__(
        self,
        spark: SparkSession,
        source: HistorySource,
        output: str,
        date: str,
        *,
        remove: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._remove = remove
        self._source = source
        self._output = output
        self._date = date

    def run(self, listing: Listing) -> Ingested:
        """Read all kinds. Raises `SegmentsMovedError`, and `OperationalError` if Spark cannot."""
        return Ingested(
            {kind: self._kind(kind, listing.of(kind)) for kind in KINDS}, listing.left_out
        )

    def records(self, kind: str) -> DataFrame:
        """The good records of the day, as `run` wrote them."""
        return stored(self._spark, schema_of(kind), self._path("records", kind))

    def records_before(self, kind: str) -> DataFrame | None:
        """The good records of the day before; None where it was not analysed.

        Raises as Spark does.
        """
        day_before = day_of(day_start_ms(self._date) - DAY_MS)
        try:
            path = f"{self._output}/records/{partition(kind, day_before)}"
            return stored(self._spark, schema_of(kind), path)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return None

    def _path(self, what: str, kind: str) -> str:
        return f"{self._output}/{what}/{partition(kind, self._date)}"

    def _kind(self, kind: str, segments: list[Segment]) -> KindRead:
        if not segments:
            return self._nothing(kind)
        try:
            return self._read(kind, segments, tolerant=False)
        except (PySparkException, Py4JError) as error:
            # Spark does not name the damaged file, so all files are checked.
            if self._source.gone(segments):
                raise SegmentsMovedError from None
            broken, said = self._source.broken(segments), first_line(error)
        bounded = [segment for segment in segments if broken.get(segment, DAMAGED) == DAMAGED]
        try:
            read = self._read(kind, bounded, tolerant=True) if bounded else self._nothing(kind)
        except (PySparkException, Py4JError) as error:
            raise OperationalError(f"{kind} cannot be read: {first_line(error)}") from None
        read.broken_segments = [f"{segment.name} {fault}" for segment, fault in broken.items()] or [
            f"a segment (which one, Spark does not say: {said}) {DAMAGED}"
        ]
        return read

    def _nothing(self, kind: str) -> KindRead:
        """Write a table without rows."""
        empty = self._spark.createDataFrame(
            [], StructType([*schema_of(kind).fields, StructField("segment", StringType())])
        )
        empty.write.mode("overwrite").parquet(self._path("records", kind))
        self._remove(self._path("quarantine", kind))
        return KindRead()

    def _read(self, kind: str, segments: list[Segment], *, tolerant: bool) -> KindRead:
        """Write the good rows and the bad ones.

        `tolerant`: of a damaged file take what comes before the damage.
        """
        fields = schema_of(kind).names
        rows = self._parsed(kind, segments, tolerant=tolerant)
        seen = Observation()
        observed = rows.observe(
            seen, F.count(F.lit(1)).alias("rows"), F.count("problem").alias("bad")
        )
        good = observed.where(F.col("problem").isNull()).select(*fields, "segment")
        # Measured values and times hardly repeat: a dictionary would not make them smaller.
        plain = {
            f"parquet.enable.dictionary#{name}": "false" for name in ("ts", *measured_of(kind))
        }
        good.write.mode("overwrite").options(**plain).parquet(self._path("records", kind))
        counts = seen.get
        read = KindRead(rows=counts["rows"] - counts["bad"])
        if counts["bad"]:
            self._put_aside(kind, rows.where(F.col("problem").isNotNull()), read)
        else:
            self._remove(self._path("quarantine", kind))
        return read

    def _parsed(self, kind: str, segments: list[Segment], *, tolerant: bool) -> DataFrame:
        """Columns: the record's fields; CORRUPT, the raw text of an unparsable line; segment;
        problem, why the line was rejected (null for a valid record).
        """
        schema = StructType([*schema_of(kind).fields, StructField(CORRUPT, StringType())])
        reader = (
            self._spark.read.schema(schema)
            .option("columnNameOfCorruptRecord", CORRUPT)
            .option("ignoreCorruptFiles", tolerant)
            .option(LINE_BYTES_OPTION, LINE_BYTES_MAX)
        )
        lines = reader.json(self._source.spark_paths(segments))
        if kind == OwnershipStep.kind:
            lines = _with_cause_and_parent(lines)
        return lines.withColumn("segment", F.col("_metadata.file_name")).withColumn(
            "problem", self._problem(kind)
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

    def _put_aside(self, kind: str, bad: DataFrame, read: KindRead) -> None:
        text = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*schema_of(kind).names))).alias("text")
        bad.select("problem", "segment", text).write.mode("overwrite").parquet(
            self._path("quarantine", kind)
        )
        aside = self._spark.read.parquet(self._path("quarantine", kind))
        read.put_aside = {
            row["problem"]: row["count"] for row in aside.groupBy("problem").count().collect()
        }
        some = aside.orderBy("segment", "text").limit(SAMPLES_MAX)
        read.samples = [
            row.asDict()
            for row in some.withColumn("text", F.substring("text", 1, SAMPLE_CHARS_MAX)).collect()
        ]


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
