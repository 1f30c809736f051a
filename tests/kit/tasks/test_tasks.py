"""Concurrent work with `for_each`, and the log of repeated failures."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from structlog.testing import capture_logs

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata.starting import answered
from loadmanager.kit.metadata.store import StoreAwayError
from loadmanager.kit.tasks import LoopBusy, Scope, Steps, for_each, retrying


async def test_a_bounded_number_at_once_in_named_tasks() -> None:
    """The results have the order of the items; the tasks have names, and end."""
    running: Counter[str] = Counter()
    most = 0

    async def work(item: int) -> int:
        nonlocal most
        task = asyncio.current_task()
        assert task is not None
        running[task.get_name()] += 1
        most = max(most, running.total())
        await asyncio.sleep(0.001 * (10 - item))
        running[task.get_name()] -= 1
        return item * item

    before = asyncio.all_tasks()
    squares = await for_each(range(10), work, 3, "square")
    assert squares == [item * item for item in range(10)]
    assert most == 3
    assert set(running) == {"square-0", "square-1", "square-2"}
    assert asyncio.all_tasks() == before
    assert await for_each([], work, 3) == []


async def test_all_is_done_before_the_first_error_is_raised() -> None:
    """No task runs on after the error."""
    done: list[int] = []

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        if item in (2, 1):
            raise OperationalError(f"item {item}")
        done.append(item)

    with pytest.raises(OperationalError, match="item 1"):
        await for_each(range(6), work, 2)
    assert done == [0, 3, 4, 5]


async def test_a_cancelled_caller_cancels_the_work() -> None:
    """Work that has not begun never begins."""
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await for_each(range(6), work, 2)
    assert begun == [0, 1]


async def test_the_first_retry_and_the_success_are_logged() -> None:
    """The first failure and the success are logged; retries within a minute are not."""
    left = 20

    async def step() -> str:
        nonlocal left
        left -= 1
        if left:
            raise OperationalError("away")
        return "done"

    with capture_logs() as lines:
        assert await retrying(step, "register", first_s=0.001, max_s=0.001) == "done"
    assert [line["event"] for line in lines] == [
        "failed; trying again",
        "succeeded after failures",
    ]
    assert lines[1]["tries"] == 20


async def test_a_step_of_a_start_waits_for_the_store_and_for_nothing_else() -> None:
    """While it is away, for so long; other failures come at once."""
    now_s, tries = asyncio.get_running_loop().time, 0
    began_s = now_s()

    async def step() -> None:
        nonlocal tries
        tries += 1
        raise StoreAwayError("away")

    with pytest.raises(StoreAwayError):
        await answered(step, "register", 30.0)
    assert 30 <= now_s() - began_s <= 31
    assert tries > 20

    async def refused() -> None:
        raise OperationalError("not permitted")

    with pytest.raises(OperationalError, match="not permitted"):
        await answered(refused, "register", 30.0)
    assert now_s() - began_s <= 31


async def test_a_step_that_fails_repeatedly_is_logged_once_a_minute() -> None:
    """All failures are counted. Each kind is logged once, a bug with a traceback; and the end."""
    errors: list[Exception | None] = [OperationalError("away")] * 50
    errors += [ZeroDivisionError("x"), ZeroDivisionError("x"), OperationalError("away"), None, None]
    steps = Steps()

    async def step() -> None:
        if (error := errors.pop(0)) is not None:
            raise error

    with capture_logs() as lines:
        while errors:
            await steps.run("report", step)
    assert steps.failures["report"] == 53
    assert [(line["event"].split()[2], bool(line.get("exc_info"))) for line in lines] == [
        ("failed;", False),
        ("failed;", True),
        ("succeeds", False),
    ]
    assert lines[2]["failures"] == 53


async def test_a_block_that_succeeds_ends_the_failures_in_a_row() -> None:
    """All failures are counted, and the log has those that come again once a minute."""
    steps = Steps()
    with capture_logs() as lines:
        for turn in range(10):
            with steps.contained("observe"):
                if turn % 2 == 0:
                    raise ZeroDivisionError("x")
            assert steps.in_a_row["observe"] == (turn + 1) % 2
    assert steps.failures["observe"] == 5
    assert [line["event"].split()[2] for line in lines] == ["failed;", "succeeds"]


async def test_a_caller_learns_that_the_scope_ended_before_its_work_began() -> None:
    """It would wait for ever."""

    async def work() -> None:
        raise AssertionError("it never begins")

    async with Scope("test") as scope:
        caller = asyncio.ensure_future(scope.finish("work", work))
        await asyncio.sleep(0)  # the caller has spawned the work, which has not begun
        scope.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_a_loop_that_stood_still_says_for_how_long() -> None:
    """A call that takes long is as a freeze is: no timer runs meanwhile."""
    busy, late = LoopBusy(), list[float]()
    busy.LATE_S = 0.5

    async def stand_still() -> None:
        over = asyncio.Event()
        busy.on_late = lambda seconds: (late.append(seconds), over.set())[1]
        measuring = asyncio.create_task(busy.run())
        await asyncio.sleep(0)
        time.sleep(1.0)  # noqa: ASYNC251 - it is what is measured
        await over.wait()
        measuring.cancel()

    asyncio.run(stand_still())  # in real time
    assert late[0] >= 1.0 - busy.INTERVAL_S
