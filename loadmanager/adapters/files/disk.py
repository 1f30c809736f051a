"""Files of a real directory, for `log_files`."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

OPEN_MAX = 64
"""Files that a thread keeps open for writing."""


class DirectoryDisk:
    """Implements `log_files.Disk` below `root`. Threads may use it at once, each its own
    files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        self._threads = threading.local()
        self._new: dict[str, None] = {}
        """Files whose name is not durable yet."""

    @property
    def _open(self) -> OrderedDict[str, int]:
        """The files that this thread writes, and their descriptors."""
        if not hasattr(self._threads, "open"):
            self._threads.open = OrderedDict()
        found: OrderedDict[str, int] = self._threads.open
        return found

    def _descriptor(self, path: str, flags: int) -> int:
        opened = self._open
        found = opened.get(path)
        if found is not None:
            opened.move_to_end(path)
            return found
        target = self._root / path
        if flags & os.O_CREAT and not target.exists():
            self._make_folder(target.parent)
            self._new[path] = None
        if len(opened) >= OPEN_MAX:
            oldest = next(iter(opened))
            self.sync(oldest)
            self.release(oldest)
        found = opened[path] = os.open(target, os.O_WRONLY | os.O_APPEND | flags, 0o644)
        return found

    def _make_folder(self, folder: Path) -> None:
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            self._sync_folder(self._root)

    def append(self, path: str, data: bytes) -> None:
        """See `log_files.Disk`."""
        found, view = self._descriptor(path, os.O_CREAT), memoryview(data)
        while view:
            view = view[os.write(found, view) :]

    def sync(self, path: str) -> None:
        """See `log_files.Disk`."""
        os.fdatasync(self._descriptor(path, 0))
        if path in self._new:
            self._sync_folder((self._root / path).parent)
            self._new.pop(path, None)

    def create(self, path: str, data: bytes) -> None:
        """See `log_files.Disk`."""
        target = self._root / path
        self._make_folder(target.parent)
        draft = target.with_name(f"{target.name}.draft")
        found = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(found, view) :]
            os.fdatasync(found)
        finally:
            os.close(found)
        draft.replace(target)
        self._sync_folder(target.parent)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """See `log_files.Disk`."""
        with (self._root / path).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def exists(self, path: str) -> bool:
        """See `log_files.Disk`."""
        return (self._root / path).exists()

    def names(self, folder: str) -> list[str]:
        """See `log_files.Disk`."""
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []

    def release(self, path: str) -> None:
        """See `log_files.Disk`."""
        found = self._open.pop(path, None)
        if found is not None:
            os.close(found)

    def remove(self, path: str) -> None:
        """See `log_files.Disk`."""
        (self._root / path).unlink(missing_ok=True)

    def remove_folder(self, folder: str) -> None:
        """See `log_files.Disk`."""
        with suppress(FileNotFoundError):
            (self._root / folder).rmdir()

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        found = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(found)
        finally:
            os.close(found)
