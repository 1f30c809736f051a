"""When a broker says that its storage is not well."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from limits.driven import DrivenClock

from loadmanager.broker.ports.log import StoodStillError, StorageTimeoutError
from loadmanager.broker.protocol.storage_health import FAILURES_MAX, FULL_S, StorageHealth
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.kit.errors import LoadManagerError, OperationalError

BAD = OperationalError("the disk has an error")
HUNG = StorageTimeoutError("the storage did not answer within 60 s")


async def inline(_number: int, call: Callable[[], Any]) -> Any:
    """Run a call of the storage at once."""
    return call()


async def test_a_failure_of_just_now_counts_while_others_are_not_well() -> None:
    """On a full disk small commits find room between those that do not. Alone, that is an accident;
    when another broker has the same trouble, this one must not take its bundles.
    """
    clock, files = DrivenClock(), SharedFiles()
    health = StorageHealth(LogFiles(MemoryDisk(files), inline), clock)
    files.room = 0
    health.failed("a topic", OperationalError("the storage failed: no room"))
    health.went_well()
    assert not await health.trouble(tries=False)
    assert "no room" in await health.trouble(tries=True)
    clock.forward_ms(FULL_S * 1000)
    assert await health.trouble(tries=True)
    files.room = -1
    clock.forward_ms(FULL_S * 1000)
    assert not await health.trouble(tries=True)


async def test_a_process_that_stood_still_says_nothing_of_the_storage() -> None:
    """It was frozen: the next producer is not refused, and the storage is not told to be hung."""
    health = StorageHealth(LogFiles(MemoryDisk(SharedFiles()), inline), DrivenClock())
    health.failed("a topic", StoodStillError("this broker stood still"))
    assert not health.full
    assert not await health.trouble(tries=True)


async def test_an_opening_that_failed_is_reason_to_look() -> None:
    """A storage that became read-only may have gone well last: then no topic can be opened, and
    nothing is committed that could fail. If only a topic's files are bad, it goes well.
    """
    clock, files = DrivenClock(), SharedFiles()
    health = StorageHealth(LogFiles(MemoryDisk(files), inline), clock)
    health.suspect()
    assert not await health.trouble(tries=False)
    files.trouble = lambda call, _: errno.EROFS if call == "write" else 0
    assert not await health.trouble(tries=False)
    health.suspect()
    troubles = []
    for _ in range(FAILURES_MAX):
        troubles.append(await health.trouble(tries=False))
        clock.forward_ms(FULL_S * 1000)
    assert [bool(trouble) for trouble in troubles] == [False] * (FAILURES_MAX - 1) + [True]


class Probed:
    """A storage that can be tried only."""

    def __init__(self) -> None:
        self.error: LoadManagerError | None = None
        self.tried = 0

    async def probe(self) -> None:
        """Raises what the test says."""
        self.tried += 1
        if self.error is not None:
            raise self.error


def a_health() -> tuple[StorageHealth, Any, DrivenClock]:
    """With its storage and its clock."""
    storage, clock = Probed(), DrivenClock()
    untyped: Any = storage
    return StorageHealth(untyped, clock), storage, clock


async def test_one_commit_that_hangs_is_trouble() -> None:
    """Until the storage answers again: it is tried once producers are no longer refused."""
    health, storage, clock = a_health()
    health.failed("t", HUNG)
    assert str(HUNG) in await health.trouble(tries=False)
    assert storage.tried == 0
    storage.error = HUNG
    clock.forward_ms(FULL_S * 1000)
    assert await health.trouble(tries=False)
    assert storage.tried == 1
    storage.error = None
    clock.forward_ms(FULL_S * 1000)
    assert not await health.trouble(tries=False)
    assert not await health.trouble(tries=False)
    assert storage.tried == 2, "nobody tries what is well"


async def test_some_failures_in_a_row_are_trouble() -> None:
    """Those of one moment count once; a commit that goes well ends them."""
    health, storage, clock = a_health()
    storage.error = BAD
    for number in range(1, FAILURES_MAX + 1):
        clock.forward_ms(1)
        health.failed("a", BAD)
        health.failed("b", BAD)
        assert bool(await health.trouble(tries=False)) == (number == FAILURES_MAX)
    health.went_well()
    assert not await health.trouble(tries=False)


async def test_what_others_suffer_is_tried() -> None:
    """One failure counts then."""
    health, storage, _ = a_health()
    assert not await health.trouble(tries=True)
    storage.error = BAD
    assert not await health.trouble(tries=False)
    assert str(BAD) in await health.trouble(tries=True)
    assert storage.tried == 2
