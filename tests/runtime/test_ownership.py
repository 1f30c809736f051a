"""Acquiring, releasing, splitting and losing bundles, over a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import structlog
from runtime.fleet import NS, LoopClock, a_fleet

from loadmanager.core.bundles.names import TopicName
from loadmanager.core.conf import Live
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError, OperationalError
from loadmanager.core.ownership.states import BundleState
from loadmanager.ports.store import delete_tree
from loadmanager.runtime.broker.stopping import release_all
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.settings import BrokerSettings

BUNDLE = "public/default/0x00000000_0x40000000"


async def test_first_come_first_owned() -> None:
    """However many brokers want a bundle at once, one gets it and the others learn who."""
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
async def test_a_lock_that_nobody_holds_is_replaced(value: bytes) -> None:
    """One that somebody wrote by hand, with nodes below it even: no session would ever give it
    back.
    """
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        await broker.store.create(f"{paths.lock(BUNDLE)}/child", value)
        await broker.store.put(paths.lock(BUNDLE), value)
        assert await broker.ownership.owner(BUNDLE) is None
        await broker.ownership.acquire(BUNDLE, "test")
        assert fleet.owners(BUNDLE) == ["b0:8080"]


async def test_an_overwritten_lock_is_written_anew() -> None:
    """The bundle stays served, and the log says that somebody wrote."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        await broker.ownership.acquire(BUNDLE, "test")
        with structlog.testing.capture_logs() as logs:
            await broker.store.put(paths.lock(BUNDLE), b"junk")
            async with asyncio.timeout(5):
                while not any("overwritten" in entry["event"] for entry in logs):
                    await asyncio.sleep(0.01)
        assert broker.ownership.served(BUNDLE)


async def test_transfer_in_order() -> None:
    """Fence, release, acquire at the destination, and only then tell the clients where to go."""
    async with a_fleet(2) as fleet:
        source, target = fleet.brokers
        await source.ownership.acquire(BUNDLE, "test")
        await source.ownership.release(
            BUNDLE, reason="test", destination=target.address, timeout_s=1
        )
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
    """When the destination cannot take the bundle it is free, and clients are sent nowhere: the
    next lookup places it.
    """
    async with a_fleet(2) as fleet:
        source, target = fleet.brokers
        await source.ownership.acquire(BUNDLE, "test")
        fleet.unreachable.add(target.address.broker_id)
        await source.ownership.release(
            BUNDLE, reason="test", destination=target.address, timeout_s=1
        )
        assert fleet.owners(BUNDLE) == []
        assert source.tenant.told[-1] == ("close", BUNDLE, None)
        assert await source.store.get(paths.lock(BUNDLE)) is None


async def test_lost_session_ends_ownership() -> None:
    """When the session expires nothing is owned any more, and another broker can
    have the bundle.
    """
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
    """The children are owned by who owned the parent, and nobody can lock the parent again, not
    even with old boundaries in mind.
    """
    async with a_fleet(2) as fleet:
        owner, other = fleet.brokers
        await other.namespaces.bundles(NS)
        await owner.ownership.acquire(BUNDLE, "test")
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
    """A lock is taken only under the boundaries that it belongs to: the check is part of the
    transaction.
    """
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
        answers = await asyncio.gather(
            *(first.lookups.lookup(topic, authoritative=True) for _ in range(50))
        )
        assert {(answer.broker, answer.redirect) for answer in answers} == {(first.address, False)}
        assert sum(step.after is BundleState.OWNED for step in first.steps) == 1
        assert (await second.lookups.lookup(topic, authoritative=False)).broker == first.address
        (bundle,) = first.ownership.owned()
        await first.ownership.release(
            bundle, reason="test", destination=second.address, timeout_s=1
        )
        assert (await first.lookups.lookup(topic, authoritative=False)).broker == second.address
        with pytest.raises(NotFoundError):
            await first.lookups.lookup(
                TopicName.parse("persistent://public/nowhere/x"), authoritative=False
            )
        assert (first.lookups.answers, first.lookups.failures, first.lookups.pending) == (51, 1, 0)


async def test_lookup_without_leader_fails_in_time() -> None:
    """No broker decides by itself: without a leader a lookup fails, with a text that clients retry
    on.
    """
    async with a_fleet(1) as fleet:
        with pytest.raises(OperationalError, match="Failed to acquire ownership"):
            await fleet.brokers[0].lookups.lookup(TopicName.parse("x"), authoritative=False)


async def test_draining_gives_everything_back() -> None:
    """A broker that stops releases all its bundles and takes no new one."""
    async with a_fleet(2, bundles=16) as fleet:
        leaving, staying = fleet.brokers
        for bundle in (await leaving.namespaces.bundles(NS)).names:
            await leaving.ownership.acquire(bundle, "test")
        settings = BrokerSettings(bundle_unload_timeout_ms=1000, shutdown_unloads_max=3)
        await release_all(leaving.ownership, LoopClock(), Live(settings))
        assert leaving.ownership.owned() == []
        assert leaving.tenant.open == set()
        with pytest.raises(OperationalError):
            await leaving.ownership.acquire((await staying.namespaces.bundles(NS)).names[0], "test")
        first = (await staying.namespaces.bundles(NS)).names[0]
        await staying.ownership.acquire(first, "test")
        assert fleet.owners(first) == ["b1:8080"]


async def test_topics_outlive_their_owner() -> None:
    """Topics, partitions and durable subscriptions are recorded, and forgotten when they are
    deleted.
    """
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


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_bundle_is_served_once_it_is_open() -> None:
    """Owned but not served until the host has opened it; a second wish waits for the first."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        first.tenant.opening = asyncio.Event()
        wish = asyncio.ensure_future(first.ownership.acquire(BUNDLE, "test"))
        await _until(lambda: first.ownership.state(BUNDLE) is BundleState.OPENING)
        assert not first.ownership.served(BUNDLE)
        with pytest.raises(ConflictError, match="Opening"):
            await first.ownership.release(BUNDLE, reason="test", destination=None, timeout_s=1)
        assert (await second.ownership.acquire(BUNDLE, "test")).address == first.address
        first.tenant.opening.set()
        assert (await wish).address == first.address
        assert fleet.owners(BUNDLE) == ["b0:8080"]


@pytest.mark.parametrize(
    "error", [OperationalError("the disk does not answer"), RuntimeError("a bug")]
)
async def test_a_bundle_that_cannot_be_opened_is_given_back(error: Exception) -> None:
    """Whoever asked hears why; the lock is free, and another broker can have the bundle."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        first.tenant.refuses = error
        with pytest.raises(OperationalError, match=str(error)):
            await first.ownership.acquire(BUNDLE, "test")
        assert await first.store.get(paths.lock(BUNDLE)) is None
        assert first.ownership.state(BUNDLE) is BundleState.FREE
        assert (await second.ownership.acquire(BUNDLE, "test")).address == second.address


async def test_an_opening_that_is_overtaken_touches_nothing() -> None:
    """The session is lost while the host opens; the bundle is acquired again; the old opening then
    closes its own life only.
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
        # The old attempt is still under way; the bundle is free for a new one all the same.
        new = await broker.ownership._scope.finish(
            broker.ownership._acquire(BUNDLE, "second"), "second"
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


async def test_a_deleted_lock_is_closed_and_clients_are_told() -> None:
    """Fenced alone, clients would wait for ever."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.ownership.acquire(BUNDLE, "test")
        await second.store.delete(paths.lock(BUNDLE))
        await _until(lambda: ("close", BUNDLE, None) in first.tenant.told)
        assert (await second.ownership.acquire(BUNDLE, "test")).address == second.address


async def test_a_lock_that_went_unnoticed_is_noticed_after_a_reconnect() -> None:
    """Its deletion happened while this broker was not connected."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.ownership.acquire(BUNDLE, "test")
        first.store.suspend()
        await second.store.delete(paths.lock(BUNDLE))
        first.store.resume()
        await _until(lambda: not first.ownership.served(BUNDLE))


async def test_a_spoilt_lock_is_written_anew() -> None:
    """Its owner repairs it: others must find out who serves the bundle."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.ownership.acquire(BUNDLE, "test")
        node = await first.store.get(paths.lock(BUNDLE))
        assert node is not None
        await second.store.put(paths.lock(BUNDLE), b"{nonsense")
        async with asyncio.timeout(20):
            while (
                now := await second.store.get(paths.lock(BUNDLE))
            ) is None or now.value != node.value:
                await asyncio.sleep(0.01)
        assert first.ownership.served(BUNDLE)


async def test_a_new_life_has_a_token_of_its_own() -> None:
    """A lock that outlived its life in the same session is replaced: tokens grow
    from life to life.
    """
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        await broker.ownership.acquire(BUNDLE, "first")
        before = broker.ownership._lives.get(BUNDLE).token
        broker.ownership.lose_all("the lease ran out, the session lives")
        await broker.ownership.acquire(BUNDLE, "second")
        life = broker.ownership._lives.get(BUNDLE)
        node = await broker.store.get(paths.lock(BUNDLE))
        assert node is not None
        assert life.token == node.created_txid > before


async def test_a_split_whose_answer_is_lost_counts_as_what_it_was() -> None:
    """The store says: the children's locks are ours, so the split took place."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        await broker.ownership.acquire(BUNDLE, "test")
        broker.store.answers_lost = 1
        children = await broker.ownership.split(BUNDLE, [0x10000000], "test")
        assert set(children) == set(broker.ownership.owned()) == broker.tenant.open
        assert broker.ownership.state(BUNDLE) is BundleState.FREE


async def test_a_lock_that_is_idle_since_the_lease_ran_out_is_given_back_on_demand() -> None:
    """The session lives on, so the lock stays; without this, a namespace could never be deleted."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.ownership.acquire(BUNDLE, "test")
        first.ownership.lose_all("the session can no longer be proven")
        assert await first.store.get(paths.lock(BUNDLE)) is not None
        assert (
            await first.ownership.release(BUNDLE, reason="test", destination=None, timeout_s=1) == 0
        )
        assert await first.store.get(paths.lock(BUNDLE)) is None
        assert first.ownership.state(BUNDLE) is BundleState.FREE
        assert (await second.ownership.acquire(BUNDLE, "test")).address == second.address
        assert (
            await first.ownership.release(BUNDLE, reason="test", destination=None, timeout_s=1)
            is None
        )
        assert fleet.owners(BUNDLE) == ["b1:8080"]


async def test_what_goes_out_late_deletes_no_lock_of_another() -> None:
    """A client library may send in a new session what was asked for in the one before: by then the
    lock is somebody else's.
    """
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.ownership.acquire(BUNDLE, "test")
        life = first.ownership._lives.get(BUNDLE)
        first.store.expire()
        first.store.resume()
        await second.ownership.acquire(BUNDLE, "test")
        await first.ownership._locks.give_back(BUNDLE, life.token, life.session_id, again=False)
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        node = await second.store.get(paths.lock(BUNDLE))
        assert node is not None
        assert node.ephemeral_owner == second.store.session_id


async def test_a_session_whose_node_was_deleted_gives_back_all_the_same() -> None:
    """Somebody tidied up below /loadmanager."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        await broker.ownership.acquire(BUNDLE, "test")
        await delete_tree(broker.store, paths.SESSIONS)
        assert (
            await broker.ownership.release(BUNDLE, reason="test", destination=None, timeout_s=1)
            == 0
        )
        assert await broker.store.get(paths.lock(BUNDLE)) is None


async def test_what_a_host_opened_too_late_is_fenced_before_it_is_closed() -> None:
    """Closing may take long; meanwhile another broker serves the bundle."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        broker.tenant.opening = asyncio.Event()
        opening = asyncio.ensure_future(broker.ownership.acquire(BUNDLE, "test"))
        await _until(lambda: broker.ownership.state(BUNDLE) is BundleState.OPENING)
        broker.ownership.lose_all("the session is lost")
        broker.tenant.opening.set()
        await asyncio.gather(opening, return_exceptions=True)
        assert [what for what, _, _ in broker.tenant.told] == ["open", "fence", "close"]


async def test_a_lock_that_no_session_holds_is_nobodys() -> None:
    """Somebody made it by hand, with something below it: whoever acquires the bundle
    replaces it.
    """
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        await first.store.create(
            paths.lock(BUNDLE), b'{"nativeUrl":"pulsar://gone:1","httpUrl":"http://gone:2"}'
        )
        await first.store.create(f"{paths.lock(BUNDLE)}/below", b"")
        assert await second.ownership.owner(BUNDLE) is None
        assert (await second.ownership.acquire(BUNDLE, "test")).address == second.address
        assert (await first.ownership.acquire(BUNDLE, "test")).address == second.address
        node = await first.store.get(paths.lock(BUNDLE))
        assert node is not None
        assert node.ephemeral_owner == second.store.session_id


async def test_what_is_not_ours_is_not_released() -> None:
    """None says that nothing was done."""
    async with a_fleet(1) as fleet:
        assert (
            await fleet.brokers[0].ownership.release(
                BUNDLE, reason="test", destination=None, timeout_s=1
            )
            is None
        )


def test_lives_that_are_over_are_forgotten() -> None:
    """Nothing is kept of bundles that come and go."""

    async def come_and_go() -> int:
        async with a_fleet(1) as fleet:
            (broker,) = fleet.brokers
            for _ in range(20):
                await broker.ownership.acquire(BUNDLE, "test")
                await broker.ownership.release(BUNDLE, reason="test", destination=None, timeout_s=1)
            return (
                len(broker.ownership._lives.all())
                + len(broker.ownership._acquiring)
                + len(broker.ownership._lives.split_children)
            )

    assert asyncio.run(come_and_go()) == 0


async def test_boundaries_that_somebody_rewrote() -> None:
    """A bundle that they lack any more is released: another broker may own what overlaps it."""
    async with a_fleet(2) as fleet:
        first, second = fleet.brokers
        kept = f"{NS}/0x80000000_0xc0000000"
        await first.ownership.acquire(BUNDLE, "test")
        await first.ownership.acquire(kept, "test")
        cut = b'{"bundles":{"boundaries":["0x00000000","0x80000000","0xc0000000","0xffffffff"]}}'
        await second.store.put(paths.local_policies(NS), cut)
        await _until(lambda: first.ownership.owned() == [kept])
        await _until(lambda: ("close", BUNDLE, None) in first.tenant.told)
        assert await second.store.get(paths.lock(BUNDLE)) is None
        whole = f"{NS}/0x00000000_0x80000000"
        assert (await second.ownership.acquire(whole, "test")).address == second.address


async def test_a_stop_waits_for_what_is_in_transit() -> None:
    """A bundle that is being opened is released once it is open; nothing is left behind."""
    async with a_fleet(1) as fleet:
        (broker,) = fleet.brokers
        broker.tenant.opening = asyncio.Event()
        wish = asyncio.ensure_future(broker.ownership.acquire(BUNDLE, "test"))
        await _until(lambda: broker.ownership.state(BUNDLE) is BundleState.OPENING)
        stop = asyncio.ensure_future(
            release_all(broker.ownership, LoopClock(), Live(BrokerSettings()))
        )
        await asyncio.sleep(0)
        broker.tenant.opening.set()
        await stop
        await asyncio.gather(wish, return_exceptions=True)
        assert await broker.store.get(paths.lock(BUNDLE)) is None
