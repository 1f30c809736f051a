"""The bundles that are split, by both managers' rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.bundles.ranges import BundleRange
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    TimeAverageMessageData,
    TopBundle,
)
from loadmanager.engine.load.reports import TopBundlesLoadData as Top
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.splitting import threshold
from loadmanager.engine.strategies.splitting.algorithms import (
    ALGORITHMS,
    FLOW_OR_QPS,
    POSITIONS,
    FlowLimits,
    HashedTopic,
    boundaries,
    useful_boundaries,
)
from loadmanager.engine.strategies.splitting.settings import SplitSettings

BUNDLE = "t/n/0x00000000_0x40000000"
HOT = NamespaceBundleStats(msg_rate_in=20_000, msg_rate_out=10_001, topics=2)


def modular(
    stats: dict[str, NamespaceBundleStats], rate: float = 0.0, **settings: object
) -> threshold.Splits:
    """Splits of one broker's bundles, all with one long-term rate."""
    data = {
        name: BundleData(long_term_data=TimeAverageMessageData(msg_rate_in=rate)) for name in stats
    }
    snapshot = ClusterSnapshot(
        now_ms=0,
        reports={"b1": LocalBrokerData(last_stats=stats), "b2": LocalBrokerData()},
        bundle_data=data,
    )
    return threshold.modular(snapshot, SplitSettings(**settings), {}, {"t/n": 4})  # type: ignore[arg-type]


def test_a_namespace_without_boundaries_is_not_split() -> None:
    """It is gone or corrupt: its bundles are left alone with the reason, others are split."""
    other = "t/other/0x00000000_0x40000000"
    data = {name: BundleData() for name in (BUNDLE, other)}
    stats = {name: NamespaceBundleStats(topics=2000) for name in (BUNDLE, other)}
    snapshot = ClusterSnapshot(
        now_ms=0,
        reports={"b1": LocalBrokerData(last_stats=stats), "b2": LocalBrokerData()},
        bundle_data=data,
    )
    answer = threshold.modular(snapshot, SplitSettings(), None, {"t/n": 0, "t/other": 1})
    assert [split.bundle for split in answer.splits] == [other]
    assert [skip.what for skip in answer.skipped] == [BUNDLE]
    assert answer.skipped[0].reason.startswith("NoBoundaries: t/n")


def test_thresholds_are_strict() -> None:
    """At a threshold nothing happens, above it the bundle is split in the middle, for the first
    reason that holds.
    """
    at = NamespaceBundleStats(topics=1000, producer_count=500, consumer_count=500)
    assert modular({BUNDLE: at}, 30_000).splits == ()
    for stats, rate, reason in (
        (NamespaceBundleStats(topics=1001, producer_count=2000), 0, "Topics"),
        (NamespaceBundleStats(topics=2, producer_count=501, consumer_count=500), 0, "Sessions"),
        (NamespaceBundleStats(topics=2), 30_001, "MsgRate"),
    ):
        (split,) = modular({BUNDLE: stats}, rate).splits
        assert (split.reason, split.boundaries) == (reason, (0x20000000,))
    assert (
        modular(
            {BUNDLE: NamespaceBundleStats(topics=2, producer_count=5000)}, sessions_max=-1
        ).splits
        == ()
    )


def test_what_no_cut_helps_is_reported() -> None:
    """One topic, one hash wide, or a full namespace: a reason instead of a split."""
    one = modular({BUNDLE: NamespaceBundleStats(topics=1)}, 40_000)
    assert (one.splits, "one topic" in one.skipped[0].reason) == ((), True)
    narrow = modular({"t/n/0x00000000_0x00000001": NamespaceBundleStats(topics=2)}, 40_000)
    assert (narrow.splits, "one hash wide" in narrow.skipped[0].reason) == ((), True)
    full = modular({BUNDLE: NamespaceBundleStats(topics=2)}, 40_000, bundles_max=4)
    assert (full.splits, "MaxBundles" in full.skipped[0].reason) == ((), True)


def extensible(
    stats: dict[str, NamespaceBundleStats], memory: Memories, **settings: object
) -> tuple[threshold.Splits, Memories]:
    """Splits of one broker's published bundles."""
    tops = Top(
        top_bundles_load_data=[
            TopBundle(bundle_name=name, stats=traffic) for name, traffic in stats.items()
        ]
    )
    snapshot = ClusterSnapshot(
        now_ms=0,
        extensible=True,
        reports={},
        load_data={"b1": BrokerLoadData()},
        top_bundles={"b1": tops},
    )
    return threshold.extensible(snapshot, SplitSettings(**settings), {}, {}, memory)  # type: ignore[arg-type]


def test_hit_counts() -> None:
    """Four checks in a row above a threshold split a bundle; one below starts the count again.

    A bundle with one topic keeps its count; a bundle that vanished loses it. The counts of another
    broker are its own.
    """
    memory = Memories()
    for _ in range(3):
        answer, memory = extensible({BUNDLE: HOT}, memory)
        assert answer.splits == ()
    assert memory.split_hits == {("b1", BUNDLE): 3}
    single = NamespaceBundleStats(msg_rate_in=1, topics=1)
    assert extensible({BUNDLE: single}, memory)[1].split_hits == {("b1", BUNDLE): 3}
    assert extensible({}, memory)[1].split_hits == {}
    assert extensible({BUNDLE: NamespaceBundleStats(topics=2)}, memory)[1].split_hits == {}
    answer, after = extensible({BUNDLE: HOT}, memory)
    assert [split.boundaries for split in answer.splits] == [(0x20000000,)]
    assert after.split_hits == {}
    elsewhere = Memories(split_hits={("b2", BUNDLE): 3})
    answer, after = extensible({BUNDLE: HOT}, elsewhere)
    assert (answer.splits, after.split_hits) == ((), {("b1", BUNDLE): 1})


def test_splits_per_cycle() -> None:
    """A limited number of splits a cycle; the others keep their counts and follow in the next."""
    stats = {f"t/n/0x{n:08x}_0x{n + 16:08x}": HOT for n in range(0, 16 * 15, 16)}
    answer, memory = extensible(stats, Memories(split_hits={("b1", bundle): 3 for bundle in stats}))
    assert len(answer.splits) == 10
    assert memory.split_hits == {("b1", bundle): 3 for bundle in sorted(stats)[10:]}


TOPICS = st.lists(
    st.tuples(st.integers(0x10, 0xFFF), st.floats(0, 1e5), st.floats(0, 1e9)), max_size=20
)


@given(
    topics=TOPICS,
    algorithm=st.sampled_from(tuple(ALGORITHMS)),
    positions=st.lists(st.integers(0, 0x1FFF), min_size=1, max_size=5),
)
def test_boundaries_are_inside_and_ascending(
    topics: list[tuple[int, float, float]], algorithm: str, positions: list[int]
) -> None:
    """Whatever the topics: useful boundaries ascend, and lie strictly inside the bundle."""
    span = BundleRange(0x10, 0x1000)
    loads = {f"topic-{index}": HashedTopic(*values) for index, values in enumerate(topics)}
    found, why_not = useful_boundaries(
        algorithm, span, loads, limits=SplitSettings().flow_limits, positions=positions
    )
    assert bool(found) != bool(why_not)
    assert list(found) == sorted(set(found))
    assert all(span.lower < boundary < span.upper for boundary in found)
    if algorithm == POSITIONS:
        assert set(found) <= set(positions)


@given(topics=TOPICS)
def test_flow_pieces_stay_within_limits(topics: list[tuple[int, float, float]]) -> None:
    """Where hashes differ, no piece of more than one topic exceeds the limits."""
    distinct = {values[0]: values for values in topics}
    loads = {f"topic-{values[0]}": HashedTopic(*values) for values in distinct.values()}
    limits = FlowLimits(50_000, 5e8, 0.1)
    found = boundaries(FLOW_OR_QPS, BundleRange(0, 0x10000), loads, limits=limits)
    edges = [0, *found, 0x10000]
    for low, high in zip(edges, edges[1:], strict=False):
        piece = [
            topic
            for topic in loads.values()
            if low <= topic.hash < high and (topic.rate > 0 or topic.throughput > 0)
        ]
        within = (
            sum(topic.rate for topic in piece) <= limits.rate * 1.1001
            and sum(t.throughput for t in piece) <= limits.throughput * 1.1001
        )
        assert len(piece) <= 1 or within


@pytest.mark.parametrize(
    ("traffic", "rate", "settings", "reason"),
    [
        (NamespaceBundleStats(topics=1000), 0, {}, None),
        (NamespaceBundleStats(topics=1001), 0, {}, "Topics"),
        (NamespaceBundleStats(topics=2, producer_count=600, consumer_count=400), 0, {}, None),
        (NamespaceBundleStats(topics=2, producer_count=600, consumer_count=401), 0, {}, "Sessions"),
        (NamespaceBundleStats(topics=2, producer_count=5000), 0, {"sessions_max": -1}, None),
        (NamespaceBundleStats(topics=2), 30_000, {}, None),
        (NamespaceBundleStats(topics=2), 30_001, {}, "MsgRate"),
        (NamespaceBundleStats(topics=1001), 30_001, {}, "Topics"),
        (NamespaceBundleStats(topics=2), 9, {"bandwidth_mib_max": 9 / 1024 / 1024}, None),
        (NamespaceBundleStats(topics=2), 9, {"bandwidth_mib_max": 8 / 1024 / 1024}, "Bandwidth"),
    ],
)
def test_a_bundle_is_too_big_above_a_threshold(
    traffic: NamespaceBundleStats, rate: float, settings: dict[str, object], reason: str | None
) -> None:
    """Not at it; the first exceeded threshold is the reason. Rate and bandwidth are long-term
    averages.
    """
    average = TimeAverageMessageData(msg_rate_in=rate, msg_throughput_out=rate)
    snapshot = ClusterSnapshot(
        now_ms=0,
        reports={"b1": LocalBrokerData(last_stats={BUNDLE: traffic}), "b2": LocalBrokerData()},
        bundle_data={BUNDLE: BundleData(long_term_data=average)},
    )
    chosen = threshold.modular(snapshot, SplitSettings(**settings), None, {"t/n": 4})  # type: ignore[arg-type]
    assert [split.reason for split in chosen.splits] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("counts", "bundles_max", "reasons"),
    [
        ({"t/n": 5}, 7, []),
        ({"t/n": 6}, 7, ["MaxBundles: t/n has 7 bundles"]),
        ({"t/n": 7}, 7, ["MaxBundles: t/n has 7 bundles"] * 2),
        ({"t/n": 0}, 7, ["NoBoundaries: t/n is gone, or cannot be read"] * 2),
        ({}, 1, ["MaxBundles: t/n has 1 bundle"]),
    ],
)
def test_splits_of_a_cycle_count_towards_the_maximum(
    counts: dict[str, int], bundles_max: int, reasons: list[str]
) -> None:
    """A bundle that is owned by another broker, or reported by two, is split once."""
    other = "t/n/0x40000000_0x80000000"
    too_big = NamespaceBundleStats(topics=2000)
    both = {BUNDLE: too_big, other: too_big}
    snapshot = ClusterSnapshot(
        now_ms=0,
        reports={
            "b1": LocalBrokerData(last_stats=both),
            "b2": LocalBrokerData(last_stats={BUNDLE: too_big}),
        },
        owners={BUNDLE: "b2"},
    )
    chosen = threshold.modular(snapshot, SplitSettings(bundles_max=bundles_max), None, counts)
    assert [skip.reason for skip in chosen.skipped] == reasons
    assert len(chosen.splits) == 2 - len(reasons)


def test_many_boundaries_need_room() -> None:
    """As many bundles as boundaries are added; automatic splits of the extensible manager have one
    boundary.
    """
    topics = {
        BUNDLE: {f"topic-{index}": HashedTopic(1000 * index, rate=20_000) for index in range(3)}
    }
    settings = SplitSettings(algorithm=FLOW_OR_QPS, bundles_max=6, hits_min=0)
    stats = {BUNDLE: NamespaceBundleStats(topics=2000)}
    reports = {"b1": LocalBrokerData(last_stats=stats), "b2": LocalBrokerData()}
    snapshot = ClusterSnapshot(now_ms=0, reports=reports)
    (split,) = threshold.modular(snapshot, settings, topics, {"t/n": 4}).splits
    assert split.boundaries == (501, 1501)
    (skip,) = threshold.modular(snapshot, settings, topics, {"t/n": 5}).skipped
    assert skip.reason == "MaxBundles: t/n has 5 bundles, and 2 more are too many"
    chosen, memories = threshold.extensible(snapshot, settings, topics, {"t/n": 4}, Memories())
    assert chosen.skipped[0].reason == (
        f"Unsplittable: {FLOW_OR_QPS} makes 2 boundaries, and automatic splits make one"
    )
    assert memories.split_hits == {("b1", BUNDLE): 1}
