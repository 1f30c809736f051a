"""The extensible manager's records: taking, transferring, splitting, losing and repairing bundles,
beside brokers of the modular manager, over a store in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from clusters.members import NS, Broker, Fleet, a_fleet

from loadmanager.engine.ownership import state_records as records
from loadmanager.engine.ownership.state_records import StateRecord, UnitState, encode_record
from loadmanager.engine.ownership.states import BundleState
from loadmanager.engine.strategies.plan import Placement
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import Create, Put
from loadmanager.kit.tasks import Scope, Steps
from loadmanager.member.leading.state_monitor import StateMonitor
from loadmanager.member.settings import StateSettings

BUNDLE = f"{NS}/0x00000000_0x40000000"
EVERYBODY = range(9)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that must happen."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def state(broker: Broker, bundle: str = BUNDLE) -> UnitState:
    """The state of a bundle as a broker knows it."""
    record = broker.cache.record(bundle)
    return UnitState.INIT if record is None else record.state


async def assign(by: Broker, to: Broker, bundle: str = BUNDLE) -> bool:
    """Have a broker take a bundle."""
    boundaries = await by.namespaces.bundles(NS)
    return await by.records.assign(bundle, to.address.broker_id, boundaries.version)


async def test_who_waits_for_a_record_notices_that_a_session_ends() -> None:
    """A lookup waits while a live broker opens the bundle; its end changes no record."""
    async with a_fleet(1, extensible=EVERYBODY) as fleet:
        lives = True
        cache = fleet.brokers[0].cache
        waiting = asyncio.create_task(cache.until(BUNDLE, lambda _now: not lives, 60))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        lives = False
        assert await asyncio.wait_for(waiting, 30)
        assert not await cache.until(BUNDLE, lambda _now: False, 0.1)


async def test_one_of_many_becomes_the_owner() -> None:
    """All others get its address, and their caches follow."""
    async with a_fleet(3, extensible=EVERYBODY) as fleet:
        answers = await asyncio.gather(
            *(broker.ownership.acquire(BUNDLE, "test") for broker in fleet.brokers),
            return_exceptions=True,
        )
        (owner,) = fleet.owners(BUNDLE)
        assert any(not isinstance(answer, BaseException) for answer in answers)
        await until(
            lambda: all(
                (known := broker.ownership.cached_owner(BUNDLE)) is not None
                and known.broker_id == owner
                for broker in fleet.brokers
            )
        )


async def test_two_brokers_that_place_at_once() -> None:
    """The compare-and-set decides; the loser follows the winner."""
    async with a_fleet(3, extensible=EVERYBODY) as fleet:
        first, second, third = fleet.brokers
        done = await asyncio.gather(assign(first, second), assign(third, first))
        assert sorted(done) == [False, True]
        await until(lambda: len(fleet.owners(BUNDLE)) == 1)
        assert await assign(third, third) is False


async def test_a_transfer_by_order() -> None:
    """The source fences, the destination owns it, and then the clients are told where to go."""
    async with a_fleet(3, extensible=EVERYBODY) as fleet:
        source, target, leader = fleet.brokers
        await source.acquire(BUNDLE)
        before = source.ownership._lives.get(BUNDLE).token
        await until(lambda: state(leader) is UnitState.OWNED)
        assert await leader.records.order_release(BUNDLE, target.address.broker_id)
        assert fleet.owners(BUNDLE) == ["b1:8080"]
        await until(lambda: ("close", BUNDLE, "b1:8080") in source.tenant.told)
        assert source.tenant.told.index(("fence", BUNDLE, None)) < source.tenant.told.index(
            ("close", BUNDLE, "b1:8080")
        )
        assert target.ownership._lives.get(BUNDLE).token > before
        record = target.cache.record(BUNDLE)
        assert (record.source_broker, record.version_id) == ("b0:8080", 5)


async def test_an_unload_by_order() -> None:
    """Without a destination the bundle is free, and the next broker may take it."""
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        owner, other = fleet.brokers
        await owner.acquire(BUNDLE)
        await until(lambda: state(other) is UnitState.OWNED)
        assert await other.records.order_release(BUNDLE, None)
        assert state(other) is UnitState.FREE
        assert await other.acquire(BUNDLE) == other.address


async def test_an_order_under_a_condition_that_does_not_hold() -> None:
    """That of a leader that was deposed changes nothing."""
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        owner, other = fleet.brokers
        await owner.acquire(BUNDLE)
        await until(lambda: state(other) is UnitState.OWNED)
        deposed = [Create(paths.UNIT_STATES, b"")]
        assert await other.records.order_release(BUNDLE, "b1:8080", deposed) is False
        assert fleet.owners(BUNDLE) == ["b0:8080"]


async def test_nobody_takes_a_bundle_from_a_session_that_lives() -> None:
    """Not even if its registration was deleted by hand; once it is over, anybody may."""
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        first, second = fleet.brokers
        await first.acquire(BUNDLE)
        await second.store.delete(paths.broker(first.address.broker_id))
        await until(lambda: "b0:8080" not in second.brokers.registered)
        assert await assign(second, second) is False
        assert fleet.owners(BUNDLE) == ["b0:8080"]
        first.store.expire()
        first.ownership.lose_all("the session is lost")
        assert await second.acquire(BUNDLE) == second.address
        assert fleet.owners(BUNDLE) == ["b1:8080"]


async def test_an_overwritten_record_is_restored() -> None:
    """Its owner goes on serving; others take nothing meanwhile."""
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        owner, other = fleet.brokers
        await owner.acquire(BUNDLE)
        await other.store.put(paths.unit_state(BUNDLE), b"{nonsense")
        await until(lambda: state(other) is UnitState.OWNED)
        assert fleet.owners(BUNDLE) == ["b0:8080"]


async def test_a_deleted_record_ends_the_ownership() -> None:
    """As a deleted lock does: somebody else may take the bundle next."""
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        owner, other = fleet.brokers
        await owner.acquire(BUNDLE)
        await other.store.delete(paths.unit_state(BUNDLE))
        await until(lambda: ("close", BUNDLE, None) in owner.tenant.told)
        assert owner.ownership.state(BUNDLE) is BundleState.FREE
        assert await other.acquire(BUNDLE) == other.address


async def test_a_split() -> None:
    """The parent's record ends Deleted, and those of the children begin Owned, in one step."""
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        owner, other = fleet.brokers
        await owner.acquire(BUNDLE)
        children = await owner.ownership.split(BUNDLE, [0x10000000], "test")
        assert owner.tenant.open == set(children)
        await until(lambda: state(other) is UnitState.DELETED)
        assert [state(other, child) for child in children] == [UnitState.OWNED] * 2
        assert await owner.release(children[0], other.address) == 0
        assert fleet.owners(children[0]) == ["b1:8080"]


async def test_a_merge_whose_notification_is_late() -> None:
    """The record of the bundle, which there was before, is read again: that it is open is said, and
    it can be given up.
    """
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        owner, other = fleet.brokers
        openings = owner.records.openings
        openings.limit_s, openings.of_replacements = 60.0, True
        await owner.acquire(BUNDLE)
        halves = await owner.ownership.split(BUNDLE, [0x20000000], "test")
        await until(lambda: state(owner) is UnitState.DELETED)
        deleted = owner.cache.get(BUNDLE)
        await until(lambda: all(state(other, half) is UnitState.OWNED for half in halves))
        await owner.ownership.merge(*halves, "test")
        await until(lambda: state(other) is UnitState.OWNED)
        assert other.cache.record(BUNDLE).opening is True
        owner.cache._stored[BUNDLE] = deleted
        owner.records.openings.on_opened(owner.ownership._lives.get(BUNDLE))
        await until(lambda: other.cache.record(BUNDLE).opening is not True)
        owner.cache._stored[BUNDLE] = deleted
        await owner.ownership.release(BUNDLE, reason="test", destination=None, timeout_s=5)
        await until(lambda: state(other) is UnitState.FREE)
        openings.of_replacements = False
        await owner.acquire(BUNDLE)
        await owner.ownership.split(BUNDLE, [0x20000000], "test")
        await until(lambda: all(state(other, half) is UnitState.OWNED for half in halves))
        assert not any(other.cache.record(half).opening is True for half in halves)  # they are open


async def test_a_lost_answer_of_a_take() -> None:
    """The broker finds the record in its name, and begins a life of its own with a later token."""
    async with a_fleet(1, extensible=EVERYBODY) as fleet:
        (broker,) = fleet.brokers
        broker.store.answers_lost = 1
        with pytest.raises(Exception, match="answer"):
            await broker.acquire(BUNDLE)
        assert not broker.ownership.served(BUNDLE)
        assert await broker.acquire(BUNDLE) == broker.address
        assert fleet.owners(BUNDLE) == ["b0:8080"]


# Beside brokers of the modular manager


async def test_a_modular_brokers_lock_counts() -> None:
    """A broker of the extensible manager takes the bundle once the lock is gone."""
    async with a_fleet(2, extensible=[1]) as fleet:
        modular, extensible = fleet.brokers
        assert await modular.acquire(BUNDLE) == modular.address
        assert await extensible.acquire(BUNDLE) == modular.address
        assert await assign(extensible, extensible) is False
        await modular.release(BUNDLE)
        assert await extensible.acquire(BUNDLE) == extensible.address


async def test_a_record_counts_for_a_modular_broker() -> None:
    """It takes the bundle once the record is free, or its owner's session over."""
    async with a_fleet(2, extensible=[1]) as fleet:
        modular, extensible = fleet.brokers
        await extensible.acquire(BUNDLE)
        assert await modular.acquire(BUNDLE) == extensible.address
        await extensible.release(BUNDLE)
        assert await modular.acquire(BUNDLE) == modular.address
        other = f"{NS}/0x40000000_0x80000000"
        await extensible.acquire(other)
        extensible.store.expire()
        extensible.ownership.lose_all("the session is lost")
        assert await modular.acquire(other) == modular.address


async def test_a_bundle_assigned_to_a_broker_while_another_locked_it() -> None:
    """The assigned broker frees the record, and the lock decides."""
    async with a_fleet(2, extensible=[1]) as fleet:
        modular, extensible = fleet.brokers
        await modular.acquire(BUNDLE)
        record = records.assigned(None, extensible.address.broker_id, 1)
        await modular.store.create(paths.unit_state(BUNDLE), encode_record(record))
        await until(lambda: state(extensible) is UnitState.FREE)
        assert fleet.owners(BUNDLE) == ["b0:8080"]


# The leader's monitor


class Placer:
    """Places everything on one broker."""

    def __init__(self, broker: Broker | None) -> None:
        self._broker = None if broker is None else broker.address.broker_id

    def choose_all(self, bundles: list[str]) -> list[Placement]:
        """Choose a broker for each bundle."""
        return [Placement(bundle, self._broker, (), {}) for bundle in bundles]


def a_monitor(
    leader: Broker, scope: Scope, placer: Placer, placed: list[str] | None = None, **settings: Any
) -> StateMonitor:
    """The monitor of a leader, without a term."""
    base = leader.with_settings(StateSettings(**{"in_flight_ms": 2_000, **settings}))
    return StateMonitor(
        base=replace(base, scope=scope, steps=Steps()),
        cluster=leader.cluster,
        cache=leader.cache,
        placer=placer,
        checks=(),
        lives=leader.records.lives,
        placed=lambda bundle, _: None if placed is None else placed.append(bundle),
    )


async def _expired(fleet: Fleet, victim: Broker, leader: Broker) -> None:
    victim.store.expire()
    victim.ownership.lose_all("the session is lost")
    await until(lambda: victim.address.broker_id not in leader.brokers.registered)


async def test_orphans_are_assigned_in_batches() -> None:
    """All bundles of a broker that died, far more than fit into one transaction."""
    count = 600
    async with a_fleet(3, bundles=count, extensible=EVERYBODY) as fleet:
        victim, leader, heir = fleet.brokers
        bundles = (await victim.namespaces.bundles(NS)).names
        await asyncio.gather(*(victim.acquire(bundle) for bundle in bundles))
        await until(lambda: len(leader.cache.all()) == count)
        await _expired(fleet, victim, leader)
        placed: list[str] = []
        await a_monitor(leader, fleet.scope, Placer(heir), placed).reassign()
        assert sorted(placed) == sorted(bundles)
        await until(lambda: len(heir.ownership.owned()) == count)


async def test_the_bundles_of_a_session_that_lives_are_left_alone() -> None:
    """Though its registration is gone."""
    async with a_fleet(2, extensible=EVERYBODY) as fleet:
        owner, leader = fleet.brokers
        await owner.acquire(BUNDLE)
        await leader.store.delete(paths.broker(owner.address.broker_id))
        await until(lambda: "b0:8080" not in leader.brokers.registered)
        await a_monitor(leader, fleet.scope, Placer(leader)).reassign()
        assert fleet.owners(BUNDLE) == ["b0:8080"]


async def _write(broker: Broker, record: StateRecord) -> None:
    path = paths.unit_state(BUNDLE)
    await broker.store.create(path, b"")
    await broker.store.commit([Put(path, encode_record(record))])
    await until(lambda: broker.cache.record(BUNDLE) == record)


async def test_an_assignment_that_got_stuck() -> None:
    """Its broker does not take the bundle: another one gets it, after the time in flight."""
    async with a_fleet(3, extensible=[1, 2]) as fleet:
        stuck, leader, heir = fleet.brokers  # the first is modular: it follows no records
        await _write(leader, records.assigned(None, stuck.address.broker_id, 1))
        monitor = a_monitor(leader, fleet.scope, Placer(heir))
        await monitor.monitor()
        assert state(leader) is UnitState.ASSIGNING
        await asyncio.sleep(2.1)
        await monitor.monitor()
        await until(lambda: fleet.owners(BUNDLE) == ["b2:8080"])


async def test_an_assignment_that_nobody_else_can_take() -> None:
    """It is freed."""
    async with a_fleet(2, extensible=[1]) as fleet:
        stuck, leader = fleet.brokers
        await _write(leader, records.assigned(None, stuck.address.broker_id, 1))
        await asyncio.sleep(2.1)
        await a_monitor(leader, fleet.scope, Placer(stuck)).monitor()
        assert state(leader) is UnitState.FREE


async def test_a_release_that_got_stuck_is_ordered_again() -> None:
    """Without a destination that is gone; the owner keeps the bundle until it gives it up."""
    async with a_fleet(2, extensible=[1]) as fleet:
        owner, leader = fleet.brokers
        record = records.child(owner.address.broker_id, owner.store.session_id, 1)
        await _write(leader, records.releasing(record, "gone:1", 1))
        await asyncio.sleep(2.1)
        await a_monitor(leader, fleet.scope, Placer(leader)).monitor()
        again = leader.cache.record(BUNDLE)
        assert (again.state, again.force, again.dst_broker) == (UnitState.RELEASING, True, None)
        assert again.owner == record.owner


async def test_old_records_without_an_owner_are_removed() -> None:
    """Those that are free or deleted, and old enough."""
    async with a_fleet(1, extensible=EVERYBODY) as fleet:
        (broker,) = fleet.brokers
        await broker.acquire(BUNDLE)
        await broker.release(BUNDLE)
        monitor = a_monitor(broker, fleet.scope, Placer(None), tombstone_delay_s=10)
        await monitor.monitor()
        assert state(broker) is UnitState.FREE
        await asyncio.sleep(11)
        await monitor.monitor()
        await until(lambda: state(broker) is UnitState.INIT)
        assert await broker.acquire(BUNDLE) == broker.address
