"""Acquiring, releasing, splitting and losing bundles, over a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from clusters.members import NS, a_fleet, nothing_open

from loadmanager.broker.ports.directory import TopicRecords
from loadmanager.engine.ownership.states import BundleState, LifeCause
from loadmanager.kit.conf import Live
from loadmanager.kit.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import delete_tree
from loadmanager.kit.names import TopicName
from loadmanager.member.settings import BrokerSettings
from loadmanager.member.stopping import release_all
from loadmanager.testing.cluster import LoopTime

BUNDLE = "public/default/0x00000000_0x40000000"


@asynccontextmanager
async def an_owned_bundle(brokers: int = 2) -> AsyncIterator[tuple[Any, ...]]:
    """A fleet and its brokers, of which the first owns `BUNDLE`."""
    async with a_fleet(brokers) as fleet:
        await fleet.brokers[0].acquire(BUNDLE)
        yield (fleet, *fleet.brokers)


async def test_first_come_first_owned() -> None:
    """Of several brokers that acquire a bundle at once, one gets it; the others get its address."""
    async with a_fleet(3) as fleet:
        answers = await asyncio.gather(
            *(
                broker.ownership.acquire(BUNDLE, "test")
                for broker in fleet.brokers
                for _ in range(3)
            )
        )
        assert len({answer.address for answer in answers}) == 1
        assert fleet.owners(BUNDLE) == [answers[0].address.broker_id]


@pytest.mark.parametrize(
    "value", [b"junk", b'{"nativeUrl": "pulsar://b1:6650", "httpUrl": "http://b1:8080"}']
)
async def test_a_lock_that_no_session_holds_is_replaced(value: bytes) -> None:
    """A persistent node in the lock's place, even with children, has no owner: no session would
    ever delete it.
    """
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.store.create(f"{paths.lock(BUNDLE)}/child", value)
        await first.store.put(paths.lock(BUNDLE), value)
        assert await second.ownership.owner(BUNDLE) is None
        assert await second.acquire(BUNDLE) == second.address
        assert await first.acquire(BUNDLE) == second.address
        assert (await first.lock(BUNDLE)).ephemeral_owner == second.store.session_id
        assert fleet.owners(BUNDLE) == ["b1:8080"]


async def test_transfer_in_order() -> None:
    """Fence, delete the lock, let the destination acquire the bundle, and then tell the clients."""
    async with an_owned_bundle() as (fleet, source, target):
        await source.release(BUNDLE, target.address)
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        assert source.tenant.told == [
            ("open", BUNDLE, None),
            ("fence", BUNDLE, None),
            ("close", BUNDLE, "b1:8080"),
        ]
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
    """If the destination does not acquire the bundle, it has no owner, and clients look it up."""
    async with an_owned_bundle() as (fleet, source, target):
        fleet.unreachable.add(target.address.broker_id)
        await source.release(BUNDLE, target.address)
        assert fleet.owners(BUNDLE) == []
        assert source.tenant.told[-1] == ("close", BUNDLE, None)
        assert await source.lock(BUNDLE) is None


async def test_lost_session_ends_ownership() -> None:
    """A broker whose session expired owns nothing; another broker can acquire the bundle."""
    async with an_owned_bundle() as (fleet, first, second):
        first.store.expire()
        assert not first.ownership.served(BUNDLE)
        first.ownership.lose_all("the session is lost")
        await second.acquire(BUNDLE)
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        first.store.resume()
        assert await first.acquire(BUNDLE) == second.address
        assert fleet.owners(BUNDLE) == ["b1:8080"]


async def test_split_is_one_step() -> None:
    """The owner of the parent owns the children, and no broker can lock the parent again."""
    async with a_fleet(2) as fleet:
        owner, other = fleet.brokers
        await other.namespaces.bundles(NS)
        await owner.acquire(BUNDLE)
        children = await owner.ownership.split(BUNDLE, [0x10000000], "test")
        assert children == [
            "public/default/0x00000000_0x10000000",
            "public/default/0x10000000_0x40000000",
        ]
        assert owner.tenant.open == set(children)
        assert [fleet.owners(child) for child in children] == [["b0:8080"], ["b0:8080"]]
        with pytest.raises((OperationalError, ConflictError)):
            await other.ownership.acquire(BUNDLE, "stale")
        assert (await owner.namespaces.bundles(NS)).boundaries[1] == 0x10000000
        assert (await owner.namespaces.policies(NS))["bundles"]["numBundles"] == 5


async def test_stale_boundaries_cannot_be_locked() -> None:
    """A broker with old boundaries in its cache cannot lock a bundle that was split."""
    async with a_fleet(2) as fleet:
        owner, stale = fleet.brokers
        before = await stale.namespaces.bundles(NS)
        await owner.acquire(BUNDLE)
        await owner.ownership.split(BUNDLE, [0x10000000], "test")
        stale.namespaces._bundles[NS] = before  # as if the notification had not arrived
        with pytest.raises(OperationalError, match="being unloaded"):
            await stale.ownership.acquire(BUNDLE, "stale")
        assert fleet.owners(BUNDLE) == []


async def test_impossible_splits() -> None:
    """Another broker's bundle, or boundaries outside the bundle, are refused."""
    async with an_owned_bundle() as (fleet, owner, other):
        with pytest.raises(ConflictError):
            await other.ownership.split(BUNDLE, [5], "test")
        with pytest.raises(BadInputError):
            await owner.ownership.split(BUNDLE, [0x50000000], "test")
        assert fleet.owners(BUNDLE) == ["b0:8080"]


async def test_lookups_are_shared_and_cached() -> None:
    """Many lookups of one bundle acquire it once; the cache of owners follows a transfer."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        topic = TopicName.parse("persistent://public/default/x")
        answers = await asyncio.gather(
            *(first.lookups.lookup(topic, authoritative=True) for _ in range(50))
        )
        assert {(answer.broker, answer.redirect) for answer in answers} == {(first.address, False)}
        assert sum(step.after is BundleState.OWNED for step in first.steps) == 1
        assert (await second.lookups.lookup(topic, authoritative=False)).broker == first.address
        (bundle,) = first.ownership.owned()
        await first.release(bundle, second.address)
        assert (await first.lookups.lookup(topic, authoritative=False)).broker == second.address
        with pytest.raises(NotFoundError):
            await first.lookups.lookup(
                TopicName.parse("persistent://public/nowhere/x"), authoritative=False
            )
        assert (first.lookups.answers, first.lookups.failures, first.lookups.pending) == (51, 1, 0)


async def test_lookup_without_leader_fails_in_time() -> None:
    """Without a leader a lookup fails, with a text at which clients retry."""
    async with a_fleet(1) as fleet:
        with pytest.raises(OperationalError, match="Failed to acquire ownership"):
            await fleet.brokers[0].lookups.lookup(TopicName.parse("x"), authoritative=False)


async def test_a_stopping_broker_releases_everything() -> None:
    """It releases all its bundles, and acquires no more."""
    async with a_fleet(2, bundles=16) as fleet:
        leaving, staying = fleet.brokers
        for bundle in (await leaving.namespaces.bundles(NS)).names:
            await leaving.acquire(bundle)
        settings = BrokerSettings(bundle_unload_timeout_ms=1000, shutdown_unloads_max=3)
        await release_all(leaving.ownership, LoopTime(), Live(settings))
        assert leaving.ownership.owned() == []
        assert leaving.tenant.open == set()
        with pytest.raises(OperationalError):
            await leaving.ownership.acquire((await staying.namespaces.bundles(NS)).names[0], "test")
        first = (await staying.namespaces.bundles(NS)).names[0]
        await staying.acquire(first)
        assert fleet.owners(first) == ["b1:8080"]


async def test_topics_outlive_their_owner() -> None:
    """Topics, partitions and durable subscriptions are recorded until they are deleted."""
    async with a_fleet(1) as fleet:
        topics = fleet.brokers[0].topics
        topic = TopicName.parse("persistent://public/default/a b/c")
        assert await topics.opened(topic) == TopicRecords()
        await topics.record_subscription(topic, "s/1")
        assert await topics.opened(topic) == TopicRecords(("s/1",))
        assert await topics.epoch(topic) == 0
        epochs = [await topics.next_epoch(topic) for _ in range(2)]
        assert epochs == [1, 2]
        assert await topics.epoch(topic) == 2
        assert await topics.of_namespace(NS, "ALL", []) == [str(topic)]
        with pytest.raises(ConflictError):
            await topics.delete(topic, force=False, close=nothing_open)
        await topics.forget_subscription(topic, "s/1")
        await topics.delete(topic, force=False, close=nothing_open)
        assert await topics.of_namespace(NS, "PERSISTENT", []) == []
        await topics.create_partitioned(TopicName.parse("p"), 2)
        assert await topics.partitions(TopicName.parse("p"), create=False) == 2
        assert await topics.partitions(TopicName.parse("q"), create=True) == 0
        with pytest.raises(NotFoundError):
            await topics.partitions(TopicName.parse("q"), create=False)
        ids = [await topics.next_ledger_id() for _ in range(3)]
        assert ids == sorted(set(ids))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_bundle_is_served_once_it_is_open() -> None:
    """A bundle is not served before the host has opened it, though it has an owner."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        first.tenant.opening = asyncio.Event()
        acquiring = asyncio.ensure_future(first.ownership.acquire(BUNDLE, "test"))
        await _until(lambda: first.ownership.state(BUNDLE) is BundleState.OPENING)
        assert not first.ownership.served(BUNDLE)
        with pytest.raises(ConflictError, match="Opening"):
            await first.release(BUNDLE)
        assert await second.acquire(BUNDLE) == first.address
        first.tenant.opening.set()
        assert (await acquiring).address == first.address
        assert fleet.owners(BUNDLE) == ["b0:8080"]


@pytest.mark.parametrize(
    "error", [OperationalError("the disk does not answer"), RuntimeError("a bug")]
)
async def test_the_lock_of_a_bundle_that_cannot_be_opened_is_deleted(error: Exception) -> None:
    """The caller gets the error, and another broker can acquire the bundle."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        first.tenant.refuses = error
        with pytest.raises(OperationalError, match=str(error)):
            await first.acquire(BUNDLE)
        assert await first.lock(BUNDLE) is None
        assert first.ownership.state(BUNDLE) is BundleState.FREE
        assert await second.acquire(BUNDLE) == second.address


async def test_a_bundle_whose_claim_outlives_the_lease_is_not_opened() -> None:
    """The lease has run out while the claim was taken, and nobody has noticed yet."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        acquiring = asyncio.ensure_future(broker.ownership.acquire(BUNDLE, "test"))
        while broker.ownership.state(BUNDLE) is not BundleState.ASSIGNING:
            await asyncio.sleep(0)
        broker.store.lease.revoke()
        with pytest.raises(OperationalError, match="look it up again"):
            await acquiring
        assert await broker.lock(BUNDLE) is not None
        assert not broker.tenant.told
        assert broker.ownership.state(BUNDLE) is BundleState.FREE


async def test_the_opening_of_an_old_life_leaves_the_new_life_alone() -> None:
    """The session is lost while the host opens the bundle, and the bundle is acquired again. Then
    the old opening closes its own life only.
    """
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        broker.tenant.opening = asyncio.Event()
        old = asyncio.ensure_future(broker.ownership.acquire(BUNDLE, "first"))
        await _until(lambda: broker.ownership.state(BUNDLE) is BundleState.OPENING)
        broker.store.expire()
        broker.ownership.lose_all("the session is lost")
        gate, broker.tenant.opening = broker.tenant.opening, None
        broker.store.resume()
        # The old attempt is still in progress; nevertheless a new one can begin.
        new = await broker.ownership._base.scope.finish(
            "second", broker.ownership._acquire, BUNDLE, "second", LifeCause.LOOKUP
        )
        assert new is None
        life = broker.ownership._lives.get(BUNDLE)
        gate.set()
        await asyncio.gather(old, return_exceptions=True)
        assert broker.ownership.served(BUNDLE)
        assert all(
            told[:2] != ("close", BUNDLE) or token != life.token
            for told, token in broker.tenant.calls
        )


async def test_a_bundle_whose_lock_was_deleted_is_fenced_and_closed() -> None:
    """Without closing it, clients would wait forever."""
    async with an_owned_bundle() as (_, first, second):
        await second.store.delete(paths.lock(BUNDLE))
        await _until(lambda: ("close", BUNDLE, None) in first.tenant.told)
        assert ("fence", BUNDLE, None) in first.tenant.told
        assert not first.ownership.served(BUNDLE)
        assert await second.acquire(BUNDLE) == second.address


async def test_a_missed_deletion_of_a_lock_is_noticed_after_the_reconnect() -> None:
    """The lock was deleted while its owner was not connected."""
    async with an_owned_bundle() as (_, first, second):
        first.store.suspend()
        await second.store.delete(paths.lock(BUNDLE))
        first.store.resume()
        await _until(lambda: not first.ownership.served(BUNDLE))


async def test_an_overwritten_lock_is_restored() -> None:
    """The bundle stays served, and the log tells of it."""
    async with an_owned_bundle() as (_, first, second):
        node = await first.lock(BUNDLE)
        assert node is not None
        with structlog.testing.capture_logs() as logs:
            await second.store.put(paths.lock(BUNDLE), b"{nonsense")
            async with asyncio.timeout(20):
                while (now := await second.lock(BUNDLE)) is None or now.value != node.value:
                    await asyncio.sleep(0.01)
        assert [entry["event"] for entry in logs] == [
            "the lock of a bundle was overwritten; restoring it"
        ]
        assert first.ownership.served(BUNDLE)


async def test_a_new_life_has_a_token_of_its_own() -> None:
    """A lock that outlived its life in the same session is replaced: tokens grow."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        await broker.ownership.acquire(BUNDLE, "first")
        before = broker.ownership._lives.get(BUNDLE).token
        broker.ownership.lose_all("the lease ran out, the session lives")
        await broker.ownership.acquire(BUNDLE, "second")
        life = broker.ownership._lives.get(BUNDLE)
        node = await broker.lock(BUNDLE)
        assert node is not None
        assert life.token == node.created_txid > before


async def test_a_split_whose_answer_is_lost_is_found_in_the_store() -> None:
    """This session holds the children's locks, so the split took effect."""
    async with an_owned_bundle(1) as (_, broker):
        broker.store.answers_lost = 1
        children = await broker.ownership.split(BUNDLE, [0x10000000], "test")
        assert set(children) == set(broker.ownership.owned()) == broker.tenant.open
        assert broker.ownership.state(BUNDLE) is BundleState.FREE


async def test_an_idle_lock_can_be_released() -> None:
    """The lock stays when the lease runs out but the session does not expire. A namespace whose
    lock could not be released could never be deleted.
    """
    async with an_owned_bundle() as (fleet, first, second):
        first.ownership.lose_all("the session can no longer be proven")
        assert await first.lock(BUNDLE) is not None
        assert await first.release(BUNDLE) == 0
        assert await first.lock(BUNDLE) is None
        assert first.ownership.state(BUNDLE) is BundleState.FREE
        assert await second.acquire(BUNDLE) == second.address
        assert await first.release(BUNDLE) is None
        assert fleet.owners(BUNDLE) == ["b1:8080"]


async def test_a_late_request_deletes_no_lock_of_another_broker() -> None:
    """A client library may send a request of an expired session in the next session. By then
    another broker may hold the lock.
    """
    async with an_owned_bundle() as (fleet, first, second):
        life = first.ownership._lives.get(BUNDLE)
        first.store.expire()
        first.store.resume()
        await second.acquire(BUNDLE)
        await first.ownership._claims.give_back(BUNDLE, life.token, life.session_id, again=False)
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        node = await second.lock(BUNDLE)
        assert node is not None
        assert node.ephemeral_owner == second.store.session_id


async def test_a_second_try_to_release_deletes_no_lock_of_another_broker() -> None:
    """The first try took effect, its answer was lost, and another broker took the bundle before the
    second. Both sessions live.
    """
    async with an_owned_bundle() as (fleet, first, second):
        first.store.answers_lost = 1
        releasing = asyncio.create_task(first.release(BUNDLE))
        while await second.lock(BUNDLE) is not None:
            await asyncio.sleep(0)
        assert await second.acquire(BUNDLE) == second.address
        assert not releasing.done()
        assert await releasing == 0
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        node = await second.lock(BUNDLE)
        assert node is not None
        assert node.ephemeral_owner == second.store.session_id


async def test_a_session_whose_own_node_was_deleted_can_release() -> None:
    """An operator deleted nodes below /loadmanager."""
    async with an_owned_bundle(1) as (_, broker):
        await delete_tree(broker.store, paths.SESSIONS)
        assert await broker.release(BUNDLE) == 0
        assert await broker.lock(BUNDLE) is None


async def test_a_bundle_that_was_lost_while_it_opened_is_fenced_before_it_is_closed() -> None:
    """Closing may take long, while another broker serves the bundle."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        broker.tenant.opening = asyncio.Event()
        opening = asyncio.ensure_future(broker.ownership.acquire(BUNDLE, "test"))
        await _until(lambda: broker.ownership.state(BUNDLE) is BundleState.OPENING)
        broker.ownership.lose_all("the session is lost")
        broker.tenant.opening.set()
        await asyncio.gather(opening, return_exceptions=True)
        assert [what for what, _, _ in broker.tenant.told] == ["open", "fence", "close"]


async def test_a_broker_releases_only_its_own_bundles() -> None:
    """For other bundles the answer is None."""
    async with a_fleet(1) as fleet:
        assert (
            await fleet.brokers[0].ownership.release(
                BUNDLE, reason="test", destination=None, timeout_s=1
            )
            is None
        )


def test_lives_that_are_over_are_forgotten() -> None:
    """The memory does not grow with the number of lives."""

    async def come_and_go() -> int:
        async with a_fleet(1) as fleet:
            (broker,) = fleet.brokers
            for _ in range(20):
                await broker.acquire(BUNDLE)
                await broker.release(BUNDLE)
            return (
                len(broker.ownership._lives.all())
                + len(broker.ownership._acquiring)
                + len(broker.ownership._lives.split_children)
            )

    assert asyncio.run(come_and_go()) == 0


async def test_boundaries_that_an_operator_changed() -> None:
    """A bundle that they no longer contain is released: another broker may own a part of it."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        kept = f"{NS}/0x80000000_0xc0000000"
        await first.acquire(BUNDLE)
        await first.acquire(kept)
        boundaries = (
            b'{"bundles":{"boundaries":["0x00000000","0x80000000","0xc0000000","0xffffffff"]}}'
        )
        await second.store.put(paths.local_policies(NS), boundaries)
        await _until(lambda: first.ownership.owned() == [kept])
        await _until(lambda: ("close", BUNDLE, None) in first.tenant.told)
        assert await second.lock(BUNDLE) is None
        whole = f"{NS}/0x00000000_0x80000000"
        assert await second.acquire(whole) == second.address


async def test_a_stop_waits_for_bundles_in_transit() -> None:
    """A bundle that is being opened is released once it is open."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        broker.tenant.opening = asyncio.Event()
        acquiring = asyncio.ensure_future(broker.ownership.acquire(BUNDLE, "test"))
        await _until(lambda: broker.ownership.state(BUNDLE) is BundleState.OPENING)
        stop = asyncio.ensure_future(
            release_all(broker.ownership, LoopTime(), Live(BrokerSettings()))
        )
        await asyncio.sleep(0)
        broker.tenant.opening.set()
        await stop
        await asyncio.gather(acquiring, return_exceptions=True)
        assert await broker.lock(BUNDLE) is None


async def test_a_release_that_the_store_refuses_answers_in_time_and_goes_on() -> None:
    """A lock that cannot be deleted stays until it can; the caller gets an error that says so."""
    async with an_owned_bundle() as (_, first, second):
        session = f"{paths.SESSIONS}/{first.store.session_id:x}"
        await delete_tree(first.store, paths.SESSIONS)
        await second.store.create(paths.SESSIONS, b"", ephemeral=True)  # it can have no children
        with pytest.raises(OperationalError, match="goes on trying"):
            await first.ownership.release(BUNDLE, reason="test", destination=None, timeout_s=1)
        assert first.ownership.state(BUNDLE) is BundleState.RELEASING
        await second.store.delete(paths.SESSIONS)
        async with asyncio.timeout(30):
            while first.ownership.state(BUNDLE) is not BundleState.FREE:
                await asyncio.sleep(0.1)
        assert await first.store.get(session) is not None
        assert await second.acquire(BUNDLE) == second.address
