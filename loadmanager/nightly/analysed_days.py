"""The days that were analysed: what is stored of each, and which segments it was made from."""

from __future__ import annotations

import fcntl
import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.history.layout import cluster_folder, partition
from loadmanager.kit.history.source import ListedSegment, spark_url
from loadmanager.nightly.drafts import DayDraft, put_in_place
from loadmanager.nightly.engine import StoredTable
from loadmanager.nightly.listed_segments import gone

MANIFEST = "_manifest.json"
LOCK = "_lock"
TABLES = "tables/"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
Row = dict[str, Any]


class Manifest(msgspec.Struct, frozen=True):
    """What is stored of a day."""

    seen: Sequence[ListedSegment] = ()
    """The segments that it was made from."""
    rows: dict[str, int] = {}
    """Kind → number of records."""
    files: Sequence[str] | None = None
    """Below the cluster's folder; None: those that are there, as earlier versions stored them."""
    compacted: bool = False
    """Whether records and sums were merged into few files."""


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
        self._url = url
        self._manifests: dict[str, Manifest] = {}

    def analysed(self) -> list[str]:
        """The days that have a manifest, in order."""
        paths = self._glob(_manifest("*"))
        return sorted(path.rpartition("date=")[2].removesuffix(MANIFEST) for path in paths)

    def manifest(self, date: str) -> Manifest:
        """What is stored of a day: nothing without a manifest, what is there with a damaged one."""
        if date not in self._manifests:
            self._manifests[date] = self._read_manifest(f"{self._root}/{_manifest(date)}")
        return self._manifests[date]

    def _read_manifest(self, path: str) -> Manifest:
        if not self.files.exists(path):
            return Manifest(files=())
        with self.files.open(path, "rb") as file:
            try:
                return msgspec.json.decode(file.read(), type=Manifest)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return Manifest()

    def stored_files(self, date: str) -> Sequence[str]:
        """The files of a day, below the cluster's folder."""
        named = self.manifest(date).files
        return named if named is not None else sorted(filter(_is_whole, self._present(date)))

    def _present(self, date: str) -> list[str]:
        """Everything that is in the day's folders, but for the manifest."""
        present: list[str] = []
        for kind in self._kinds():  # one glob over all days would list each of their folders
            with suppress(FileNotFoundError, NotADirectoryError):
                present += self.files.ls(f"{kind}/date={date}", detail=False)
        return [path[len(self._root) + 1 :] for path in present]

    def _glob(self, pattern: str) -> list[str]:
        self.files.invalidate_cache()  # executors write, too
        paths: list[str] = self.files.glob(f"{glob.escape(self._root)}/{pattern}")
        return paths

    def _kinds(self) -> list[str]:
        """The folders that have days. HDFS forbids to list what would be below a file."""
        self.files.invalidate_cache()
        paths: dict[str, Any] = self.files.glob(f"{glob.escape(self._root)}/*/*", detail=True)
        return [path for path, info in paths.items() if info["type"] != "file"]

    def draft(self, date: str) -> DayDraft:
        """Where a run writes the files of a day."""
        return DayDraft(self.files, self._root, date)

    def commit(self, date: str, manifest: Manifest) -> None:
        """Let a manifest say what is stored of a day, then delete all files that it does not name:
        who reads by manifests reads those of one run, however many were killed. Segments that
        earlier runs analysed, and that are gone, stay in it.
        """
        seen = set(manifest.seen)
        whole = msgspec.structs.replace(
            manifest, seen=sorted(seen | gone(self.manifest(date).seen, seen))
        )
        self.write(_manifest(date), msgspec.json.format(msgspec.json.encode(whole)).decode())
        self._manifests[date] = whole
        self._delete_unnamed(date, whole.files or ())

    def _delete_unnamed(self, date: str, named: Iterable[str]) -> None:
        named = set(named)
        folders = {path.rpartition("/")[0] for path in named}
        for path in self._present(date):
            if path not in named:
                folder = path.rpartition("/")[0]
                self._remove(path if folder in folders else folder)

    def forget(self, before: str) -> list[str]:
        """Delete everything of earlier days than this one; returns which. The manifest goes first:
        who reads by manifests sees a day whole or not at all. The next call deletes what a killed
        one left.
        """
        paths = [*self._glob("*/*/date=*"), *self._glob("reports/*"), *self._glob(_manifest("*"))]
        dates = {match[0] for path in paths if (match := _DATE.search(path.rpartition("/")[2]))}
        old = sorted(day for day in dates if day < before)
        for day in old:
            self._remove(_manifest(day))
            self._manifests.pop(day, None)
            self._delete_unnamed(day, ())
            for suffix in ("html", "json"):
                self._remove(f"reports/{day}.{suffix}")
        return old

    def write(self, name: str, text: str) -> str:
        """Write a file, all or nothing; returns where it is."""
        path = f"{self._root}/{name}"
        folder, _, last = path.rpartition("/")
        self.files.makedirs(folder, exist_ok=True)
        part = f"{folder}/_{last}.part"
        with self.files.open(part, "wb") as file:
            file.write(text.encode(errors="surrogatepass"))
        put_in_place(self.files, part, path)
        return path if self._local else str(self.files.unstrip_protocol(path))

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

    def rows(self, name: str, date: str, columns: Sequence[str] | None = None) -> list[Row]:
        """The stored rows of a day; empty without a table, or with one of an earlier version."""
        rows: list[Row] = []
        for path in self._paths(f"{TABLES}{name}/date={date}", date):
            try:
                with self.files.open(path, "rb") as file:
                    rows += pq.read_table(file, columns=columns).to_pylist()
            except (OSError, pa.ArrowException):
                return []
        return rows

    def stored(self, what: str, kind: str, date: str) -> StoredTable | None:
        """The `records` or `sums` of a day; None if there are none."""
        paths = self._paths(f"{what}/{partition(kind, date)}", date)
        return self.table(paths) if paths else None

    def table(self, paths: Sequence[str]) -> StoredTable:
        """Files of Parquet, for engines."""
        spelt = [spark_url(self.files, self._url, path) for path in paths]
        return StoredTable(self.files, paths, spelt)

    def _paths(self, folder: str, date: str) -> list[str]:
        files = self.stored_files(date)
        return [self.whole_path(path) for path in files if path.startswith(f"{folder}/")]

    def whole_path(self, path: str) -> str:
        """A file below the cluster's folder, as `files` names it."""
        return f"{self._root}/{path}"

    def _remove(self, path: str) -> None:
        whole = f"{self._root}/{path}"
        if self.files.exists(whole):
            self.files.rm(whole, recursive=True)


def _manifest(date: str) -> str:
    return f"records/date={date}{MANIFEST}"


def _is_whole(path: str) -> bool:
    """Spark's readers, too, ignore names with an underscore first: they are not complete."""
    return not path.rpartition("/")[2].startswith("_")
