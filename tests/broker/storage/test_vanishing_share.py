"""A share that is not there for a moment, or does not answer, is not taken for an empty one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from broker.messaging.test_segments import a_log
from broker.storage.test_failed_syncs import commit, content, inline

from loadmanager.broker.ports.log import Run
from loadmanager.broker.storage.disk import DirectoryDisk
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.kit.errors import LoadManagerError


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
        here = {"files": self.files.files, "folders": self.files.folders}
        there = self._away or {"files": {}, "folders": {""}}
        self.files.files, self.files.folders = there["files"], there["folders"]
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
