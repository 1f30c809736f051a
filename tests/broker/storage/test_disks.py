"""What every disk promises of durability: the one in memory, and a real directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from errno import EIO
from pathlib import Path

import pytest

from loadmanager.broker.storage.disk import READ_BYTES, DirectoryDisk
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.broker.storage.writers import Disk


class Files:
    """A disk, and which names a loss of power would keep."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._synced: set[str] = set()
        self._shared = SharedFiles(strict_names=True)

    def disk(self) -> Disk:
        """The disk of one more process."""
        if self._folder is None:
            return MemoryDisk(self._shared)
        return DirectoryDisk(self._folder, fsync=self._fsync)

    def _fsync(self, descriptor: int) -> None:
        """Note which files are in a folder that is synced."""
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._synced |= {str(path) for path in folder.iterdir()}
        os.fsync(descriptor)

    def keeps(self, path: str) -> bool:
        """True if the name is durable."""
        if self._folder is None:
            return path in self._shared._named
        return str(self._folder / path) in self._synced


@pytest.fixture(params=["directory", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Both kinds."""
    return Files(tmp_path / "root" if request.param == "directory" else None)


def test_a_new_file_is_durable_with_its_name(files: Files) -> None:
    """After its first sync, and not before."""
    disk = files.disk()
    disk.write("folder/a", 0, b"1")
    assert not files.keeps("folder/a")
    disk.sync("folder/a")
    assert files.keeps("folder/a")


def test_the_name_of_a_file_is_durable_whoever_has_created_it(files: Files) -> None:
    """Another process created it and has synced nothing; the one that writes it syncs the name."""
    other, disk = files.disk(), files.disk()
    other.write("folder/a", 0, b"1")
    disk.write("folder/a", 0, b"1")
    disk.write("folder/a", 1, b"2")
    disk.sync("folder/a")
    assert files.keeps("folder/a")


def test_names_are_synced_without_a_write(files: Files) -> None:
    """For the files of a process that has ended."""
    files.disk().write("folder/a", 0, b"1")
    disk = files.disk()
    disk.sync("folder/a")
    disk.sync_names("folder")
    assert files.keeps("folder/a")


def test_writing_again_creates_nothing(files: Files) -> None:
    """A file that somebody deleted does not come back."""
    disk = files.disk()
    disk.make_folder("folder")
    with pytest.raises(FileNotFoundError):
        disk.write("folder/a", 3, b"1", create=False)
    assert disk.names("folder") == []


@pytest.mark.parametrize("size", [0, 1, 511, 4096, READ_BYTES, READ_BYTES + 4097])
def test_what_is_stored_can_be_read_without_the_page_cache(files: Files, size: int) -> None:
    """All of it, or its beginning, whatever its size is."""
    disk, data = files.disk(), os.urandom(size)
    disk.write("folder/a", 0, data)
    disk.sync("folder/a")
    assert disk.size("folder/a") == size
    assert disk.read_stored("folder/a", size + 10) == data
    assert disk.read_stored("folder/a", size // 2) == data[: size // 2]
    assert disk.read_stored("folder/a", size, size // 3) == data[size // 3 :]


def test_a_file_system_in_memory_is_read_all_the_same() -> None:
    """tmpfs cannot pass over the page cache."""
    root = Path("/dev/shm") / f"disk-{os.getpid()}"
    disk = DirectoryDisk(root)
    try:
        disk.write("a", 0, b"data")
        disk.sync("a")
        assert disk.read_stored("a", 4) == b"data"
    finally:
        disk.remove("a")
        root.rmdir()


def test_a_new_folder_is_durable_only_once_its_name_is(tmp_path: Path) -> None:
    """The sync of the folder that it is in has failed; the next call tries it again."""
    synced, fails = list[str](), [True]

    def fsync(found: int) -> None:
        if fails.pop() if fails else False:
            raise OSError(EIO, "trouble")
        synced.append(str(Path(f"/proc/self/fd/{found}").readlink()))

    disk = DirectoryDisk(tmp_path, fsync=fsync)
    with pytest.raises(OSError, match="trouble"):
        disk.make_folder("a/b")
    disk.make_folder("a/b")
    assert synced == [str(tmp_path / "a"), str(tmp_path)]
    disk.make_folder("a/b")
    assert len(synced) == 2
    disk.make_folder("a/b", begins=True)
    assert len(synced) == 4


def test_the_name_of_a_directory_that_was_made_is_durable(tmp_path: Path) -> None:
    """Without it, a loss of power takes all that is in it."""
    synced = list[str]()

    def fsync(found: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{found}").readlink()))

    root = tmp_path / "a" / "b"
    DirectoryDisk(root, fsync=fsync)
    assert synced == [str(tmp_path / "a"), str(tmp_path)]
    DirectoryDisk(root, fsync=fsync)
    assert len(synced) == 2


@pytest.mark.parametrize("other", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize(
    "call",
    [
        lambda disk: disk.write("folder/a", 0, b"1"),
        lambda disk: disk.sync("folder/a"),
        lambda disk: disk.read("folder/a"),
        lambda disk: disk.read_stored("folder/a", 100),
        lambda disk: disk.lock("folder/a"),
    ],
)
def test_what_is_no_file_is_an_error_at_once(
    tmp_path: Path, call: Callable[[Disk], object], other: Callable[[Path], None]
) -> None:
    """A pipe in the place of a file keeps no thread waiting, which others need."""
    (tmp_path / "folder").mkdir()
    other(tmp_path / "folder" / "a")
    with pytest.raises(OSError, match=r"regular|No such device|directory"):
        call(DirectoryDisk(tmp_path))


def test_a_folder_that_became_a_file_has_no_files(tmp_path: Path) -> None:
    """That is the trouble of one log, not of the disk."""
    disk = DirectoryDisk(tmp_path)
    disk.write("folder/a", 0, b"1")
    disk.release("folder/a")
    shutil.rmtree(tmp_path / "folder")
    (tmp_path / "folder").write_bytes(b"")
    assert not disk.has("folder/a", 1)
