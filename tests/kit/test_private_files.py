"""Files and folders that only their owner can use."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadmanager.broker.storage.disk import DirectoryDisk
from loadmanager.broker.storage.shared_id import SharedId
from loadmanager.kit.files.properties import read_properties, write_private
from loadmanager.kit.history.segment_writer import SegmentWriter
from loadmanager.kit.history.shipping import Shipper
from loadmanager.kit.private_files import (
    FILE_MODE,
    make_folder,
    open_private,
    open_regular,
    write_file,
)
from loadmanager.kit.system.folder_lock import locked
from loadmanager.steer.files.note import replace_file


@pytest.fixture(autouse=True, params=[0, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask in force."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[tuple[str, str]]:
    """Kind and mode of all that is below a folder."""
    return {
        ("folder" if path.is_dir() else "file", oct(path.stat().st_mode & 0o777))
        for path in folder.rglob("*")
    }


PRIVATE = {("folder", "0o700"), ("file", "0o600")}


def test_folders_that_are_missing_are_made(tmp_path: Path) -> None:
    """Each of them is private; one that is there keeps its mode, and a file is an error."""
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    write_file(tmp_path / "a" / "file", b"x")
    assert modes(tmp_path) == PRIVATE
    (tmp_path / "a").chmod(0o750)
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a" / "file")


def test_all_writers_use_it(tmp_path: Path) -> None:
    """Storage, history, shipped segments, notes, ids, locks and secrets."""
    disk = DirectoryDisk(tmp_path / "topics")
    disk.write("a/b", 0, b"x")
    disk.create("c", b"x")
    assert disk.lock("d/lock")
    disk.unlock("d/lock")
    SharedId(tmp_path / "topics").give(None)
    root = tmp_path / "history" / "cluster=c"
    writer = SegmentWriter(root, "b", segment_bytes_max=9, segment_ms_max=9, bytes_max=1 << 20)
    writer.write({("ownership", "2026-11-20"): [b"{}"]}, 0)
    writer.close()
    assert Shipper(f"file://{tmp_path / 'far'}").ship(writer) == 1
    replace_file(tmp_path / "fleet" / "note", b"x")
    write_private(tmp_path / "broker.conf", {"a": "b"})
    with locked(tmp_path / "data", "lock", "stop it"):
        assert modes(tmp_path) == PRIVATE
    shipped = [path.name for path in (tmp_path / "far").rglob("*") if path.is_file()]
    assert [name.endswith(".jsonl.gz") for name in shipped] == [True]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever opens it gets an error at once."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(str(tmp_path / "pipe"), os.O_RDONLY)
    with open_private(tmp_path / "file", "wb") as file:
        file.write(b"x")
    os.close(open_regular(str(tmp_path / "file"), os.O_RDONLY))


def test_settings_with_secrets_are_a_file_of_our_own(tmp_path: Path) -> None:
    """A pipe at its place is not waited for, a link not followed, another's file not kept."""
    path, other = tmp_path / "broker.conf", tmp_path / "other"
    os.mkfifo(path)
    write_private(path, {"key": "a"})
    other.write_text("other")
    path.unlink()
    path.symlink_to(other)
    write_private(path, {"key": "b"})
    before = path.open()
    with before:
        write_private(path, {"key": "c"})
        assert read_properties(path) == {"key": "c"}
        assert before.read() == "key=b\n"
    assert other.read_text() == "other"
    assert stat.S_IMODE(path.lstat().st_mode) == FILE_MODE
