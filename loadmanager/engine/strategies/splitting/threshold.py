"""Bundles that are too big: the modular manager's rule (Pulsar `impl.BundleSplitterTask`) and the
extensible one's (`extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl`).

Deviations: a bundle that no boundary can help (one topic, one hash) is reported, not split again
and again; a split at many boundaries counts as many towards the namespace's maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import msgspec

from loadmanager.engine.bundles.ranges import BundleRange, bundles_text, split_bundle_name
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Skip, Split
from loadmanager.engine.strategies.splitting.algorithms import HashedTopic, useful_boundaries
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.reason import Reason
from loadmanager.kit.units import MIB

TOPICS_MIN = 2
BROKERS_MIN = 2
"""Pulsar's rule: a broker without another one does not split."""

Topics = Mapping[str, Mapping[str, HashedTopic]]
"""Bundle → topic → its load."""


@dataclass(frozen=True, slots=True)
class Splits:
    """The bundles to split, and a reason for each that is too big and stays whole."""

    splits: tuple[Split, ...]
    skipped: tuple[Skip, ...]


def modular(
    snapshot: ClusterSnapshot,
    settings: SplitSettings,
    topics: Topics | None,
    bundle_counts: Mapping[str, int],
) -> Splits:
    """Every bundle that exceeds a threshold, within the namespace's maximum number of bundles;
    rates are long-term averages.

    `topics` are the loads of each bundle's topics; None if only the owners know them, who then
    choose the boundaries. `bundle_counts` is the number of bundles of each of
    `namespaces_to_count`, 0 for one without boundaries.
    """
    chosen = _ChosenSplits(settings, topics, bundle_counts)
    if len(snapshot.available) < BROKERS_MIN:
        return Splits((), (Skip("cluster", "NoOtherBroker", "there is one broker, or none"),))
    for bundle, stats, too_big in _exceeding(snapshot, settings):
        chosen.choose(bundle, stats, too_big)
    return chosen.result()


def namespaces_to_count(snapshot: ClusterSnapshot, settings: SplitSettings) -> list[str]:
    """The namespaces whose number of bundles `modular` needs, in order of their names: those of
    bundles that exceed a threshold and that a split can help.
    """
    if len(snapshot.available) < BROKERS_MIN:
        return []
    return sorted(
        {
            split_bundle_name(bundle)[0]
            for bundle, stats, _ in _exceeding(snapshot, settings)
            if stats.topics >= TOPICS_MIN
        }
    )


def _exceeding(
    snapshot: ClusterSnapshot, settings: SplitSettings
) -> Iterator[tuple[str, NamespaceBundleStats, _TooBig]]:
    """The bundles that exceed a threshold by their long-term averages, in order of their names."""
    for broker, bundle, stats in _reported(snapshot):
        if snapshot.owners.get(bundle, broker) != broker:
            continue
        data = snapshot.bundle_data.get(bundle)
        rate, throughput = (
            (data.long_term_data.rate, data.long_term_data.throughput) if data else (0.0, 0.0)
        )
        too_big = _too_big(stats, rate, throughput, settings)
        if too_big is not None:
            yield bundle, stats, too_big


def extensible(
    snapshot: ClusterSnapshot,
    settings: SplitSettings,
    topics: Topics,
    bundle_counts: Mapping[str, int],
    memories: Memories,
) -> tuple[Splits, Memories]:
    """Every bundle that exceeded a threshold in enough checks in a row; rates are those of this
    moment. One boundary each.

    Each broker decides about its own bundles, so the limits on splits in a cycle and on a
    namespace's bundles hold for each broker by itself.
    """
    chosen_by: dict[str, _ChosenSplits] = {}
    hits: dict[tuple[str, str], int] = {}
    for broker, bundle, stats in _reported(snapshot):
        of_broker = broker, bundle
        before = memories.split_hits.get(of_broker, 0)
        if before:
            hits[of_broker] = before
        if broker not in chosen_by:
            chosen_by[broker] = _ChosenSplits(settings, topics, bundle_counts, boundaries_max=1)
        chosen = chosen_by[broker]
        if (
            len(chosen.splits) >= settings.splits_per_cycle_max
            or snapshot.owners.get(bundle, broker) != broker
        ):
            continue
        too_big = _too_big(stats, stats.rate, stats.throughput, settings)
        if stats.topics < TOPICS_MIN:
            if too_big is not None:
                chosen.choose(bundle, stats, too_big)
            continue
        hits.pop(of_broker, None)
        if too_big is None:
            continue
        hits[of_broker] = before + 1
        if hits[of_broker] <= settings.hits_min:
            chosen.skipped.append(
                Skip(
                    bundle,
                    "HitCount",
                    f"{too_big.reason} exceeded in {hits[of_broker]} of more than "
                    f"{settings.hits_min} checks in a row",
                )
            )
        elif chosen.choose(bundle, stats, too_big):
            del hits[of_broker]
    splits = {
        bundle: split for chosen in chosen_by.values() for bundle, split in chosen.splits.items()
    }
    skipped = tuple(skip for chosen in chosen_by.values() for skip in chosen.skipped)
    memories = msgspec.structs.replace(memories, split_hits=hits)
    return Splits(tuple(splits.values()), skipped), memories


def _reported(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str, NamespaceBundleStats]]:
    """Broker, bundle and its traffic, in order of their names: from the load reports, or from the
    published bundles of the extensible manager.
    """
    for broker in snapshot.brokers:
        for bundle, stats in sorted(snapshot.reports[broker].last_stats.items()):
            yield broker, bundle, stats
    if snapshot.extensible:
        for broker in sorted(snapshot.top_bundles.keys() & snapshot.available):
            published = snapshot.top_bundles[broker].top_bundles_load_data
            for top in sorted(published, key=attrgetter("bundle_name")):
                yield broker, top.bundle_name, top.stats


class _TooBig(NamedTuple):
    """The threshold that a bundle exceeds, and by which figure."""

    reason: str
    why: Mapping[str, float]


def _too_big(
    stats: NamespaceBundleStats, rate: float, throughput: float, settings: SplitSettings
) -> _TooBig | None:
    """The first threshold that a bundle exceeds; a bundle at a threshold does not exceed it."""
    sessions = stats.producer_count + stats.consumer_count
    bytes_max = settings.bandwidth_mib_max * MIB
    if stats.topics > settings.topics_max:
        return _TooBig("Topics", {"topics": stats.topics, "limit": settings.topics_max})
    if settings.sessions_max > 0 and sessions > settings.sessions_max:
        return _TooBig("Sessions", {"sessions": sessions, "limit": settings.sessions_max})
    if rate > settings.msg_rate_max:
        return _TooBig("MsgRate", {"msgRate": rate, "limit": settings.msg_rate_max})
    if throughput > bytes_max:
        return _TooBig("Bandwidth", {"bytesPerSecond": throughput, "limit": bytes_max})
    return None


class _ChosenSplits:
    """The splits of one cycle as they are chosen."""

    def __init__(
        self,
        settings: SplitSettings,
        topics: Topics | None,
        bundle_counts: Mapping[str, int],
        boundaries_max: int | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._counts = dict(bundle_counts)
        self._boundaries_max = boundaries_max
        self.splits: dict[str, Split] = {}
        self.skipped: list[Skip] = []

    def result(self) -> Splits:
        """The chosen splits, and the reasons against the others."""
        return Splits(tuple(self.splits.values()), tuple(self.skipped))

    def choose(self, bundle: str, stats: NamespaceBundleStats, too_big: _TooBig) -> bool:
        """Choose a bundle that is too big, or record why not. Returns whether it was chosen."""
        boundaries, why_not = self._boundaries(bundle, stats, too_big.reason)
        if why_not is not None:
            self.skipped.append(Skip(bundle, why_not.code, why_not.text))
            return False
        namespace = split_bundle_name(bundle)[0]
        self._counts[namespace] = self._counts.get(namespace, 0) + max(len(boundaries), 1)
        self.splits[bundle] = Split(bundle, boundaries, *too_big)
        return True

    def _boundaries(
        self, bundle: str, stats: NamespaceBundleStats, reason: str
    ) -> tuple[tuple[int, ...], Reason | None]:
        """The boundaries (none if the owner is to choose them), or why the bundle stays whole."""
        namespace, span = split_bundle_name(bundle)
        count, bundles_max = self._counts.get(namespace), self._settings.bundles_max
        if bundle in self.splits:
            return (), Reason("AlreadyPlanned", "two brokers report it")
        if stats.topics < TOPICS_MIN:
            text = f"{reason}, but one topic carries it; partition the topic"
            return (), Reason("Unsplittable", text)
        if count == 0:
            return (), Reason("NoBoundaries", f"{namespace} is gone, or cannot be read")
        count = count or 0
        if count >= bundles_max:
            return (), Reason("MaxBundles", f"{namespace} has {bundles_text(count)}")
        if self._topics is None:
            return (), None
        algorithm = self._settings.algorithm
        boundaries, why_not = useful_boundaries(
            algorithm,
            BundleRange.parse(span),
            self._topics.get(bundle, {}),
            limits=self._settings.flow_limits,
        )
        added = len(boundaries)
        if why_not:
            return (), Reason("Unsplittable", f"{reason}, but {why_not}")
        if self._boundaries_max is not None and added > self._boundaries_max:
            text = f"{algorithm} makes {added} boundaries, and automatic splits make one"
            return (), Reason("Unsplittable", text)
        if count + added > bundles_max:
            text = f"{namespace} has {bundles_text(count)}, and {added} more are too many"
            return (), Reason("MaxBundles", text)
        return boundaries, None
