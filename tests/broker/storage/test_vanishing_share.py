"""A share that is not there for a moment, or does not answer, is not taken for an empty one."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from broker.messaging.test_segments import a_log
from broker.storage.test_failed_syncs import commit, content, inline

from loadmanager.broker.messaging.stored_log import StoredLog
from loadmanager.broker.ports.log import Run
from loadmanager.broker.storage.disk import DirectoryDisk
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.kit.errors import LoadManagerError, OperationalError


def test_only_a_missing_file_does_not_exist(tmp_path: Path) -> None:
    """A name that the file system cannot look up is no proof of anything: whoever opens a log would
    leave no mark for its writer, and read no journal. `Path.exists` of Python 3.14 says no for any
    error.
    """
    disk = DirectoryDisk(tmp_path)
    with pytest.raises(OSError, match="too long"):
        disk.exists("a" * 300)
    (tmp_path / "file").write_bytes(b"")
    assert [disk.exists(path) for path in ("file", "none", "none/a", "file/a")] == [
        True,
        False,
        False,
        False,
    ]


class Vanishing:
    """Files whose share is not mounted from the `at`-th call of a disk on, for `calls` of them."""

    def __init__(self) -> None:
        self.files = SharedFiles()
        self.files.trouble = self._trouble
        self.at = self.calls = 0
        self.left = -1
        self._away: dict[str, Any] | None = None

    def _swap(self) -> None:
        files = self.files
        here = {"files": files.files, "folders": files.folders, "locks": files.locks}
        there = self._away or {"files": {}, "folders": {""}, "locks": {}}
        files.files, files.folders, files.locks = there["files"], there["folders"], there["locks"]
        self._away = here

    def _trouble(self, _call: str, _path: str) -> int:
        if self.left >= 0:
            if self.left == self.at or self.left == self.at + self.calls:
                self._swap()
            self.left += 1
        return 0

    def back(self) -> None:
        """Mounted again."""
        if self.at < self.left <= self.at + self.calls:
            self._swap()
        self.left = -1


@pytest.mark.parametrize("lives", [True, False])
async def test_a_share_that_goes_while_a_log_is_opened_takes_no_message(*, lives: bool) -> None:
    """Below where it was mounted is an empty directory: it looks like one whose files are gone."""
    wrong = list[str]()
    for at in range(40):
        share = Vanishing()
        disk = MemoryDisk(share.files)
        storage = LogFiles(disk, inline, direct_max=0)
        segments, _ = await storage.open(7, [], 0)
        await commit(storage, a_log(segments), b"first", b"second")
        if not lives:
            disk.kill()
        runs = [Run(1, 0, storage.writer)]
        share.at, share.calls, share.left = at, 1000, 0
        other = LogFiles(MemoryDisk(share.files), inline)
        opened = None
        with suppress(LoadManagerError):
            opened = await other.open(7, runs, 0)
        share.back()
        if opened is not None and opened[1] != 2:
            wrong.append(f"at call {at}: {opened[1]}")
        if opened is None:
            again = LogFiles(MemoryDisk(share.files), inline)
            segments, end_id = await again.open(7, runs, 0)
            assert (end_id, await content(again, segments)) == (2, [b"first", b"second"])
    assert wrong == []


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8, 13])
async def test_a_new_topic_has_its_folder_on_the_share(calls: int) -> None:
    """Its record is written after that: without the folder, nobody could open it again."""
    for at in itertools.count():
        share = Vanishing()
        disk = MemoryDisk(share.files)
        storage = LogFiles(disk, inline)
        await storage.open(8, [], 0)
        share.at, share.calls, share.left = at, calls, 0
        opened = None
        with suppress(LoadManagerError):
            opened = await storage.open(7, [], 0)
        ended = share.left <= at
        share.back()
        if opened is not None:
            assert disk.exists(f"{7:016x}"), at
        if ended:
            return


async def _two_logs(storage: LogFiles) -> dict[int, StoredLog]:
    """Two logs with two messages each, in two journals, in no segment yet."""
    logs = {number: a_log((await storage.open(number, [], 0))[0]) for number in (7, 8)}
    for tail in (b"first", b"second"):
        for log in logs.values():
            log.append(tail, 1, 0, "p", log.next_id)
        taken = {number: log.take() for number, log in logs.items()}
        batch = {number: pieces for number, (pieces, _, _) in taken.items()}
        assert await storage.append(batch) == set()
        for number, (_, end_id, size) in taken.items():
            logs[number].stored(end_id, size)
    return logs


async def _doubt(storage: LogFiles) -> None:
    """The segments are in doubt, and written again."""
    await storage.mend(7)
    await storage.flush()
    await storage.sync()


WORKS: dict[str, tuple[bool, Callable[[LogFiles, LogFiles, list[Run]], Awaitable[object]]]] = {
    "open a log of a writer that lives": (True, lambda _, other, runs: other.open(7, runs, 0)),
    "open a log of a writer that has ended": (False, lambda _, other, runs: other.open(7, runs, 0)),
    "recover": (False, lambda _, other, __: other.recover()),
    "clear the journals": (True, lambda mine, _, __: mine.sync()),
    "mend": (True, lambda mine, _, __: _doubt(mine)),
}
"""Whether the writer lives, and what is done while the share goes away, and comes back."""


@pytest.mark.parametrize("calls", [1, 2, 3, 5, 8, 13, 21])
@pytest.mark.parametrize("work", WORKS)
async def test_a_share_that_comes_back_before_the_end_takes_no_message(
    work: str, calls: int
) -> None:
    """What was not there meanwhile was not deleted, and no journal goes because of it; no writer
    that lives goes on beside another one.
    """
    lives, begin = WORKS[work]
    for at in itertools.count():
        share = Vanishing()
        disk, other = MemoryDisk(share.files), MemoryDisk(share.files)
        storage = LogFiles(disk, inline, direct_max=0, journal_bytes=10)
        logs = await _two_logs(storage)
        runs = [Run(1, 0, storage.writer)]
        if not lives:
            disk.kill()
        share.at, share.calls, share.left = at, calls, 0
        done: Any = None
        with suppress(LoadManagerError):
            done = await begin(storage, LogFiles(other, inline), runs)
        ended = share.left <= at
        share.back()
        if work.startswith("open") and done is not None:
            assert done[1] == 2, at
            await _is_fenced(storage, logs[7], at)
        disk.kill()
        other.kill()
        again = LogFiles(MemoryDisk(share.files), inline)
        for log_id in (7, 8):
            segments, _ = await again.open(log_id, runs, 0)
            found = await content(again, segments, log_id)
            assert found[:2] == [b"first", b"second"], at
        if ended:
            return


async def _is_fenced(storage: LogFiles, log: StoredLog, at: int) -> None:
    """Its former owner gets no receipt."""
    log.append(b"third", 1, 0, "p", log.next_id)
    with suppress(LoadManagerError):  # its process has ended
        assert await storage.append({7: log.take()[0]}) == {7}, at


async def test_a_broker_whose_folder_others_have_deleted_is_well_again() -> None:
    """It is found by a probe, too: without topics, nothing else looks."""
    storage = LogFiles(MemoryDisk(files := SharedFiles()), inline)
    await storage.probe()
    name = storage.writer
    for path in [path for path in files.files if path.startswith("writers/")]:
        files.drop(path)
    files.remove_folder(f"writers/{name}")
    with pytest.raises(OperationalError, match="has ended this storage"):
        await storage.probe()
    await storage.probe()
    assert storage.writer != name
