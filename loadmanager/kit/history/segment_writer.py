"""Writes the segments of one broker, as `kit/history/layout.py` lays them out; blocking, so a
thread calls it.

A segment is sealed by a rename, then compressed under a temporary name that a rename makes final.
Whatever a crash leaves behind, the next start repairs: only a torn last line is lost.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from loadmanager.kit.history import layout
from loadmanager.kit.history.layout import COMPRESSED, OPEN, SEALED
from loadmanager.kit.private_files import make_folder, open_private

COMPRESS_LEVEL = 6
COMPRESS_AGAIN_MS = 60_000
TAIL_BYTES = 32 << 20
"""More than the spool can hold of one segment."""
TEMPORARY, SHIPPED = ".tmp", ".shipped"
"""Added to a name: a file that is not complete yet; a marker that the file was shipped."""


@dataclass(slots=True)
class _Open:
    """A segment that is being written."""

    path: Path
    file: IO[bytes]
    started_ms: int
    size: int = 0


class SegmentWriter:
    """The segments of one broker below `root` (`…/cluster=<name>`)."""

    def __init__(
        self,
        root: Path,
        broker: str,
        *,
        segment_bytes_max: int,
        segment_ms_max: float,
        bytes_max: int,
    ) -> None:
        self.root = root
        self._broker = broker
        self._prefix = layout.safe_name(broker)
        self._segment_bytes_max = segment_bytes_max
        self._segment_ms_max = segment_ms_max
        self._bytes_max = bytes_max
        self._open: dict[tuple[str, str], _Open] = {}
        self._sequence = 0
        self._uncompressed = False
        self._compress_ms = 0
        """Compress nothing before this time: the last attempt failed."""
        self.lines = 0
        """Lines that were written whole."""
        self.sealed = 0
        self.dropped = 0
        """Sealed segments that were deleted to keep within the limit."""
        self.dropped_unshipped = 0
        self.bytes_on_disk = 0
        """Size of all sealed segments at the last `retain`."""

    def recover(self, now_ms: int, left_behind: Iterable[tuple[str, str, bytes]] = ()) -> int:
        """Seal the segments of an earlier process; returns their number. `left_behind` are lines
        (kind, day, line) that it may not have written.

        They are compressed with the next that are due. Raises `OSError`.
        """
        missing: dict[tuple[str, str], list[bytes]] = {}
        for kind, day, line in left_behind:
            missing.setdefault((kind, day), []).append(line)
        sealed = 0
        for path in self._own(OPEN):
            _cut_torn_line(path)
            key = _key(path)
            if key in missing:
                there = _last_lines(path)
                missing[key] = [line for line in missing[key] if line not in there]
            if path.stat().st_size == 0:
                path.unlink()
                continue
            path.rename(path.with_suffix(""))
            sealed += 1
        self.write({key: lines for key, lines in missing.items() if lines}, now_ms)
        sealed += len(self._open)
        for key, segment in list(self._open.items()):
            self._seal(key, segment)
        for path in self._own(f"{COMPRESSED}{TEMPORARY}"):
            path.unlink(missing_ok=True)
        self._uncompressed = True
        return sealed

    def write(self, batch: Mapping[tuple[str, str], Sequence[bytes]], now_ms: int) -> None:
        """Append lines (without line ends) by kind and day.

        Raises `OSError`; lines that were written completely stay, and are counted in `lines`.
        """
        for key, lines in batch.items():
            segment = self._open.get(key) or self._begin(key, now_ms)
            data = b"\n".join(lines) + b"\n"
            try:
                _write_all(segment.file, data)
            except OSError:
                self._give_up(key, segment)
                raise
            segment.size += len(data)
            self.lines += len(lines)

    def seal_due(self, now_ms: int) -> bool:
        """Seal full and old segments, and compress sealed ones; returns whether it compressed any.

        Raises `OSError`.
        """
        for key, segment in list(self._open.items()):
            if (
                segment.size >= self._segment_bytes_max
                or now_ms - segment.started_ms >= self._segment_ms_max
            ):
                self._seal(key, segment)
        return self.compress(now_ms)

    def close(self) -> None:
        """Seal and compress everything. Raises `OSError`."""
        for key, segment in list(self._open.items()):
            self._seal(key, segment)
        self._uncompressed, self._compress_ms = True, 0
        self.compress(0)

    def complete(self) -> list[Path]:
        """Compressed segments, the oldest first."""
        return sorted(self._own(COMPRESSED), key=_age)

    def retain(self) -> None:
        """Delete the oldest sealed segments beyond the limit. Raises `OSError`."""
        sealed = [*self._own(SEALED), *self.complete()]
        sizes = {path: _size(path) for path in sorted(sealed, key=_age)}
        total = sum(sizes.values())
        self.bytes_on_disk = total
        for path, size in sizes.items():
            if total <= self._bytes_max:
                break
            marker = _marker(path)
            self.dropped_unshipped += not marker.exists()
            path.unlink(missing_ok=True)
            marker.unlink(missing_ok=True)
            total -= size
            self.dropped += 1
            self.bytes_on_disk = total

    def _own(self, suffix: str) -> list[Path]:
        return sorted(
            path
            for path in self.root.glob(f"{layout.partition('*', '*')}/{self._prefix}-*{suffix}")
            if _is_of(path, self._prefix)
        )

    def _begin(self, key: tuple[str, str], now_ms: int) -> _Open:
        folder = self.root / layout.partition(*key)
        make_folder(folder)
        self._sequence += 1
        path = folder / f"{layout.stem(self._broker, now_ms, self._sequence)}{OPEN}"
        segment = self._open[key] = _Open(path, open_private(path, "ab", buffering=0), now_ms)
        return segment

    def _give_up(self, key: tuple[str, str], segment: _Open) -> None:
        """End a segment after a failed write: cut off a line that was written in part, and seal.
        The next write begins another segment.
        """
        try:
            segment.file.truncate(segment.size)
        finally:
            if segment.size:
                self._seal(key, segment)
            else:
                del self._open[key]
                segment.file.close()
                segment.path.unlink()

    def _seal(self, key: tuple[str, str], segment: _Open) -> None:
        segment.path.rename(segment.path.with_suffix(""))  # if this raises, it stays open
        del self._open[key]
        segment.file.close()
        self.sealed += 1
        self._uncompressed = True

    def compress(self, now_ms: int) -> bool:
        """Compress sealed segments; returns whether it did so.

        Raises `OSError`.
        """
        if not self._uncompressed or now_ms < self._compress_ms:
            return False
        self._compress_ms = now_ms + COMPRESS_AGAIN_MS  # do not retry at once on a full disk
        for path in self._own(SEALED):
            _compress(path)
        self._uncompressed, self._compress_ms = False, 0
        return True


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Write everything: a full disk first takes a part, then raises."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _key(path: Path) -> tuple[str, str]:
    """Kind and day of a segment."""
    match = layout.SEGMENT_PATH.search(path.as_posix())
    assert match is not None, path
    return match["kind"], match["date"]


def _is_of(path: Path, prefix: str) -> bool:
    """False for a segment of another broker whose name begins alike (`b-1` and `b-1-2`)."""
    rest = path.name[len(prefix) + 1 :].partition(".")[0]
    return all(part.isdigit() for part in rest.split("-")) and rest.count("-") == 1


def _age(path: Path) -> tuple[int, str, Path]:
    """The order in which segments were begun."""
    return int(path.name.partition(SEALED)[0].split("-")[-2]), path.name, path.parent


def _size(path: Path) -> int:
    """0 for one that `analyze` deleted meanwhile, because its day is old."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _marker(path: Path) -> Path:
    """Says that a segment was shipped."""
    return path.with_name(path.name + SHIPPED)


def _last_lines(path: Path) -> set[bytes]:
    """The last lines of a segment, as many as the spool may hold, too."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, 2) - TAIL_BYTES, 0))
        return set(file.read().splitlines())


def _cut_torn_line(path: Path) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, 2)
        while end > 0:
            start = max(end - 65_536, 0)
            file.seek(start)
            line_end = file.read(end - start).rfind(b"\n")
            if line_end >= 0:
                file.truncate(start + line_end + 1)
                return
            end = start
        file.truncate(0)


def _compress(path: Path) -> None:
    temporary = path.with_name(path.name + ".gz" + TEMPORARY)
    try:
        with (
            path.open("rb") as plain,
            open_private(temporary, "wb") as file,
            gzip.GzipFile("", "wb", COMPRESS_LEVEL, file) as packed,
        ):
            shutil.copyfileobj(plain, packed, 1 << 20)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    temporary.rename(path.with_name(path.name + ".gz"))
    path.unlink()
