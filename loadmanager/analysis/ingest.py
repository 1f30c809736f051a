"""JSON lines → typed Parquet of one day, each day anew: run twice, the same result. Rows that are no records are put aside, counted, with samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from loadmanager.analysis.schema import CORRUPT, defaults_of, required_of, schema_of
from loadmanager.analysis.segments import Listing, Segment, Source
from loadmanager.core.history.records import KINDS

DAY_MS = 86_400_000
CLOCK_TOLERANCE_MS = 600_000
"""A record may be this far outside of its day: clocks differ."""
SAMPLES_MAX = 5
SAMPLE_CHARS_MAX = 300
LENGTH_MODULUS = 1 << 32


@dataclass(slots=True)
class KindRead:
    """What became of one kind of records."""

    rows: int = 0
    quarantined: int = 0
    samples: list[dict[str, str]] = field(default_factory=list)
    broken_segments: list[str] = field(default_factory=list)
    """Segments that end before their end."""


@dataclass(slots=True)
class Ingested:
    """What became of one day."""

    kinds: dict[str, KindRead]
    left_out: tuple[tuple[str, str], ...]

    @property
    def rows(self) -> int:
        """Records that are good."""
        return sum(kind.rows for kind in self.kinds.values())

    @property
    def problems(self) -> list[str]:
        """What was wrong, a sentence each."""
        found = [
            f"{kind}: {read.quarantined} rows are no records and were put aside" for kind, read in self.kinds.items() if read.quarantined
        ]
        found += [
            f"{kind}: {name} is cut off; what could be read was" for kind, read in self.kinds.items() for name in read.broken_segments
        ]
        found += [f"{path}: left out, {reason}" for path, reason in self.left_out if not reason.startswith("duplicate")]
        return found


def day_start_ms(date: str) -> int:
    """When a UTC day begins."""
    return int(datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000)


class Ingest:
    """Reads one day of one cluster into `output` (`…/cluster=<name>`)."""

    def __init__(self, spark: SparkSession, source: Source, output: str, date: str) -> None:
        self._spark = spark
        self._source = source
        self._output = output
        self._date = date

    def run(self, listing: Listing) -> Ingested:
        """All kinds."""
        return Ingested({kind: self._kind(kind, listing.of(kind)) for kind in KINDS}, listing.left_out)

    def records(self, kind: str) -> DataFrame:
        """The good records of the day, as `run` wrote them."""
        return self._spark.read.schema(schema_of(kind)).parquet(self._path("records", kind))

    def _path(self, what: str, kind: str) -> str:
        return f"{self._output}/{what}/kind={kind}/date={self._date}"

    def _kind(self, kind: str, segments: list[Segment]) -> KindRead:
        if not segments:
            self._spark.createDataFrame([], schema_of(kind)).write.mode("overwrite").parquet(self._path("records", kind))
            return KindRead()
        rows = self._parsed(kind, segments)
        seen = Observation()
        bad = self._problem(kind)
        observed = rows.observe(
            seen,
            F.count(F.lit(1)).alias("rows"),
            F.coalesce(F.sum(F.col("bytes") + 1), F.lit(0)).alias("bytes"),
            F.count_if(bad.isNotNull()).alias("bad"),
        )
        observed.where(bad.isNull()).select("record.*").drop(CORRUPT).fillna(defaults_of(kind)).write.mode("overwrite").parquet(
            self._path("records", kind)
        )
        counts = seen.get
        read = KindRead(rows=counts["rows"] - counts["bad"], quarantined=counts["bad"])
        if read.quarantined:
            read.samples = self._put_aside(kind, rows.where(bad.isNotNull()).withColumn("problem", bad))
        if counts["bytes"] % LENGTH_MODULUS != sum(segment.plain_bytes for segment in segments) % LENGTH_MODULUS:
            read.broken_segments = self._cut_off(rows, segments)
        return read

    def _parsed(self, kind: str, segments: list[Segment]) -> DataFrame:
        """Columns record (typed, with the corrupt text if it is none), value, bytes, segment."""
        schema = StructType([*schema_of(kind).fields, StructField(CORRUPT, StringType())])
        lines = self._spark.read.text(self._source.spark_paths(segments))
        return lines.select(
            F.from_json("value", schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}).alias("record"),
            "value",
            F.octet_length("value").alias("bytes"),
            F.col("_metadata.file_name").alias("segment"),
        )

    def _problem(self, kind: str) -> Column:
        """Why a row is no record; null for a good one."""
        start = day_start_ms(self._date)
        ts = F.col("record.ts")
        problem = F.when(F.col("record").isNull() | F.col(f"record.{CORRUPT}").isNotNull(), "not JSON, or a wrong type")
        for name in required_of(kind):
            problem = problem.when(F.col(f"record.{name}").isNull(), f"{name} is missing")
        problem = problem.when(ts >= start + DAY_MS + CLOCK_TOLERANCE_MS, "its time is after the day")
        return problem.when(ts < start - CLOCK_TOLERANCE_MS, "its time is before the day")

    def _put_aside(self, kind: str, bad: DataFrame) -> list[dict[str, str]]:
        bad.select("problem", "segment", "value").write.mode("overwrite").parquet(self._path("quarantine", kind))
        some = self._spark.read.parquet(self._path("quarantine", kind)).orderBy("segment", "value").limit(SAMPLES_MAX)
        text = F.substring("value", 1, SAMPLE_CHARS_MAX).alias("text")
        return [row.asDict() for row in some.select("problem", "segment", text).collect()]

    @staticmethod
    def _cut_off(rows: DataFrame, segments: list[Segment]) -> list[str]:
        """Which segments gave other than what their ends promise. A torn last line has no line end, which counts one."""
        found: dict[str, Any] = {
            row["segment"]: row["bytes"] for row in rows.groupBy("segment").agg(F.sum(F.col("bytes") + 1).alias("bytes")).collect()
        }
        broken = []
        for segment in segments:
            read = found.get(segment.name.replace(":", "_"), 0)
            torn = segment.name.endswith(".open") and read - segment.plain_bytes == 1
            if read % LENGTH_MODULUS != segment.plain_bytes % LENGTH_MODULUS and not torn:
                broken.append(segment.name)
        return broken
