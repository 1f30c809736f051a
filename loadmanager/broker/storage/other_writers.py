"""What a storage does with the folders of all others (`writers`).

The folder of a writer whose lock is free belongs to a process that has ended: whoever finds it
brings its journals into their segments, and deletes it. If the process lives, and a run of it is
ended, its journals are read for the pieces of that log: its segments may lack them.
"""

from __future__ import annotations

import errno
import threading
from array import array
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from crc32c import crc32c

from loadmanager.broker.storage.commit_journal import Place, is_cut_off, read_batches
from loadmanager.broker.storage.writers import (
    RESERVE,
    SYNCED_AT_ONCE,
    WRITERS,
    Disk,
    require_gone,
    write_piece,
)
from loadmanager.kit.logger import get_logger

DAMAGED = "damaged"
"""Where journals are kept of which a part cannot be read."""
FULL = (errno.ENOSPC, errno.EDQUOT)

log = get_logger("storage")


class _Pieces:
    """Where the journals of a writer that lives have the pieces of each log."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        """Journal → how many of its bytes were read."""
        self._places: dict[str, dict[int, array[int]]] = {}
        """Journal → log → the fields of a piece, one piece after the other."""

    def add(self, journal: str, at: int, place: Place, data: bytes) -> None:
        """Remember a piece, `at` bytes from the beginning of a journal."""
        of_journal = self._places.setdefault(journal, {})
        row = (at, len(data), crc32c(data), place.run, place.first_id, place.offset)
        of_journal.setdefault(place.log_id, array("Q")).extend(row)

    def keep(self, journals: Iterable[str]) -> None:
        """Forget all other journals."""
        names = set(journals)
        self.read = {name: size for name, size in self.read.items() if name in names}
        self._places = {name: places for name, places in self._places.items() if name in names}

    def of(self, log_id: int) -> Iterator[tuple[str, int, int, int, Place]]:
        """The pieces of a log: journal, offset in it, bytes, checksum, and their place."""
        for journal, of_journal in self._places.items():
            rows = iter(of_journal.get(log_id, ()))
            for at, size, checksum, run, first_id, offset in zip(*[rows] * 6, strict=True):
                yield journal, at, size, checksum, Place(log_id, run, first_id, offset)


class OtherWriters:
    """The folders of all other storages. May be used by any thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.Lock()
        self._pieces: dict[str, _Pieces] = {}
        """By writer that lives."""
        self.damaged = 0
        """Damaged parts found in journals since start."""

    def fence(self, writer: str, log_id: int, run: int) -> None:
        """End a run of a writer, which looks for the mark after every write. It need not be
        durable: a machine that stops ends all runs.
        """
        folder = f"{WRITERS}/{writer}"
        if self._is_gone(folder, log_id):
            return
        mark = f"{folder}/{log_id:x}-{run:x}.fenced"
        try:
            self._disk.create(mark, b"")
        except OSError as error:
            if error.errno not in FULL or not self._free_room(folder):
                raise
            self._disk.create(mark, b"")

    def _take(self, folder: str) -> bool | None:
        """Lock the folder of a writer: false if its process lives, None without a folder."""
        try:
            return self._disk.lock(f"{folder}/lock", create=False)
        except FileNotFoundError:
            return None

    def _is_gone(self, folder: str, log_id: int) -> bool:
        """True if others have deleted the folder of a writer: the segments have everything. Raises
        `OSError` if the folder of this log is gone, too.
        """
        if self._disk.exists(f"{folder}/lock"):
            return False
        self._require_gone([f"{folder}/lock"], log_id)
        return True

    def _require_gone(self, paths: Collection[str], log_id: int) -> None:
        if paths:
            require_gone(self._disk, paths, there=self._disk.exists(f"{log_id:016x}"))

    def _free_room(self, folder: str) -> bool:
        """Free the room that a writer had taken for this, if its process has ended: on some file
        systems names need room, too.
        """
        with self._lock:
            if not self._take(folder):
                return False
            try:
                self._disk.remove(f"{folder}/{RESERVE}")
            finally:
                self._disk.unlock(f"{folder}/lock")
            return True

    def names(self) -> list[str]:
        """All writers that have a folder."""
        return self._disk.names(WRITERS)

    def recover(self, writer: str, log_id: int | None = None) -> int:
        """If a writer's process has ended, bring its journals into their segments, durably, and
        delete its folder; if it lives, write the pieces of this log to its segments. Returns the
        bytes that were written.
        """
        folder = f"{WRITERS}/{writer}"
        with self._lock:
            taken = self._take(folder)
            if taken is None and (log_id is None or self._is_gone(folder, log_id)):
                self._pieces.pop(writer, None)
                return 0
            if not taken:
                return 0 if log_id is None else self._bring(writer, folder, log_id)
            self._pieces.pop(writer, None)
            try:
                size, failed = self._recover(folder)
            except OSError:  # or else others would take it for alive
                self._disk.unlock(f"{folder}/lock")
                raise
            if failed:
                self._disk.unlock(f"{folder}/lock")
            for path, error in failed.items():
                if log_id is None or path.startswith(f"{log_id:016x}/"):
                    raise error
            return size

    def _journals(self, folder: str) -> list[str] | None:
        """None if the folder is not there."""
        names = self._disk.names(folder)
        journals = [name for name in names if name.endswith(".journal")]
        return journals if "lock" in names else None

    def _bring(self, writer: str, folder: str, log_id: int) -> int:
        """Write the pieces of a log of a writer that lives. A journal that has gone meanwhile is
        not needed: the writer has synced the segments, after it saw the end of this run.

        The names of journals are made durable before: if the writer could not do that, its commit
        failed; but of what is brought to a segment, a part may become durable.
        """
        pieces, written = self._pieces.setdefault(writer, _Pieces()), 0
        gone, journals = dict[str, None](), self._journals(folder)
        if journals is None:
            self._require_gone([f"{folder}/lock"], log_id)
            return 0
        pieces.keep(journals)
        if not pieces.read.keys() >= set(journals):
            self._disk.sync_names(folder)
        for name in journals:
            try:
                self._note(pieces, folder, name)
            except FileNotFoundError:
                gone[f"{folder}/{name}"] = None
        for name, at, size, checksum, place in pieces.of(log_id):
            try:
                data = self._disk.read(f"{folder}/{name}", at, size)
            except FileNotFoundError:
                gone[f"{folder}/{name}"] = None
                continue
            if crc32c(data) == checksum:  # else its commit failed, and its pages are gone
                written += write_piece(self._disk, place, data, gone)
        self._require_gone(gone, log_id)
        return written

    def _note(self, pieces: _Pieces, folder: str, name: str) -> None:
        """Remember where a journal has pieces, behind what was read of it before."""
        path, begin = f"{folder}/{name}", pieces.read.get(name, 0)
        for end, damaged, some in read_batches(path, self._stored(path, begin)):
            if damaged:
                self._keep_damaged(path, pieces.read.get(name, 0), damaged)
            at = begin + end - sum(len(data) for _, data in some)
            for place, data in some:
                pieces.add(name, at, place, data)
                at += len(data)
            pieces.read[name] = begin + end

    def _stored(self, path: str, begin: int = 0) -> bytes:
        """What the device has of a journal. What only memory has of it, since a commit failed, or
        before it does, may be gone when it is read once more, after a part of its pieces has become
        durable. So it is synced; if that fails, the device has what it will have.
        """
        size = self._disk.size(path)
        if begin >= size:
            return b""
        with suppress(OSError):
            self._disk.sync(path)
        self._disk.release(path)
        return self._disk.read_stored(path, size, begin)

    def _recover(self, folder: str) -> tuple[int, dict[str, OSError]]:
        """Returns the segments that cannot be written, too: those of others are durable, and the
        journals stay.
        """
        segments, failed, size = dict[str, None](), dict[str, OSError](), 0
        gone = dict[str, None]()
        self._disk.remove(f"{folder}/{RESERVE}")
        self._disk.sync_names(folder)  # see `_bring`
        journals = self._journals(folder)
        require_gone(self._disk, (), there=journals is not None)
        for name in journals or ():
            size += self._apply(f"{folder}/{name}", segments, failed, gone)
        self._sync(segments, failed, gone)
        require_gone(self._disk, gone, there=self._disk.holds(f"{folder}/lock"))
        if not failed:
            self._delete(folder)
        return size, failed

    def _sync(
        self, segments: dict[str, None], failed: dict[str, OSError], gone: dict[str, None]
    ) -> None:
        for path in segments:
            try:
                self._disk.sync(path)
                self._disk.release(path)
            except FileNotFoundError:
                gone[path] = None
            except OSError as error:
                failed[path] = error
        segments.clear()

    def _apply(
        self,
        path: str,
        segments: dict[str, None],
        failed: dict[str, OSError],
        gone: dict[str, None],
    ) -> int:
        """Write the pieces of a journal whose writer has ended."""
        raw, end, size = self._stored(path), 0, 0
        for behind, damaged, pieces in read_batches(path, raw):
            if damaged:
                self._keep_damaged(path, end, damaged)
            for place, data in pieces:
                try:
                    written = write_piece(self._disk, place, data, gone)
                except OSError as error:
                    failed[place.path] = error
                    continue
                if written:
                    size += written
                    segments[place.path] = None
                if len(segments) >= SYNCED_AT_ONCE:
                    self._sync(segments, failed, gone)
            end = behind
        if rest := raw[end:]:
            if is_cut_off(path, rest):
                cut = len(rest)
                log.warning("a commit was cut off and is left out", file=path, at=end, bytes=cut)
            else:
                self._keep_damaged(path, end, len(rest))
        return size

    def _keep_damaged(self, path: str, at: int, size: int) -> None:
        """A part of a journal, other than a torn end, cannot be read: its data are lost if they are
        not in the segments. The journal is kept, for whoever may know better.
        """
        self.damaged += 1
        copy = f"{DAMAGED}/{path.replace('/', '-')}"
        if not self._disk.exists(copy):
            self._disk.make_folder(DAMAGED)
            self._disk.create(copy, self._disk.read(path))
        log.error(
            "a part of a journal is damaged: stored messages may be lost",
            file=path,
            offset=at,
            bytes=size,
            kept=copy,
        )

    def _delete(self, folder: str) -> None:
        """Delete a folder of whose journals all pieces are durable in their segments."""
        for name in self._disk.names(folder):
            if name != "lock":
                self._disk.remove(f"{folder}/{name}")
        self._disk.remove(f"{folder}/lock")
        self._disk.unlock(f"{folder}/lock")
        with suppress(OSError):  # another opening has left a mark meanwhile: nobody looks for it
            self._disk.remove_folder(folder)
