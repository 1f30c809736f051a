"""Keeps lines that wait for the disk in a mapped file in memory, which outlives a killed process.

A write to the history's disk would make the event loop wait. A copy into the mapping never waits,
and a thread writes the line to the disk soon after. The next process finds here the lines that a
killed one had not written. Without a file system in memory, or while another process uses the file,
lines are not kept. Two halves: one is filled while the other is on its way to the disk.

The file is in a folder of our user's own, below `$RUNTIME_DIRECTORY` (systemd) or `/dev/shm`.
Whatever else is there is neither waited for, nor mapped, nor read.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import re
from contextlib import suppress
from pathlib import Path

from loadmanager.kit.logger import get_logger
from loadmanager.kit.private_files import make_folder, open_own, open_own_folder

MEMORY = Path("/dev/shm")
HEADER_BYTES = 4096
"""Holds the path of the history: a spool whose history is gone is removed."""
HALF_BYTES = 4 << 20
SPOOL_BYTES = HEADER_BYTES + 2 * HALF_BYTES
SIZES = (0, SPOOL_BYTES)
"""A process that was killed before it took the memory has left an empty file."""
_ENTRY = re.compile(rb"[a-z_]+ \d{4}-\d\d-\d\d .")
"""Kind, day, line."""

log = get_logger("history")


def folder_of_spools() -> Path:
    """Our user's own folder: in the one that systemd made for the service, or in memory."""
    given = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(given or MEMORY) / f"loadmanager-{os.geteuid()}"


class Spool:
    """Lines of one process that wait for the disk; the file is named after the history's folder.

    Never raises: without the file it keeps nothing. Failures are counted, and the first is logged.
    """

    def __init__(self, place: Path, broker: str, *, earlier_place: Path = MEMORY) -> None:
        """`earlier_place`: where version 0.3.0 and those before it kept their spools."""
        self._earlier_place = earlier_place
        self._place = str(place.resolve())
        digest = hashlib.sha256(f"{self._place}\n{broker}".encode()).hexdigest()[:16]
        self._name = f"{digest}.spool"
        self._folder_path = folder_of_spools()
        self._folder = -1
        self._map: mmap.mmap | None = None
        self._file = -1
        self._half = 0
        self._used = [0, 0]
        self._earlier_lines: list[bytes] = []
        self._earlier: _Earlier | None = None
        self._odd: list[str] = []
        """Files that were left alone, and why."""
        self.errors = 0
        """Lines and files that could not be kept, read or removed."""
        try:
            self._folder = open_own_folder(self._folder_path)
            self._sweep(self._folder, "", self._folder_path)
            self._open()
        except OSError as error:
            self._failed(error, self._advice())
            self._release()
        self._take_in_earlier(f"loadmanager-{os.geteuid()}-")
        if self._odd:
            self.errors += len(self._odd)
            log.warning(
                "a file among the spools is left alone; remove it, unless another service made it",
                file=self._odd[0],
                files=len(self._odd),
            )

    @property
    def path(self) -> Path:
        return self._folder_path / self._name

    def _advice(self) -> str:
        return (
            f"have {self._folder_path} belong to this user alone (mode 0700), with "
            f"{SPOOL_BYTES >> 20} MB of memory, and this file to one process"
        )

    def _failed(self, error: Exception, do: str = "see the error") -> None:
        self.errors += 1
        if self.errors == 1:
            log.warning(
                "records that wait for the disk are not safe from a kill",
                path=str(self.path),
                error=str(error),
                do=do,
            )

    def _open(self) -> None:
        make_folder(Path(self._place))  # `_sweep` removes spools without a folder
        try:
            self._file = open_own(
                self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL, folder=self._folder, sizes=SIZES
            )
        except FileExistsError:
            self._file = open_own(self._name, os.O_RDWR, folder=self._folder, sizes=SIZES)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # without room, this raises; a write to the mapping would be a SIGBUS
        os.posix_fallocate(self._file, 0, SPOOL_BYTES)
        self._map = mmap.mmap(self._file, SPOOL_BYTES)
        self._map[:HEADER_BYTES] = self._place.encode()[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
        self._used = [_used(self._map, half) for half in range(2)]
        self._earlier_lines += _lines(self._map)

    def _take_in_earlier(self, prefix: str) -> None:
        """Read the spool that an earlier version left in `earlier_place` itself."""
        try:
            folder = os.open(self._earlier_place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        self._sweep(folder, prefix, self._earlier_place)
        try:
            self._earlier = _Earlier(folder, prefix + self._name)
        except OSError:  # there is none, its process lives, or the sweep told of it
            os.close(folder)
            return
        self._earlier_lines = self._earlier.lines + self._earlier_lines

    def left_behind(self) -> list[tuple[str, str, bytes]]:
        """Lines that an earlier process had not written: kind, day, line."""
        records = []
        for entry in self._earlier_lines:
            if _ENTRY.match(entry):
                kind, day, line = entry.split(b" ", 2)
                records.append((kind.decode(), day.decode(), line))
            else:
                self._failed(ValueError(f"{entry[:80]!r} is not a record"))
        return records

    def forget(self) -> None:
        """Clear the spool, because what was left behind is on the disk."""
        self._earlier_lines = []
        if self._earlier is not None:
            self._earlier.remove()
            self._earlier = None
        for _ in range(2):
            self.switch()
            self.written()

    def append(self, kind: str, day: str, line: bytes) -> None:
        """Keep a line, if there is room."""
        if self._map is None or self._earlier_lines:
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
                os.unlink(self._name, dir_fd=self._folder)
            except FileNotFoundError:
                pass
            except OSError as error:
                self._failed(error)
        self._release()

    def _release(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1

    def _sweep(self, folder: int, prefix: str, path: Path) -> None:
        """Remove the spools of histories that no longer exist, unless a process still uses them."""
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _is_spool(entry.name, prefix)]
        for name in sorted(names):
            try:
                file = open_own(name, os.O_RDONLY, folder=folder, sizes=SIZES)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._odd.append(f"{path / name}: {error.strerror}")
                continue
            try:
                place = os.pread(file, HEADER_BYTES, 0).rstrip(b"\0")
                if not Path(os.fsdecode(place)).exists():
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=folder)
            except (BlockingIOError, FileNotFoundError):
                continue  # its process lives, or another one was faster
            except OSError as error:
                self._failed(error)
            finally:
                os.close(file)


class _Earlier:
    """A spool at the place of an earlier version, locked. Raises `OSError` if there is none."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder, self._name = folder, name
        self._file = open_own(name, os.O_RDONLY, folder=folder, sizes=(SPOOL_BYTES,))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.lines = _lines(os.pread(self._file, SPOOL_BYTES, 0).ljust(SPOOL_BYTES, b"\0"))
        except OSError:
            os.close(self._file)
            raise

    def remove(self) -> None:
        """Remove it: its lines are on the disk."""
        with suppress(OSError):  # the lines are recognized at the next start
            os.unlink(self._name, dir_fd=self._folder)
        os.close(self._file)
        os.close(self._folder)


def _is_spool(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.endswith(".spool")


def _used(data: mmap.mmap | bytes, half: int) -> int:
    """The bytes in use of a half. Stops at the first unused byte."""
    start = HEADER_BYTES + half * HALF_BYTES
    end = data.find(b"\0", start, start + HALF_BYTES)
    return HALF_BYTES if end < 0 else end - start


def _lines(data: mmap.mmap | bytes) -> list[bytes]:
    """The whole lines of both halves."""
    lines = list[bytes]()
    for half in range(2):
        start = HEADER_BYTES + half * HALF_BYTES
        content = data[start : start + _used(data, half)]
        lines += content[: content.rfind(b"\n") + 1].splitlines()
    return lines
