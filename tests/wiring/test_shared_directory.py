"""Brokers start on the directory that they share, and on no other beside brokers that run."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from loadmanager.adapters.files.mark import DirectoryMark
from loadmanager.adapters.memory.store import MemoryTree
from loadmanager.core.errors import OperationalError
from loadmanager.ports.store import Store
from loadmanager.runtime.shared import paths
from loadmanager.wiring.shared_directory import require_shared

ME, OTHER = "b0:8080", "b1:8080"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store whose sessions, with the margin, end within no time."""
    async with MemoryTree().session(timeout_s=-4.5) as session:
        yield session


def made(folder: Path) -> DirectoryMark:
    """A directory."""
    folder.mkdir()
    return DirectoryMark(folder)


async def test_brokers_start_on_the_marked_directory_only(store: Store, tmp_path: Path) -> None:
    """The first one marks it; with another or none, a broker waits and refuses beside others."""
    shared, local = made(tmp_path / "shared"), made(tmp_path / "local")
    await require_shared(store, shared, ME)
    await store.create(f"{paths.BROKERS}/{ME}", b"")
    await require_shared(store, shared, OTHER)
    with pytest.raises(OperationalError, match=f"{ME} runs.* It has no mark instead of") as error:
        await require_shared(store, local, OTHER)
    assert local.read() is None
    mark = str(error.value).rpartition("echo ")[2].partition(" ")[0]
    assert mark == shared.read()
    local.path.write_text("other\n")
    with pytest.raises(OperationalError, match="the mark other instead of"):
        await require_shared(store, local, OTHER)
    local.path.write_text(f"{mark}\n")
    await require_shared(store, local, OTHER)


async def test_of_two_first_brokers_one_chooses(store: Store, tmp_path: Path) -> None:
    """On one directory both go on; with a directory of its own, the second one is refused."""
    shared, local = made(tmp_path / "shared"), made(tmp_path / "local")
    shared.leave("the second's")
    await store.create(f"{paths.BROKERS}/{ME}", b"")
    await asyncio.gather(*(require_shared(store, shared, broker) for broker in (ME, OTHER)))
    local.path.write_text("began at the same time")
    with pytest.raises(OperationalError, match="began at the same time instead of the second's"):
        await require_shared(store, local, OTHER)


async def test_brokers_that_begin_at_once_agree(tmp_path: Path) -> None:
    """On the mark that one of them leaves: the directory and the store have the same."""
    for number in range(30):
        async with MemoryTree().session(timeout_s=-4.5) as store:
            shared = made(tmp_path / f"{number}")
            await asyncio.gather(*(require_shared(store, shared, f"b{at}:1") for at in range(4)))
            node = await store.get(paths.STORAGE)
            assert node is not None
            assert node.value.decode() == shared.read()
            assert [path.name for path in shared.path.parent.iterdir()] == [shared.path.name]


def test_a_mark_is_never_replaced(tmp_path: Path) -> None:
    """Who comes second takes the mark of the first."""
    shared = made(tmp_path / "shared")
    assert (shared.leave("first"), shared.leave("second"), shared.read()) == ("first",) * 3


async def test_an_emptied_directory_starts_a_cluster(store: Store, tmp_path: Path) -> None:
    """While no other broker runs, any directory will do; its own former session does not count."""
    shared = made(tmp_path / "shared")
    await require_shared(store, shared, ME)
    mark = shared.read()
    shutil.rmtree(tmp_path / "shared")
    await store.create(f"{paths.BROKERS}/{ME}", b"")
    await require_shared(store, made(tmp_path / "shared"), ME)
    assert shared.read() == mark
    shared.path.write_text("from a backup")
    await require_shared(store, shared, ME)
    assert shared.read() == "from a backup"


async def test_a_broker_without_the_topics_does_not_choose(store: Store, tmp_path: Path) -> None:
    """After an upgrade, the first broker that sees stored topics marks its directory, also beside
    brokers that run; a mark that is there already is kept.
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
    await require_shared(store, DirectoryMark(tmp_path / "file"), ME)


async def test_a_directory_that_hangs_is_not_checked(store: Store, tmp_path: Path) -> None:
    """A pipe that nobody writes to hangs as a share whose server is gone; the broker starts."""
    shared = made(tmp_path / "shared")
    os.mkfifo(shared.path)
    with capture_logs() as logs:
        await require_shared(store, shared, ME, timeout_s=0.1)
    assert [line["error"] for line in logs] == ["TimeoutError"]
    with shared.path.open("w"):  # the thread ends
        pass
