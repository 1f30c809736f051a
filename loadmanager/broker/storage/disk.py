"""Files of a real directory, for `log_files`."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from loadmanager.kit.private_files import make_folder, open_regular, write_file

OPEN_MAX = 500
"""Files that a thread keeps open for writing."""
READ_BYTES = 1 << 20
"""Bytes of one read that passes over the page cache."""
MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors that say that there is no such file."""
NO_SUCH_NAME = (*MISSING, errno.EACCES)
"""Errors that are those of one name: others in the directory may have none."""


class DirectoryDisk:
    """Implements `writers.Disk` below `root`. Threads may use it at once, each its own files.

    What is no regular file is not opened, with an error: the opening of a pipe may wait for ever.
    """

    def __init__(
        self,
        root: Path,
        *,
        fdatasync: Callable[[int], None] = os.fdatasync,
        fsync: Callable[[int], None] = os.fsync,
    ) -> None:
        self._root = root
        self._fdatasync, self._fsync = fdatasync, fsync
        made = [folder for folder in (root, *root.parents) if not folder.exists()]
        make_folder(root)
        for folder in made:
            self._sync_folder(folder.parent)
        self._threads = threading.local()
        self._new: dict[str, None] = {}
        """Files whose first byte was written, and whose name was not synced since. Another process
        may have created them, and have ended before it did so.
        """
        self._unnamed: dict[str, None] = {}
        """Folders that were made, and whose names may not be durable: a sync has failed."""
        self._locks: dict[str, int] = {}

    @property
    def _open(self) -> OrderedDict[str, int]:
        """The files that this thread writes, and their descriptors."""
        if not hasattr(self._threads, "open"):
            self._threads.open = OrderedDict()
        descriptors: OrderedDict[str, int] = self._threads.open
        return descriptors

    def _descriptor(self, path: str, flags: int) -> int:
        opened = self._open
        descriptor = opened.get(path)
        if descriptor is not None:
            opened.move_to_end(path)
            return descriptor
        target = self._root / path
        if flags & os.O_CREAT and (folder := path.rpartition("/")[0]) in self._unnamed:
            self.make_folder(folder)
        if len(opened) >= OPEN_MAX:
            self.release(next(iter(opened)))
        descriptor = opened[path] = open_regular(str(target), os.O_WRONLY | flags)
        return descriptor

    def make_folder(self, folder: str, *, begins: bool = False) -> None:
        target = self._root / folder
        if begins or folder in self._unnamed or not self.exists(folder):
            self._unnamed[folder] = None
            make_folder(target)
            for parent in target.parents:
                self._sync_folder(parent)
                if parent == self._root:
                    break
            self._unnamed.pop(folder, None)

    def write(self, path: str, offset: int, data: bytes, *, create: bool = True) -> None:
        descriptor, view = self._descriptor(path, os.O_CREAT if create else 0), memoryview(data)
        if offset == 0:
            self._new[path] = None
        with self._names_file(path):
            while view:
                written = os.pwrite(descriptor, view, offset)
                view, offset = view[written:], offset + written

    def sync(self, path: str) -> None:
        with self._names_file(path):
            self._fdatasync(self._descriptor(path, 0))
            if path in self._new:
                self._sync_folder((self._root / path).parent)
                self._new.pop(path, None)

    @staticmethod
    @contextmanager
    def _names_file(path: str) -> Iterator[None]:
        """Add its file to an error that has none, as those of an open file."""
        try:
            yield
        except OSError as error:
            error.filename = error.filename or path
            raise

    def sync_names(self, folder: str) -> None:
        self._sync_folder(self._root / folder)

    def size(self, path: str) -> int:
        with self._reading(path) as file:  # NFS answers of a file that is not opened what it knew
            return os.fstat(file.fileno()).st_size

    def read_stored(self, path: str, size: int, offset: int = 0) -> bytes:
        """See `writers.Disk`. A file system that cannot pass over the page cache is asked to drop
        what it has of the file.
        """
        try:
            descriptor = open_regular(str(self._root / path), os.O_RDONLY | os.O_DIRECT)
            try:
                begin = offset // READ_BYTES * READ_BYTES
                return b"".join(self._direct(descriptor, size, begin))[offset - begin :]
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        with self._reading(path) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(offset)
            return file.read(max(size - offset, 0))

    @staticmethod
    def _direct(descriptor: int, size: int, at: int) -> Iterator[bytes]:
        """The bytes of a file from `at` to `size`, which is open without the page cache."""
        with mmap.mmap(-1, READ_BYTES) as block:  # at the boundary of a page, as such a read needs
            while at < size and (read := os.preadv(descriptor, [block], at)) > 0:
                yield block[: min(read, size - at)]
                at += read

    def create(self, path: str, data: bytes) -> None:
        target = self._root / path
        draft = target.with_name(f"{target.name}.draft")
        write_file(draft, data)
        draft.replace(target)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        with self._reading(path) as file:
            file.seek(offset)
            return file.read(size)

    def _reading(self, path: str) -> BinaryIO:
        return os.fdopen(open_regular(str(self._root / path), os.O_RDONLY), "rb")

    def exists(self, path: str) -> bool:
        try:  # not `Path.exists`, which may say no when the file system has not answered
            (self._root / path).stat()
        except OSError as error:
            if error.errno not in MISSING:
                raise
            return False
        return True

    def has(self, path: str, size: int) -> bool:
        try:
            descriptor = self._open.get(path)
            status = (self._root / path).stat() if descriptor is None else os.fstat(descriptor)
        except OSError as error:
            if error.errno not in NO_SUCH_NAME:
                raise
            return False
        return status.st_nlink > 0 and status.st_size >= size

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except FileNotFoundError:
            return []

    def release(self, path: str) -> None:
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def remove_folder(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            (self._root / folder).rmdir()

    def lock(self, path: str, *, create: bool = True) -> bool:
        if create:
            self.make_folder(path.rpartition("/")[0])
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        descriptor = open_regular(str(self._root / path), flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._locks[path] = descriptor
        return True

    def unlock(self, path: str) -> None:
        descriptor = self._locks.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def holds(self, path: str) -> bool:
        descriptor = self._locks.get(path)
        try:
            present = (self._root / path).stat()
        except FileNotFoundError:
            return False
        return descriptor is not None and os.path.samestat(os.fstat(descriptor), present)

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            self._fsync(descriptor)
        finally:
            os.close(descriptor)
