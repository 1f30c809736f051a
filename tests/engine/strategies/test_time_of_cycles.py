"""The growth of a cycle's work with the cluster, counted in calls of functions."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from loadmanager.engine.load.reports import (
    BrokerLoadData,
    NamespaceBundleStats,
    TopBundle,
    TopBundlesLoadData,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies.isolation import AutoFailover, IsolationPolicy
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.transfer import TransferSettings

BUNDLES = 10
POLICIES = {
    name: IsolationPolicy(
        namespaces=[f"t/n.*{name}"],
        primary=["b.*"],
        auto_failover_policy=AutoFailover(parameters={"min_limit": 1}),
    )
    for name in ("1", "2", "3")
}


def a_cluster(count: int) -> ClusterSnapshot:
    """So many brokers, half of them hot, each with bundles of namespaces under policies."""
    brokers = [f"b{number:04}:1" for number in range(count)]
    namespaces = [f"t/n{number}" for number in range(count * BUNDLES)]
    stats = NamespaceBundleStats(msg_throughput_in=1e6)
    return ClusterSnapshot(
        now_ms=1_000,
        extensible=True,
        reports={},
        load_data={
            broker: BrokerLoadData(
                msg_throughput_in=BUNDLES * 1e6, weighted_max_ema=0.9 if number % 2 else 0.1
            )
            for number, broker in enumerate(brokers)
        },
        top_bundles={
            broker: TopBundlesLoadData(
                top_bundles_load_data=[
                    TopBundle(bundle_name=f"{namespace}/0x00000000_0xffffffff", stats=stats)
                    for namespace in namespaces[number * BUNDLES : (number + 1) * BUNDLES]
                ]
            )
            for number, broker in enumerate(brokers)
        },
        isolation_policies=POLICIES,
        anti_affinity_groups={name: f"g{name[-1]}" for name in namespaces if name[-1] in "12"},
    )


def calls_of_a_cycle(count: int) -> tuple[int, int]:
    """The number of calls of Python functions in a cycle, and of the bundles that it moves."""
    settings = StrategySettings(
        shedder="TransferShedder",
        shed_policy_bundles=True,
        own={TransferSettings: TransferSettings(hits_min=0, brokers_per_cycle_max=count)},
    )
    snapshot, calls = a_cluster(count), 0

    def see(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        plan, _ = cycle.shed(snapshot, settings, Memories())
    finally:
        sys.setprofile(before)
    return calls, len(plan.unloads)


def test_twice_the_brokers_under_policies_take_about_twice_the_calls() -> None:
    """Not four times: namespaces under the same policies share what the filters answer."""
    calls_of_a_cycle(200)  # the names of brokers and namespaces are matched once
    (few, few_moves), (many, many_moves) = calls_of_a_cycle(100), calls_of_a_cycle(200)
    assert few_moves
    assert many_moves == 2 * few_moves
    assert many < 2.5 * few
