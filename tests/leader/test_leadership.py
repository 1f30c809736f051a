"""Terms: no task outlives its term; a failure of the leader costs a cycle, repeated ones the
leadership, none the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from loadmanager.kit.conf import Live
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.election import StoreElection
from loadmanager.kit.metadata.leader import Leader, Term
from loadmanager.kit.metadata.memory import MemoryStore, MemoryTree
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.tasks import Interval, Scope, Steps, every, forever
from loadmanager.leader.present_leader import PresentLeader
from loadmanager.member.leading.leadership import FAILURES_IN_A_ROW_MAX, Leadership
from loadmanager.testing.cluster import LoopTime

Lead = Callable[[Term, Scope, Steps], Awaitable[None]]


class Candidate:
    """One broker's leadership over a store in memory."""

    def __init__(self, store: MemoryStore, name: str, lead: Lead) -> None:
        self.store, self.leading = store, PresentLeader()
        self.election = StoreElection(store, LoopTime(), broker_id=name, web_url=f"http://{name}")
        self.leadership = Leadership(self.election, self.leading, lead, LoopTime())

    async def start(self, scope: Scope) -> None:
        """Campaign."""
        watcher = Watcher(self.store, paths.LEADER, self.election.on_change)
        scope.spawn(watcher.run(), "watch")
        await watcher.synced.wait()
        scope.spawn(self.leadership.follow(), "follow")
        scope.spawn(self.leadership.run(), "run")


@asynccontextmanager
async def candidates(*leads: Lead) -> AsyncIterator[list[Candidate]]:
    """Brokers that campaign, one after the other."""
    tree = MemoryTree()
    async with asyncio.timeout(60), Scope("test") as scope:
        stores = [tree.session(timeout_s=5) for _ in leads]
        made = []
        for index, (store, lead) in enumerate(zip(stores, leads, strict=True)):
            await store.__aenter__()
            made.append(Candidate(store, f"b{index}:1", lead))
            await made[-1].start(scope)
            await until(lambda: made[0].leadership.terms > 0)
        try:
            yield made
        finally:
            scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    while not condition():
        await asyncio.sleep(0.01)


async def idle(_term: Term, _scope: Scope, _steps: Steps) -> None:
    """Lead without doing anything."""
    await forever()


async def test_a_term_that_is_lost_while_it_begins_leaves_nothing_behind() -> None:
    """The beginning of the term is cancelled and starts nothing; the next campaign begins."""
    began, ended, spawned = list[int](), list[int](), list[int]()

    async def slow_start(term: Term, scope: Scope, _steps: Steps) -> None:
        began.append(term.epoch)
        try:
            await asyncio.sleep(0.05 if term.epoch > 1 else 1000)
        finally:
            ended.append(term.epoch)
        spawned.append(term.epoch)
        await forever()

    async with candidates(slow_start) as (only,):
        await until(lambda: began == [1])
        await only.store.delete(paths.LEADER)
        await until(lambda: spawned == [2])
        assert (began, ended) == ([1, 2], [1, 2])
        assert only.leadership.terms == 2


async def test_a_step_that_fails_again_and_again_costs_the_leadership() -> None:
    """The load manager hears of it, another broker leads, and the first stays a candidate."""
    told: list[tuple[str, str]] = []

    class Told:
        def failed(self, step: str, error: Exception) -> None:
            told.append((step, str(error)))

    async def failing(_term: Term, scope: Scope, steps: Steps) -> None:
        await until(lambda: bool(made))
        made[0].leading.load_manager = Told()  # type: ignore[assignment]

        async def shed() -> None:
            raise RuntimeError("a bug in a plug-in")

        scope.spawn(
            every(Interval(Live(0.01), lambda seconds: seconds), shed, "shed", steps), "shed"
        )
        await forever()

    made: list[Candidate] = []
    async with candidates(failing, idle) as found:
        made += found
        first, second = found
        await until(lambda: second.election.leader == Leader("b1:1", "http://b1:1", 2))
        assert first.leadership.failures["shed"] >= FAILURES_IN_A_ROW_MAX
        assert (
            told[:FAILURES_IN_A_ROW_MAX] == [("shed", "a bug in a plug-in")] * FAILURES_IN_A_ROW_MAX
        )
        assert first.leading.load_manager is None
        await second.election.resign()
        await until(lambda: first.leadership.terms == 2)


async def test_a_term_that_cannot_begin_is_given_up() -> None:
    """Whatever it fails on."""

    async def broken(_term: Term, _scope: Scope, _steps: Steps) -> None:
        raise RuntimeError("a bug")

    async with candidates(broken, idle) as (first, second):
        await until(lambda: second.leadership.terms == 1)
        assert first.leadership.failures["lead"] == 1


async def test_a_success_begins_the_count_anew() -> None:
    """Only failures in a row cost the leadership; a store that does not answer counts as one."""
    turns = 0

    async def sometimes(_term: Term, scope: Scope, steps: Steps) -> None:
        async def shed() -> None:
            nonlocal turns
            turns += 1
            if turns % FAILURES_IN_A_ROW_MAX:
                raise OperationalError("the store does not answer")

        scope.spawn(
            every(Interval(Live(0.001), lambda seconds: seconds), shed, "shed", steps), "shed"
        )
        await forever()

    async with candidates(sometimes) as (only,):
        await until(lambda: turns > 10 * FAILURES_IN_A_ROW_MAX)
        assert only.leadership.terms == 1


def test_orders_of_deposed_leaders() -> None:
    """An order with an older epoch than the newest known one is refused; an operator's order has no
    epoch.
    """
    leading = PresentLeader()
    leading.follow(Leader("b0:1", "", 7))
    leading.follow(None)
    leading.check(None)
    leading.check(7)
    leading.check(8)
    with pytest.raises(ConflictError, match="epoch 7 has begun"):
        leading.check(6)
    leading.follow(Leader("b1:1", "", 1))  # an operator deleted the counter of epochs
    leading.check(1)


async def test_orders_are_refused_from_the_moment_that_a_term_is_known() -> None:
    """A broker that waits for its name already takes orders, and does not follow leaders yet."""
    tree, leading = MemoryTree(), PresentLeader()
    async with tree.session(timeout_s=5) as store, Scope("test") as scope:
        election = StoreElection(
            store, LoopTime(), broker_id="b0:1", web_url="", on_leader=leading.learn_of
        )
        watcher = Watcher(store, paths.LEADER, election.on_change)
        scope.spawn(watcher.run(), "watch")
        await watcher.synced.wait()
        await store.create(paths.LEADER, b'{"brokerId": "b7:1", "epoch": 7}')
        async with asyncio.timeout(60):
            await until(lambda: leading.epoch == 7)
        assert leading.leader is None
        with pytest.raises(ConflictError, match="epoch 7 has begun"):
            leading.check(6)
        scope.cancel()
