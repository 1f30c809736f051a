"""A failing reader: the other readers get the change, and the watch goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from loadmanager.kit.errors import CorruptDataError, OperationalError
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.metadata.watching import LOGGED_ERRORS_MAX, Reader, Watcher
from loadmanager.kit.tasks import Scope

ROOT = "/admin"


@asynccontextmanager
async def watching(*readers: Reader) -> AsyncIterator[tuple[MemoryStore, Watcher]]:
    """A running watch."""
    async with MemoryTree().session() as store, Scope("test") as scope:
        await store.put(ROOT, b"")
        watcher = Watcher(store, ROOT, *readers)
        scope.spawn(watcher.run(), "watch")
        await watcher.synced.wait()
        yield store, watcher
        scope.cancel()


class Recording:
    """A reader that records changes, and raises given errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.seen: list[tuple[ChangeKind, str]] = []
        self.news = asyncio.Event()

    async def __call__(self, change: Change) -> None:
        """Take a change."""
        if change.kind is ChangeKind.RESYNC and not self.seen:
            return  # the tests are about later changes
        if self.errors:
            raise self.errors.pop(0)
        self.seen.append((change.kind, change.path))
        self.news.set()

    async def until(self, *seen: tuple[ChangeKind, str]) -> None:
        """Wait until exactly these changes were seen."""
        while self.seen != list(seen):
            self.news.clear()
            await self.news.wait()


@pytest.mark.timeout(120)
async def test_a_reader_that_fails_costs_itself_one_change() -> None:
    """Corrupt data and bugs are logged with a traceback and counted; the watch goes on."""
    before, after = Recording(), Recording()
    failing = Recording(
        CorruptDataError("/admin/x is corrupt"),
        KeyError("x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    )
    with capture_logs() as lines:
        async with watching(before, failing, after) as (store, watcher):
            for name in "abcd":
                await store.put(f"{ROOT}/{name}", b"")
            all_of_it = [(ChangeKind.CREATED, f"{ROOT}/{name}") for name in "abcd"]
            await before.until(*all_of_it)
            await after.until(*all_of_it)
            await failing.until(all_of_it[-1])
            assert watcher.failures == 3
    assert [line["path"] for line in lines if line["log_level"] == "error"] == [
        f"{ROOT}/{name}" for name in "abc"
    ]
    assert all(line["exc_info"] for line in lines)


async def test_an_error_is_logged_once_a_reader() -> None:
    """A store full of corrupt objects does not fill the log."""
    failing, other = (Recording(*(ValueError("same") for _ in range(20))) for _ in range(2))
    varied = Recording(*(ValueError(str(number)) for number in range(LOGGED_ERRORS_MAX + 20)))
    with capture_logs() as lines:
        async with watching(failing, other, varied) as (store, watcher):
            for number in range(LOGGED_ERRORS_MAX + 21):
                await store.put(f"{ROOT}/{number}", b"")
            await varied.until((ChangeKind.CREATED, f"{ROOT}/{LOGGED_ERRORS_MAX + 20}"))
            assert watcher.failures == LOGGED_ERRORS_MAX + 60
    assert len(lines) == LOGGED_ERRORS_MAX


@pytest.mark.timeout(120)
async def test_a_reader_whom_the_store_does_not_answer_reads_all_again() -> None:
    """The other readers have processed the change, and need not read everything again."""
    before, after = Recording(), Recording()
    waiting = Recording(OperationalError("gone"), OperationalError("still gone"))
    async with watching(before, waiting, after) as (store, watcher):
        waiting.seen.append((ChangeKind.RESYNC, "first"))
        await store.put(f"{ROOT}/a", b"")
        for reader in (before, after):
            await reader.until((ChangeKind.CREATED, f"{ROOT}/a"))
        assert waiting.seen[1:] == [(ChangeKind.RESYNC, ROOT)]
        assert watcher.failures == 0


async def test_a_first_reading_that_fails_does_not_keep_the_broker_from_starting() -> None:
    """The start of a broker waits for `synced`."""

    def failing(change: Change) -> None:
        raise ValueError(change.path)

    async with watching(failing) as (_, watcher):
        assert watcher.failures == 1
