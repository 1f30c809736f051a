"""One verifier with properties for every registered shedder, and one for every placement."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from loadmanager.engine.load.wishes import Pin, Wishes
from loadmanager.engine.policies.isolation import decode_policies
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Placement, Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.threshold import ThresholdSettings

NOW_MS = 10_000_000
STALE_MS = NOW_MS - 1_900_000
EXTENSIBLE = ("TransferShedder",)
EAGER = {ThresholdSettings: ThresholdSettings(min_throughput_mib=0)}
LOADS = st.floats(0, 1e9, allow_nan=False)


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, tuple[float, list[float], bool]]:
    """Brokers with CPU percent, throughputs of their bundles, and whether their report is stale."""
    count = draw(st.integers(0, 6))
    return {
        f"b{index}:8080": (
            draw(st.floats(0, 130)),
            draw(st.lists(LOADS, max_size=6)),
            draw(st.integers(0, 9)) == 0,
        )
        for index in range(count)
    }


def a_snapshot(
    shape: dict[str, tuple[float, list[float], bool]],
    recently: frozenset[str],
    *,
    extensible: bool,
    order: int,
) -> ClusterSnapshot:
    """The snapshot of a shape; `order` shuffles every mapping."""
    names = sorted(shape)
    random.Random(order).shuffle(names)
    reports: dict[str, LocalBrokerData] = {}
    data: dict[str, BundleData] = {}
    load: dict[str, BrokerLoadData] = {}
    tops: dict[str, TopBundlesLoadData] = {}
    for name in names:
        cpu, loads, stale = shape[name]
        bundles = {
            f"t/n{name[1]}/0x{number:08x}_0x{number + 1:08x}": value
            for number, value in enumerate(sorted(loads))
        }
        stats = {
            bundle: NamespaceBundleStats(
                msg_throughput_in=value, msg_rate_in=value / 1000, topics=2
            )
            for bundle, value in bundles.items()
        }
        for bundle, traffic in stats.items():
            average = TimeAverageMessageData(
                max_samples=10,
                num_samples=1,
                msg_throughput_in=traffic.msg_throughput_in,
                msg_rate_in=traffic.msg_rate_in,
            )
            data[bundle] = BundleData(short_term_data=average, long_term_data=average)
        total = sum(bundles.values())
        reports[name] = LocalBrokerData(
            cpu=ResourceUsage(usage=cpu, limit=100),
            bundles=list(bundles),
            last_stats=stats,
            msg_throughput_in=total,
            msg_rate_in=total / 1000,
            last_update=STALE_MS if stale else NOW_MS,
        )
        load[name] = BrokerLoadData(
            weighted_max_ema=cpu / 100,
            msg_throughput_in=total,
            msg_throughput_ema=total,
            updated_at=STALE_MS if stale else NOW_MS,
        )
        tops[name] = TopBundlesLoadData(
            top_bundles_load_data=[
                TopBundle(bundle_name=bundle, stats=traffic) for bundle, traffic in stats.items()
            ]
        )
    common = {"now_ms": NOW_MS, "recently_unloaded_ms": dict.fromkeys(sorted(recently), NOW_MS)}
    if extensible:
        return ClusterSnapshot(
            extensible=True, reports={}, load_data=load, top_bundles=tops, **common
        )  # type: ignore[arg-type]
    return ClusterSnapshot(reports=reports, bundle_data=data, **common)  # type: ignore[arg-type]


def plans(shedder: str, snapshot: ClusterSnapshot, cycles: int = 5) -> list[Plan]:
    """Several cycles over an unchanged cluster."""
    settings = StrategySettings(
        shedder=shedder, own=EAGER, unload_rate_min=0, unload_throughput_min=0
    )
    memory, found = Memories(), []
    for _ in range(cycles):
        plan, memory = cycle.shed(snapshot, settings, memory)
        found.append(plan)
    return found


@pytest.mark.parametrize("shedder", sorted(registry.SHEDDERS))
@given(shape=clusters(), data=st.data())
def test_properties(
    shedder: str, shape: dict[str, tuple[float, list[float], bool]], data: st.DataObject
) -> None:
    """Moves only what the source owns, between living brokers whose reports are fresh, nothing
    twice, nothing that was moved recently.
    """
    extensible = shedder in EXTENSIBLE
    plain = a_snapshot(shape, frozenset(), extensible=extensible, order=0)
    owned = {
        name: {published.bundle_name for published in plain.top_bundles[name].top_bundles_load_data}
        if extensible
        else set(plain.reports[name].bundles)
        for name in shape
    }
    everything = sorted(bundle for bundles in owned.values() for bundle in bundles)
    recently = (
        frozenset(data.draw(st.sets(st.sampled_from(everything)))) if everything else frozenset()
    )
    snapshot = a_snapshot(shape, recently, extensible=extensible, order=0)
    stale = {name for name, (_, _, old) in shape.items() if old}
    answers = plans(shedder, snapshot)
    for plan in answers:
        moved = [unload.bundle for unload in plan.unloads]
        assert len(moved) == len(set(moved))
        assert not set(moved) & recently
        for unload in plan.unloads:
            assert unload.bundle in owned[unload.source]
            assert unload.destination != unload.source
            assert unload.destination is None or unload.destination in shape
            assert not {unload.source, unload.destination} & stale
            assert unload.reason
            assert unload.why
        assert plan.unloads or plan.skipped, "every no has a reason"
    shuffled = a_snapshot(shape, recently, extensible=extensible, order=1)
    assert plans(shedder, shuffled) == answers


@pytest.mark.parametrize("shedder", sorted(registry.SHEDDERS))
@given(shape=clusters(), data=st.data())
def test_others_go_in_the_place_of_pinned_bundles(
    shedder: str, shape: dict[str, tuple[float, list[float], bool]], data: st.DataObject
) -> None:
    """As they do where bundles were moved recently; the plan names each pinned bundle of a broker
    that sheds.
    """
    extensible = shedder in EXTENSIBLE
    plain = a_snapshot(shape, frozenset(), extensible=extensible, order=0)
    owner = {
        bundle: name
        for name in shape
        for bundle in (
            [published.bundle_name for published in plain.top_bundles[name].top_bundles_load_data]
            if extensible
            else plain.reports[name].bundles
        )
    }
    chosen = frozenset(data.draw(st.sets(st.sampled_from(sorted(owner))))) if owner else frozenset()
    wishes = Wishes({bundle: Pin(owner[bundle], NOW_MS + 1) for bundle in chosen})
    kept = plans(shedder, replace(plain, wishes=wishes))
    moved_lately = plans(shedder, a_snapshot(shape, chosen, extensible=extensible, order=0))
    assert [plan.unloads for plan in kept] == [plan.unloads for plan in moved_lately]
    for plan in kept:
        named = {skip.what for skip in plan.skipped if skip.code == "Pinned"}
        shedding = {unload.source for unload in plan.unloads}
        assert {bundle for bundle in chosen if owner[bundle] in shedding} <= named


@pytest.mark.parametrize("shedder", sorted(registry.SHEDDERS))
@given(
    usage=st.floats(0, 84), loads=st.lists(LOADS, min_size=1, max_size=5), count=st.integers(2, 6)
)
def test_nothing_when_balanced(shedder: str, usage: float, loads: list[float], count: int) -> None:
    """Between equal brokers, nothing moves."""
    shape = {f"b{index}:8080": (usage, loads, False) for index in range(count)}
    for plan in plans(
        shedder, a_snapshot(shape, frozenset(), extensible=shedder in EXTENSIBLE, order=0)
    ):
        assert plan.unloads == ()


@pytest.mark.parametrize("shedder", sorted(registry.SHEDDERS))
@given(
    shape=clusters(),
    cap=st.integers(0, 3),
    excluded=st.sets(st.sampled_from(["t/n0", "t/n1", "t/n2"])),
    primary=st.integers(0, 5),
)
def test_guards_hold(
    shedder: str,
    shape: dict[str, tuple[float, list[float], bool]],
    cap: int,
    excluded: set[str],
    primary: int,
) -> None:
    """The cap per cycle, excluded namespaces and isolation hold for every strategy, third parties'
    included.
    """
    policies = decode_policies(
        f'{{"p": {{"namespaces": ["t/n3"], "primary": ["b{primary}"]}}}}'.encode()
    )
    snapshot = replace(
        a_snapshot(shape, frozenset(), extensible=shedder in EXTENSIBLE, order=0),
        isolation_policies=policies,
    )
    settings = StrategySettings(
        shedder=shedder,
        own=EAGER,
        unload_rate_min=0,
        unload_throughput_min=0,
        moves_per_cycle_max=cap,
        excluded_namespaces=tuple(sorted(excluded)),
        shed_policy_bundles=True,
        placement="LeastResourceUsageWithWeight",
    )
    memory = Memories()
    for _ in range(4):
        plan, memory = cycle.shed(snapshot, settings, memory)
        final, memory = cycle.destinations(snapshot, plan, settings, memory, random.Random(0))
        assert len(plan.unloads) <= cap
        for unload in final.unloads:
            namespace = unload.bundle.rpartition("/")[0]
            assert namespace not in excluded
            assert unload.destination is not None
            assert unload.destination != unload.source
            assert (unload.destination == f"b{primary}:8080") == (namespace == "t/n3")


@pytest.mark.parametrize("placement", sorted(registry.PLACEMENTS))
@given(
    shape=clusters(),
    seed=st.integers(0, 9),
    extensible=st.booleans(),
    names=st.lists(st.integers(0, 5), max_size=6),
)
def test_every_placement(
    placement: str,
    shape: dict[str, tuple[float, list[float], bool]],
    seed: int,
    extensible: bool,
    names: list[int],
) -> None:
    """A broker out of the candidates, a reason for every other one, the same answer for the same
    bundle and for shuffled input.
    """
    settings = StrategySettings(placement=placement)
    bundles = [f"t/n{name}/0xf0000000_0xffffffff" for name in names]

    def placed(order: int) -> list[Placement]:
        snapshot = a_snapshot(shape, frozenset(), extensible=extensible, order=order)
        return cycle.place(snapshot, bundles, settings, Memories(), random.Random(seed))[0]

    answers = placed(0)
    for answer in answers:
        assert set(answer.candidates) | set(answer.rejected) == set(shape)
        assert not set(answer.candidates) & set(answer.rejected)
        assert (answer.broker in answer.candidates) == bool(shape)
        assert answer == next(other for other in answers if other.bundle == answer.bundle)
    assert placed(1) == answers
