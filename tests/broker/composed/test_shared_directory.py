"""Brokers start on the directory that they share, and on no other beside brokers that run."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loadmanager.broker.messaging.settings import StorageSettings
from loadmanager.broker.storage.shared_id import SharedDirectory, SharedId
from loadmanager.broker.storage.storage import DirectoryStorage
from loadmanager.broker.topics import shared_directory
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.metadata.store import Store

ME, OTHER = "b0:8080", "b1:8080"
ONE, TWO = "1" * 16, "2" * 16


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store whose sessions, with the margin, end within no time."""
    async with MemoryTree().session(timeout_s=-4.5) as session:
        yield session


async def require_shared(store: Store, shared: SharedId, me: str, timeout_s: float = 60.0) -> None:
    """A broker starts on a directory."""
    with SharedDirectory(shared, timeout_s) as directory:
        await shared_directory.require_shared(store, directory, me)


def made(folder: Path) -> SharedId:
    """A directory."""
    folder.mkdir()
    return SharedId(folder)


async def test_brokers_start_on_the_shared_directory_only(store: Store, tmp_path: Path) -> None:
    """The first one gives it an id; with another or none, a broker waits, and then refuses."""
    shared, local = made(tmp_path / "shared"), made(tmp_path / "local")
    await require_shared(store, shared, ME)
    await store.create(f"{paths.BROKERS}/{ME}", b"")
    await require_shared(store, shared, OTHER)
    with pytest.raises(OperationalError, match=f"{ME} runs.* It has no shared.id") as error:
        await require_shared(store, local, OTHER)
    assert local.read() is None
    told = str(error.value).rpartition("echo ")[2].partition(" ")[0]
    assert told == shared.read()
    local.path.write_text(f"{ONE}\n")
    with pytest.raises(OperationalError, match=f"is {ONE}, that of the cluster is {told}"):
        await require_shared(store, local, OTHER)
    local.path.write_text(f"{told}\n")
    await require_shared(store, local, OTHER)


async def test_of_two_first_brokers_one_chooses(store: Store, tmp_path: Path) -> None:
    """On one directory both go on; with a directory of its own, the second one is refused."""
    shared, local = made(tmp_path / "shared"), made(tmp_path / "local")
    shared.give(TWO)
    await store.create(f"{paths.BROKERS}/{ME}", b"")
    await asyncio.gather(*(require_shared(store, shared, broker) for broker in (ME, OTHER)))
    local.path.write_text(ONE)
    with pytest.raises(OperationalError, match=f"is {ONE}, that of the cluster is {TWO}"):
        await require_shared(store, local, OTHER)


async def test_brokers_that_begin_at_once_agree(tmp_path: Path) -> None:
    """On the id that one of them chooses: the directory and the store have the same."""
    for number in range(30):
        async with MemoryTree().session(timeout_s=-4.5) as store:
            shared = made(tmp_path / f"{number}")
            await asyncio.gather(*(require_shared(store, shared, f"b{at}:1") for at in range(4)))
            node = await store.get(paths.STORAGE)
            assert node is not None
            assert node.value.decode() == shared.read()
            assert [path.name for path in shared.path.parent.iterdir()] == [shared.path.name]


def test_an_id_is_never_replaced(tmp_path: Path) -> None:
    """Who comes second takes the id of the first."""
    shared = made(tmp_path / "shared")
    assert (shared.give(ONE), shared.give(TWO), shared.read()) == (ONE,) * 3


async def test_an_emptied_directory_starts_a_cluster(store: Store, tmp_path: Path) -> None:
    """While no other broker runs; its own former session does not count. One that has the id of
    another cluster does not.
    """
    shared = made(tmp_path / "shared")
    await require_shared(store, shared, ME)
    before = shared.read()
    shutil.rmtree(tmp_path / "shared")
    await store.create(f"{paths.BROKERS}/{ME}", b"")
    await require_shared(store, made(tmp_path / "shared"), ME)
    assert shared.read() == before
    shared.path.write_text(ONE)
    with pytest.raises(OperationalError, match="mount that one"):
        await require_shared(store, shared, ME)


async def test_what_is_no_id_is_not_checked(store: Store, tmp_path: Path) -> None:
    """Garbage in the file or in the node keeps no broker from its start, and is not shown as a
    command to paste.
    """
    shared = made(tmp_path / "shared")
    for garbage in (b"\xff\xfe", b"; rm -rf /", b"", b"1" * 1000):
        shared.path.write_bytes(garbage)
        with capture_logs() as logs:
            await require_shared(store, shared, ME)
        assert ["there is no id in" in line["error"] for line in logs] == [True]
        assert await store.get(paths.STORAGE) is None
    shared.path.unlink()
    for garbage in (b"\xff\xfe", b"; rm -rf /", b""):
        await store.put(paths.STORAGE, garbage)
        with capture_logs() as logs:
            await require_shared(store, shared, ME)
        assert ["there is no id in" in line["error"] for line in logs] == [True]
        assert shared.read() is None


async def test_an_id_that_cannot_be_read_is_another_one(store: Store, tmp_path: Path) -> None:
    """Once the cluster has an id: half a file must not let a wrong directory pass."""
    shared = made(tmp_path / "shared")
    await require_shared(store, shared, ME)
    wanted = shared.read() or ""
    for garbage in (b"", wanted[:7].encode(), b"; rm -rf /"):
        shared.path.write_bytes(garbage)
        with pytest.raises(OperationalError, match=r"Its shared\.id is unreadable.*echo") as error:
            await require_shared(store, shared, ME)
        assert "rm -rf" not in str(error.value)
    shared.path.unlink()
    shared.path.mkdir()
    with pytest.raises(OperationalError, match=r"Its shared\.id is unreadable"):
        await require_shared(store, shared, ME)


async def test_another_clusters_directory_is_not_taken(store: Store, tmp_path: Path) -> None:
    """It has topics, and the metadata store knows of none; without topics its id is taken."""
    shared = made(tmp_path / "shared")
    shared.give(ONE)
    (tmp_path / "shared" / f"{7:016x}").mkdir()
    with pytest.raises(OperationalError, match="is it another cluster's"):
        await require_shared(store, shared, ME)
    assert await store.get(paths.STORAGE) is None
    (tmp_path / "shared" / f"{7:016x}").rmdir()
    await require_shared(store, shared, ME)


async def test_a_broker_without_the_topics_does_not_choose(store: Store, tmp_path: Path) -> None:
    """After an upgrade, the first broker that sees stored topics gives its directory an id, also
    beside brokers that run; an id that is there already is kept.
    """
    shared, local = made(tmp_path / "shared"), made(tmp_path / "local")
    (tmp_path / "shared" / f"{7:016x}").mkdir()
    await store.create(f"{paths.LOGS}/acme/orders/topic", b"")
    await store.create(f"{paths.BROKERS}/{OTHER}", b"")
    await require_shared(store, local, ME)
    assert (local.read(), await store.get(paths.STORAGE)) == (None, None)
    await require_shared(store, shared, ME)
    assert shared.read()
    await store.delete(paths.STORAGE)
    await require_shared(store, shared, ME)
    node = await store.get(paths.STORAGE)
    assert node is not None
    assert node.value.decode() == shared.read()


async def test_a_directory_that_cannot_be_read_is_as_before(store: Store, tmp_path: Path) -> None:
    """What the check cannot do keeps no broker from its start."""
    (tmp_path / "file").write_text("")
    await require_shared(store, SharedId(tmp_path / "file"), ME)


async def test_a_directory_that_hangs_is_not_checked(store: Store, tmp_path: Path) -> None:
    """A pipe that nobody writes to hangs as a share whose server is gone; the broker starts."""
    shared = made(tmp_path / "shared")
    os.mkfifo(shared.path)
    with capture_logs() as logs:
        await require_shared(store, shared, ME, timeout_s=0.1)
    assert [line["error"] for line in logs] == ["TimeoutError"]
    with shared.path.open("w"):  # the thread ends
        pass


async def require_original(store: Store, folder: Path, me: str) -> DirectoryStorage:
    """A broker starts on a directory; its storage holds the lock."""
    storage = DirectoryStorage(Live(StorageSettings(directory=str(folder))))
    await shared_directory.require_original(store, storage, me)
    return storage


async def test_a_copy_of_the_directory_is_noticed(store: Store, tmp_path: Path) -> None:
    """While a broker runs on the original, also if it is copied then. A broker that runs in version
    0.3.0 has no file.
    """
    shared, copy = tmp_path / "shared", tmp_path / "copy"
    running = await require_original(store, shared, ME)
    for broker in (ME, "old:8080"):
        await store.create(f"{paths.BROKERS}/{broker}", b"")
    await require_original(store, shared, OTHER)
    shutil.copytree(shared, copy)
    with pytest.raises(OperationalError, match=f"not the directory of {ME}"):
        await require_original(store, copy, OTHER)
    await running.hold(ME)
    await store.delete(f"{paths.BROKERS}/{ME}")
    await require_original(store, copy, OTHER)


async def test_a_broker_that_has_died_is_waited_for(tmp_path: Path) -> None:
    """Nobody has locked its file; its registration goes with its session."""
    async with MemoryTree().session(timeout_s=-3.5) as store:
        dead = DirectoryStorage(Live(StorageSettings(directory=str(tmp_path))))
        await dead.hold(OTHER)
        dead._disk.unlock(f"brokers/{OTHER}")
        await store.create(f"{paths.BROKERS}/{OTHER}", b"")
        with capture_logs() as logs:
            starting = asyncio.ensure_future(require_original(store, tmp_path, ME))
            done, _ = await asyncio.wait([starting], timeout=0.2)
            assert not done
            await store.delete(f"{paths.BROKERS}/{OTHER}")
            await starting
        assert [(line["peer"], line["within_s"]) for line in logs] == [(OTHER, 1.5)]
