"""Finds the segments of a day on any file system that fsspec knows, without duplicates."""

from __future__ import annotations

import glob
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import fsspec

from loadmanager.kit.errors import BadInputError, OperationalError
from loadmanager.kit.history import layout, retention
from loadmanager.kit.history.blocks import READ_BYTES, plain_blocks
from loadmanager.kit.history.retention import Retention

LOOKS_AT_ONCE = 16
PLAIN_BYTES_MAX = 512 << 20
"""A larger segment, decompressed, was not written by a broker: see `layout.SEGMENT_BYTES_MAX`."""
SAME_NAME = "duplicate of the same name"
DUPLICATE_OF = "duplicate of "
TRAILER_BYTES = 8
"""CRC-32 and length modulo 2³², at the end of a gzip file (RFC 1952)."""
GZIP_BYTES_MIN = 20
"""The size of an empty file, compressed."""


ListedSegment = tuple[str, str, int]
"""Kind, name and size of a segment."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the history."""

    path: str
    """The path for fsspec."""
    kind: str
    name: str
    size: int
    plain_bytes: int
    """Uncompressed length modulo 2³², from the gzip trailer."""
    identity: str
    """Equal for equal contents: CRC-32 and length, as a gzip file's own trailer says them."""

    @property
    def compressed(self) -> bool:
        """True if it is a gzip file."""
        return self.name.endswith(layout.COMPRESSED)

    @property
    def stem(self) -> str:
        """Its name without the suffix of its state."""
        return layout.stem_of(self.name)

    @property
    def rank(self) -> int:
        """The order of preference among files of one stem: the lowest is complete. A crash may
        leave the plain file beside the compressed one.
        """
        return (layout.SEALED, layout.COMPRESSED, layout.OPEN).index(
            self.name.removeprefix(self.stem)
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """The segments of one day, and those left out with the reason."""

    segments: tuple[Segment, ...]
    left_out: tuple[tuple[str, str], ...]
    listed: frozenset[ListedSegment]
    """Kind, name and size of all of them."""

    def of(self, kind: str) -> list[Segment]:
        """Segments of one kind."""
        return [segment for segment in self.segments if segment.kind == kind]


def spark_url(fs: Any, url: str, path: str) -> str:
    """A path of a file system as Spark spells it; fsspec's Hadoop file system forgets the host of
    its URL.
    """
    full: str = fs.unstrip_protocol(path)
    host = urlsplit(url).netloc if "://" in url else ""
    if full.startswith("hdfs:///") and host:
        full = full.replace("hdfs:///", f"hdfs://{host}/", 1)
    return full.replace("s3://", "s3a://", 1)


class HistorySource:
    """The history below a URL.

    Raises `BadInputError` for one that cannot be used, `OperationalError` when it cannot be read.
    """

    def __init__(self, url: str, *, plain_bytes_max: int = PLAIN_BYTES_MAX) -> None:
        self.url = url
        self.plain_bytes_max = plain_bytes_max
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BadInputError(f"--history {url}: {error}") from None
        self.files: Any = fs
        self._root = root.rstrip("/")

    def clusters(self) -> list[str]:
        """Names of the clusters that have a history here."""
        return sorted(
            path.rpartition("cluster=")[2] for path in self._glob(layout.cluster_folder("*"))
        )

    def chosen(self, cluster: str | None) -> str:
        """The cluster of this name, or the only one. Raises `BadInputError` if there is none."""
        names = self.clusters()
        if not names and not self.files.exists(self._root):
            raise BadInputError(f"{self.url} does not exist")
        if not names:
            raise BadInputError(
                f"{self.url}: there is no history here (cluster=…/kind=…/date=… is expected below "
                "it)"
            )
        if cluster is None and len(names) > 1:
            raise BadInputError(
                f"{self.url}: which cluster? There are {', '.join(names)}: choose with --cluster"
            )
        if cluster is not None and cluster not in names:
            raise BadInputError(
                f"{self.url} has no history of cluster {cluster}; it has {', '.join(names)}"
            )
        return cluster if cluster is not None else names[0]

    def dates(self, cluster: str) -> list[str]:
        """Days that have segments."""
        folders = self._glob(_folder(cluster, "*"))
        return sorted(filter(layout.is_day, {path.rpartition("date=")[2] for path in folders}))

    def folders(self, cluster: str, dates: Iterable[str]) -> list[str]:
        """The folders of these days, as `files` names them."""
        return [path for date in dates for path in self._glob(_folder(cluster, date))]

    def path(self, name: str) -> str:
        """What is below the history, as `files` names it."""
        return f"{self._root}/{name}"

    def retention(self, cluster: str) -> Retention | None:
        """What the last deletion of old days left; None: there was none."""
        path = self.path(f"{layout.cluster_folder(cluster)}/{retention.FILE}")
        try:
            with self.files.open(path, "rb") as file:
                return retention.decode(file.read())
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - every file system raises its own
            raise OperationalError(f"{self.url} cannot be read: {error}") from None

    def why_gone(self, cluster: str, date: str) -> str:
        """Why a day is not there, if old days were deleted; else empty."""
        left = self.retention(cluster)
        return "" if left is None else left.sentence(date)

    def _glob(self, pattern: str) -> dict[str, int]:
        """Paths with their sizes (−1: a pipe, say, that would never end), in order."""
        try:
            info_by_path = self.files.glob(f"{glob.escape(self._root)}/{pattern}", detail=True)
            return {path: _size(info) for path, info in sorted(info_by_path.items())}
        except Exception as error:  # noqa: BLE001 - every file system raises its own
            raise OperationalError(f"{self.url} cannot be read: {error}") from None

    def segments(self, cluster: str, date: str) -> set[ListedSegment]:
        """Kind, name and size of the day's segments, without looking into files."""
        return set(_listed(self._files(cluster, date)))

    def _files(self, cluster: str, date: str) -> dict[str, int]:
        """The day's segments: none of a day that is being deleted, or nobody finished that."""
        left = self.retention(cluster)
        if left is not None and date in left.removing:
            return {}
        return {
            path: size
            for path, size in self._glob(f"{_folder(cluster, date)}/*").items()
            if layout.SEGMENT_FILE.fullmatch(path.rpartition("/")[2])
        }

    def day(self, cluster: str, date: str) -> Listing:
        """The segments of a day: one for each name, and one for each content."""
        files = self._files(cluster, date)
        left_out: list[tuple[str, str]] = []
        segments: list[Segment] = []
        # an object store answers slowly, and many at once
        with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            for path, looked in zip(files, pool.map(self._look, files.items()), strict=True):
                if isinstance(looked, Segment):
                    segments.append(looked)
                else:
                    left_out.append((path, looked))
        by_stem: dict[tuple[str, str], Segment] = {}
        for segment in segments:
            key = (segment.kind, segment.stem)
            other = by_stem.get(key, segment)
            by_stem[key], second = sorted((other, segment), key=lambda item: item.rank)
            if second is not by_stem[key]:
                left_out.append((second.path, SAME_NAME))
        unique: dict[tuple[str, str], Segment] = {}
        for segment in by_stem.values():
            # A trailer of zeros is that of an empty segment, or was overwritten: read those anyway.
            identity = segment.identity if segment.plain_bytes else segment.name
            twin = unique.setdefault((segment.kind, identity), segment)
            if twin is not segment:
                left_out.append((segment.path, f"{DUPLICATE_OF}{twin.name}"))
        chosen = sorted(unique.values(), key=lambda item: (item.kind, item.name))
        return Listing(tuple(chosen), tuple(sorted(left_out)), _listed(files))

    def _look(self, file: tuple[str, int]) -> Segment | str:
        """The segment, or why it cannot be read."""
        path, size = file
        parts = layout.SEGMENT_PATH.search(path)
        assert parts is not None
        try:
            return self._segment(path, parts["kind"], parts["name"], size)
        except Exception as error:  # noqa: BLE001 - one file that cannot be looked at must not end the rest
            return f"cannot be read: {error}"

    def _segment(self, path: str, kind: str, name: str, size: int) -> Segment | str:
        crc = length = 0
        if size < 0:
            return "is no regular file"
        if name.endswith(".gz") and size < GZIP_BYTES_MIN:
            return f"is cut off after {size} bytes"
        with self.files.open(path, "rb") as file:
            if not name.endswith(".gz"):
                while block := file.read(READ_BYTES):
                    crc, length = zlib.crc32(block, crc), length + len(block)
            else:
                file.seek(size - TRAILER_BYTES)
                crc, length = struct.unpack("<II", file.read(TRAILER_BYTES))
        return Segment(path, kind, name, size, length, f"{crc:08x}-{length}")

    def lines(self, segment: Segment) -> Iterator[bytes]:
        """The complete lines of a segment, but blank ones; of a damaged one, those before the
        damage, and of one that is too large when decompressed, those at its beginning. Endless
        lines are cut.
        """
        rest, size = b"", 0
        try:
            with self.files.open(segment.path, "rb") as file:
                blocks = (
                    plain_blocks(file)
                    if segment.name.endswith(".gz")
                    else iter(partial(file.read, READ_BYTES), b"")
                )
                for block in blocks:
                    size += len(block)
                    if segment.compressed and size > self.plain_bytes_max:
                        return
                    end = block.rfind(b"\n") + 1
                    if end:
                        yield from filter(None, (rest + block[: end - 1]).split(b"\n"))
                        rest = block[end:]
                    elif len(rest) <= layout.SEGMENT_BYTES_MAX:
                        rest += block
        except (zlib.error, OSError):
            return


def _size(info: Mapping[str, Any]) -> int:
    return -1 if info.get("type") == "other" else int(info.get("size") or 0)


def _folder(cluster: str, date: str) -> str:
    return f"{layout.cluster_folder(cluster)}/{layout.partition('*', date)}"


def _listed(files: Mapping[str, int]) -> frozenset[ListedSegment]:
    return frozenset(
        (part["kind"], part["name"], size)
        for path, size in files.items()
        if (part := layout.SEGMENT_PATH.search(path)) is not None
    )
