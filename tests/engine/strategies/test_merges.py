"""Merges of idle neighbours: when, and that split and merge never chase each other."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.bundles.ranges import (
    BundleRange,
    NamespaceBundles,
    equal_boundaries,
    split_bundle_name,
)
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.splitting import threshold
from loadmanager.engine.strategies.splitting.merging import (
    MergeMemory,
    MergeSettings,
    choose,
    neighbours,
)
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.errors import BadInputError, ConflictError
from loadmanager.kit.names import NamespaceName

NS = "t/n"
MINUTE_MS = 60_000
SPLITS = SplitSettings()
SETTINGS = MergeSettings(idle_minutes=10, bundles_min=2)
IDLE = NamespaceBundleStats(topics=3)


def spans(count: int) -> list[str]:
    """The bundles of a namespace of so many."""
    return NamespaceBundles(NamespaceName("t", "n"), equal_boundaries(count)).names


def test_neighbours() -> None:
    """Of one namespace, in order; not over a gap, not of system namespaces."""
    a, b, c, d = spans(4)
    other = "t/m/0x00000000_0xffffffff"
    system = [f"pulsar/b1:8080/{split_bundle_name(name)[1]}" for name in (a, b)]
    assert neighbours([d, b, a, other, *system]) == [(a, b)]
    assert neighbours([a, b, c, d]) == [(a, b), (b, c), (c, d)]


def test_a_pair_must_stay_idle() -> None:
    """For the whole time; one merge for each namespace at a time; a minimum of bundles is kept."""
    stats, memory = dict.fromkeys(spans(3), IDLE), MergeMemory()
    merges, memory = choose(stats, {NS: 3}, 0, (SPLITS, SETTINGS), memory)
    assert merges == []
    merges, memory = choose(stats, {NS: 3}, 10 * MINUTE_MS - 1, (SPLITS, SETTINGS), memory)
    assert merges == []
    merges, after = choose(stats, {NS: 3}, 10 * MINUTE_MS, (SPLITS, SETTINGS), memory)
    assert [(merge.left, merge.right) for merge in merges] == [tuple(spans(3)[:2])]
    assert choose(stats, {NS: 2}, 10 * MINUTE_MS, (SPLITS, SETTINGS), memory)[0] == []
    busy = {**stats, spans(3)[0]: NamespaceBundleStats(topics=100)}
    merges, after = choose(busy, {NS: 3}, 10 * MINUTE_MS, (SPLITS, SETTINGS), memory)
    assert [(merge.left, merge.right) for merge in merges] == [tuple(spans(3)[1:])]
    assert tuple(spans(3)[:2]) not in after.idle_since_ms


@pytest.mark.parametrize(
    "busy",
    [
        NamespaceBundleStats(topics=98),
        NamespaceBundleStats(producer_count=60, consumer_count=50),
        NamespaceBundleStats(msg_rate_in=2000, msg_rate_out=1001),
        NamespaceBundleStats(msg_throughput_in=11 * 1024 * 1024),
    ],
)
def test_what_is_too_much_together(busy: NamespaceBundleStats) -> None:
    """A tenth of any limit beyond which a bundle is split."""
    stats = dict(zip(spans(2), (busy, IDLE), strict=True))
    settings = MergeSettings(idle_minutes=1, bundles_min=1)
    _, memory = choose(stats, {NS: 2}, 0, (SPLITS, settings), MergeMemory())
    assert memory.idle_since_ms == {}


def test_merged_boundaries() -> None:
    """The boundary between the two is gone; others and no neighbours are refused."""
    bundles = NamespaceBundles(NamespaceName("t", "n"), equal_boundaries(4), 7)
    a, b, c, d = bundles.ranges
    merged = bundles.merge(b, c)
    assert (merged.ranges, merged.version) == ([a, BundleRange(b.lower, c.upper), d], 7)
    assert merged.split(BundleRange(b.lower, c.upper), [b.upper]).boundaries == bundles.boundaries
    for left, right in ((a, c), (b, a), (a, a)):
        with pytest.raises(BadInputError):
            bundles.merge(left, right)
    with pytest.raises(ConflictError):
        bundles.merge(a, BundleRange(b.lower, c.upper))


@given(
    seed=st.integers(0, 10_000),
    loads=st.lists(st.floats(0, 60_000), min_size=8, max_size=8),
    noise=st.floats(0, 0.3),
    fraction=st.floats(0.01, 0.5),
)
def test_split_and_merge_do_not_chase_each_other(
    seed: int, loads: list[float], noise: float, fraction: float
) -> None:
    """Under stationary load with noise of up to 30 %, whatever the fraction: a merged bundle
    is never split, and what was split is never merged again.
    """
    rng = random.Random(seed)
    settings = MergeSettings(idle_minutes=5, bundles_min=1, fraction=fraction)
    splits, memory = SplitSettings(bundles_max=64), MergeMemory()
    bundles = NamespaceBundles(NamespaceName("t", "n"), equal_boundaries(8))
    weights = {span.lower: load for span, load in zip(bundles.ranges, loads, strict=True)}
    """Each eighth carries its load, spread over 64 points."""
    points = [lower + n * (1 << 23) for lower in weights for n in range(64)]
    sums = list(accumulate((load / 64 for load in weights.values() for _ in range(64)), initial=0))
    merged: set[int] = set()
    split: set[int] = set()
    for minute in range(120):
        stats = {}
        for span in bundles.ranges:
            low, high = (bisect_left(points, end) for end in (span.lower, span.upper))
            rate = sums[high] - sums[low]
            rate *= 1 + noise * rng.uniform(-1, 1)
            stats[f"{NS}/{span}"] = NamespaceBundleStats(msg_rate_in=rate, topics=2)
        report = LocalBrokerData(bundles=list(stats), last_stats=stats)
        snapshot = ClusterSnapshot(now_ms=minute, reports={"b1": report, "b2": LocalBrokerData()})
        chosen = threshold.modular(snapshot, splits, None, {NS: len(bundles.ranges)})
        for action in chosen.splits:
            span = BundleRange.parse(split_bundle_name(action.bundle)[1])
            middle = (span.lower + span.upper) // 2
            assert middle not in merged, "it was merged before"
            split.add(middle)
            bundles = bundles.split(span, [middle])
        present = {name: stats[name] for name in bundles.names if name in stats}
        merges, memory = choose(
            present, {NS: len(bundles.ranges)}, minute * MINUTE_MS, (splits, settings), memory
        )
        for merge in merges:
            left, right = (
                BundleRange.parse(split_bundle_name(name)[1]) for name in (merge.left, merge.right)
            )
            assert left.upper not in split, "it was split before"
            merged.add(left.upper)
            bundles = bundles.merge(left, right)
