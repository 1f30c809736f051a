"""A disk in memory that several machines share, for tests: as mean as a real one may be.

What a machine writes is seen by all at once, and is on the device when it is synced. Until then a
crash of the machine, or a loss of power, leaves any part of it, in sectors. A sync that fails drops
what was not synced from what will ever be written: reads still show it, until the page is evicted;
the next sync says yes, but for the threads that have the file open, which are told once each. Names
become durable apart from what is in the files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from errno import EIO, ENOSPC
from random import Random
from weakref import WeakSet

from loadmanager.broker.messaging.segments import SECTOR_BYTES

OPEN_MAX = 500
"""Files that a thread has open, as in a real directory."""


def _no_trouble(_call: str, _path: str) -> int:
    return 0


@dataclass(slots=True)
class _Write:
    """Bytes that a machine wrote and nobody has synced."""

    disk: MemoryDisk
    offset: int
    data: bytes


class _Handle:
    """A file that a thread has open."""

    fails = False
    """Whether a sync has failed that this thread was not told of."""


@dataclass(slots=True, eq=False)
class _File:
    """A file: as reads see it, as the device has it, and what lies between."""

    content: bytearray = field(default_factory=bytearray)
    stored: bytearray = field(default_factory=bytearray)
    unsynced: list[_Write] = field(default_factory=list)
    handles: WeakSet[_Handle] = field(default_factory=WeakSet)
    failed: bool = False
    """Whether writing back has failed and nobody was told."""

    def on_device(self) -> bytearray:
        """What a read from the device gives, which writes back first what is not written."""
        device = bytearray(self.stored)
        for write in self.unsynced:
            _put(device, write.offset, write.data)
        return device


def _put(content: bytearray, offset: int, data: bytes) -> None:
    content += bytes(max(offset - len(content), 0))
    content[offset : offset + len(data)] = data


class SharedFiles:
    """The files of all machines. `room`: bytes that may still be written; −1: any.

    With `strict_names` a name is durable only when its folder was synced; otherwise every sync of a
    file makes all names durable, as ext4 and XFS do. `rng` decides what a failed sync leaves.
    """

    def __init__(self, *, strict_names: bool = False, rng: Random | None = None) -> None:
        self.files: dict[str, _File] = {}
        self.folders: set[str] = {""}
        self.room = -1
        self.trouble: Callable[[str, str], int] = _no_trouble
        """Asked before each call of a disk, with its name and path: the number of the error that
        it fails with, or 0.
        """
        self.locks: dict[str, MemoryDisk] = {}
        self._strict = strict_names
        self._rng = rng or Random(0)  # noqa: S311 - which sectors of a failed sync are written
        self._named: dict[str, _File | None] = {}
        """The names that the device has; None: of folders."""
        self._changes: list[tuple[str, _File | None, bool]] = []
        """Names that were given or taken (false), in order, and are not durable."""

    @property
    def content(self) -> dict[str, bytearray]:
        """All files, as reads see them."""
        return {path: file.content for path, file in self.files.items()}

    def name(self, path: str, file: _File) -> None:
        """Give a file a name, which is not durable yet."""
        self.files[path] = file
        self._changes.append((path, file, True))

    def drop(self, path: str) -> None:
        """Take a name away, not durably yet."""
        file = self.files.pop(path, None)
        if file is not None:
            self._changes.append((path, None, False))
            if self.room >= 0:
                self.room += len(file.content)

    def make_folder(self, folder: str) -> None:
        """Create a folder and those that it is in, not durably yet."""
        if folder not in self.folders:
            self.make_folder(folder.rpartition("/")[0])
            self.folders.add(folder)
            self._changes.append((folder, None, True))

    def remove_folder(self, folder: str) -> None:
        """Delete a folder, not durably yet."""
        if folder in self.folders:
            self.folders.discard(folder)
            self._changes.append((folder, None, False))

    def change(self, path: str, change: Callable[[bytearray], None]) -> None:
        """Damage a file, on the device and in memory."""
        file = self.files[path]
        self.sync(path, fails=False)
        for content in (file.content, file.stored):
            change(content)

    def sync_names(self, folder: str | None) -> None:
        """Make the names of a folder durable, or all of them."""
        left = list[tuple[str, _File | None, bool]]()
        for path, file, given in self._changes:
            if folder in (None, path.rpartition("/")[0]):
                self._apply(path, file, given=given)
            else:
                left.append((path, file, given))
        self._changes = left

    def _apply(self, path: str, file: _File | None, *, given: bool) -> None:
        if given:
            self._named[path] = file
        else:
            self._named.pop(path, None)

    def sync(self, path: str, *, fails: bool) -> None:
        """Write to the device what was written to a file, or, if it fails, any sectors of it."""
        file = self.files[path]
        for write in file.unsynced:
            _put(file.stored, write.offset, self._part(file, write) if fails else write.data)
        file.unsynced.clear()
        for handle in file.handles:
            handle.fails = handle.fails or fails
        if not fails and not self._strict:
            self.sync_names(None)

    def _part(self, file: _File, write: _Write) -> bytes:
        """A write of which some sectors were not written: those keep what they had."""
        end = write.offset + len(write.data)
        data, before = bytearray(write.data), bytes(file.stored[write.offset : end])
        before += bytes(len(data) - len(before))
        at = 0
        while at < len(data):
            behind = (write.offset + at) // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES
            behind = min(behind - write.offset, len(data))
            if self._rng.random() < 0.5:
                data[at:behind] = before[at:behind]
            at = behind
        return bytes(data)

    def fail_to_write_back(self, path: str) -> None:
        """The system writes a file's pages by itself, and fails: the next sync says so."""
        self.sync(path, fails=True)
        self.files[path].failed = True

    def evict(self, path: str) -> None:
        """Drop the pages of a file from memory: reads see what the device has."""
        file = self.files[path]
        file.content[:] = file.on_device()

    def lose_power(self, *, keep: float | None = None) -> None:
        """All machines stop. Of what was not synced, any sectors of any writes are there
        afterwards, or the share `keep` of the writes (0 or 1), and any of the names.
        """
        for disk in {write.disk for file in self.files.values() for write in file.unsynced}:
            disk.crashed = True
        for disk in self.locks.values():
            disk.crashed = True
        changes, self._changes = self._changes, []
        survives = dict[str, bool]()
        for path, named, given in changes:
            folder = path.rpartition("/")[0] if self._strict else ""
            if survives.setdefault(folder, True):  # in the order in which they were made
                chance = keep if keep is not None else 0.8
                survives[folder] = self._rng.random() < chance
            if survives[folder]:
                self._apply(path, named, given=given)
        before = list(self.files.values())
        self._find_names()
        for file in dict.fromkeys([*before, *self.files.values()]):
            for write in file.unsynced:
                if keep is None:
                    _put(file.stored, write.offset, self._part(file, write))
                elif self._rng.random() < keep:
                    _put(file.stored, write.offset, write.data)
            file.unsynced.clear()
            file.content[:] = file.stored
        self.locks.clear()

    def _find_names(self) -> None:
        """What is in a folder without a name is lost."""
        self.files, self.folders = {}, {""}
        for path, file in sorted(self._named.items(), key=lambda item: item[0]):
            if path.rpartition("/")[0] not in self.folders:
                del self._named[path]
            elif file is None:
                self.folders.add(path)
            else:
                self.files[path] = file


class MemoryDisk:
    """Implements `broker.storage.writers.Disk` for one machine."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files
        self._here = threading.local()
        self._new: set[str] = set()
        """Files whose first byte it has written, and whose names it has not synced."""
        self._unnamed: set[str] = set()
        """Folders that it has made, and whose names it has not synced."""
        self.crashed = False

    def write(self, path: str, offset: int, data: bytes, *, create: bool = True) -> None:
        """Write to a file. Raises `OSError` when the disk is full, after a part."""
        self._check("write", path)
        if create:
            self.make_folder(path.rpartition("/")[0])
        file = self._files.files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(2, "No such file", path)
            file = _File()
            self._files.name(path, file)
        self._handle(path, file)
        if offset == 0:
            self._new.add(path)
        room, more = self._files.room, max(offset + len(data) - len(file.content), 0)
        if full := 0 <= room < more:
            data = data[: len(data) - more + room]
        if data:
            file.unsynced.append(_Write(self, offset, bytes(data)))
            _put(file.content, offset, data)
        if room >= 0:
            self._files.room = 0 if full else room - more
        if full:
            raise OSError(ENOSPC, "No space left on device")

    def sync(self, path: str) -> None:
        """Make durable what was written to a file, by anybody."""
        try:
            self._check("sync", path)
        except OSError:
            if not self.crashed and path in self._files.files:
                self._files.sync(path, fails=True)
                self._handle(path, self._files.files[path]).fails = False
            raise
        if path not in self._files.files:
            raise FileNotFoundError(2, "No such file", path)
        file = self._files.files[path]
        handle = self._handle(path, file)
        if handle.fails or file.failed:
            handle.fails = file.failed = False
            raise OSError(EIO, "writing has failed since the last sync")
        self._files.sync(path, fails=False)
        if path in self._new:
            self.sync_names(path.rpartition("/")[0])
            self._new.discard(path)

    def _handle(self, path: str, file: _File) -> _Handle:
        """The file as this thread has it open."""
        opened: dict[str, tuple[_File, _Handle]] = self._here.__dict__.setdefault("opened", {})
        if path not in opened or opened[path][0] is not file:
            opened[path] = file, _Handle()
            file.handles.add(opened[path][1])
            if len(opened) > OPEN_MAX:
                del opened[next(iter(opened))]
        return opened[path][1]

    def sync_names(self, folder: str) -> None:
        """Make the names in a folder durable."""
        self._check("sync_names", folder)
        self._files.sync_names(folder)

    def create(self, path: str, data: bytes) -> None:
        """Replace a whole file; nothing of that is durable."""
        self._check("create", path)
        file = _File(bytearray(data))
        if data:
            file.unsynced.append(_Write(self, 0, data))
        self._files.make_folder(path.rpartition("/")[0])
        self._files.name(path, file)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """At most `size` bytes. Raises `FileNotFoundError`."""
        end = None if size < 0 else offset + size
        return bytes(self._file("read", path).content[offset:end])

    def size(self, path: str) -> int:
        """The bytes of a file. Raises `FileNotFoundError`."""
        return len(self._file("size", path).content)

    def read_stored(self, path: str, size: int, offset: int = 0) -> bytes:
        """A file as the device has it. Raises `FileNotFoundError`."""
        return bytes(self._file("read_stored", path).on_device()[offset:size])

    def _file(self, call: str, path: str) -> _File:
        self._check(call, path)
        if path not in self._files.files:
            raise FileNotFoundError(2, "No such file", path)
        return self._files.files[path]

    def exists(self, path: str) -> bool:
        """True if there is such a file or folder."""
        self._check("exists", path)
        return path in self._files.files or path in self._files.folders

    def has(self, path: str, size: int) -> bool:
        """True if there is a file of so many bytes."""
        self._check("has", path)
        return path in self._files.files and len(self._files.files[path].content) >= size

    def names(self, folder: str) -> list[str]:
        """The files and folders in a folder, sorted."""
        self._check("names", folder)
        prefix = f"{folder}/"
        return sorted(
            {
                path[len(prefix) :].partition("/")[0]
                for path in self._files.files
                if path.startswith(prefix)
            }
        )

    def release(self, path: str) -> None:
        """Close a file, as far as this thread has it open."""
        self._here.__dict__.get("opened", {}).pop(path, None)

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        self._check("remove", path)
        self._files.drop(path)

    def make_folder(self, folder: str, *, begins: bool = False) -> None:
        """Create a folder, durably."""
        self._check("make_folder", folder)
        if begins or folder in self._unnamed or folder not in self._files.folders:
            self._unnamed.add(folder)
            self._files.make_folder(folder)
            parent = folder
            while parent:
                parent = parent.rpartition("/")[0]
                self.sync_names(parent)
            self._unnamed.discard(folder)

    def remove_folder(self, folder: str) -> None:
        """Delete a folder."""
        self._check("remove_folder", folder)
        self._files.remove_folder(folder)

    def lock(self, path: str) -> bool:
        """Lock a file until the machine crashes."""
        self._check("lock", path)
        holder = self._files.locks.get(path)
        if holder is not None and not holder.crashed:
            return False
        self._files.locks[path] = self
        if path not in self._files.files:
            folder = path.rpartition("/")[0]
            if folder not in self._files.folders:
                self._unnamed.add(folder)  # durable before anything is in it that must be
                self._files.make_folder(folder)
            self._files.name(path, _File())
        return True

    def unlock(self, path: str) -> None:
        """Let others lock a file."""
        self._files.locks.pop(path, None)

    def holds(self, path: str) -> bool:
        """True if this machine has locked the file."""
        self._check("holds", path)
        return path in self._files.files and self._files.locks.get(path) is self

    def _check(self, call: str, path: str) -> None:
        if self.crashed:
            raise OSError(5, "the machine has crashed")
        if error := self._files.trouble(call, path):
            raise OSError(error, "trouble")

    def kill(self) -> None:
        """The process ends: the system writes what it has, and its locks are free."""
        self.crashed = True

    def crash(self, left: Callable[[int], int]) -> None:
        """The machine stops: of so many bytes of a file that were not synced, the first `left` are
        there afterwards.
        """
        self.crashed = True
        for path, file in list(self._files.files.items()):
            mine = [write for write in file.unsynced if write.disk is self]
            if not mine:
                continue
            size = left(sum(len(write.data) for write in mine))
            for write in mine:
                if size:
                    _put(file.stored, write.offset, write.data[:size])
                size = max(size - len(write.data), 0)
            file.unsynced = [write for write in file.unsynced if write.disk is not self]
            file.content[:] = file.on_device()
            if not file.content:
                self._files.drop(path)
