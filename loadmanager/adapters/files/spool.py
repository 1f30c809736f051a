"""Keeps lines that wait for the disk in a mapped file in memory (`/dev/shm`), which outlives a
killed process.

A write to the history's disk would make the event loop wait. A copy into the mapping never waits,
and a thread writes the line to the disk soon after. The next process finds here the lines that a
killed one had not written. Without `/dev/shm`, or while another process uses the file, lines are
not kept. Two halves: one is filled while the other is on its way to the disk.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import re
from pathlib import Path

import structlog

MEMORY = Path("/dev/shm")
HEADER_BYTES = 4096
"""Holds the path of the history: a spool whose history is gone is removed."""
HALF_BYTES = 4 << 20
SPOOL_BYTES = HEADER_BYTES + 2 * HALF_BYTES
_ENTRY = re.compile(rb"[a-z_]+ \d{4}-\d\d-\d\d .")
"""Kind, day, line."""

log = structlog.get_logger("history")


class Spool:
    """Lines of one process that wait for the disk; the file is named after the history's folder.

    Never raises: without the file it keeps nothing. Failures are counted, and the first is logged.
    """

    def __init__(self, place: Path, broker: str) -> None:
        self._place = str(place.resolve())
        name = hashlib.sha256(f"{self._place}\n{broker}".encode()).hexdigest()[:16]
        self._path = MEMORY / f"loadmanager-{os.getuid()}-{name}.spool"
        self._map: mmap.mmap | None = None
        self._file = -1
        self._half = 0
        self._used = [0, 0]
        self._found: list[bytes] = []
        self.errors = 0
        """Lines and files that could not be kept, read or removed."""
        self._sweep()
        try:
            self._open()
        except OSError as error:
            self._failed(error)
            self._release()

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        if self.errors == 1:
            log.warning(
                "records that wait for the disk are not safe from a kill",
                path=str(self._path),
                error=str(error),
            )

    def _open(self) -> None:
        Path(self._place).mkdir(
            parents=True, exist_ok=True
        )  # `_sweep` removes spools without a folder
        self._file = os.open(
            self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # without room, this raises; a write to the mapping would be a SIGBUS
        os.posix_fallocate(self._file, 0, SPOOL_BYTES)
        self._map = mmap.mmap(self._file, SPOOL_BYTES)
        self._map[:HEADER_BYTES] = self._place.encode()[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
        for half, start in enumerate((HEADER_BYTES, HEADER_BYTES + HALF_BYTES)):
            # stops at the first unused byte: to read on would allocate memory
            end = self._map.find(b"\0", start, start + HALF_BYTES)
            self._used[half] = (HALF_BYTES if end < 0 else end - start) if self._map[start] else 0
            content = self._map[start : start + self._used[half]]
            self._found += content[: content.rfind(b"\n") + 1].splitlines()

    def left_behind(self) -> list[tuple[str, str, bytes]]:
        """Lines that an earlier process had not written: kind, day, line."""
        found = []
        for entry in self._found:
            if _ENTRY.match(entry):
                kind, day, line = entry.split(b" ", 2)
                found.append((kind.decode(), day.decode(), line))
            else:
                self._failed(ValueError(f"{entry[:80]!r} is not a record"))
        return found

    def forget(self) -> None:
        """Clear the spool, because what was left behind is on the disk."""
        self._found = []
        for _ in range(2):
            self.switch()
            self.written()

    def append(self, kind: str, day: str, line: bytes) -> None:
        """Keep a line, if there is room."""
        if self._map is None or self._found:
            return
        data = b"%s %s %s\n" % (kind.encode(), day.encode(), line)
        used = self._used[self._half]
        if used + len(data) > HALF_BYTES:
            self._failed(ValueError(f"{HALF_BYTES} bytes wait for the disk already"))
        else:
            start = HEADER_BYTES + self._half * HALF_BYTES + used
            self._map[start : start + len(data)] = data
            self._used[self._half] = used + len(data)

    def switch(self) -> None:
        """Keep new lines in the other half, because those kept so far go to the disk now."""
        self._half = 1 - self._half

    def written(self) -> None:
        """Clear the half that was in use before the last `switch`: it is on the disk, or lost."""
        if self._map is not None:
            other = 1 - self._half
            start, used = HEADER_BYTES + other * HALF_BYTES, self._used[other]
            self._map[start : start + used] = bytes(used)
            self._used[other] = 0

    def close(self) -> None:
        """Remove the file, because everything is on the disk."""
        if self._map is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self._failed(error)
        self._release()

    def _release(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _sweep(self) -> None:
        """Remove the spools of histories that no longer exist, unless a process still uses them."""
        for path in MEMORY.glob(f"loadmanager-{os.getuid()}-*.spool"):
            try:
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    place = file.read(HEADER_BYTES).rstrip(b"\0")
                    if not Path(os.fsdecode(place)).exists():
                        path.unlink()
            except (BlockingIOError, FileNotFoundError):
                continue  # its process lives, or another one was faster
            except OSError as error:
                self._failed(error)
