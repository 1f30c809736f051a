"""Steps contain every failure."""

from __future__ import annotations

import asyncio

from loadmanager.kit.tasks import Scope, Steps, every


async def test_a_step_that_is_cancelled_from_inside_has_failed() -> None:
    """A step that is cancelled from inside fails, and its task goes on; cancelling the task ends
    it.
    """
    steps, turns = Steps(), 0

    async def step() -> None:
        nonlocal turns
        turns += 1
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if turns > 3:
            await lost
        lost.cancel()
        await lost

    async with asyncio.timeout(60), Scope("test") as scope:
        task = scope.spawn(every(lambda: 0.0, step, "step", steps), "step")
        while turns < 4:
            await asyncio.sleep(0)
        assert steps.failures == {"step": 3}
        scope.cancel()
    assert task.cancelled()


async def test_a_step_that_fails_as_it_is_cancelled_ends_its_task() -> None:
    """Its error is told, and the task does not go on."""
    steps, begun = Steps(), asyncio.Event()

    async def step() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the disk is full")

    async with asyncio.timeout(60), Scope("test") as scope:
        task = scope.spawn(every(lambda: 0.0, step, "step", steps), "step")
        await begun.wait()
        scope.cancel()
    assert task.cancelled()
    assert steps.failures == {"step": 1}
