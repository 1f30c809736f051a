"""TransferShedder's input, derived from the modular manager's reports, so that a modular leader can
run it.

In the extensible manager, brokers compute this themselves (`extensions.data.BrokerLoadData`,
`extensions.models.TopKBundles`). Deviation: an average advances once a cycle here, not with every
tick and every scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.bundle_columns import figures_of
from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    LocalBrokerData,
    NamespaceBundleStats,
    TopBundle,
    TopBundlesLoadData,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage import Weights, exponential_average, max_weighted_usage
from loadmanager.engine.strategies.filters import has_policy
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.names import is_system_namespace

UNWEIGHTED = Weights(direct_memory=1.0)

LoadAverages = Mapping[str, tuple[float, float]]
"""brokerId → exponential averages of its usage and throughput."""


def with_load_data(
    snapshot: ClusterSnapshot, settings: StrategySettings, before: LoadAverages
) -> tuple[ClusterSnapshot, LoadAverages]:
    """The snapshot with load data and top bundles for every report, and the averages advanced."""
    data = {
        broker: load_data(snapshot.reports[broker], settings, before.get(broker), snapshot.now_ms)
        for broker in snapshot.brokers
    }
    averages = {
        broker: (load.weighted_max_ema, load.msg_throughput_ema) for broker, load in data.items()
    }
    movable = movable_namespaces(snapshot, settings)
    top = {
        broker: top_bundles(
            snapshot,
            snapshot.reports[broker].last_stats,
            settings,
            settings.bundles_in_report_max,
            movable=movable,
        )
        for broker in snapshot.brokers
    }
    return replace(snapshot, load_data=data, top_bundles=top), averages


def load_data(
    report: LocalBrokerData,
    settings: StrategySettings,
    before: tuple[float, float] | None,
    now_ms: int,
) -> BrokerLoadData:
    """A broker's load data (Pulsar `BrokerLoadData.update`). `before`: the averages of its usage
    and throughput so far, which advance.
    """
    usage_before, throughput_before = before or (None, None)
    weight = settings.history_weight
    return BrokerLoadData(
        cpu=report.cpu,
        memory=report.memory,
        direct_memory=report.direct_memory,
        bandwidth_in=report.bandwidth_in,
        bandwidth_out=report.bandwidth_out,
        msg_throughput_in=report.msg_throughput_in,
        msg_throughput_out=report.msg_throughput_out,
        msg_rate_in=report.msg_rate_in,
        msg_rate_out=report.msg_rate_out,
        bundle_count=report.num_bundles,
        topics=report.num_topics,
        max_resource_usage=max_weighted_usage(report, UNWEIGHTED),
        weighted_max_ema=exponential_average(usage_before, _weighted_max(report, settings), weight),
        msg_throughput_ema=exponential_average(throughput_before, report.throughput, weight),
        updated_at=report.last_update or now_ms,
    )


def _weighted_max(report: LocalBrokerData, settings: StrategySettings) -> float:
    """The most used resource after weighting, heap memory included, as a fraction."""
    weighted = (
        report.cpu.percent * settings.cpu_weight,
        report.memory.percent * settings.memory_weight,
        report.direct_memory.percent * settings.direct_memory_weight,
        report.bandwidth_in.percent * settings.bandwidth_in_weight,
        report.bandwidth_out.percent * settings.bandwidth_out_weight,
    )
    return max(weighted) / 100


def movable_namespaces(
    snapshot: ClusterSnapshot, settings: StrategySettings
) -> Callable[[str], bool]:
    """A test for namespaces whose bundles may be moved, which remembers its answers."""

    @cache
    def movable(namespace: str) -> bool:
        if is_system_namespace(namespace) or namespace in settings.excluded_namespaces:
            return False
        return settings.shed_policy_bundles or not has_policy(snapshot, namespace)

    return movable


def top_bundles(
    snapshot: ClusterSnapshot,
    stats: Mapping[str, NamespaceBundleStats],
    settings: StrategySettings,
    count: int,
    *,
    movable: Callable[[str], bool] | None = None,
) -> TopBundlesLoadData:
    """The `count` busiest bundles that may be moved (-1: all of them), in ascending order.

    `movable`: what `movable_namespaces` returned, to be shared by several calls.
    """
    may_move = movable or movable_namespaces(snapshot, settings)
    names = list(stats)
    figures, cached = figures_of(stats, names)
    keys = np.array(_order(figures, cached))
    order = np.lexsort(keys)
    busy = order[figures[0, order] + figures[1, order] > 0].tolist()
    chosen: list[tuple[list[float], str]] = []
    for at in reversed(busy):
        key = keys[::-1, at].tolist()
        if 0 <= count <= len(chosen) and (not chosen or key < chosen[-1][0]):
            break
        if may_move(split_bundle_name(names[at])[0]):
            chosen.append((key, names[at]))
    chosen.sort()  # equal ones in order of name
    return TopBundlesLoadData(
        top_bundles_load_data=[
            TopBundle(bundle_name=name, stats=stats[name])
            for _, name in (chosen[max(len(chosen) - count, 0) :] if count >= 0 else chosen)
        ]
    )


def _order(figures: Array, cached: Array) -> tuple[Array, ...]:
    """Pulsar's comparison of bundles, the most important figure last: figures that differ by less
    than a step are equal.
    """
    bytes_in, bytes_out, rate_in, rate_out, topics, consumers, producers = figures
    return (
        np.trunc(cached) // 100_000,
        np.trunc(topics + consumers + producers) // 500,
        _rounded(rate_in + rate_out, 100),
        _rounded(bytes_out, 1e5),
        _rounded(bytes_in, 1e5),
    )


def _rounded(values: Array, step: float) -> Array:
    """`values` in steps, halves rounded up as Java does."""
    steps: Array = np.floor(values / step + 0.5)
    return steps
