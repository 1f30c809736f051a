"""The days that were analysed: what is stored of each, and which segments it was made from."""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.history.layout import (
    OPEN,
    cluster_folder,
    day_of,
    day_start_ms,
    partition,
    stem_of,
)
from loadmanager.kit.history.source import HistorySource, ListedSegment, spark_url
from loadmanager.kit.units import DAY_MS
from loadmanager.nightly.engine import StoredTable

LATE_DAYS = 3
"""How many days back to look for late segments."""
MANIFEST = "_manifest.json"
LOCK = "_lock"
TABLE = "table.parquet"
Row = dict[str, Any]


class _Manifest(msgspec.Struct):
    """What is known of a day's segments."""

    seen: list[ListedSegment]
    complete: bool = True
    """False while a run writes the day, and after one that was killed meanwhile."""


class AnalysedDays:
    """Below `url`, the records, tables and reports of one cluster, in `files`.

    Raises `BadInputError` if the folder cannot be written.
    """

    def __init__(self, url: str, cluster: str) -> None:
        try:
            fs, root = fsspec.core.url_to_fs(url)
            self.cluster = cluster
            self.files: Any = fs
            self._root = f"{root.rstrip('/')}/{cluster_folder(cluster)}"
            fs.makedirs(self._root, exist_ok=True)
        except Exception as error:  # noqa: BLE001 - every file system raises its own
            raise BadInputError(f"--output {url} cannot be written: {error}") from None
        self._spark_root = spark_url(fs, url, self._root)

    def late(self, date: str, source: HistorySource) -> list[str]:
        """Days before `date` to analyse again or for the first time, because segments came late.

        A day is left as it is once analysed segments are gone from the history: its tables hold
        more than could be read now.
        """
        analysed = {
            path.rpartition("date=")[2].removesuffix(MANIFEST)
            for path in self.files.glob(f"{self._root}/{_manifest('*')}")
        }
        late = []
        for day in [day for day in source.dates(self.cluster) if day < date][-LATE_DAYS:]:
            if day not in analysed:
                late += [day] if analysed and day > min(analysed) else []
                continue
            before, present = self.segments(day), source.segments(self.cluster, day)
            if not _changed(before, present) and self._manifest_of(day).complete:
                continue
            if gone := gone_count(before, present):
                print(
                    f"{day}: segments came late, but {gone} of those analysed before are gone; it "
                    "stays as it was",
                    file=sys.stderr,
                )
                continue
            late.append(day)
        return late

    def segments(self, date: str) -> set[ListedSegment]:
        """The segments that earlier runs analysed; none if nobody can tell any more."""
        return set(self._manifest_of(date).seen)

    def _manifest_of(self, date: str) -> _Manifest:
        path = f"{self._root}/{_manifest(date)}"
        if not self.files.exists(path):
            return _Manifest([])
        with self.files.open(path, "rb") as file:
            try:
                return msgspec.json.decode(file.read(), type=_Manifest)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return _Manifest([])

    def remember(
        self,
        date: str,
        segments: Set[ListedSegment],
        rows: dict[str, int],
        *,
        complete: bool = True,
    ) -> None:
        """Store which segments a day was made from, how many records of each kind there are, and
        whether what is stored of it is whole. Segments of earlier runs that are gone stay.
        """
        listed = segments | _gone(self.segments(date), segments)
        document = {"complete": complete, "seen": sorted(listed), "rows": rows}
        self.write(_manifest(date), json.dumps(document, indent=1))

    def forget_old(self, date: str, days_max: int) -> None:
        """Delete the records and sums of days so long before `date`; 0: of none. Tables, reports
        and manifests stay.
        """
        if not days_max:
            return
        oldest = day_of(day_start_ms(date) - days_max * DAY_MS)
        for folder in self.files.glob(f"{self._root}/*/kind=*/date=*"):
            if folder.rpartition("date=")[2] < oldest:
                self._remove(folder)

    def write(self, name: str, text: str) -> str:
        """Write a file, all or nothing; returns where it is."""
        path = f"{self._root}/{name}"
        self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
        if not self._local:  # an object store has a file once it is complete
            with self.files.open(path, "w") as file:
                file.write(text)
            return str(self.files.unstrip_protocol(path))
        part = Path(path).with_name(f"_{Path(path).name}.part")
        part.write_text(text, encoding="utf-8", errors="surrogatepass")
        part.replace(path)
        return path

    @property
    def _local(self) -> bool:
        return "file" in self.files.protocol

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs out while this one writes; a run that is killed lets the next one in.

        Raises `OperationalError` if another one runs. On anything else than a local file system
        nothing keeps them apart.
        """
        if not self._local:
            yield
            return
        with Path(self._root, LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OperationalError(
                    f"another run analyses {self.cluster} into {self._root}: wait until it ends"
                ) from None
            yield

    def write_table(self, name: str, date: str, table: pa.Table) -> None:
        """Store the table of a question, in one file."""
        self.remove_table(name, date)
        folder = self._table(name, date)
        self.files.makedirs(folder, exist_ok=True)
        with self.files.open(f"{folder}/{TABLE}", "wb") as file:
            pq.write_table(table, file)

    def rows(self, name: str, date: str, columns: Sequence[str] | None = None) -> list[Row]:
        """The stored rows of a day; empty without a table, or with one of an earlier version."""
        path = f"{self._table(name, date)}/{TABLE}"
        try:
            with self.files.open(path, "rb") as file:
                rows: list[Row] = pq.read_table(file, columns=columns).to_pylist()
        except (OSError, pa.ArrowException):
            return []
        return rows

    def remove_table(self, name: str, date: str) -> None:
        """Delete what an earlier run stored."""
        self._remove(self._table(name, date))

    def stored(self, what: str, kind: str, date: str) -> StoredTable | None:
        """The `records` or `sums` of a day; None if there are none."""
        place = f"{what}/{partition(kind, date)}"
        try:
            names = self.files.ls(f"{self._root}/{place}", detail=False)
        except FileNotFoundError:
            return None
        # Spark's readers ignore names with an underscore first, too: they are not complete.
        paths = sorted(path for path in names if not path.rpartition("/")[2].startswith("_"))
        return StoredTable(self.files, paths, f"{self._spark_root}/{place}") if paths else None

    def folder(self, what: str, kind: str, date: str) -> str:
        """The same as `files` names it, made if it is not there."""
        folder = f"{self._root}/{what}/{partition(kind, date)}"
        self.files.makedirs(folder, exist_ok=True)
        return folder

    def remove(self, what: str, kind: str, date: str) -> None:
        """Delete those that an earlier run stored."""
        self._remove(f"{self._root}/{what}/{partition(kind, date)}")

    def _remove(self, folder: str) -> None:
        if self.files.exists(folder):
            self.files.rm(folder, recursive=True)

    def _table(self, name: str, date: str) -> str:
        return f"{self._root}/tables/{name}/date={date}"


def _manifest(date: str) -> str:
    return f"records/date={date}{MANIFEST}"


def _stems(segments: Set[ListedSegment]) -> set[tuple[str, str]]:
    return {(kind, stem_of(name)) for kind, name, _ in segments}


def _changed(before: Set[ListedSegment], present: Set[ListedSegment]) -> bool:
    """True if a segment is new, was still being written, or has another size under its name."""
    sealed = _stems({segment for segment in before if not segment[1].endswith(OPEN)})
    sizes = {(kind, name): size for kind, name, size in before}
    return any(
        sizes.get((kind, name), size) != size
        or ((kind, name) not in sizes and (kind, stem_of(name)) not in sealed)
        for kind, name, size in present
    )


def _gone(before: Set[ListedSegment], present: Set[ListedSegment]) -> set[ListedSegment]:
    """Segments that no longer exist in any state."""
    present_stems = _stems(present)
    return {segment for segment in before if (segment[0], stem_of(segment[1])) not in present_stems}


def gone_count(before: Set[ListedSegment], present: Set[ListedSegment]) -> int:
    """Number of segments that disappeared."""
    return len(_stems(_gone(before, present)))
