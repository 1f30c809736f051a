"""What the earlier runs of a log have left in its folder: ending the last one, and reading the
segments, from their indexes or as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from loadmanager.broker.messaging.segments import (
    ID_MAX,
    SegmentIndex,
    read_index,
    scan,
    write_index,
)
from loadmanager.broker.ports.log import Run
from loadmanager.broker.storage.commit_journal import closed_path, index_path, segment_path
from loadmanager.broker.storage.other_writers import OtherWriters
from loadmanager.broker.storage.shared_id import BYTES_MAX, MISSING, OTHER_DIRECTORY, TAKEN, id_in
from loadmanager.broker.storage.shared_id import NAME as SHARED_ID
from loadmanager.broker.storage.writers import Disk, require_gone
from loadmanager.broker.wire.frames import publish_time_of
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger

log = get_logger("storage")


class EarlierSegments(NamedTuple):
    """What an opening has found."""

    segments: list[SegmentIndex]
    """In order; they are durable."""
    end_id: int
    """The id after the last entry."""
    scanned: list[SegmentIndex]
    """Those of which nobody had left an index."""


class _Flaws(NamedTuple):
    """What is wrong with the segments of a log."""

    torn: list[tuple[str, int]]
    """Segments with an end that was being written, and its bytes."""
    lost: list[str]
    """What is not there, or damaged, in words."""


class EarlierRuns:
    """The folders of logs, for the threads that open them. `sync` makes a segment durable; `syncs`
    tells whether segments are made durable at all before what they hold is acknowledged.
    """

    def __init__(
        self,
        disk: Disk,
        others: OtherWriters,
        sync: Callable[[str], None],
        syncs: Callable[[], bool],
    ) -> None:
        self._disk, self._others = disk, others
        self._sync, self._syncs = sync, syncs
        self.shared_id: str | None = None
        """The id of the directory; None if it has none, or if that is not checked."""
        self._misses = False
        """Whether the last log that was to be opened was refused because of its directory."""
        self.damaged = 0

    def find(self, log_id: int, runs: Sequence[Run], first_id: int, me: str) -> EarlierSegments:
        """End the last of a log's runs, unless the writer `me` wrote it, and find the segments.

        A commit that was under way when the run was ended may have brought a part of itself to a
        segment since the journals were read: it is in a journal as a whole by then. So what seems
        to be damaged is looked at once more, with the journals.
        """
        folder = f"{log_id:016x}"
        if not runs:
            self._disk.make_folder(folder, begins=True)
        if not runs and self.segments(log_id):
            problem = f"the folder {folder} of a new topic has messages already; {TAKEN}"
            log.error("a topic cannot be stored here", log=log_id, problem=problem)
            raise OperationalError(problem)
        others = bool(runs) and runs[-1].writer != me
        if others:
            self._end_run(log_id, runs[-1])
        earlier, flaws = self._read(log_id, runs, first_id)
        if others and flaws.lost:
            self._end_run(log_id, runs[-1])
            earlier, flaws = self._read(log_id, runs, first_id)
        self._report(log_id, flaws)
        return earlier

    def _read(
        self, log_id: int, runs: Sequence[Run], first_id: int
    ) -> tuple[EarlierSegments, _Flaws]:
        names, segments, end_id = self._names(log_id), list[SegmentIndex](), first_id
        passed = set(self.passed(names, first_id))  # a journal may have brought back a part of them
        names = [name for name in names if name not in passed]
        scanned, flaws = list[SegmentIndex](), _Flaws([], [])
        bounds = [*(run.first_id for run in runs[1:]), ID_MAX]
        for run, bound in zip(runs, bounds, strict=False):
            read_to_id = max(run.first_id, first_id)
            for number, first in names:
                if number == run.number and first < bound:
                    index = self._read_index(log_id, number, first, bound)
                    if index is None:
                        index = self._scan(log_id, number, first, bound, flaws)
                        scanned.append(index)
                    if index.end_id > first_id and index.offsets:
                        if segments and segments[-1].run == number and end_id != first:
                            flaws.lost.append(f"entries {end_id} to {first - 1} are missing")
                        segments.append(index)
                        end_id = read_to_id = index.end_id
            if read_to_id < bound < ID_MAX:
                flaws.lost.append(f"entries {read_to_id} to {bound - 1} are missing")
        end_id = max([end_id, *(run.first_id for run in runs)])
        return EarlierSegments(segments, end_id, scanned), flaws

    def _names(self, log_id: int) -> list[tuple[int, int]]:
        """The segments of a log. If there are none, that is asked twice: a share that went away for
        a moment is there when its folder is.
        """
        names, folder = self.segments(log_id), f"{log_id:016x}"
        if not names:
            require_gone(self._disk, (), there=self._disk.exists(folder))
            names = self.segments(log_id)
        return names

    def require_directory(self, log_id: int, *, begins: bool) -> None:
        """Raise `OperationalError` if the directory is not the one that it was: what a broker
        stores in another one, the next owner of the topic does not find.
        """
        folder = f"{log_id:016x}"
        if begins and self.is_other:
            problem = f"{OTHER_DIRECTORY}echo {self.shared_id} > {SHARED_ID} there"
        elif not begins and not self._disk.exists(folder):
            problem = f"loadManagerStorageDirectory has no folder {folder}; {MISSING}"
        else:
            self._misses = False
            return
        if not self._misses:
            log.error("the storage is not what it was", log=log_id, problem=problem)
        self._misses = True
        raise OperationalError(problem)

    @property
    def is_other(self) -> bool:
        """True if the directory does not have the id that it had."""
        return bool(self.shared_id) and self.read_id() != self.shared_id

    def read_id(self) -> str | None:
        has_id = self._disk.exists(SHARED_ID)
        return id_in(self._disk.read(SHARED_ID, 0, BYTES_MAX)) if has_id else None

    def _end_run(self, log_id: int, run: Run) -> None:
        """After this, nothing more of a run is acknowledged, and its segments have everything that
        was.
        """
        self._others.fence(run.writer, log_id, run.number)
        closed = closed_path(log_id, run.number)
        if not self._disk.exists(closed):
            self._others.recover(run.writer, log_id)
        for name in self._disk.names(f"{log_id:016x}"):
            path = f"{log_id:016x}/{name}"
            if name.endswith(".closed") and path < closed:
                self._disk.remove(path)

    def segments(self, log_id: int) -> list[tuple[int, int]]:
        """Run and first id of each segment, in order."""
        segments = []
        for name in self._disk.names(f"{log_id:016x}"):
            stem, _, suffix = name.partition(".")
            with suppress(ValueError):
                run, first = (int(part, 16) for part in stem.split("-"))
                if suffix == "log":
                    segments.append((run, first))
        return sorted(segments)

    @staticmethod
    def passed(names: Sequence[tuple[int, int]], first_id: int) -> list[tuple[int, int]]:
        """Of the segments of a log, in order, those with nothing from `first_id` on."""
        pairs = zip(names, names[1:], strict=False)
        return [name for name, (_, following) in pairs if following <= first_id]

    def _read_index(self, log_id: int, run: int, first_id: int, bound: int) -> SegmentIndex | None:
        """The index that was left of a segment, if it is whole and has nothing from `bound` on: a
        later owner gave those ids to others. One that cannot be read is as none.
        """
        with suppress(OSError):
            path = index_path(segment_path(log_id, run, first_id))
            index = read_index(self._disk.read(path), run)
            if index is not None and index.first_id == first_id and index.end_id <= bound:
                return index
        return None

    def _scan(
        self, log_id: int, run: int, first_id: int, bound: int, flaws: _Flaws
    ) -> SegmentIndex:
        """The index of a segment up to `bound`, by reading all of it."""
        path = segment_path(log_id, run, first_id)
        data = self._durable(path)
        index, damages = scan(data, run, first_id, bound, publish_time_of=publish_time_of)
        for damage in damages:
            at, size = damage.offset, damage.size
            if damage.torn:
                flaws.torn.append((path, size))
            else:
                flaws.lost.append(f"{path} is damaged at byte {at}, {size} bytes long")
        return index

    def _durable(self, path: str) -> bytes:
        """What is durable of a segment whose writer may have died before it had synced it. A writer
        that lives may go on, as long as it sees no mark: that is not read.
        """
        if not self._syncs():
            data = self._disk.read(path)
            self._disk.release(path)
            return data
        size = self._disk.size(path)
        self._sync(path)
        self._disk.release(path)
        self._disk.sync_names(path.partition("/")[0])
        return self._disk.read_stored(path, size)

    def _report(self, log_id: int, flaws: _Flaws) -> None:
        for path, size in flaws.torn:
            log.info("a write that was cut off is left out", file=path, bytes=size)
        for problem in flaws.lost:
            self.damaged += 1
            log.error(
                "stored messages are lost; the others are served", log=log_id, problem=problem
            )

    def leave_index(self, log_id: int, index: SegmentIndex) -> None:
        """Leave the index of a segment that is durable to its next opening."""
        with suppress(OSError):  # without it the segment is read again
            path = segment_path(log_id, index.run, index.first_id)
            if self._disk.exists(path):
                self._disk.create(index_path(path), write_index(index))
