"""When the limits of a namespace are in force: before any of its topics opens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from clusters.counting_store import CountingStore, CountingTree
from clusters.limited import NS, Opening

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Change, ChangeKind
from loadmanager.kit.names import NamespaceName

RATE = {"publishMaxMessageRate": {"c": {"publishThrottlingRateInMsg": 7}}}


@pytest.fixture
async def opening() -> AsyncIterator[Opening]:
    """No topic is open yet."""
    async with CountingTree().session() as store:
        assert isinstance(store, CountingStore)
        opening = Opening(store)
        await opening.namespaces.create_tenant("public", {})
        await opening.namespaces.create_namespace(NS, RATE)
        store.counts.clear()
        yield opening


async def test_topics_that_open_together_wait_for_the_limits(opening: Opening) -> None:
    """All of them, for one reading."""
    opening.store.gate.clear()
    async with asyncio.TaskGroup() as group:
        opened = [group.create_task(opening.limit_at_opening()) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(task.done() for task in opened)
        opening.store.gate.set()
    assert {str(task.result()) for task in opened} == {str(RATE["publishMaxMessageRate"])}
    assert opening.store.counts == {"get": 1}
    await opening.limit_at_opening()
    assert opening.store.counts == {"get": 1}


async def test_an_error_leaves_no_mark(opening: Opening) -> None:
    """All that waited get it; the next topic reads again."""
    opening.store.fails = True
    opening.store.gate.clear()
    opened = asyncio.gather(*(opening.limit_at_opening() for _ in range(3)), return_exceptions=True)
    await asyncio.sleep(0)
    opening.store.gate.set()
    assert [type(error) for error in await opened] == [OperationalError] * 3
    opening.store.fails = False
    assert await opening.limit_at_opening() == RATE["publishMaxMessageRate"]


async def test_a_client_that_leaves_while_the_limits_are_read_leaves_no_mark(
    opening: Opening,
) -> None:
    """Its opening is cancelled; the next topic reads again."""
    opening.store.gate.clear()
    opened = asyncio.ensure_future(opening.limit_at_opening())
    await asyncio.sleep(0)
    opened.cancel()
    await asyncio.wait([opened])
    opening.store.gate.set()
    assert await opening.limit_at_opening() == RATE["publishMaxMessageRate"]


async def test_a_change_while_the_limits_are_read_is_not_lost(opening: Opening) -> None:
    """The namespace is followed from the beginning of its first reading."""
    opening.store.gate.clear()
    opened = asyncio.ensure_future(opening.limit_at_opening())
    await asyncio.sleep(0)
    change = Change(ChangeKind.CHANGED, paths.policies(NS))
    followed = asyncio.ensure_future(opening.limits.on_change(change))
    await asyncio.sleep(0)
    opening.store.gate.set()
    await asyncio.gather(opened, followed)
    assert opening.store.counts == {"get": 2}


async def test_a_namespace_that_is_missing_is_read_each_time(opening: Opening) -> None:
    """One that is made later has its limits."""
    other = NamespaceName.parse("public/other")
    await opening.limits.opening(other)
    await opening.namespaces.create_namespace(other, RATE)
    await opening.limits.opening(other)
    assert opening.throttling.namespace_policies(str(other)) != {}
