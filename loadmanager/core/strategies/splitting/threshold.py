"""Which bundles are too big (Pulsar `impl.BundleSplitterTask`, the modular manager's rule)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loadmanager.core.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.core.load.reports import NamespaceBundleStats
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.decision import Skip, Split
from loadmanager.core.strategies.splitting.algorithms import FlowLimits, TopicLoad, boundaries
from loadmanager.core.strategies.splitting.settings import SplitSettings

MIB = 1024 * 1024
TOPICS_MIN = 2


@dataclass(frozen=True, slots=True)
class Splits:
    """The bundles to cut, and a reason for each that is too big and is not cut."""

    splits: tuple[Split, ...]
    skipped: tuple[Skip, ...]


def limits_of(settings: SplitSettings) -> FlowLimits:
    """What a bundle may carry, for the flow-or-qps algorithm."""
    return FlowLimits(settings.msg_rate_max, settings.bandwidth_mib_max * MIB, settings.flow_difference_percent / 100)


def split(
    snapshot: ClusterSnapshot, settings: SplitSettings, topics: Mapping[str, Mapping[str, TopicLoad]], bundle_counts: Mapping[str, int]
) -> Splits:
    """Every bundle that exceeds a threshold, within the namespace's maximum number of bundles.

    `topics` are the loads of each bundle's topics; `bundle_counts` how many bundles each namespace has.
    """
    chosen: list[Split] = []
    skipped: list[Skip] = []
    counts = dict(bundle_counts)
    for broker in snapshot.brokers:
        for bundle, stats in sorted(snapshot.reports[broker].last_stats.items()):
            reason = _too_big(snapshot, bundle, stats, settings)
            if reason is None:
                continue
            namespace, span = split_bundle_name(bundle)
            cuts = boundaries(settings.algorithm, BundleRange.parse(span), topics.get(bundle, {}), limits=limits_of(settings))
            if counts.get(namespace, 0) >= settings.bundles_max:
                skipped.append(Skip(bundle, f"MaxBundles: {namespace} has {counts[namespace]} bundles"))
            elif not BundleRange.parse(span).splittable or not cuts:
                skipped.append(Skip(bundle, f"Unsplittable: {reason}, but one topic or one hash carries it; partition the topic"))
            else:
                counts[namespace] = counts.get(namespace, 0) + len(cuts)
                chosen.append(Split(bundle, cuts, reason))
    return Splits(tuple(chosen), tuple(skipped))


def _too_big(snapshot: ClusterSnapshot, bundle: str, stats: NamespaceBundleStats, settings: SplitSettings) -> str | None:
    """The first threshold that a bundle exceeds; rates and throughputs are long-term averages. All comparisons are strict."""
    if stats.topics < TOPICS_MIN:
        return None
    data = snapshot.bundle_data.get(bundle)
    rate, throughput = (data.long_term_data.rate, data.long_term_data.throughput) if data else (0.0, 0.0)
    if stats.topics > settings.topics_max:
        return "Topics"
    if settings.sessions_max > 0 and stats.producer_count + stats.consumer_count > settings.sessions_max:
        return "Sessions"
    if rate > settings.msg_rate_max:
        return "MsgRate"
    return "Bandwidth" if throughput > settings.bandwidth_mib_max * MIB else None
