"""Acquiring, releasing, splitting and losing bundles, over a store in memory."""

from __future__ import annotations

import asyncio

import pytest
from runtime.fleet import NS, LoopClock, a_fleet

from loadmanager.core.bundles.names import TopicName
from loadmanager.core.conf import Live
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.core.ownership.states import BundleState
from loadmanager.runtime.broker.stopping import Draining
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.settings import BrokerSettings

BUNDLE = "public/default/0x00000000_0x40000000"


async def test_first_come_first_owned() -> None:
    """However many brokers want a bundle at once, one gets it and the others learn who."""
    async with a_fleet(3) as fleet:
        answers = await asyncio.gather(*(broker.ownership.acquire(BUNDLE, "test") for broker in fleet.brokers for _ in range(3)))
        assert len({answer.address for answer in answers}) == 1
        assert fleet.owners(BUNDLE) == [answers[0].address.broker_id]


async def test_transfer_in_order() -> None:
    """Fence, release, acquire at the destination, and only then tell the clients where to go."""
    async with a_fleet(2) as fleet:
        source, target = fleet.brokers
        await source.ownership.acquire(BUNDLE, "test")
        await source.ownership.release(BUNDLE, reason="test", destination=target.address, timeout_s=1)
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        assert source.tenant.told == [("open", BUNDLE, None), ("fence", BUNDLE, None), ("close", BUNDLE, "b1:8080")]
        assert [step.after for step in source.steps] == [
            BundleState.ASSIGNING,
            BundleState.OPENING,
            BundleState.OWNED,
            BundleState.RELEASING,
            BundleState.FREE,
        ]
        assert source.steps[-1].pause_ms is not None
        assert source.steps[-1].destination == "b1:8080"


async def test_transfer_to_a_dead_destination() -> None:
    """When the destination cannot take the bundle it is free, and clients are sent nowhere: the next lookup places it."""
    async with a_fleet(2) as fleet:
        source, target = fleet.brokers
        await source.ownership.acquire(BUNDLE, "test")
        fleet.unreachable.add(target.address.broker_id)
        await source.ownership.release(BUNDLE, reason="test", destination=target.address, timeout_s=1)
        assert fleet.owners(BUNDLE) == []
        assert source.tenant.told[-1] == ("close", BUNDLE, None)
        assert await source.store.get(paths.lock(BUNDLE)) is None


async def test_lost_session_ends_ownership() -> None:
    """When the session expires nothing is owned any more, and another broker can have the bundle."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.ownership.acquire(BUNDLE, "test")
        first.store.expire()
        assert not first.ownership.served(BUNDLE)
        first.ownership.lose_all("the session is lost")
        await second.ownership.acquire(BUNDLE, "test")
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        first.store.resume()
        assert (await first.ownership.acquire(BUNDLE, "test")).address == second.address
        assert fleet.owners(BUNDLE) == ["b1:8080"]


async def test_deleted_lock_is_no_ownership() -> None:
    """A lock that somebody deletes under its owner is not served any longer."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.ownership.acquire(BUNDLE, "test")
        await second.store.delete(paths.lock(BUNDLE))
        while first.ownership.served(BUNDLE):
            await asyncio.sleep(0.01)
        assert ("fence", BUNDLE, None) in first.tenant.told


async def test_split_is_one_step() -> None:
    """The children are owned by who owned the parent, and nobody can lock the parent again, not even with old boundaries in mind."""
    async with a_fleet(2) as fleet:
        owner, other = fleet.brokers
        await other.namespaces.bundles(NS)
        await owner.ownership.acquire(BUNDLE, "test")
        children = await owner.ownership.split(BUNDLE, [0x10000000], "test")
        assert children == ["public/default/0x00000000_0x10000000", "public/default/0x10000000_0x40000000"]
        assert owner.tenant.open == set(children)
        assert [fleet.owners(child) for child in children] == [["b0:8080"], ["b0:8080"]]
        with pytest.raises((OperationalError, ConflictError)):
            await other.ownership.acquire(BUNDLE, "stale")
        assert (await owner.namespaces.bundles(NS)).boundaries[1] == 0x10000000
        assert (await owner.namespaces.policies(NS))["bundles"]["numBundles"] == 5


async def test_stale_boundaries_cannot_be_locked() -> None:
    """A lock is taken only under the boundaries that it belongs to: the check is part of the transaction."""
    async with a_fleet(2) as fleet:
        owner, stale = fleet.brokers
        before = await stale.namespaces.bundles(NS)
        await owner.ownership.acquire(BUNDLE, "test")
        await owner.ownership.split(BUNDLE, [0x10000000], "test")
        stale.namespaces._bundles[NS] = before  # as if the notification were still on its way
        with pytest.raises(OperationalError, match="being unloaded"):
            await stale.ownership.acquire(BUNDLE, "stale")
        assert fleet.owners(BUNDLE) == []


async def test_impossible_splits() -> None:
    """A bundle that is not ours, or cuts outside it, are refused and change nothing."""
    async with a_fleet(2) as fleet:
        owner, other = fleet.brokers
        await owner.ownership.acquire(BUNDLE, "test")
        with pytest.raises(ConflictError):
            await other.ownership.split(BUNDLE, [5], "test")
        with pytest.raises(BadInputError):
            await owner.ownership.split(BUNDLE, [0x50000000], "test")
        assert fleet.owners(BUNDLE) == ["b0:8080"]


async def test_lookups_are_shared_and_cached() -> None:
    """Many lookups of one bundle ask the store once; the owner's cache follows a move."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        topic = TopicName.parse("persistent://public/default/x")
        answers = await asyncio.gather(*(first.lookups.lookup(topic, authoritative=True) for _ in range(50)))
        assert {(answer.broker, answer.redirect) for answer in answers} == {(first.address, False)}
        assert sum(step.after is BundleState.OWNED for step in first.steps) == 1
        assert (await second.lookups.lookup(topic, authoritative=False)).broker == first.address
        (bundle,) = first.ownership.owned()
        await first.ownership.release(bundle, reason="test", destination=second.address, timeout_s=1)
        assert (await first.lookups.lookup(topic, authoritative=False)).broker == second.address
        with pytest.raises(NotFoundError):
            await first.lookups.lookup(TopicName.parse("persistent://public/nowhere/x"), authoritative=False)
        assert (first.lookups.answers, first.lookups.failures, first.lookups.pending) == (51, 1, 0)


async def test_lookup_without_leader_fails_in_time() -> None:
    """No broker decides by itself: without a leader a lookup fails, with a text that clients retry on."""
    async with a_fleet(1) as fleet:
        with pytest.raises(OperationalError, match="Failed to acquire ownership"):
            await fleet.brokers[0].lookups.lookup(TopicName.parse("x"), authoritative=False)


async def test_draining_gives_everything_back() -> None:
    """A broker that stops releases all its bundles and takes no new one."""
    async with a_fleet(2, bundles=16) as fleet:
        leaving, staying = fleet.brokers
        for bundle in (await leaving.namespaces.bundles(NS)).names:
            await leaving.ownership.acquire(bundle, "test")
        await Draining(leaving.ownership, LoopClock(), Live(BrokerSettings(bundle_unload_timeout_ms=1000, shutdown_unloads_max=3))).run()
        assert leaving.ownership.owned() == []
        assert leaving.tenant.open == set()
        with pytest.raises(OperationalError):
            await leaving.ownership.acquire((await staying.namespaces.bundles(NS)).names[0], "test")
        first = (await staying.namespaces.bundles(NS)).names[0]
        await staying.ownership.acquire(first, "test")
        assert fleet.owners(first) == ["b1:8080"]


async def test_topics_outlive_their_owner() -> None:
    """Topics, partitions and durable subscriptions are recorded, and forgotten when they are deleted."""
    async with a_fleet(1) as fleet:
        topics = fleet.brokers[0].topics
        topic = TopicName.parse("persistent://public/default/a b/c")
        assert await topics.opened(topic) == ()
        await topics.record_subscription(topic, "s/1")
        assert await topics.opened(topic) == ("s/1",)
        assert await topics.of_namespace(NS, "ALL", []) == [str(topic)]
        with pytest.raises(ConflictError):
            await topics.delete(topic, force=False)
        await topics.forget_subscription(topic, "s/1")
        await topics.delete(topic, force=False)
        assert await topics.of_namespace(NS, "PERSISTENT", []) == []
        await topics.create_partitioned(TopicName.parse("p"), 2)
        assert await topics.partitions(TopicName.parse("p"), create=False) == 2
        with pytest.raises(NotFoundError):
            await topics.partitions(TopicName.parse("q"), create=False)
        ids = [await topics.next_ledger_id() for _ in range(3)]
        assert ids == sorted(set(ids))
