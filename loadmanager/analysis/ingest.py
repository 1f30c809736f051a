"""JSON lines → typed Parquet of one day, each day anew: run twice, the same result. Rows that are no records are put aside, counted, with samples."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from loadmanager.analysis.schema import CORRUPT, required_of, schema_of
from loadmanager.analysis.segments import Listing, Segment, Source
from loadmanager.core.history.records import KINDS

DAY_MS = 86_400_000
CLOCK_TOLERANCE_MS = 600_000
"""A record may be this far outside of its day: clocks differ."""
SAMPLES_MAX = 5
SAMPLE_CHARS_MAX = 300
LINE_BYTES_MAX = 2048
"""Records are shorter than this on average."""


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
        fields = schema_of(kind).names
        if not segments:
            empty = self._spark.createDataFrame([], StructType([*schema_of(kind).fields, StructField("segment", StringType())]))
            empty.write.mode("overwrite").parquet(self._path("records", kind))
            return KindRead()
        rows = self._parsed(kind, segments)
        seen = Observation()
        observed = rows.observe(seen, F.count(F.lit(1)).alias("rows"), F.count("problem").alias("bad"))
        good = observed.where(F.col("problem").isNull()).select(*fields, "segment")
        good.write.mode("overwrite").parquet(self._path("records", kind))
        counts = seen.get
        read = KindRead(rows=counts["rows"] - counts["bad"], quarantined=counts["bad"])
        if read.quarantined:
            read.samples = self._put_aside(kind, rows.where(F.col("problem").isNotNull()))
        read.broken_segments = self._cut_off(kind, segments, quarantined=bool(read.quarantined))
        return read

    def _parsed(self, kind: str, segments: list[Segment]) -> DataFrame:
        """The fields, typed; CORRUPT, the text of what is none; segment; problem, why a row is no record (null for a good one)."""
        schema = StructType([*schema_of(kind).fields, StructField(CORRUPT, StringType())])
        lines = self._spark.read.schema(schema).option("columnNameOfCorruptRecord", CORRUPT).json(self._source.spark_paths(segments))
        return lines.withColumn("segment", F.col("_metadata.file_name")).withColumn("problem", self._problem(kind))

    def _problem(self, kind: str) -> Column:
        start = day_start_ms(self._date)
        ts = F.col("ts")
        problem = F.when(F.col(CORRUPT).isNotNull(), "not JSON, or a wrong type")
        for name in required_of(kind):
            problem = problem.when(F.col(name).isNull(), f"{name} is missing")
        problem = problem.when(ts >= start + DAY_MS + CLOCK_TOLERANCE_MS, "its time is after the day")
        return problem.when(ts < start - CLOCK_TOLERANCE_MS, "its time is before the day")

    def _put_aside(self, kind: str, bad: DataFrame) -> list[dict[str, str]]:
        text = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*schema_of(kind).names))).alias("text")
        bad.select("problem", "segment", text).write.mode("overwrite").parquet(self._path("quarantine", kind))
        some = self._spark.read.parquet(self._path("quarantine", kind)).orderBy("segment", "text").limit(SAMPLES_MAX)
        return [row.asDict() for row in some.withColumn("text", F.substring("text", 1, SAMPLE_CHARS_MAX)).collect()]

    def _cut_off(self, kind: str, segments: list[Segment], *, quarantined: bool) -> list[str]:
        """Compressed segments that end before their end.

        Spark reads of such a one what there is, and does not say so. What stands at its end instead of its length is any number: where that does not go
        with the rows that were read, the file is decompressed to see. (One in a thousand goes unnoticed by that.)
        """
        counts = self._counts("records", kind)
        if quarantined:
            for segment, count in self._counts("quarantine", kind).items():
                counts[segment] = counts.get(segment, 0) + count
        compressed = [segment for segment in segments if segment.name.endswith(".gz")]
        lengths = {segment: segment.plain_bytes / max(counts.get(segment.name.replace(":", "_"), 0), 1) for segment in compressed}
        usual = min(statistics.median(lengths.values()), LINE_BYTES_MAX) if lengths else 0.0
        doubtful = (segment for segment, length in lengths.items() if not usual / 2 <= length <= usual * 2)
        return [segment.name for segment in doubtful if not self._source.is_whole(segment)]

    def _counts(self, what: str, kind: str) -> dict[str, int]:
        return {
            row["segment"]: row["count"] for row in self._spark.read.parquet(self._path(what, kind)).groupBy("segment").count().collect()
        }
