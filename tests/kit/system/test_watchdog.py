"""A loop that stands still ends its process; a busy loop does not."""

from __future__ import annotations

import asyncio
import threading
import time

from structlog.testing import capture_logs

from loadmanager.kit.system.watchdog import Watchdog


async def test_a_loop_that_stands_still_is_ended() -> None:
    """A loop that stands still ends the process, and the log says where it stands."""
    ended = threading.Event()
    watching = asyncio.ensure_future(Watchdog(lambda: 0.2, slice_s=0.05, end=ended.set).run())
    await asyncio.sleep(0)
    with capture_logs() as logs:
        stuck_since_s = time.monotonic()
        while not (ended.is_set() and logs):
            assert time.monotonic() - stuck_since_s < 60
            time.sleep(0.01)  # noqa: ASYNC251 - the loop must stand still
    watching.cancel()
    assert time.monotonic() - stuck_since_s >= 0.2
    assert "stands still" in logs[0]["event"]
    assert "test_a_loop_that_stands_still_is_ended" in logs[0]["stuck"]


async def test_a_loop_that_turns_is_left_alone() -> None:
    """A loop that turns is left alone; no thread watches once the watchdog ends."""
    ended = threading.Event()
    watching = asyncio.ensure_future(Watchdog(lambda: 60.0, slice_s=0.01, end=ended.set).run())
    await asyncio.sleep(0.3)
    assert any(thread.name == "watchdog" for thread in threading.enumerate())
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    while any(thread.name == "watchdog" for thread in threading.enumerate()):
        await asyncio.sleep(0.01)
    assert not ended.is_set()
