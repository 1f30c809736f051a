"""Which segments there are of a day, on any file system that fsspec knows; duplicates are left out before anything is read."""

from __future__ import annotations

import hashlib
import re
import struct
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from loadmanager.core.errors import BadInputError, OperationalError

_NAME = re.compile(r"(?P<stem>.+)\.jsonl(?P<state>|\.gz|\.open)")
_PATH = re.compile(r"cluster=(?P<cluster>[^/]+)/kind=(?P<kind>[^/]+)/date=(?P<date>\d{4}-\d{2}-\d{2})/(?P<name>[^/]+)$")
LOOKS_AT_ONCE = 16
TRAILER_BYTES = 8
"""CRC-32 and length modulo 2³², at the end of a gzip file (RFC 1952)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the history."""

    path: str
    """As fsspec names it."""
    kind: str
    name: str
    size: int
    plain_bytes: int
    """What it holds uncompressed, modulo 2³², by its own trailer."""
    identity: str
    """Equal for equal contents: CRC-32 and length, as a gzip file's own trailer says them."""

    @property
    def stem(self) -> str:
        """Its name without what says in which state it is."""
        match = _NAME.fullmatch(self.name)
        assert match is not None
        return match["stem"]


@dataclass(frozen=True, slots=True)
class Listing:
    """The segments of one day, and those left out with the reason."""

    segments: tuple[Segment, ...]
    left_out: tuple[tuple[str, str], ...]
    fingerprint: str
    """Changes when a file comes, goes or grows."""

    def of(self, kind: str) -> list[Segment]:
        """Segments of one kind."""
        return [segment for segment in self.segments if segment.kind == kind]


class Source:
    """The history below a URL. Raises `BadInputError` for one that cannot be used, `OperationalError` when it cannot be read."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BadInputError(f"--history {url}: {error}") from None
        self._fs: Any = fs
        self._root = root.rstrip("/")
        self._staging: tempfile.TemporaryDirectory[str] | None = None

    def clusters(self) -> list[str]:
        """Names of the clusters that have a history here."""
        return sorted(path.rpartition("cluster=")[2] for path in self._glob("cluster=*"))

    def dates(self, cluster: str) -> list[str]:
        """Days that have segments."""
        return sorted({path.rpartition("date=")[2] for path in self._glob(f"cluster={cluster}/kind=*/date=*")})

    def _glob(self, pattern: str) -> dict[str, int]:
        """Paths with their sizes, in order."""
        try:
            found = self._fs.glob(f"{self._root}/{pattern}", detail=True)
            return {path: int(info.get("size") or 0) for path, info in sorted(found.items())}
        except Exception as error:  # noqa: BLE001 - every file system raises its own
            raise OperationalError(f"{self.url} cannot be read: {error}") from None

    def fingerprint(self, cluster: str, date: str) -> str:
        """That of the day's listing, without looking into files."""
        return _fingerprint(self._files(cluster, date))

    def _files(self, cluster: str, date: str) -> dict[str, int]:
        found = self._glob(f"cluster={cluster}/kind=*/date={date}/*")
        return {path: size for path, size in found.items() if _NAME.fullmatch(path.rpartition("/")[2])}

    def day(self, cluster: str, date: str) -> Listing:
        """The segments of a day: of each name one, of equal contents one."""
        files = self._files(cluster, date)
        left_out: list[tuple[str, str]] = []
        segments: list[Segment] = []
        with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:  # an object store answers slowly, and many at once
            for path, looked in zip(files, pool.map(self._look, files.items()), strict=True):
                if isinstance(looked, Segment):
                    segments.append(looked)
                else:
                    left_out.append((path, looked))
        found: dict[tuple[str, str], Segment] = {}
        for segment in segments:
            key = (segment.kind, segment.stem)
            other = found.get(key, segment)
            # Compressed but the plain one is still there: a crash came between. The larger one is whole.
            found[key] = max(other, segment, key=lambda item: item.plain_bytes)
            if other is not segment:
                left_out.append((min(other, segment, key=lambda item: item.plain_bytes).path, "duplicate of the same name"))
        unique: dict[tuple[str, str], Segment] = {}
        for segment in found.values():
            twin = unique.setdefault((segment.kind, segment.identity), segment)
            if twin is not segment:
                left_out.append((segment.path, f"duplicate of {twin.name}"))
        chosen = sorted(unique.values(), key=lambda item: (item.kind, item.name))
        return Listing(tuple(chosen), tuple(sorted(left_out)), _fingerprint(files))

    def _look(self, file: tuple[str, int]) -> Segment | str:
        """The segment, or why it cannot be read."""
        path, size = file
        parts = _PATH.search(path)
        assert parts is not None
        try:
            return self._segment(path, parts["kind"], parts["name"], size)
        except Exception as error:  # noqa: BLE001 - one file that cannot be looked at must not end the rest
            return f"cannot be read: {error}"

    def _segment(self, path: str, kind: str, name: str, size: int) -> Segment:
        crc = length = 0
        with self._fs.open(path, "rb") as file:
            if not name.endswith(".gz"):
                while block := file.read(1 << 20):
                    crc, length = zlib.crc32(block, crc), length + len(block)
            elif size >= TRAILER_BYTES:
                file.seek(size - TRAILER_BYTES)
                crc, length = struct.unpack("<II", file.read(TRAILER_BYTES))
        return Segment(path, kind, name, size, length, f"{crc:08x}-{length}")

    def is_whole(self, segment: Segment) -> bool:
        """Whether a compressed segment can be decompressed to its end."""
        unpacking = zlib.decompressobj(wbits=31)
        try:
            with self._fs.open(segment.path, "rb") as file:
                while block := file.read(1 << 20):
                    unpacking.decompress(block)
        except (zlib.error, OSError):
            return False
        return unpacking.eof

    def spark_paths(self, segments: Iterable[Segment]) -> list[str]:
        """Where Spark reads them. Hadoop's paths cannot have a colon: local files with one are read through links, `.open` ones as plain text."""
        return [self._spark_path(segment) for segment in segments]

    def _spark_path(self, segment: Segment) -> str:
        protocol = self._fs.protocol if isinstance(self._fs.protocol, str) else self._fs.protocol[0]
        if protocol not in ("file", "local"):
            full: str = self._fs.unstrip_protocol(segment.path)
            return full.replace("s3://", "s3a://", 1)
        if ":" not in segment.path:
            return f"file://{segment.path}"
        if self._staging is None:
            self._staging = tempfile.TemporaryDirectory(prefix="loadmanager-segments-")
        link = Path(self._staging.name, f"kind={segment.kind}", segment.name.replace(":", "_"))
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(segment.path)
        return f"file://{link}"

    def close(self) -> None:
        """Remove the links."""
        if self._staging is not None:
            self._staging.cleanup()


def _fingerprint(files: Mapping[str, int]) -> str:
    text = "\n".join(f"{path.rpartition('cluster=')[2]} {size}" for path, size in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()
