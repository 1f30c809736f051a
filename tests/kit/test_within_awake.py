"""A limit of time that a process which stood still does not miss, on the real clock."""

from __future__ import annotations

import asyncio
import threading

import pytest

from loadmanager.kit.tasks import within


@pytest.mark.asyncio
async def test_time_in_which_nothing_ran_does_not_count() -> None:
    """A process that was frozen goes on with most of its time; what does not end still fails."""
    stands_still = threading.Event()

    async def work() -> str:
        for _ in range(2):
            stands_still.wait(1.5)
            await asyncio.sleep(0.001)
        return "done"

    assert await within(1.0, work(), "work", awake=True) == "done"
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(TimeoutError):
        await within(0.05, asyncio.Event().wait(), "work", awake=True)
    assert loop.time() - began_s >= 0.04
