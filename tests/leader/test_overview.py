"""The cluster as the leader shows it, while a bundle moves."""

from __future__ import annotations

from clusters.led import Led, led_fleet
from clusters.members import NS

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.leader.documents.cluster import BundlesShown

BUNDLE, OTHER = f"{NS}/0x00000000_0x40000000", f"{NS}/0x40000000_0x80000000"
BUSY, IDLE = NamespaceBundleStats(msg_rate_in=5, topics=1), NamespaceBundleStats()
FIGURES = ("rate", "throughput", "topics", "producers", "consumers")


async def shown(led: Led) -> BundlesShown:
    """All bundles."""
    return await led.overview.bundles(sort="rate", namespace=None, owner=None, limit=10)


async def test_figures_that_are_not_measured_yet_are_no_zeros() -> None:
    """After a move, the new owner's first report has zeros; they count once it has measured."""
    async with led_fleet(2) as led:
        await led.report(0, {BUNDLE: BUSY}, at_ms=1)
        await led.fleet.brokers[1].acquire(BUNDLE)
        await led.report(0, {}, at_ms=2)
        for at_ms, figures in (
            (1_000, [None] * 5),
            (60_999, [None] * 5),
            (61_000, [0.0, 0.0, 0, 0, 0]),
        ):
            await led.report(1, {BUNDLE: IDLE}, at_ms=at_ms)
            (listed,) = (await shown(led)).bundles
            story = await led.overview.bundle(BUNDLE, [], 10)
            for told in (listed, story):
                assert told.owner == "b1:8080"
                assert [getattr(told, name) for name in FIGURES] == figures, at_ms


async def test_figures_that_are_measured_are_shown_at_once() -> None:
    """Also in the first report that has the bundle; but not while the owner has not reported it."""
    async with led_fleet(2) as led:
        await led.report(1, {}, at_ms=1)
        await led.fleet.brokers[1].acquire(BUNDLE)
        assert (await led.overview.bundle(BUNDLE, [], 10)).rate is None
        await led.report(1, {BUNDLE: BUSY}, at_ms=2)
        assert (await led.overview.bundle(BUNDLE, [], 10)).rate == 5


async def test_a_bundle_that_moves_is_counted_all_the_time() -> None:
    """Its source does not report it any more, its destination not yet: then it has no owner that
    says so, and is counted apart.
    """
    async with led_fleet(2) as led:
        await led.report(1, {}, at_ms=1)
        await led.report(0, {BUNDLE: BUSY, OTHER: BUSY}, at_ms=1)
        led.view.placed(BUNDLE, "b1:8080", led.load_manager.snapshot(led.strategies.value).now_ms)
        for stats, owner in (({BUNDLE: BUSY, OTHER: BUSY}, "b0:8080"), ({OTHER: BUSY}, None)):
            await led.report(0, stats, at_ms=2)
            told = await shown(led)
            cluster = led.overview.cluster(10)
            owned = sum(bundle.owner is not None for bundle in told.bundles)
            assert (told.total, cluster.bundles, cluster.awaited) == (2, owned, 2 - owned)
            assert {one.bundle: one.owner for one in told.bundles} == {
                BUNDLE: owner,
                OTHER: "b0:8080",
            }
        await led.report(1, {BUNDLE: BUSY}, at_ms=3)
        assert {one.owner for one in (await shown(led)).bundles} == {"b0:8080", "b1:8080"}
