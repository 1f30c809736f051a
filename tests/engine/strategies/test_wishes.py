"""Pins and cordons hold for every shedder and every placement rule."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest
from clusters.views import a_report
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    NamespaceBundleStats,
    TimeAverageMessageData,
    TopBundle,
    TopBundlesLoadData,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import HOLD_S_MAX, Cordon, Pin, Wishes, check_hold
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.guards import Guards
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.avg import AvgSettings
from loadmanager.engine.strategies.shedding.threshold import ThresholdSettings
from loadmanager.engine.strategies.shedding.transfer import TransferSettings
from loadmanager.kit.errors import BadInputError

A, B = "t/a/0x00000000_0xffffffff", "t/b/0x00000000_0xffffffff"
NOW_MS = 10_000_000
EAGER = {
    AvgSettings: AvgSettings(low_hits=1, high_hits=1),
    ThresholdSettings: ThresholdSettings(min_throughput_mib=0),
    TransferSettings: TransferSettings(hits_min=0),
}
HOT_AVERAGE = TimeAverageMessageData(
    max_samples=10, num_samples=10, msg_rate_in=5000, msg_throughput_in=5e7
)
HOT = NamespaceBundleStats(msg_rate_in=5000, msg_throughput_in=5e7)


def a_snapshot(*, extensible: bool = False, **fields: object) -> ClusterSnapshot:
    """b1 has both bundles and is hot; b2, b3 and b4 are empty."""
    names = ("b1", "b2", "b3", "b4")
    if extensible:
        load = {name: BrokerLoadData(updated_at=NOW_MS) for name in names}
        top = [TopBundle(bundle_name=bundle, stats=HOT) for bundle in (A, B)]
        tops = {"b1": TopBundlesLoadData(top_bundles_load_data=top)}
        return ClusterSnapshot(
            now_ms=NOW_MS, extensible=True, reports={}, load_data=load, top_bundles=tops, **fields
        )  # type: ignore[arg-type]
    reports = {name: a_report({}, cpu=5, last_update=NOW_MS) for name in names if name != "b1"}
    reports["b1"] = a_report({A: HOT, B: HOT}, cpu=95, last_update=NOW_MS)
    return ClusterSnapshot(now_ms=NOW_MS, reports=reports, **fields)  # type: ignore[arg-type]


def cordons(*names: str) -> Wishes:
    """These brokers are cordoned."""
    return Wishes(cordons={name: Cordon(1) for name in names})


@pytest.mark.parametrize("extensible", [False, True])
def test_a_pinned_bundle_stays(extensible: bool) -> None:
    """At the broker of the pin; from another broker it may leave. The reason names the pin."""
    for broker, stays in (("b1", True), ("b2", False)):
        snapshot = a_snapshot(
            extensible=extensible, wishes=Wishes({A: Pin(broker, NOW_MS + 5, "hands off")})
        )
        guards = Guards(snapshot, StrategySettings())
        unloads, refused = guards.admit([Unload(A, "b1", "b2", "x"), Unload(B, "b1", "b2", "x")])
        assert [unload.bundle for unload in unloads] == ([B] if stays else [A, B])
        if stays:
            assert [(skip.what, skip.reason) for skip in refused] == [
                (A, "Pinned: to b1 until 1970-01-01T02:46:40Z, hands off")
            ]


def test_the_parts_of_a_pinned_bundle_are_pinned() -> None:
    """After a split; the narrowest pin counts; nothing beside or around it is pinned."""
    half, quarter = Pin("b1", 5), Pin("b2", 5)
    wishes = Wishes({"t/n/0x00000000_0x80000000": half, "t/n/0x00000000_0x40000000": quarter})
    for bundle, pin in {
        "t/n/0x00000000_0x80000000": half,
        "t/n/0x40000000_0x80000000": half,
        "t/n/0x00000000_0x40000000": quarter,
        "t/n/0x00000000_0x20000000": quarter,
        "t/n/0x00000000_0xffffffff": None,
        "t/n/0x40000000_0xc0000000": None,
        "t/m/0x00000000_0x40000000": None,
        "t/n/nonsense": None,
        "nonsense": None,
    }.items():
        assert wishes.pin_of(bundle) == pin, bundle
    assert Wishes({"nonsense": half}).pin_of("nonsense") == half


@pytest.mark.parametrize("pinned_to", ["b1", "b2"])
def test_a_plan_names_the_parts_of_a_pinned_bundle_where_they_are(pinned_to: str) -> None:
    """Those that the pin keeps; a bundle that left the broker of its pin may be moved."""
    half = "t/a/0x00000000_0x80000000"
    stats = {half: HOT, B: HOT}
    snapshot = a_snapshot(wishes=Wishes({A: Pin(pinned_to, NOW_MS + 5)}))
    report = msgspec.structs.replace(
        snapshot.reports["b1"], bundles=[half, B], last_stats=stats, msg_throughput_in=1e8
    )
    average = BundleData(short_term_data=HOT_AVERAGE, long_term_data=HOT_AVERAGE)
    snapshot = replace(
        snapshot,
        reports={**snapshot.reports, "b1": report},
        bundle_data=dict.fromkeys(stats, average),
    )
    plan, _ = cycle.shed(snapshot, StrategySettings(shedder="OverloadShedder"), Memories())
    moved = {unload.bundle for unload in plan.unloads}
    named = {skip.what for skip in plan.skipped if skip.code == "Pinned"}
    assert named == ({half} if pinned_to == "b1" else set())
    assert not moved & named
    assert moved


def test_a_cordoned_destination_is_replaced() -> None:
    """The bundle leaves, and placement finds another broker; a swap with it stays whole."""
    snapshot = a_snapshot(wishes=cordons("b2"))
    (move,), refused = Guards(snapshot, StrategySettings()).admit([Unload(A, "b1", "b2", "x")])
    assert (move.destination, refused) == (None, ())
    assert move.why["notTo"] == "b2: Cordoned: it gets no new bundle"
    unloads, refused = Guards(a_snapshot(wishes=cordons("b2")), StrategySettings()).admit(
        [Unload(A, "b1", "b2", "x", swap="s"), Unload(B, "b1", "b3", "x", swap="s")]
    )
    assert (unloads, len(refused)) == ((), 2)
    (skip,) = Guards(a_snapshot(extensible=True, wishes=cordons("b2")), StrategySettings()).admit(
        [Unload(A, "b1", "b2", "x")]
    )[1]
    assert "Cordoned" in skip.reason


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("others", [("b2", "b3", "b4"), ("b1", "b2", "b3", "b4")])
def test_no_bundle_leaves_for_a_cordoned_broker(extensible: bool, others: tuple[str, ...]) -> None:
    """It has an owner: where only cordoned brokers are left, it stays."""
    snapshot = a_snapshot(extensible=extensible, wishes=cordons(*others))
    plan = Plan("x", (Unload(A, "b1", None, "x"),))
    final, _ = cycle.destinations(snapshot, plan, StrategySettings(), Memories(), random.Random(0))
    assert final.unloads == ()
    assert [skip.reason for skip in final.skipped] == ["NoDestination: no broker qualifies"]


@pytest.mark.parametrize("shedder", sorted(registry.SHEDDERS))
def test_a_hot_broker_whose_bundles_all_stay_says_why(shedder: str) -> None:
    """One is pinned, the other was moved recently."""
    extensible = registry.SHEDDERS[shedder].extensible
    snapshot = a_snapshot(
        extensible=extensible,
        wishes=Wishes({A: Pin("b1", NOW_MS + 5)}),
        recently_unloaded_ms={B: NOW_MS},
    )
    if extensible:
        load = {
            name: BrokerLoadData(weighted_max_ema=0.9 if name == "b1" else 0.1, updated_at=NOW_MS)
            for name in snapshot.load_data
        }
        snapshot = replace(snapshot, load_data=load)
    else:
        data = BundleData(short_term_data=HOT_AVERAGE, long_term_data=HOT_AVERAGE)
        hot = msgspec.structs.replace(
            snapshot.reports["b1"], msg_rate_in=1e4, msg_throughput_in=1e8
        )
        snapshot = replace(
            snapshot, reports={**snapshot.reports, "b1": hot}, bundle_data={A: data, B: data}
        )
    settings = StrategySettings(shedder=shedder, own=EAGER)
    plan, _ = cycle.shed(snapshot, settings, Memories())
    assert plan.unloads == ()
    reasons = {skip.what: skip.code for skip in plan.skipped}
    assert (reasons[A], reasons[B]) == ("Pinned", "GracePeriod")


def test_a_source_with_moves_waits() -> None:
    """What was decided before is not decided again while it is under way."""
    snapshot = a_snapshot(leaving={B: "b1"})
    (skip,) = Guards(snapshot, StrategySettings()).admit([Unload(A, "b1", "b2", "x")])[1]
    assert skip.reason.startswith("MovesWait: earlier moves from b1")


@pytest.mark.parametrize("placement", sorted(registry.PLACEMENTS))
@given(
    cordoned=st.sets(st.sampled_from(["b1", "b2", "b3", "b4"])),
    pinned=st.sampled_from([None, "b1", "b2", "b9"]),
    seed=st.integers(0, 5),
    extensible=st.booleans(),
    evenly=st.booleans(),
)
def test_placements(
    placement: str,
    cordoned: set[str],
    pinned: str | None,
    seed: int,
    extensible: bool,
    evenly: bool,
) -> None:
    """No cordoned broker, unless all are: to serve comes first. The broker of the pin, unless it is
    gone or cordoned. Every other broker has a reason.
    """
    bundle = "t/c/0x00000000_0xffffffff"
    pins = {} if pinned is None else {bundle: Pin(pinned, NOW_MS + 1)}
    wishes = Wishes(pins, cordons(*cordoned).cordons)
    snapshot = a_snapshot(extensible=extensible, wishes=wishes)
    settings = StrategySettings(placement=placement, distribute_evenly=evenly)
    (choice,), _ = cycle.place(snapshot, [bundle], settings, Memories(), random.Random(seed))
    assert choice.broker is not None
    everyone = len(cordoned) == 4
    assert everyone or not set(choice.candidates) & cordoned
    if pinned in snapshot.available and (everyone or pinned not in cordoned):
        assert choice.candidates == (pinned,)
        assert all(why.code == "Pinned" for why in choice.rejected.values())
    assert set(choice.candidates) | set(choice.rejected) == snapshot.available


@pytest.mark.parametrize("extensible", [False, True])
def test_a_drain_ignores_the_pin(extensible: bool) -> None:
    """A bundle that must leave the broker of its pin goes elsewhere, not to a cordoned broker."""
    wishes = Wishes({A: Pin("b1", NOW_MS + 1)}, cordons("b1", "b3").cordons)
    snapshot = a_snapshot(extensible=extensible, wishes=wishes)
    plan = cycle.Plan("Drained", tuple(Unload(name, "b1", None, "Drained") for name in (A, B)))
    moved, _ = cycle.destinations(snapshot, plan, StrategySettings(), Memories(), random.Random(1))
    assert {unload.destination for unload in moved.unloads} <= {"b2", "b4"}
    assert len(moved.unloads) == 2
    nowhere = replace(snapshot, wishes=cordons("b1", "b2", "b3", "b4"))
    moved, _ = cycle.destinations(nowhere, plan, StrategySettings(), Memories(), random.Random(1))
    assert "b1" not in {unload.destination for unload in moved.unloads}


def test_durations() -> None:
    """More than nothing, at most a year."""
    assert check_hold(1.5) == 1.5
    for wrong in (0, -1, HOLD_S_MAX + 1, float("nan"), float("inf")):
        with pytest.raises(BadInputError, match="duration"):
            check_hold(wrong)


def a_busy_broker(**wishes: object) -> ClusterSnapshot:
    """b1 uses 80 % with twice A and once B of its traffic, and four small ones; others are idle."""
    names = ("b1", "b2", "b3")
    traffic = {A: 40e6, B: 20e6, **{f"t/n{n}/0x00000000_0xffffffff": 5e6 for n in range(4)}}
    load = {
        name: BrokerLoadData(updated_at=NOW_MS, weighted_max_ema=0.0, max_resource_usage=0.0)
        for name in names
    }
    load["b1"] = BrokerLoadData(
        updated_at=NOW_MS,
        weighted_max_ema=0.8,
        max_resource_usage=0.8,
        msg_throughput_in=sum(traffic.values()),
        msg_throughput_ema=sum(traffic.values()),
    )
    top = [
        TopBundle(bundle_name=bundle, stats=NamespaceBundleStats(msg_throughput_in=bytes_per_s))
        for bundle, bytes_per_s in sorted(traffic.items(), key=lambda each: each[1])
    ]
    return ClusterSnapshot(
        now_ms=NOW_MS,
        extensible=True,
        reports={},
        load_data=load,
        top_bundles={"b1": TopBundlesLoadData(top_bundles_load_data=top)},
        wishes=Wishes(**wishes),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("cost_s", "copies", "moves"),
    [
        (0.0, {}, True),
        (199.0, {}, True),  # B is a quarter of 80 points
        (201.0, {}, False),
        (201.0, {B: frozenset({"b2"})}, True),
        (201.0, {B: frozenset({"b3"})}, False),
    ],
)
def test_an_expensive_bundle_moves_if_that_is_worth_it(
    cost_s: float, copies: dict[str, frozenset[str]], moves: bool
) -> None:
    """Others go in its place; the decision says why it stays. To where it has a copy, it may go:
    and before those that have none. No other shedder gets around it.
    """
    snapshot = a_busy_broker(costs={B: cost_s}, copies=copies)
    settings = StrategySettings(shedder="TransferShedder", own=EAGER)
    plan, _ = cycle.shed(snapshot, settings, Memories())
    order = [unload.bundle for unload in plan.unloads if unload.destination == "b2"]
    assert order
    assert (B in order) == moves
    why = (
        "NotWorthIt: a move of it takes 201 s, as its owner says, and 20 points of usage from b1: "
        "10 s a point are worth it"
    )
    assert [skip.reason for skip in plan.skipped if skip.what == B] == [why] * (not moves)
    if "b2" in copies.get(B, ()):
        assert order[0] == B
    allowed, _ = Guards(snapshot, settings).admit([Unload(B, "b1", "b2", "x")])
    assert bool(allowed) == moves
