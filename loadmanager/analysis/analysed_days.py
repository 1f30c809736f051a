"""The days that were analysed: what is stored of each, and which segments it was made from."""

from __future__ import annotations

import json
import sys
from collections.abc import Set
from typing import Any

import fsspec

from loadmanager.analysis.history_source import HistorySource, SeenSegment, spark_url
from loadmanager.core.errors import BadInputError
from loadmanager.core.history.layout import OPEN, cluster_folder, stem_of

LATE_DAYS = 3
"""How many days back to look for late segments."""
MANIFEST = "_manifest.json"


class AnalysedDays:
    """Below `url`, the records, tables and reports of one cluster.

    Raises `BadInputError` if the folder cannot be written.
    """

    def __init__(self, url: str, cluster: str) -> None:
        try:
            fs, root = fsspec.core.url_to_fs(url)
            self._fs: Any = fs
            self._root = f"{root.rstrip('/')}/{cluster_folder(cluster)}"
            fs.makedirs(self._root, exist_ok=True)
        except Exception as error:  # noqa: BLE001 - every file system raises its own
            raise BadInputError(f"--output {url} cannot be written: {error}") from None
        self.spark_root = spark_url(fs, url, self._root)

    def late(self, date: str, source: HistorySource, cluster: str) -> list[str]:
        """Days before `date` to analyse again or for the first time, because segments came late.

        A day is left as it is once analysed segments are gone from the history: its tables hold
        more than could be read now.
        """
        analysed = {
            path.rpartition("date=")[2].removesuffix(MANIFEST)
            for path in self._fs.glob(f"{self._root}/{_manifest('*')}")
        }
        late = []
        for day in [day for day in source.dates(cluster) if day < date][-LATE_DAYS:]:
            if day not in analysed:
                late += [day] if analysed and day > min(analysed) else []
                continue
            before, present = self.segments(day), source.seen(cluster, day)
            if not _changed(before, present):
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

    def segments(self, date: str) -> set[SeenSegment]:
        """The segments that earlier runs analysed."""
        path = f"{self._root}/{_manifest(date)}"
        if not self._fs.exists(path):
            return set()
        with self._fs.open(path, "r") as file:
            return {(kind, name, size) for kind, name, size in json.load(file)["seen"]}

    def remember(self, date: str, segments: Set[SeenSegment], rows: dict[str, int]) -> None:
        """Store which segments the day was made from; those of earlier runs that are gone stay."""
        seen = segments | _gone(self.segments(date), segments)
        self.write(_manifest(date), json.dumps({"seen": sorted(seen), "rows": rows}, indent=1))

    def write(self, name: str, text: str) -> str:
        """Write a file; returns where it is."""
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._fs.open(path, "w") as file:
            file.write(text)
        return str(self._fs.unstrip_protocol(path)) if "file" not in self._fs.protocol else path

    def remove(self, spark_path: str) -> None:
        """Delete what an earlier run stored."""
        path = self._root + spark_path.removeprefix(self.spark_root)
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)


def _manifest(date: str) -> str:
    return f"records/date={date}{MANIFEST}"


def _stems(segments: Set[SeenSegment]) -> set[tuple[str, str]]:
    return {(kind, stem_of(name)) for kind, name, _ in segments}


def _changed(before: Set[SeenSegment], present: Set[SeenSegment]) -> bool:
    """Whether a segment is new, was still being written, or has another size under its name."""
    sealed = _stems({segment for segment in before if not segment[1].endswith(OPEN)})
    sizes = {(kind, name): size for kind, name, size in before}
    return any(
        sizes.get((kind, name), size) != size
        or ((kind, name) not in sizes and (kind, stem_of(name)) not in sealed)
        for kind, name, size in present
    )


def _gone(before: Set[SeenSegment], present: Set[SeenSegment]) -> set[SeenSegment]:
    """Segments that no longer exist in any state."""
    present_stems = _stems(present)
    return {segment for segment in before if (segment[0], stem_of(segment[1])) not in present_stems}


def gone_count(before: Set[SeenSegment], present: Set[SeenSegment]) -> int:
    """Number of segments that disappeared."""
    return len(_stems(_gone(before, present)))
