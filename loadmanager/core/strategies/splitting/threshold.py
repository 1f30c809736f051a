"""Which bundles are too big: the modular manager's rule (Pulsar `impl.BundleSplitterTask`) and the
extensible one's (`extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl`).

Deviations: what no cut can help (one topic, one hash) is reported and not split again and again; a
split of many cuts counts as many towards the namespace's maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from loadmanager.core.bundles.ranges import BundleRange, split_bundle_name
from loadmanager.core.load.reports import NamespaceBundleStats
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies.decision import Skip, Split
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.splitting.algorithms import (
    POSITIONS,
    RANGE,
    FlowLimits,
    TopicLoad,
    boundaries,
)
from loadmanager.core.strategies.splitting.settings import SplitSettings

MIB = 1024 * 1024
TOPICS_MIN = 2

Topics = Mapping[str, Mapping[str, TopicLoad]]
"""Bundle → topic → its load."""


@dataclass(frozen=True, slots=True)
class Splits:
    """The bundles to cut, and a reason for each that is too big and is not cut."""

    splits: tuple[Split, ...]
    skipped: tuple[Skip, ...]


def limits_of(settings: SplitSettings) -> FlowLimits:
    """What a bundle may carry, for the flow-or-qps algorithm."""
    return FlowLimits(
        settings.msg_rate_max,
        settings.bandwidth_mib_max * MIB,
        settings.flow_difference_percent / 100,
    )


def modular(
    snapshot: ClusterSnapshot,
    settings: SplitSettings,
    topics: Topics | None,
    bundle_counts: Mapping[str, int],
) -> Splits:
    """Every bundle that exceeds a threshold, within the namespace's maximum number of bundles;
    rates are long-term averages.

    `topics` are the loads of each bundle's topics; None when only the owners know them: then the
    splits have no cuts, and the owner finds them. `bundle_counts` is how many bundles each
    namespace has, 0 for one without boundaries.
    """
    cutting = _Cutting(settings, topics, dict(bundle_counts))
    if len(snapshot.available) < 2:
        # Pulsar's rule
        return Splits((), (Skip("cluster", "NoOtherBroker: there is one broker, or none"),))
    for broker, bundle, stats in _reported(snapshot):
        if snapshot.owners.get(bundle, broker) != broker:
            continue
        data = snapshot.bundle_data.get(bundle)
        rate, throughput = (
            (data.long_term_data.rate, data.long_term_data.throughput) if data else (0.0, 0.0)
        )
        reason = _too_big(stats, rate, throughput, settings)
        if reason is not None:
            cutting.cut(bundle, stats, reason)
    return cutting.answer()


def extensible(
    snapshot: ClusterSnapshot,
    settings: SplitSettings,
    topics: Topics,
    bundle_counts: Mapping[str, int],
    memory: Memory,
) -> tuple[Splits, Memory]:
    """Every bundle that exceeded a threshold in enough checks in a row; rates are those of this
    moment. One cut each, some splits a cycle.
    """
    cutting = _Cutting(settings, topics, dict(bundle_counts), cuts_max=1)
    hits: dict[str, int] = {}
    for broker, bundle, stats in _reported(snapshot):
        before = memory.split_hits.get(bundle, 0)
        if before:
            hits[bundle] = before
        if (
            len(cutting.splits) >= settings.splits_per_cycle_max
            or snapshot.owners.get(bundle, broker) != broker
        ):
            continue
        reason = _too_big(stats, stats.rate, stats.throughput, settings)
        if stats.topics < TOPICS_MIN:
            if reason is not None:
                cutting.cut(bundle, stats, reason)
            continue
        hits.pop(bundle, None)
        if reason is None:
            continue
        hits[bundle] = before + 1
        if hits[bundle] <= settings.hits_min:
            cutting.skipped.append(
                Skip(
                    bundle,
                    f"HitCount: {reason} exceeded in {hits[bundle]} of more than "
                    f"{settings.hits_min} checks in a row",
                )
            )
        elif cutting.cut(bundle, stats, reason):
            del hits[bundle]
    return cutting.answer(), replace(memory, split_hits=hits)


def _reported(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str, NamespaceBundleStats]]:
    """Broker, bundle and stats, in order of their names: of the load reports, in the extensible
    manager of the published bundles.
    """
    for broker in snapshot.brokers:
        for bundle, stats in sorted(snapshot.reports[broker].last_stats.items()):
            yield broker, bundle, stats
    if snapshot.extensible:
        for broker in sorted(snapshot.top_bundles):
            for item in sorted(
                snapshot.top_bundles[broker].top_bundles_load_data,
                key=lambda item: item.bundle_name,
            ):
                yield broker, item.bundle_name, item.stats


def _too_big(
    stats: NamespaceBundleStats, rate: float, throughput: float, settings: SplitSettings
) -> str | None:
    """The first threshold that a bundle exceeds. All comparisons are strict."""
    if stats.topics > settings.topics_max:
        return "Topics"
    if (
        settings.sessions_max > 0
        and stats.producer_count + stats.consumer_count > settings.sessions_max
    ):
        return "Sessions"
    if rate > settings.msg_rate_max:
        return "MsgRate"
    return "Bandwidth" if throughput > settings.bandwidth_mib_max * MIB else None


class _Cutting:
    """The splits of one cycle as they are chosen."""

    def __init__(
        self,
        settings: SplitSettings,
        topics: Topics | None,
        counts: dict[str, int],
        cuts_max: int | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._counts = counts
        self._cuts_max = cuts_max
        self.splits: list[Split] = []
        self.skipped: list[Skip] = []

    def answer(self) -> Splits:
        """What was chosen."""
        return Splits(tuple(self.splits), tuple(self.skipped))

    def cut(self, bundle: str, stats: NamespaceBundleStats, reason: str) -> bool:
        """Choose a bundle that is too big, or say why not; whether it was chosen."""
        namespace, span = split_bundle_name(bundle)
        if any(split.bundle == bundle for split in self.splits):
            return self._no(bundle, "AlreadyPlanned: two brokers report it")
        if self._counts.get(namespace) == 0:
            return self._no(bundle, f"NoBoundaries: {namespace} is gone, or cannot be read")
        count = self._counts.get(namespace, 0)
        if count >= self._settings.bundles_max:
            return self._no(bundle, f"MaxBundles: {namespace} has {count} bundles")
        if stats.topics < TOPICS_MIN:
            return self._no(
                bundle, f"Unsplittable: {reason}, but one topic carries it; partition the topic"
            )
        if self._topics is None:
            return self._choose(bundle, (), reason)
        topics = self._topics.get(bundle, {})
        cuts, why_not = useful_cuts(
            self._settings.algorithm, BundleRange.parse(span), topics, settings=self._settings
        )
        if not cuts:
            return self._no(bundle, f"Unsplittable: {reason}, but {why_not}")
        if self._cuts_max is not None and len(cuts) > self._cuts_max:
            return self._no(
                bundle,
                f"Unsplittable: {self._settings.algorithm} makes {len(cuts)} cuts, and automatic "
                "splits make one",
            )
        if count + len(cuts) > self._settings.bundles_max:
            return self._no(
                bundle,
                f"MaxBundles: {namespace} has {count} bundles, and {len(cuts)} cuts are too many",
            )
        return self._choose(bundle, cuts, reason)

    def _choose(self, bundle: str, cuts: tuple[int, ...], reason: str) -> bool:
        namespace = split_bundle_name(bundle)[0]
        self._counts[namespace] = self._counts.get(namespace, 0) + max(len(cuts), 1)
        self.splits.append(Split(bundle, cuts, reason))
        return True

    def _no(self, bundle: str, reason: str) -> bool:
        self.skipped.append(Skip(bundle, reason))
        return False


def useful_cuts(
    algorithm: str,
    span: BundleRange,
    topics: Mapping[str, TopicLoad],
    *,
    settings: SplitSettings,
    positions: tuple[int, ...] = (),
) -> tuple[tuple[int, ...], str]:
    """The cuts, or none and why they would not help.

    Raises `BadInputError` for an unknown algorithm.
    """
    cuts = boundaries(algorithm, span, topics, positions=positions, limits=limits_of(settings))
    hashes = sorted({topic.hash for topic in topics.values()})
    if not span.splittable:
        return (), "it is one hash wide"
    if len(hashes) == 1:
        return (
            (),
            (
                f"{'topics of one hash carry' if len(topics) > 1 else 'one topic carries'} it; "
                "partition the topic"
            ),
        )
    if not cuts:
        return (), f"{algorithm} finds no useful cut among the {len(topics)} topics that are known"
    if cuts[0] <= span.lower or cuts[-1] >= span.upper:
        return (), f"{algorithm} cuts at its edge"
    # A range cut with all topics on one side still closes in on them, and the positions are the
    # operator's wish; other cuts would be made again and again.
    if (
        hashes
        and algorithm not in (RANGE, POSITIONS)
        and not any(hashes[0] < cut <= hashes[-1] for cut in cuts)
    ):
        return (), f"{algorithm} leaves all topics on one side"
    return cuts, ""
