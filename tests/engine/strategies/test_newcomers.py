"""A nearly empty broker that gets nothing is named, with the reason."""

from __future__ import annotations

from dataclasses import replace

from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData, default_bundle_data
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import Cordon, Wishes
from loadmanager.engine.strategies.newcomers import left_out
from loadmanager.engine.strategies.plan import Plan, Skip, Unload
from loadmanager.kit.reason import Reason

NAMES = [f"t/n/0x{n:08x}_0x{n + 1:08x}" for n in range(9)]
SNAPSHOT = ClusterSnapshot(
    now_ms=1,
    reports={
        "b1": LocalBrokerData(bundles=NAMES[:4]),
        "b2": LocalBrokerData(bundles=NAMES[4:8]),
        "b3": LocalBrokerData(),
    },
)
QUIET = Plan(
    "X", skipped=(Skip("b1", "BelowThreshold", "0.4"), Skip("cluster", "HitCount", "1 of 3"))
)


def test_the_reason_is_the_strategys() -> None:
    """That of the cluster, else the first."""
    head = "it has 0 bundles; an even share would be 3, and it gets none: X moves "
    assert left_out(SNAPSHOT, QUIET) == (
        Skip("b3", "Newcomer", head + "nothing: HitCount: 1 of 3"),
    )
    plan = replace(QUIET, skipped=QUIET.skipped[:1])
    assert left_out(SNAPSHOT, plan) == (
        Skip("b3", "Newcomer", head + "nothing: BelowThreshold: 0.4"),
    )
    plan = Plan("X", (Unload(NAMES[0], "b1", "b2", "x"),))
    assert left_out(SNAPSHOT, plan) == (
        Skip("b3", "Newcomer", head + "1 bundle, none of them there"),
    )
    (cordoned,) = left_out(replace(SNAPSHOT, wishes=Wishes({}, {"b3": Cordon(1)})), QUIET)
    assert cordoned.reason.endswith("it gets none: Cordoned: it gets no new bundle")
    (stale,) = left_out(replace(SNAPSHOT, unusable={"b3": Reason("StaleReport", "old")}), QUIET)
    assert stale.reason.endswith("StaleReport: old")


def test_nobody_is_named_who_gets_something() -> None:
    """A bundle that is planned or under way; a share of a bundle or two says nothing."""
    plan = Plan("X", (Unload(NAMES[0], "b1", "b3", "x"),))
    assert left_out(SNAPSHOT, plan) == ()
    under_way = replace(SNAPSHOT, pending={"b3": {NAMES[8]: default_bundle_data()}})
    assert left_out(under_way, QUIET) == ()
    few = {"b1": LocalBrokerData(bundles=NAMES[:3]), "b2": LocalBrokerData()}
    assert left_out(ClusterSnapshot(now_ms=1, reports=few), QUIET) == ()


def test_under_the_extensible_manager() -> None:
    """By the numbers of bundles that the brokers publish."""
    load = {"b1": BrokerLoadData(bundle_count=9), "b2": BrokerLoadData()}
    snapshot = ClusterSnapshot(now_ms=1, extensible=True, reports={}, load_data=load)
    assert [skip.what for skip in left_out(snapshot, QUIET)] == ["b2"]
