"""A cluster of the engine alone: what its brokers report, and a snapshot of that. Nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats, ResourceUsage
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.settings import StrategySettings


def a_report(
    stats: Mapping[str, NamespaceBundleStats], *, cpu: float | ResourceUsage = 0.0, **fields: Any
) -> LocalBrokerData:
    """The report of a broker with these bundles, and so many percent (or this usage) of its CPU;
    `fields` are further ones of it.
    """
    usual = {
        "cpu": cpu if isinstance(cpu, ResourceUsage) else ResourceUsage(usage=cpu, limit=100),
        "msg_throughput_in": sum(traffic.msg_throughput_in for traffic in stats.values()),
        "msg_rate_in": sum(traffic.msg_rate_in for traffic in stats.values()),
    }
    return LocalBrokerData(bundles=list(stats), last_stats=dict(stats), **{**usual, **fields})


def a_view(reports: Mapping[str, LocalBrokerData], now_ms: int = 1) -> ClusterView:
    """A leader's view after each broker's first report."""
    view = ClusterView()
    for broker, report in reports.items():
        view.observe(broker, report, now_ms)
    return view


def without_policies(
    view: ClusterView, settings: StrategySettings, now_ms: int = 2, *, passing: bool = False
) -> ClusterSnapshot:
    """A snapshot of a cluster in which no policy says where bundles may be."""
    return view.snapshot(
        now_ms,
        settings,
        isolation_policies={},
        anti_affinity_groups={},
        failure_domains={},
        passing=passing,
    )
