"""Merges over real parts: one transaction, both lives end and one begins."""

from __future__ import annotations

import asyncio

import pytest
from clusters.led import led_fleet
from clusters.members import NS, a_fleet

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.engine.strategies.splitting.merging import MergeSettings
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.errors import BadInputError, ConflictError, OperationalError
from loadmanager.kit.metadata import paths

A, B, C, D = (
    f"{NS}/{span}"
    for span in (
        "0x00000000_0x40000000",
        "0x40000000_0x80000000",
        "0x80000000_0xc0000000",
        "0xc0000000_0xffffffff",
    )
)
MERGED = f"{NS}/0x00000000_0x80000000"


async def test_a_merge_is_one_step() -> None:
    """The lock of the new bundle stands where the others are gone; the boundaries agree; its life
    is newer than both.
    """
    async with a_fleet() as fleet:
        owner, other = fleet.brokers
        for bundle in (A, B, C):
            await owner.acquire(bundle)
        locks = [await owner.lock(bundle) for bundle in (A, B)]
        assert await owner.ownership.merge(A, B, "test") == MERGED
        assert owner.ownership.owned() == [MERGED, C]
        assert owner.tenant.open == {MERGED, C}
        assert [await owner.lock(bundle) for bundle in (A, B)] == [None, None]
        lock = await owner.lock(MERGED)
        assert lock is not None
        assert all(
            before is not None and before.created_txid < lock.created_txid for before in locks
        )
        assert (await other.namespaces.bundles(NS)).boundaries[1] == 0x80000000
        assert owner.steps[-3].cause is LifeCause.MERGE
        assert (await other.acquire(MERGED)) == owner.address
        with pytest.raises(ConflictError):
            await other.acquire(A)
        assert await owner.release(MERGED, other.address) == 0
        assert other.ownership.owned() == [MERGED]
        await other.ownership.split(MERGED, [0x40000000], "test")
        assert other.ownership.owned() == [A, B]


async def test_impossible_merges() -> None:
    """Bundles of two brokers, no neighbours, the wrong order: nothing changes."""
    async with a_fleet() as fleet:
        owner, other = fleet.brokers
        for bundle in (A, B, D):
            await owner.acquire(bundle)
        await other.acquire(C)
        for left, right in ((B, C), (B, D), (B, A), (A, "public/other/0x40000000_0x80000000")):
            with pytest.raises(BadInputError):  # or a ConflictError, which is one
                await owner.ownership.merge(left, right, "test")
        assert owner.ownership.owned() == [A, B, D]
        assert owner.tenant.open == {A, B, D}


async def test_a_merge_whose_answer_is_lost_is_seen_in_the_store() -> None:
    """This session holds the new lock, so the merge took effect."""
    async with a_fleet() as fleet:
        owner = fleet.brokers[0]
        for bundle in (A, B):
            await owner.acquire(bundle)
        owner.store.answers_lost = 1
        assert await owner.ownership.merge(A, B, "test") == MERGED
        assert owner.ownership.owned() == [MERGED]


async def test_a_lock_that_is_deleted_during_a_merge() -> None:
    """The bundle whose lock is left goes on; the other one is no longer served."""
    async with a_fleet() as fleet:
        owner = fleet.brokers[0]
        for bundle in (A, B):
            await owner.acquire(bundle)
        merging = asyncio.ensure_future(owner.ownership.merge(A, B, "test"))
        await asyncio.sleep(0)
        await fleet.brokers[1].store.delete(paths.lock(B))
        with pytest.raises(ConflictError, match="lost during the merge"):
            await merging
        async with asyncio.timeout(5):
            while owner.ownership.owned() != [A]:
                await asyncio.sleep(0.01)
        assert owner.tenant.open == {A}


async def test_the_leader_brings_both_to_one_broker() -> None:
    """What nobody owns is acquired there; a pinned bundle is refused; the decisions say it."""
    async with led_fleet(3) as led:
        await led.fleet.brokers[1].acquire(A)
        await led.fleet.brokers[2].acquire(B)
        assert await led.operations.merge(A, B) == MERGED
        assert led.fleet.owners(MERGED) == ["b1:8080"]
        decision = led.load_manager.records.decisions.last(1)[0]
        assert (decision.kind, decision.parts, decision.broker) == (
            "merge",
            [A, B],
            "b1:8080",
        )
        whole = f"{NS}/0x80000000_0xffffffff"
        assert await led.operations.merge(C, D) == whole
        assert len(led.fleet.owners(whole)) == 1
        await led.operations.move(MERGED, "b2:8080", pin_s=60)
        with pytest.raises(ConflictError, match="pinned to b2:8080"):
            await led.operations.merge(MERGED, whole)
        await led.operations.unpin(MERGED)
        led.fleet.unreachable.add("b2:8080")
        with pytest.raises(OperationalError):
            await led.operations.merge(MERGED, whole)


async def test_idle_neighbours_are_merged_by_themselves() -> None:
    """When they have stayed idle; not while that is switched off, nor below the minimum."""
    async with led_fleet(2) as led:
        led.splits.set(SplitSettings())
        idle = NamespaceBundleStats(topics=1)
        for bundle in (A, B, C, D):
            await led.fleet.brokers[1].acquire(bundle)
        await led.report(1, dict.fromkeys((A, B, C, D), idle))
        for settings in (
            MergeSettings(idle_minutes=1, bundles_min=1),
            MergeSettings(enabled=True, idle_minutes=1, bundles_min=4),
        ):
            led.merge_settings.set(settings)
            for _ in range(3):
                await led.merging.step()
                await asyncio.sleep(60)
            assert len((await led.fleet.brokers[0].namespaces.bundles(NS)).ranges) == 4
        led.merge_settings.set(MergeSettings(enabled=True, idle_minutes=1, bundles_min=1))
        await led.operations.pause(60)
        await led.until(lambda: led.wishes.pause() is not None)
        await led.merging.step()
        assert led.fleet.brokers[1].ownership.owned() == [A, B, C, D]
        await led.operations.pause(None)
        await led.until(lambda: led.wishes.pause() is None)
        await led.merging.step()
        assert led.fleet.brokers[1].ownership.owned() == [MERGED, C, D]
        await led.merging.step()  # the reports are older than the merge: it fails, and waits
        assert led.fleet.brokers[1].ownership.owned() == [MERGED, C, D]
        assert "NotMerged" in led.load_manager.records.decisions.last(1)[0].skipped[0].reason
        await led.report(1, dict.fromkeys((MERGED, C, D), idle))
        await led.merging.step()  # the new bundle is young, the other two are not
        assert led.fleet.brokers[1].ownership.owned() == [MERGED, f"{NS}/0x80000000_0xffffffff"]
