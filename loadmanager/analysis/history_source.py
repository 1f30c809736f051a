"""Finds the segments of a day on any file system that fsspec knows, without duplicates, and checks
which are damaged.
"""

from __future__ import annotations

import glob
import hashlib
import re
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec

from loadmanager.core.errors import BadInputError, OperationalError
from loadmanager.core.history import layout

LOOKS_AT_ONCE = 16
PLAIN_BYTES_MAX = 512 << 20
"""A larger segment, decompressed, was not written by a broker: see `layout.SEGMENT_BYTES_MAX`."""
BLOCK_BYTES = 1 << 20
DAMAGED = "is cut off or damaged; what could be read was"
SAME_NAME = "duplicate of the same name"
DUPLICATE_OF = "duplicate of "
TRAILER_BYTES = 8
"""CRC-32 and length modulo 2³², at the end of a gzip file (RFC 1952)."""
GZIP_BYTES_MIN = 20
"""The size of an empty file, compressed."""
NOT_IN_HADOOPS_PATHS = re.compile(r"[:{}\[\]*?,\\]")
"""Hadoop's paths cannot have a colon; the others are wildcards."""


SeenSegment = tuple[str, str, int]
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
    seen: frozenset[SeenSegment]
    """All of them."""

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
        self._plain_bytes_max = plain_bytes_max
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BadInputError(f"--history {url}: {error}") from None
        self._fs: Any = fs
        self._root = root.rstrip("/")
        self._staging: tempfile.TemporaryDirectory[str] | None = None

    def clusters(self) -> list[str]:
        """Names of the clusters that have a history here."""
        return sorted(
            path.rpartition("cluster=")[2] for path in self._glob(layout.cluster_folder("*"))
        )

    def chosen(self, cluster: str | None) -> str:
        """The cluster of this name, or the only one. Raises `BadInputError` if there is none."""
        found = self.clusters()
        if cluster is None and len(found) != 1:
            known = (
                f"there are {', '.join(found)}: choose with --cluster"
                if found
                else "there is none (cluster=…/kind=…/date=… is expected below it)"
            )
            raise BadInputError(f"{self.url}: which cluster? {known}")
        if cluster is not None and cluster not in found:
            raise BadInputError(
                f"{self.url} has no history of cluster {cluster}; it has "
                f"{', '.join(found) or 'none'}"
            )
        return cluster if cluster is not None else found[0]

    def dates(self, cluster: str) -> list[str]:
        """Days that have segments."""
        return sorted({path.rpartition("date=")[2] for path in self._glob(_folder(cluster, "*"))})

    def _glob(self, pattern: str) -> dict[str, int]:
        """Paths with their sizes, in order."""
        try:
            found = self._fs.glob(f"{glob.escape(self._root)}/{pattern}", detail=True)
            return {path: int(info.get("size") or 0) for path, info in sorted(found.items())}
        except Exception as error:  # noqa: BLE001 - every file system raises its own
            raise OperationalError(f"{self.url} cannot be read: {error}") from None

    def seen(self, cluster: str, date: str) -> set[SeenSegment]:
        """Kind, name and size of the day's segments, without looking into files."""
        return set(_seen(self._files(cluster, date)))

    def size(self, cluster: str, dates: Iterable[str]) -> int:
        """Bytes of the segments of these days."""
        return sum(sum(self._files(cluster, date).values()) for date in dates)

    def _files(self, cluster: str, date: str) -> dict[str, int]:
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
        found: dict[tuple[str, str], Segment] = {}
        for segment in segments:
            key = (segment.kind, segment.stem)
            other = found.get(key, segment)
            found[key], second = sorted((other, segment), key=lambda item: item.rank)
            if second is not found[key]:
                left_out.append((second.path, SAME_NAME))
        unique: dict[tuple[str, str], Segment] = {}
        for segment in found.values():
            # A trailer of zeros is that of an empty segment, or was overwritten: read those anyway.
            identity = segment.identity if segment.plain_bytes else segment.name
            twin = unique.setdefault((segment.kind, identity), segment)
            if twin is not segment:
                left_out.append((segment.path, f"{DUPLICATE_OF}{twin.name}"))
        chosen = sorted(unique.values(), key=lambda item: (item.kind, item.name))
        return Listing(tuple(chosen), tuple(sorted(left_out)), _seen(files))

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
        if name.endswith(".gz") and size < GZIP_BYTES_MIN:
            return f"is cut off after {size} bytes"
        with self._fs.open(path, "rb") as file:
            if not name.endswith(".gz"):
                while block := file.read(1 << 20):
                    crc, length = zlib.crc32(block, crc), length + len(block)
            else:
                file.seek(size - TRAILER_BYTES)
                crc, length = struct.unpack("<II", file.read(TRAILER_BYTES))
        segment = Segment(path, kind, name, size, length, f"{crc:08x}-{length}")
        # The trailer of a truncated file is arbitrary, so the contents are measured.
        if (
            name.endswith(".gz")
            and length > self._plain_bytes_max
            and self._fault(segment) == self.too_large
        ):
            return self.too_large
        return segment

    def gone(self, segments: Iterable[Segment]) -> list[Segment]:
        """The segments that no longer exist: sealed, compressed or deleted meanwhile."""
        return [segment for segment in segments if not self._fs.exists(segment.path)]

    @property
    def too_large(self) -> str:
        """Why a segment that is too large is skipped."""
        return (
            f"is damaged: decompressed it has more than {self._plain_bytes_max >> 20} MiB; "
            "it was skipped"
        )

    def broken(self, segments: Iterable[Segment]) -> dict[Segment, str]:
        """The faults of compressed segments: `DAMAGED`, or `too_large`. Segments without a fault
        are left out.

        Memory is bounded, whatever they hold: 16 of them are looked at at once, in blocks of 1 MiB.
        """
        compressed = [segment for segment in segments if segment.name.endswith(".gz")]
        with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            looked = zip(compressed, pool.map(self._fault, compressed), strict=True)
            return {segment: fault for segment, fault in looked if fault is not None}

    def _fault(self, segment: Segment) -> str | None:
        """Why a compressed segment is not to be trusted; None for one that is whole."""
        size = 0
        try:
            with self._fs.open(segment.path, "rb") as file:
                for block in _plain_blocks(file):
                    size += len(block)
                    if size > self._plain_bytes_max:
                        return self.too_large
        except (zlib.error, OSError):
            return DAMAGED
        return None

    def lines(self, segment: Segment) -> Iterator[bytes]:
        """The complete lines of a segment; of a damaged one, those before the damage."""
        rest = b""
        try:
            with self._fs.open(segment.path, "rb") as file:
                blocks = (
                    _plain_blocks(file)
                    if segment.name.endswith(".gz")
                    else iter(partial(file.read, BLOCK_BYTES), b"")
                )
                for block in blocks:
                    *lines, rest = (rest + block).split(b"\n")
                    yield from lines
        except (zlib.error, OSError):
            return

    def spark_paths(self, segments: Iterable[Segment]) -> list[str]:
        """The paths at which Spark reads the segments.

        Hadoop's paths cannot have a colon: local files with one are read through links, `.open`
        ones as plain text.
        """
        return [self._spark_path(segment) for segment in segments]

    def _spark_path(self, segment: Segment) -> str:
        protocol = self._fs.protocol if isinstance(self._fs.protocol, str) else self._fs.protocol[0]
        if protocol not in ("file", "local"):
            return spark_url(self._fs, self.url, segment.path)
        # Spark passes over files that begin so
        if not NOT_IN_HADOOPS_PATHS.search(segment.path) and segment.name[0] not in "_.":
            return f"file://{segment.path}"
        if self._staging is None:
            self._staging = tempfile.TemporaryDirectory(prefix="loadmanager-segments-")
        folder = hashlib.sha256(segment.path.encode()).hexdigest()[:16]
        link = Path(self._staging.name, folder, f"of-{NOT_IN_HADOOPS_PATHS.sub('_', segment.name)}")
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(segment.path)
        return f"file://{link}"

    def file_name(self, segment: Segment) -> str:
        """The name of the file in which Spark reads a segment."""
        return self._spark_path(segment).rpartition("/")[2]

    def close(self) -> None:
        """Remove the links."""
        if self._staging is not None:
            self._staging.cleanup()


def _folder(cluster: str, date: str) -> str:
    return f"{layout.cluster_folder(cluster)}/{layout.partition('*', date)}"


def _plain_blocks(file: Any) -> Iterator[bytes]:
    """The content of a gzip file, decompressed in blocks. Raises `zlib.error` for a
    damaged file.
    """
    unpacking = zlib.decompressobj(wbits=31)
    while block := file.read(BLOCK_BYTES):
        while block:
            if unpacking.eof:  # another member; anything else is an error
                unpacking = zlib.decompressobj(wbits=31)
            yield unpacking.decompress(block, BLOCK_BYTES)
            block = unpacking.unconsumed_tail or unpacking.unused_data
    while not unpacking.eof:
        rest = unpacking.decompress(b"", BLOCK_BYTES)
        if not rest:
            raise zlib.error("the file ends before its contents do")
        yield rest


def _seen(files: Mapping[str, int]) -> frozenset[SeenSegment]:
    return frozenset(
        (part["kind"], part["name"], size)
        for path, size in files.items()
        if (part := layout.SEGMENT_PATH.search(path)) is not None
    )
