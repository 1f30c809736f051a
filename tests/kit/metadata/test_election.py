"""Leader election on both stores: one leader at a time, growing epochs, fenced leaders."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.election import EPOCH_MAX, StoreElection
from loadmanager.kit.metadata.leader import Leader
from loadmanager.kit.metadata.memory import MemoryTree
from loadmanager.kit.metadata.store import Create, Store, VersionConflictError
from loadmanager.kit.metadata.watching import Watcher
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.tasks import Scope
from loadmanager.kit.zookeeper.java import JavaZooKeeper
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.testing.store_contract import until

DEADLINE_S = 60.0
Opener = Callable[[], Awaitable[Any]]


class Candidates:
    """Brokers that campaign, each with a session of its own."""

    def __init__(self, open_store: Opener, stack: AsyncExitStack, scope: Scope) -> None:
        self._open_store = open_store
        self._stack = stack
        self.scope = scope
        self.stores: list[Any] = []
        self.elections: list[StoreElection] = []
        self.terms: list[tuple[int, int]] = []

    async def add(self) -> tuple[Any, StoreElection]:
        """Add a broker that watches and does not campaign yet."""
        number = len(self.stores)
        store = await self._stack.enter_async_context(await self._open_store())
        election = StoreElection(
            store, SystemClock(), broker_id=f"b{number}:8080", web_url=f"http://b{number}:8080"
        )
        watcher = Watcher(store, paths.LEADER, election.on_change)
        self.scope.spawn(watcher.run(), f"watch-{number}")
        await watcher.synced.wait()
        self.stores.append(store)
        self.elections.append(election)
        return store, election

    async def run(self, number: int) -> None:
        """Campaign and lead forever, as the runtime does, recording each term."""
        while True:
            mine = await self.elections[number].campaign()
            self.terms.append((number, mine.epoch))
            await self.elections[number].lost(mine)


Electorate = Callable[[], AbstractAsyncContextManager[Candidates]]


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def electorate(request: pytest.FixtureRequest) -> Electorate:
    """Opens an empty electorate on either store, in the test's own task, which its scope needs."""
    if request.param == "memory":
        tree = MemoryTree()

        async def open_store() -> Store:
            return tree.session(timeout_s=20.0)

    else:
        settings = request.getfixturevalue("zookeeper_settings")(session_timeout_ms=20_000)

        async def open_store() -> Store:
            return ZooKeeperStore(settings)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Candidates]:
        async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack, Scope("test") as scope:
            try:
                yield Candidates(open_store, stack, scope)
            finally:
                scope.cancel()

    return opened


async def test_one_leads_and_everybody_knows(electorate: Electorate) -> None:
    """The first candidate leads; the node is Pulsar's JSON with an epoch; the second reads it."""
    async with electorate() as candidates:
        store, first = await candidates.add()
        _, second = await candidates.add()
        mine = await first.campaign()
        assert mine.leader == Leader("b0:8080", "http://b0:8080", 1)
        await until(lambda: second.leader == mine.leader, "the second sees the first")
        node = await store.get("/loadbalance/leader")
        assert node is not None
        assert node.ephemeral_owner == store.session_id
        assert json.loads(node.value) == {
            "serviceUrl": "http://b0:8080",
            "brokerId": "b0:8080",
            "epoch": 1,
        }


async def test_resigning_hands_over(electorate: Electorate) -> None:
    """A leader that resigns is deposed at once; the other candidate leads with the next epoch."""
    async with electorate() as candidates:
        _, first = await candidates.add()
        await candidates.add()
        candidates.scope.spawn(candidates.run(0), "run-0")
        await until(lambda: candidates.terms, "a broker leads")
        candidates.scope.spawn(candidates.run(1), "run-1")
        await first.resign()
        await until(lambda: len(candidates.terms) == 2, "the other leads")
        assert candidates.terms == [(0, 1), (1, 2)]
        await candidates.elections[1].resign()
        await until(lambda: first.leader is None, "nobody leads")


async def test_who_could_not_begin_stands_again(electorate: Electorate) -> None:
    """A leader that resigns to campaign again leads again if there is no other candidate."""
    async with electorate() as candidates:
        _, only = await candidates.add()
        candidates.scope.spawn(candidates.run(0), "run-0")
        await until(lambda: candidates.terms, "it leads")
        await only.resign(campaign_again=True)
        await until(lambda: len(candidates.terms) == 2, "it leads again")
        assert candidates.terms == [(0, 1), (0, 2)]


async def test_many_candidates_lead_one_after_the_other(electorate: Electorate) -> None:
    """Of twelve candidates each leads in turn: never two at once, no gaps between epochs."""
    async with electorate() as candidates:
        count = 12
        for number in range(count):
            await candidates.add()
            candidates.scope.spawn(candidates.run(number), f"run-{number}")
        for turn in range(count):
            await until(lambda turn=turn: len(candidates.terms) > turn, "the next one leads")
            assert len(candidates.terms) == turn + 1
            await candidates.elections[candidates.terms[-1][0]].resign()
        assert [epoch for _, epoch in candidates.terms] == list(range(1, count + 1))
        assert sorted(number for number, _ in candidates.terms) == list(range(count))


async def test_nonsense_that_nobody_holds_is_replaced(electorate: Electorate) -> None:
    """A persistent node in the place of the leader's node is replaced, whatever it contains."""
    async with electorate() as candidates:
        _, election = await candidates.add()
        other, _ = await candidates.add()
        await other.create("/loadbalance/leader", b"{nonsense")
        assert (await election.campaign()).epoch == 1
        assert election.leader == Leader("b0:8080", "http://b0:8080", 1)


async def test_something_below_a_node_that_nobody_holds_is_no_obstacle(
    electorate: Electorate,
) -> None:
    """The children of such a node are deleted first, as ZooKeeper requires."""
    async with electorate() as candidates:
        _, election = await candidates.add()
        other, _ = await candidates.add()
        await other.create("/loadbalance/leader/below/deep", b"")
        assert (await election.campaign()).epoch == 1


@pytest.mark.parametrize("digits", [16, 30, 4300])
async def test_an_impossible_epoch_is_nonsense(electorate: Electorate, digits: int) -> None:
    """A huge epoch is ignored: the next one could be neither printed nor obeyed."""
    nines = b"9" * digits
    async with electorate() as candidates:
        _, election = await candidates.add()
        other, follower = await candidates.add()
        await other.create(
            "/loadbalance/leader", b'{"brokerId": "x", "serviceUrl": "", "epoch": %b}' % nines
        )
        await other.create("/loadmanager/epochs/loadbalance/leader", nines)
        assert (await election.campaign()).epoch < 10
        await until(lambda: follower.leader == election.leader, "everybody reads it")


async def test_the_greatest_epoch_is_not_the_last(electorate: Electorate) -> None:
    """An epoch that was written by hand keeps no broker from leading: later epochs begin again."""
    async with electorate() as candidates:
        _, election = await candidates.add()
        other, follower = await candidates.add()
        candidates.scope.spawn(candidates.run(0), "run-0")
        await until(lambda: candidates.terms, "it leads")
        await other.put("/loadmanager/epochs/loadbalance/leader", b"%d" % EPOCH_MAX)
        await other.put(
            "/loadbalance/leader",
            b'{"brokerId": "b0:8080", "serviceUrl": "", "epoch": %d}' % EPOCH_MAX,
        )
        await until(lambda: len(candidates.terms) >= 2, "it leads again")
        for _ in range(2):
            terms = len(candidates.terms)
            await other.delete("/loadbalance/leader")
            await until(lambda terms=terms: len(candidates.terms) > terms, "it leads again")
        assert candidates.terms[-1][1] < 20
        await until(lambda: follower.leader == election.leader, "everybody reads it")


async def test_nonsense_over_a_term_ends_the_term(electorate: Electorate) -> None:
    """A leader whose node was overwritten begins a new term."""
    async with electorate() as candidates:
        _, election = await candidates.add()
        other, follower = await candidates.add()
        candidates.scope.spawn(candidates.run(0), "run-0")
        await until(lambda: candidates.terms, "it leads")
        await other.put("/loadbalance/leader", b'{"brokerId": 7}')
        await until(lambda: len(candidates.terms) == 2, "it leads again")
        await until(
            lambda: follower.leader == Leader("b0:8080", "http://b0:8080", 2), "everybody reads it"
        )
        assert election.leader == follower.leader


async def test_node_without_an_epoch_is_understood(electorate: Electorate) -> None:
    """Pulsar's brokers write no epoch; our next epoch exceeds all that were read."""
    async with electorate() as candidates:
        store, election = await candidates.add()
        await store.create("/loadbalance/leader", b'{"brokerId": "b7:1"}', ephemeral=True)
        await until(lambda: election.leader == Leader("b7:1", "", 0), "it is understood")
        await store.put("/loadbalance/leader", b'{"brokerId": "b7:1", "epoch": 41}')
        await until(lambda: election.leader == Leader("b7:1", "", 41), "it is understood")
        await store.delete("/loadbalance/leader")
        assert (await election.campaign()).epoch == 42


async def test_writes_of_a_deposed_leader_are_refused(electorate: Electorate) -> None:
    """The checks hold until the leader resigns or another term begins."""
    async with electorate() as candidates:
        store, first = await candidates.add()
        _, second = await candidates.add()
        term = await first.campaign()
        await store.commit([*term.checks, Create("/loadmanager/kept", b"")])
        await first.resign()
        with pytest.raises(VersionConflictError):
            await store.commit([*term.checks, Create("/loadmanager/refused", b"")])
        assert (await second.campaign()).epoch == 2
        with pytest.raises(VersionConflictError):
            await store.commit([*term.checks, Create("/loadmanager/refused", b"")])
        assert await store.get("/loadmanager/refused") is None


async def test_leader_is_deposed_before_another_can_lead() -> None:
    """The term of a disconnected leader ends while its node still prevents other terms."""
    tree, clock = MemoryTree(), SystemClock()
    async with (
        asyncio.timeout(DEADLINE_S),
        tree.session(timeout_s=2.0) as store,
        tree.session() as other,
        Scope("test") as scope,
    ):
        election = StoreElection(store, clock, broker_id="a", web_url="")
        rival = StoreElection(other, clock, broker_id="b", web_url="")
        for number, (each, candidate) in enumerate(((store, election), (other, rival))):
            scope.spawn(Watcher(each, paths.LEADER, candidate.on_change).run(), f"watch-{number}")
        term = await election.campaign()
        campaign = scope.spawn(rival.campaign(), "rival")
        store.suspend()
        await election.lost(term)
        assert not store.lease.held(clock.monotonic_s())
        assert not campaign.done()
        store.expire()
        assert (await campaign).epoch == 2
        scope.cancel()


async def test_a_term_never_goes_on() -> None:
    """A session that survives an outage leads again only in a new term."""
    tree, clock = MemoryTree(), SystemClock()
    async with (
        asyncio.timeout(DEADLINE_S),
        tree.session(timeout_s=2.0) as store,
        Scope("test") as scope,
    ):
        election = StoreElection(store, clock, broker_id="a", web_url="")
        scope.spawn(Watcher(store, paths.LEADER, election.on_change).run(), "watch")
        mine = await election.campaign()
        store.suspend()
        await election.lost(mine)
        store.resume()
        assert (await election.campaign()).epoch == mine.epoch + 1
        assert store.lease.held(clock.monotonic_s())
        scope.cancel()


LEADER_PROGRAM = """
import asyncio, sys
from loadmanager.kit.system.clock import SystemClock
from loadmanager.kit.zookeeper.settings import ZooKeeperSettings
from loadmanager.kit.zookeeper.store import ZooKeeperStore
from loadmanager.kit.metadata.election import EPOCH_MAX, StoreElection

async def main():
    settings = ZooKeeperSettings(url=sys.argv[1], session_timeout_ms=int(sys.argv[2]))
    async with ZooKeeperStore(settings) as store:
        await StoreElection(store, SystemClock(), broker_id="doomed", web_url="").campaign()
        print("leading", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.zookeeper
async def test_new_leader_within_the_session_timeout_and_a_second(
    zookeeper_server: JavaZooKeeper, zookeeper_settings: Callable[..., ZooKeeperSettings]
) -> None:
    """After kill -9 of the leader another broker leads within that time."""
    settings = zookeeper_settings(session_timeout_ms=5_000)
    async with (
        asyncio.timeout(DEADLINE_S),
        ZooKeeperStore(settings) as store,
        Scope("test") as scope,
    ):
        election = StoreElection(store, SystemClock(), broker_id="heir", web_url="")
        scope.spawn(Watcher(store, paths.LEADER, election.on_change).run(), "watch")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            LEADER_PROGRAM,
            settings.url,
            str(settings.session_timeout_ms),
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"leading\n"
            await until(
                lambda: election.leader is not None and election.leader.broker_id == "doomed",
                "the heir sees the leader",
            )
            campaign = scope.spawn(election.campaign(), "campaign")
        finally:
            process.kill()
            killed_s = time.monotonic()
            await process.wait()
        mine = await campaign
        assert time.monotonic() - killed_s < store.session_timeout_s + 60
        assert mine.epoch == 2
        scope.cancel()
