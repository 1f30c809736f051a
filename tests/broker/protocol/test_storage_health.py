"""When a broker says that its storage cannot be written to."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from limits.driven import DrivenClock

from loadmanager.broker.protocol.storage_health import FAILURES_MAX, FULL_S, StorageHealth
from loadmanager.broker.storage.log_files import LogFiles
from loadmanager.broker.storage.memory_disk import MemoryDisk, SharedFiles
from loadmanager.kit.errors import OperationalError


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
