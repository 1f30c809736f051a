"""Each shedder on Pulsar's documented and hand-computed examples."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields

import pytest

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    TimeAverageMessageData,
    TopBundle,
    TopBundlesLoadData,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies.isolation import decode_policies
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.inputs import inputs_of
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.from_reports import LoadAverages, with_load_data

MIB = 1024 * 1024


def a_bundle(number: int) -> str:
    """A name."""
    return f"t/n/0x{number:08x}_0x{number + 1:08x}"


def a_cluster(
    *brokers: tuple[float, Sequence[float]],
    unit: float = MIB,
    rates: Sequence[float] = (),
    now_ms: int = 0,
) -> ClusterSnapshot:
    """Brokers b0, b1, … by CPU percent and the throughputs of their bundles (in `unit` bytes/s);
    bundles are numbered through.
    """
    reports: dict[str, LocalBrokerData] = {}
    data: dict[str, BundleData] = {}
    number = 0
    for index, (cpu, loads) in enumerate(brokers):
        stats = {}
        for load in loads:
            name, rate = a_bundle(number), rates[number] if rates else 0.0
            stats[name] = NamespaceBundleStats(
                msg_throughput_in=load * unit, msg_rate_in=rate, topics=2
            )
            average = TimeAverageMessageData(
                max_samples=10, num_samples=1, msg_throughput_in=load * unit, msg_rate_in=rate
            )
            data[name] = BundleData(short_term_data=average, long_term_data=average, topics=2)
            number += 1
        reports[f"b{index}"] = LocalBrokerData(
            cpu=ResourceUsage(usage=cpu, limit=100),
            msg_throughput_in=sum(loads) * unit,
            msg_rate_in=sum(traffic.msg_rate_in for traffic in stats.values()),
            bundles=list(stats),
            last_stats=stats,
        )
    return ClusterSnapshot(now_ms=now_ms, reports=reports, bundle_data=data)


def shed(
    snapshot: ClusterSnapshot, shedder: str, memory: Memories | None = None, **settings: object
) -> tuple[Plan, Memories]:
    """One cycle of a shedder; `settings` are those that strategies share, and its own."""
    leaf = registry.shedder(shedder).settings
    names = {field.name for field in fields(leaf)} & settings.keys() if leaf else set()
    own = {leaf: leaf(**{name: settings.pop(name) for name in names})} if leaf else {}
    in_force = StrategySettings(shedder=shedder, own=own, **settings)  # type: ignore[arg-type]
    return cycle.shed(snapshot, in_force, memory or Memories())


def moved(plan: Plan) -> list[tuple[str, str, str | None]]:
    """Bundle, source and destination of each move."""
    return [(unload.bundle, unload.source, unload.destination) for unload in plan.unloads]


def test_overload_takes_the_largest_until_the_goal() -> None:
    """At 90 % with a threshold of 85 %, a tenth of the traffic goes: the largest bundle, then the
    next if that is not enough.
    """
    snapshot = a_cluster((90, [30, 10, 40, 20]), (10, [1, 1]))
    plan, _ = shed(snapshot, "OverloadShedder")
    assert moved(plan) == [(a_bundle(2), "b0", None)]
    assert plan.unloads[0].why["goalBytesPerSecond"] == pytest.approx(100 * MIB * 0.10, rel=1e-5)
    plan, _ = shed(a_cluster((100, [10] * 10), (10, [1, 1])), "OverloadShedder")
    assert len(plan.unloads) == 2, "20 % of ten equal bundles"


def test_overload_boundaries() -> None:
    """A usage equal to the threshold is overloaded; a sole bundle stays; no overload, no move."""
    assert (
        len(
            shed(a_cluster((85, [1, 1]), (1, [1])), "OverloadShedder", overloaded_percent=85)[
                0
            ].unloads
        )
        == 1
    )
    plan, _ = shed(a_cluster((99, [5]), (1, [1, 1])), "OverloadShedder")
    assert plan.unloads == ()
    assert any("SoleBundle" in skip.reason for skip in plan.skipped)
    assert shed(a_cluster((84, [1, 1]), (1, [1])), "OverloadShedder")[0].unloads == ()


def test_threshold_40_10_10() -> None:
    """Usage 40/10/10, threshold 10: the average is 20, the first broker is 10 points over average +
    threshold; 15 % of its traffic goes.
    """
    plan, memory = shed(
        a_cluster((40, [100, 100, 100, 100]), (10, [50, 50]), (10, [50, 50])), "ThresholdShedder"
    )
    assert moved(plan) == [(a_bundle(0), "b0", None)]
    assert plan.unloads[0].why["goalBytesPerSecond"] == pytest.approx(400 * MIB * 0.15, rel=1e-5)
    assert memory.of(registry.shedder("ThresholdShedder")) == {
        "b0": pytest.approx(0.4),
        "b1": pytest.approx(0.1),
        "b2": pytest.approx(0.1),
    }


def test_threshold_history_and_minimum() -> None:
    """History counts nine tenths; less than the minimum throughput is not worth a move."""
    calm, hot = (
        a_cluster((10, [100, 100]), (10, [1, 1])),
        a_cluster((100, [100, 100]), (10, [1, 1])),
    )
    _, memory = shed(calm, "ThresholdShedder")
    plan, memory = shed(hot, "ThresholdShedder", memory)
    assert plan.unloads == ()
    assert memory.of(registry.shedder("ThresholdShedder"))["b0"] == pytest.approx(0.19)
    small = a_cluster((90, [1, 1]), (10, [1, 1]))
    assert shed(small, "ThresholdShedder")[0].unloads == ()
    assert len(shed(small, "ThresholdShedder", min_throughput_mib=0.1)[0].unloads) == 1


def test_threshold_one_idle_broker_among_hot_ones() -> None:
    """Ten brokers at 80 % and one idle: nothing without the lower boundary; with it the most used
    broker gives half a threshold's share.
    """
    snapshot = a_cluster(*[(80, [100, 100, 100, 100])] * 10, (0, []))
    assert shed(snapshot, "ThresholdShedder")[0].unloads == ()
    plan, _ = shed(snapshot, "ThresholdShedder", lower_boundary_shedding=True)
    assert moved(plan) == [(a_bundle(0), "b0", None)]
    assert plan.unloads[0].why["goalBytesPerSecond"] == pytest.approx(400 * MIB * 0.1 * 0.5)


def test_uniform_by_rate() -> None:
    """Rates 10,000 and 1,000: a fifth of the difference goes, in whole bundles that fit within the
    slack.
    """
    snapshot = a_cluster((1, [1, 1, 1, 1]), (1, [1, 1]), rates=[4000, 3000, 2000, 1000, 500, 500])
    plan, _ = shed(snapshot, "UniformLoadShedder")
    assert moved(plan) == [(a_bundle(2), "b0", None)], (
        "1,800 to move: 2,000 fits within the slack of 1,000, then 1,000 > -200 + 1,000"
    )
    plan, _ = shed(snapshot, "UniformLoadShedder", unload_rate_min=2000)
    assert plan.unloads == ()


def test_uniform_by_throughput() -> None:
    """Equal rates, throughputs 1 : 10: bytes decide."""
    plan, _ = shed(a_cluster((1, [50, 30, 15, 5]), (1, [5, 5])), "UniformLoadShedder")
    assert moved(plan) == [(a_bundle(2), "b0", None)], "18 MiB/s to move: 15 fits, then 5 does not"
    assert shed(a_cluster((1, [20, 20]), (1, [10])), "UniformLoadShedder")[0].unloads == ()


def test_avg_pairs_and_hit_counts() -> None:
    """Scores 20/30/52/70/80: the outermost brokers are a pair, then the next; rates 1,000 and 500
    make 250 move, after two cycles above high.
    """
    rates = [250.0, 250, 400, 400, 300, 300, 400, 400, 250, 250, 250, 250]
    snapshot = a_cluster(
        (20, [1, 1]), (30, [1, 1]), (52, [1, 1]), (70, [1, 1]), (80, [1, 1, 1, 1]), rates=rates
    )
    memory, plans = Memories(), []
    for _ in range(4):
        plan, memory = shed(
            snapshot,
            "AvgShedder",
            memory,
            placement="AvgShedder",
            unload_rate_min=0,
            unload_fraction_max=0.5,
        )
        plans.append(moved(plan))
    assert plans == [[], [(a_bundle(8), "b4", "b0")], [], [(a_bundle(8), "b4", "b0")]]


def test_avg_needs_eight_cycles_above_low() -> None:
    """A difference of 20 points acts in the eighth cycle; a balanced cycle in between starts
    the count again.
    """
    uneven = a_cluster((50, [1, 1, 1, 1]), (30, [1, 1]), rates=[250, 250, 250, 250, 250, 250])
    even = a_cluster((50, [1, 1, 1, 1]), (50, [1, 1]), rates=[250, 250, 250, 250, 250, 250])

    def acts(*snapshots: ClusterSnapshot) -> list[bool]:
        memory, acted = Memories(), []
        for snapshot in snapshots:
            plan, memory = shed(
                snapshot, "AvgShedder", memory, unload_rate_min=0, unload_fraction_max=0.5
            )
            acted.append(bool(plan.unloads))
        return acted

    assert acts(*[uneven] * 8) == [False] * 7 + [True]
    assert not any(acts(*[uneven] * 7, even, *[uneven] * 7))


def test_avg_moves_half_of_the_difference() -> None:
    """Rates 1,000 and 500, half to move: 250 messages/s go."""
    snapshot = a_cluster((80, [1, 1, 1, 1]), (20, [1, 1]), rates=[250, 250, 250, 250, 250, 250])
    memory = Memories()
    for _ in range(2):
        plan, memory = shed(
            snapshot, "AvgShedder", memory, unload_rate_min=100, unload_fraction_max=0.5
        )
    assert moved(plan) == [(a_bundle(0), "b0", None)], "another rule than AvgShedder will place it"


def a_transfer_cluster(
    loads: Sequence[float], bundles: Sequence[Sequence[float]]
) -> ClusterSnapshot:
    """Brokers of the extensible manager by load and the throughputs of their top bundles,
    ascending.
    """
    tops, number, data = {}, 0, {}
    for index, (load, tops_of) in enumerate(zip(loads, bundles, strict=True)):
        entries = []
        for throughput in tops_of:
            entries.append(
                TopBundle(
                    bundle_name=a_bundle(number),
                    stats=NamespaceBundleStats(msg_throughput_in=throughput),
                )
            )
            number += 1
        tops[f"b{index}"] = TopBundlesLoadData(top_bundles_load_data=entries)
        total = float(sum(tops_of))
        data[f"b{index}"] = BrokerLoadData(
            weighted_max_ema=load,
            msg_throughput_in=total,
            msg_throughput_ema=total,
            updated_at=1000,
        )
    return ClusterSnapshot(
        now_ms=1000, extensible=True, reports={}, load_data=data, top_bundles=tops
    )


def test_transfer_acts_on_the_fourth_hit() -> None:
    """Loads 0.9 and 0.1: after three hits the fourth moves bundles from the most to the least
    loaded, smallest first, up to half of the difference.
    """
    snapshot, memory = a_transfer_cluster([0.9, 0.1], [[10, 20, 30, 30], [5, 5]]), Memories()
    for _ in range(3):
        plan, memory = shed(snapshot, "TransferShedder", memory)
        assert plan.unloads == ()
        assert "HitCount" in plan.skipped[0].reason
    plan, memory = shed(snapshot, "TransferShedder", memory)
    assert moved(plan)[:2] == [(a_bundle(0), "b0", "b1"), (a_bundle(1), "b0", "b1")]
    assert memory.of(registry.shedder("TransferShedder")).hits == 0


def test_a_decision_shows_the_loads_that_transfer_went_by() -> None:
    """`inputs` of the decision and `why` of its moves have the same figures."""
    snapshot = a_transfer_cluster([0.9, 0.1], [[10, 20, 30, 30], [5, 5]])
    (first, *_) = shed(snapshot, "TransferShedder", hits_min=0)[0].unloads
    loads = inputs_of(snapshot, StrategySettings(), []).loads
    assert (first.why["load"], first.why["destinationLoad"]) == (0.9, 0.1)
    assert (loads["b0"].usage, loads["b1"].usage) == (0.9, 0.1)


def test_transfer_rests_and_waits_for_reports() -> None:
    """A recently unloaded broker stops the cycle, and so do reports that are all stale."""
    snapshot = a_transfer_cluster([0.9, 0.1], [[10, 20], [5, 5]])
    resting = ClusterSnapshot(
        now_ms=1000,
        extensible=True,
        reports={},
        load_data=snapshot.load_data,
        recently_unloaded_brokers_ms={"b0": 0},
    )
    assert "CoolDown" in shed(resting, "TransferShedder", hits_min=0)[0].skipped[0].reason
    stale = ClusterSnapshot(
        now_ms=10_000_000, extensible=True, reports={}, load_data=snapshot.load_data
    )
    plan = shed(stale, "TransferShedder", hits_min=0)[0]
    assert [skip.what for skip in plan.skipped if "StaleReport" in skip.reason] == ["b0", "b1"]


@pytest.mark.parametrize(
    "shedder",
    ["OverloadShedder", "ThresholdShedder", "UniformLoadShedder", "AvgShedder", "TransferShedder"],
)
def test_nothing_when_balanced(shedder: str) -> None:
    """Equal brokers are left alone, with reasons."""
    snapshot = a_cluster((50, [10, 10]), (50, [10, 10]), rates=[10, 10, 10, 10])
    if shedder == "TransferShedder":
        snapshot = a_transfer_cluster([0.5, 0.5], [[10, 10], [10, 10]])
    settings = {"hits_min": 0} if shedder == "TransferShedder" else {}
    plan, _ = shed(snapshot, shedder, **settings)
    assert plan.unloads == ()
    assert plan.skipped


def test_guards() -> None:
    """Recently moved bundles, excluded and system namespaces stay; the cap per cycle holds."""
    snapshot = a_cluster((100, [10] * 10), (1, [1, 1]))
    recently = {a_bundle(number): 0 for number in range(9)}
    kept = ClusterSnapshot(
        now_ms=0,
        reports=snapshot.reports,
        bundle_data=snapshot.bundle_data,
        recently_unloaded_ms=recently,
    )
    assert moved(shed(kept, "OverloadShedder")[0]) == [(a_bundle(9), "b0", None)]
    plan, _ = shed(snapshot, "OverloadShedder", excluded_namespaces=("t/n",))
    assert plan.unloads == ()
    assert any("ExcludedNamespace" in skip.reason for skip in plan.skipped)
    assert len(shed(snapshot, "OverloadShedder", moves_per_cycle_max=1)[0].unloads) == 1


def test_transfer_on_modular_reports() -> None:
    """TransferShedder can be tried on the modular manager's reports: averages as brokers of the
    extensible manager compute them, bundles in its order.
    """
    settings = StrategySettings(
        history_weight=0.75,
        cpu_weight=0.5,
        memory_weight=0.5,
        direct_memory_weight=0.5,
        bandwidth_in_weight=0.5,
    )
    usage = [(1, 400, 2, 3, 4, 3), (300, 100, 2, 3, 4, 11)]
    memory: LoadAverages = {}
    averages = []
    for cpu, heap, direct, bandwidth_in, bandwidth_out, throughput in usage:
        percents = [
            ResourceUsage(usage=value, limit=100)
            for value in (cpu, heap, direct, bandwidth_in, bandwidth_out)
        ]
        names = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
        report = LocalBrokerData(
            **dict(zip(names, percents, strict=True)), msg_throughput_in=throughput
        )
        snapshot, memory = with_load_data(
            ClusterSnapshot(now_ms=1, reports={"b": report}), settings, memory
        )
        data = snapshot.load_data["b"]
        averages.append((data.max_resource_usage, data.weighted_max_ema, data.msg_throughput_ema))
    assert averages == [(0.04, 2.0, 3.0), (3.0, 1.875, 5.0)], "the vector of Pulsar's own test"
    snapshot, memory = a_cluster((90, [30, 20, 10, 10]), (10, [5, 5])), Memories()
    for _ in range(4):
        plan, memory = shed(snapshot, "TransferShedder", memory)
    assert moved(plan)[0][1:] == ("b0", "b1")


def test_the_broker_that_a_bundle_leaves_counts_among_the_primaries() -> None:
    """Secondaries get nothing while there are enough primaries; the source counts as one. Its
    topics count for the topic limit, too.
    """
    policies = decode_policies(
        b'{"p": {"namespaces": ["t/.*"], "primary": ["p1", "p2"], "secondary": ["s1"], '
        b'"auto_failover_policy": {"parameters": {"min_limit": "2"}}}}'
    )
    bundle = "t/a/0x00000000_0x40000000"
    reports = {
        "p1": LocalBrokerData(bundles=[bundle]),
        "p2": LocalBrokerData(),
        "s1": LocalBrokerData(),
    }
    plan = Plan("x", unloads=(Unload(bundle, "p1", None, "x"),))

    def destination(snapshot: ClusterSnapshot) -> str | None:
        moves = cycle.destinations(
            snapshot, plan, StrategySettings(), Memories(), random.Random(0)
        )[0].unloads
        return moves[0].destination if moves else None

    assert (
        destination(ClusterSnapshot(now_ms=0, reports=reports, isolation_policies=policies)) == "p2"
    )
    full = {
        "p1": LocalBrokerData(bundles=[bundle]),
        "p2": LocalBrokerData(num_topics=60_000),
        "s1": LocalBrokerData(num_topics=60_000),
    }
    assert destination(ClusterSnapshot(now_ms=0, reports=full)) is None
