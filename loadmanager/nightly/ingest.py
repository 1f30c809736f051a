"""JSON lines of one day → typed Parquet, in one pass; running it again gives the same result.

Lines that are not valid records are stored beside the others with the reason, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

import pyarrow as pa

from loadmanager.engine.history.records import OwnershipStep
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.failures import first_line
from loadmanager.kit.history.layout import day_of, day_start_ms
from loadmanager.kit.history.source import DUPLICATE_OF, SAME_NAME, HistorySource, Listing, Segment
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly import reading
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.drafts import DayDraft
from loadmanager.nightly.engine import Engine, StoredTable
from loadmanager.nightly.schema import KINDS, numbers_of, required_of, schema_of

CLOCK_TOLERANCE_MS = 600_000
"""A record may be this far outside of its day: clocks differ."""
TASK_BYTES = 32 << 20
"""Segments of one task: so many bytes, compressed, become one file."""
SUMS_OF = {
    "bundle_load": {"bundles": ("bundle", "broker"), "namespaces": ("namespace", "hour")},
    "topic_load": {"topics": ("topic", "bundle")},
}
"""Kind → sums of its loads, each with its two columns."""
OLD_CAUSES = {"broker stops": LifeCause.STOP.value, "admin": LifeCause.OPERATOR.value}
WHOLE = ("hour", "samples", "first_ts", "last_ts", "topics_max", "backlog_max")
"""Columns of sums that are whole numbers."""
BEFORE = "_before"
"""What the table of the day before has behind its name."""


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
        self, engine: Engine, source: HistorySource, days: AnalysedDays, draft: DayDraft, date: str
    ) -> None:
        self.engine = engine
        self._source = source
        self._days = days
        self._draft = draft
        self._date = date
        self._files: dict[str, list[str]] = {}
        """Kind of records or sums → its files."""

    @property
    def history_url(self) -> str:
        return self._source.url

    def run(self, listing: Listing) -> Ingested:
        """Read all kinds. Raises `SegmentsMovedError`; `OperationalError` if the engine fails."""
        tasks = [task for kind in KINDS for task in self._tasks(kind, listing.of(kind))]
        kinds = {kind: KindRead() for kind in KINDS}
        outcomes = self._read(tasks)
        for task, outcome in zip(tasks, outcomes, strict=True):
            if outcome.gone:
                raise SegmentsMovedError
            if outcome.unwritten:
                raise OperationalError(f"{task.path} cannot be written: {outcome.unwritten}")
            read = kinds[outcome.kind]
            read.rows += outcome.rows
            if outcome.rows or outcome.put_aside:
                self._draft.paths += outcome.written
            if outcome.rows:
                for name, path in (
                    (task.kind, task.path),
                    *zip(SUMS_OF.get(task.kind, {}), (path for _, path in task.sums), strict=True),
                ):
                    self._files.setdefault(name, []).append(path)
            read.put_aside = dict(Counter(read.put_aside) + outcome.put_aside)
            read.samples = [*read.samples, *outcome.samples][: reading.SAMPLES_MAX]
            read.faults |= outcome.faults
        self._define()
        return Ingested(kinds, listing.left_out)

    def _read(self, tasks: Sequence[reading.SegmentTask]) -> list[reading.TaskOutcome]:
        try:
            return self.engine.each(reading.run, tasks)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - each engine raises its own
            reason = first_line(error)
            if "ModuleNotFoundError" in reason:
                reason += (
                    "; every executor needs Python with pyarrow, fsspec and the package of the "
                    "file system"
                )
            raise OperationalError(f"the day cannot be read: {reason}") from None

    def _define(self) -> None:
        """Have the day's records and sums as tables."""
        for kind in KINDS:
            self.engine.define(f"{kind}_lines", _lines(kind), self._table(kind))
            for name, keys in SUMS_OF.get(kind, {}).items():
                self.engine.define(name, _sums(keys), self._table(name))

    def _table(self, name: str) -> StoredTable | None:
        paths = self._files.get(name)
        return self._days.table(paths) if paths else None

    def _tasks(self, kind: str, segments: list[Segment]) -> Iterator[reading.SegmentTask]:
        """The segments of a kind, in groups of about `TASK_BYTES`."""
        start = day_start_ms(self._date)
        rules = reading.RecordFormat(
            schema=schema_of(kind),
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
                path=self._draft.path("records", kind, number),
                sums=[
                    (keys, self._draft.path("sums", name, number))
                    for name, keys in SUMS_OF.get(kind, {}).items()
                ],
            )

    def throughputs(self, kind: str, column: str, names: Sequence[str]) -> pa.Table:
        """`broker`, `ts` and `throughput` of the loads whose column has one of these names."""
        search = reading.RecordSearch(self._days.files, column, names)
        return pa.concat_tables(self.engine.each(search.run, self._files[kind]))

    def has_before(self, kind: str) -> bool:
        """Whether there are records of the day before; then they are a table, too."""
        before = self._days.stored("records", kind, day_of(day_start_ms(self._date) - DAY_MS))
        if before is not None:
            self.engine.define(f"{kind}{BEFORE}_lines", _lines(kind), before)
        return before is not None


def good(kind: str) -> str:
    """The records of a kind, as a table of a query; the lines that are no records are left out."""
    return f"(SELECT * FROM {kind}_lines WHERE {reading.PROBLEM} IS NULL) AS {kind}"


def _lines(kind: str) -> pa.Schema:
    return schema_of(kind).append(pa.field(reading.PROBLEM, pa.string()))


def _sums(keys: Sequence[str]) -> pa.Schema:
    """Of one of `SUMS_OF`; several rows may have the same keys."""
    texts = set(keys) - {"hour"}
    types = {name: pa.int64() if name in WHOLE else pa.float64() for name in reading.SUMS}
    types |= {name: pa.string() if name in texts else pa.int64() for name in keys}
    return pa.schema([(name, types[name]) for name in (*keys, *reading.SUMS)])
