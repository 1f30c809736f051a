"""The decisions that a leader would have made in consecutive cycles over recorded load reports.

Each line is a cycle. Averages and memories carry over from line to line and start empty.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from loadmanager.engine.bundles.ranges import (
    BundleRange,
    parse_boundaries,
    split_bundle_name,
    topic_hash,
)
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies.isolation import decode_policies
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan, Skip, Split
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.splitting import threshold
from loadmanager.engine.strategies.splitting.algorithms import HashedTopic, useful_boundaries
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.lab.lines import Line, LineReports, decode_reports


class Deciding:
    """One leader's state over the lines of one input."""

    def __init__(self, rng: cycle.Rng) -> None:
        self._rng = rng
        self._memories = Memories()
        self._view = ClusterView()

    def decide(self, line: Line, strategies: StrategySettings, splits: SplitSettings) -> Plan:
        """Decide one cycle as the leader would. Raises `BadInputError`."""
        snapshot = self._snapshot(line, strategies)
        plan = Plan(registry.acting(strategies, extensible=snapshot.extensible)[0].name)
        if "shed" in line.do:
            to_place = line.place if "place" in line.do else ()
            plan, self._memories = cycle.shed(
                snapshot.with_to_place(to_place), strategies, self._memories
            )
            for unload in plan.unloads:
                self._view.moved(unload.bundle, unload.source, snapshot.now_ms)
                if unload.destination is not None:
                    self._view.placed(unload.bundle, unload.destination, snapshot.now_ms)
        if "split" in line.do:
            chosen, skipped = self._split(line, snapshot, splits, strategies.load_manager_class)
            leaving = {unload.bundle for unload in plan.unloads}
            unloading = tuple(
                Skip(split.bundle, "Unloading", "it leaves its broker in this cycle")
                for split in chosen
                if split.bundle in leaving
            )
            staying = tuple(split for split in chosen if split.bundle not in leaving)
            plan = replace(plan, splits=staying, skipped=(*plan.skipped, *skipped, *unloading))
        if "place" in line.do:
            # with the moves of this cycle
            snapshot = replace(snapshot, pending=self._view.pending())
            placements, self._memories = cycle.place(
                snapshot, line.place, strategies, self._memories, self._rng
            )
            plan = replace(plan, placements=tuple(placements))
            for placement in placements:
                if placement.broker is not None:
                    self._view.placed(placement.bundle, placement.broker, snapshot.now_ms)
        return plan

    def _snapshot(self, line: Line, strategies: StrategySettings) -> ClusterSnapshot:
        reports, now_ms = decode_reports(line.brokers), int(line.now)
        self._observe(line, reports, now_ms, strategies)
        snapshot = self._view.snapshot(
            now_ms,
            strategies,
            isolation_policies=decode_policies(bytes(line.isolation_policies)),
            anti_affinity_groups={
                name: namespace.anti_affinity_group
                for name, namespace in line.namespaces.items()
                if namespace.anti_affinity_group
            },
            failure_domains=line.failure_domains,
            versions=line.versions,
        )
        averages = {**snapshot.time_averages, **line.broker_time_averages}
        return replace(
            snapshot,
            time_averages=averages,
            owners=line.owners,
            unusable=reports.unusable,
            pause_s=line.pause_seconds,
        )

    def _observe(
        self, line: Line, reports: LineReports, now_ms: int, strategies: StrategySettings
    ) -> None:
        """Feed a line to the view. A line names all brokers, so the others are gone."""
        view = self._view
        usable: dict[str, LocalBrokerData | BrokerLoadData] = {**reports.local, **reports.load}
        for broker in (view.reports.keys() | view.load_data.keys()) - usable.keys():
            view.gone(broker, now_ms)
        for broker in sorted(usable):
            view.observe(broker, usable[broker], now_ms)
            self._memories = cycle.observe(broker, usable[broker], strategies, self._memories)
        view.observe_top_bundles(line.top_bundles)
        if not line.now:
            view.forget_ageing()
        if line.bundle_data is not None:
            view.restore(line.bundle_data, now_ms)
        view.know_moves(
            {bundle: int(at_ms) for bundle, at_ms in line.recently_unloaded.items()},
            {broker: int(at_ms) for broker, at_ms in line.recently_unloaded_brokers.items()},
        )

    def _split(
        self, line: Line, snapshot: ClusterSnapshot, settings: SplitSettings, load_manager: str
    ) -> tuple[tuple[Split, ...], tuple[Skip, ...]]:
        topics = {
            bundle: {
                name: HashedTopic(
                    topic_hash(name) if topic.hash is None else topic.hash,
                    topic.msg_rate,
                    topic.msg_throughput,
                )
                for name, topic in by_name.items()
            }
            for bundle, by_name in line.topics.items()
        }
        if line.split:
            return _of_bundles(line, *_requested(line, topics, settings))
        if not settings.enabled:
            skip = Skip("cluster", "SplitDisabled", "loadBalancerAutoBundleSplitEnabled")
            return (), (skip,)
        counts = _bundle_counts(line, snapshot)
        if snapshot.extensible or Manager.of(load_manager) is Manager.EXTENSIBLE:
            splits, self._memories = threshold.extensible(
                snapshot, settings, topics, counts, self._memories
            )
        else:
            splits = threshold.modular(snapshot, settings, topics, counts)
        return _of_bundles(line, splits.splits, splits.skipped)


def _bundle_counts(line: Line, snapshot: ClusterSnapshot) -> dict[str, int]:
    """The number of each namespace's bundles: by its boundaries, else as many as are reported."""
    reported = {
        bundle
        for report in snapshot.reports.values()
        for bundle in (*report.bundles, *report.last_stats)
    }
    for top in snapshot.top_bundles.values():
        reported.update(bundle.bundle_name for bundle in top.top_bundles_load_data)
    counts = Counter(split_bundle_name(bundle)[0] for bundle in reported)
    given = {name: len(namespace.boundaries) - 1 for name, namespace in line.namespaces.items()}
    return {**counts, **{name: count for name, count in given.items() if count > 0}}


def _requested(
    line: Line, topics: threshold.Topics, settings: SplitSettings
) -> tuple[tuple[Split, ...], tuple[Skip, ...]]:
    splits: list[Split] = []
    skipped: list[Skip] = []
    for request in line.split:
        boundaries, why_not = useful_boundaries(
            request.algorithm or settings.algorithm,
            BundleRange.parse(split_bundle_name(request.bundle)[1]),
            topics.get(request.bundle, {}),
            limits=settings.flow_limits,
            positions=request.positions,
        )
        split = Split(request.bundle, boundaries, "Admin")
        if split in splits:
            skipped.append(Skip(request.bundle, "AlreadyPlanned", "twice in one cycle"))
        elif boundaries:
            splits.append(split)
        else:
            skipped.append(Skip(request.bundle, "Unsplittable", why_not))
    return tuple(splits), tuple(skipped)


def _of_bundles(
    line: Line, splits: tuple[Split, ...], skipped: tuple[Skip, ...]
) -> tuple[tuple[Split, ...], tuple[Skip, ...]]:
    """The splits of bundles that exist by their namespace's boundaries; the others are skipped."""
    existing: list[Split] = []
    gone: list[Skip] = []
    for split in splits:
        name, text = split_bundle_name(split.bundle)
        namespace, span = line.namespaces.get(name), BundleRange.parse(text)
        edges = parse_boundaries(namespace.boundaries) if namespace and namespace.boundaries else ()
        if edges and (span.lower, span.upper) not in zip(edges, edges[1:], strict=False):
            gone.append(
                Skip(split.bundle, "NoSuchBundle", "the namespace's boundaries are others by now")
            )
        else:
            existing.append(split)
    return tuple(existing), (*skipped, *gone)
