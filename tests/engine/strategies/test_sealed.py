"""A sealed plan is carried out as it is, or whatever has drifted is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from clusters.views import a_report

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    TopBundle,
    TopBundlesLoadData,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.wishes import Cordon, Pin, Wishes
from loadmanager.engine.policies.isolation import decode_policies
from loadmanager.engine.strategies import sealed
from loadmanager.engine.strategies.plan import Plan, Unload
from loadmanager.engine.strategies.settings import StrategySettings

A, B = "t/a/0x00000000_0xffffffff", "t/b/0x00000000_0xffffffff"
NOW_MS = 10_000_000
PLAN = Plan("Any", (Unload(A, "b1", "b2", "Hot"), Unload(B, "b1", "b3", "Hot")))
OWNERS = {A: "b1", B: "b1"}
STATS = {
    A: NamespaceBundleStats(msg_rate_in=4000, msg_throughput_in=40e6),
    B: NamespaceBundleStats(msg_rate_in=50, msg_throughput_in=1e5),
}


def a_snapshot(
    stats: Mapping[str, NamespaceBundleStats] = STATS, *, cpu: float = 90, **fields: Any
) -> ClusterSnapshot:
    """b1 has both bundles and is hot; b2 and b3 are idle."""
    reports = {
        "b1": a_report(stats, cpu=cpu, last_update=NOW_MS),
        **{name: a_report({}, cpu=5, last_update=NOW_MS) for name in ("b2", "b3")},
    }
    return ClusterSnapshot(**{"now_ms": NOW_MS, "reports": reports, **fields})


def drifted(
    snapshot: ClusterSnapshot,
    owners: Mapping[str, str | None] = OWNERS,
    gone: Mapping[str, str] | None = None,
) -> list[tuple[str, str | None]]:
    """The kinds and bundles of the drifts."""
    plan = sealed.seal(PLAN, a_snapshot(), StrategySettings())
    return [(one.what, one.bundle) for one in sealed.drift(plan, snapshot, owners, gone or {})]


def test_nothing_has_drifted() -> None:
    """The same cluster, and one that differs within the bounds."""
    assert drifted(a_snapshot()) == []
    slower = {
        A: NamespaceBundleStats(msg_rate_in=2000, msg_throughput_in=20e6),
        B: NamespaceBundleStats(msg_rate_in=150, msg_throughput_in=1.1e6),
    }
    assert drifted(a_snapshot(slower, cpu=76, now_ms=NOW_MS + sealed.LIFE_MS)) == []


POLICY = {
    "namespaces": ["t/a"],
    "primary": ["b3"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "100"},
    },
}
"""b3 is for t/a, and for nothing else."""
ISOLATED = decode_policies(json.dumps({"p": POLICY}).encode())


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (a_snapshot(now_ms=NOW_MS + sealed.LIFE_MS + 1), [("expired", None)]),
        (
            a_snapshot({**STATS, A: NamespaceBundleStats(msg_rate_in=1900, msg_throughput_in=4e7)}),
            [("load", A)],
        ),
        (
            a_snapshot({**STATS, B: NamespaceBundleStats(msg_rate_in=50, msg_throughput_in=3e6)}),
            [("load", B)],
        ),
        (a_snapshot({A: STATS[A]}), [("load", B), ("refused", B)]),
        (a_snapshot(cpu=74), [("usage", None)]),
        (a_snapshot(recently_unloaded_ms={B: NOW_MS}), [("refused", B)]),
        (a_snapshot(wishes=Wishes({A: Pin("b1", NOW_MS + 5)})), [("refused", A)]),
        (a_snapshot(wishes=Wishes(cordons={"b3": Cordon(1)})), [("destination", B)]),
        (a_snapshot(leaving={"t/x/0x0_0x1": "b1"}), [("refused", A), ("refused", B)]),
        (a_snapshot(isolation_policies=ISOLATED), [("destination", A), ("destination", B)]),
    ],
    ids=("age", "rate", "bytes", "unreported", "usage", "grace", "pin", "cordon", "wait", "policy"),
)
def test_each_difference_is_named(
    snapshot: ClusterSnapshot, expected: list[tuple[str, str | None]]
) -> None:
    """Age, load, usage, and whatever the guards of every cycle refuse."""
    assert drifted(snapshot) == expected


def test_owners_and_bundles() -> None:
    """A bundle that has another owner, none, or does not exist any more; the others are checked."""
    assert drifted(a_snapshot(), {A: "b2", B: None}) == [("owner", A), ("owner", B)]
    assert drifted(a_snapshot(), OWNERS, {A: "it was split"}) == [("bundle", A)]
    gone = replace(a_snapshot(), reports={"b1": a_snapshot().reports["b1"]})
    assert drifted(gone) == [("refused", A), ("refused", B)]  # b2 and b3 are gone


def test_of_a_swap_both_moves_are_named() -> None:
    """If one must stay, so must the other."""
    swap = Plan("Any", (Unload(A, "b1", "b2", "x", swap=A), Unload(B, "b1", "b3", "x", swap=A)))
    plan = sealed.seal(swap, a_snapshot(), StrategySettings())
    pinned = a_snapshot(wishes=Wishes({A: Pin("b1", NOW_MS + 5)}))
    found = list(sealed.drift(plan, pinned, OWNERS, {}))
    assert [(one.what, one.bundle) for one in found] == [("refused", A), ("refused", B)]
    assert found[1].reason.startswith("Swap: ")


def test_a_doubt_that_is_told_with_other_words_is_no_drift() -> None:
    """The guards refuse a move for the same reason as when the plan was made: only the pin's end
    has changed.
    """

    def pinned(until_ms: int) -> ClusterSnapshot:
        return a_snapshot(wishes=Wishes({A: Pin("b1", until_ms, "ask: us")}))

    plan = sealed.seal(PLAN, pinned(NOW_MS + 5_000), StrategySettings())
    assert list(sealed.drift(plan, pinned(NOW_MS + 9_000), OWNERS, {})) == []
    (found,) = sealed.drift(plan, a_snapshot(recently_unloaded_ms={A: 1}), OWNERS, {})
    assert (found.what, found.code) == ("refused", "GracePeriod")


def test_in_the_extensible_manager() -> None:
    """Loads are what brokers published; one that is not published any more has drifted."""
    top = [TopBundle(bundle_name=bundle, stats=stats) for bundle, stats in STATS.items()]
    load = {name: BrokerLoadData(updated_at=NOW_MS) for name in ("b1", "b2", "b3")}
    before = ClusterSnapshot(
        now_ms=NOW_MS,
        extensible=True,
        reports={},
        load_data=load,
        top_bundles={"b1": TopBundlesLoadData(top_bundles_load_data=top)},
    )
    plan = sealed.seal(PLAN, before, StrategySettings())
    assert plan.loads[A] == sealed.Load(4000, 40e6)
    assert list(sealed.drift(plan, before, OWNERS, {})) == []
    after = replace(before, top_bundles={"b1": TopBundlesLoadData(top_bundles_load_data=top[:1])})
    words = [(one.what, one.bundle) for one in sealed.drift(plan, after, OWNERS, {})]
    assert words == [("load", B), ("refused", B)]


def test_what_a_plan_brings_about_itself_is_no_drift() -> None:
    """Its second move goes where the group is, because its first one went to the only better broker
    before; a cordon that comes later is a drift.
    """
    c = "t/c/0x00000000_0xffffffff"
    stats = {**STATS, c: NamespaceBundleStats(msg_rate_in=10)}
    reports = dict(a_snapshot(stats).reports)
    reports["b2"] = LocalBrokerData(bundles=["t/e/0x00000000_0xffffffff"], last_update=NOW_MS)
    groups = {f"t/{name}": "g" for name in "abce"}
    snapshot = a_snapshot(reports=reports, anti_affinity_groups=groups)
    plan = Plan("Any", (Unload(A, "b1", "b3", "Hot"), Unload(B, "b1", "b2", "Hot")))
    kept = sealed.seal(plan, snapshot, StrategySettings())
    assert list(sealed.drift(kept, snapshot, OWNERS, {})) == []
    later = snapshot.having(wishes=Wishes(cordons={"b2": Cordon(1)}))
    assert [(one.what, one.bundle) for one in sealed.drift(kept, later, OWNERS, {})] == [
        ("destination", B)
    ]
