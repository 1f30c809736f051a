"""Consecutive cycles of one leader over recorded snapshots: what each would have decided.

State carries over from line to line and starts empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loadmanager.core.bundles.ranges import (
    BundleRange,
    parse_boundaries,
    split_bundle_name,
    topic_hash,
)
from loadmanager.core.load.cluster_view import ClusterView
from loadmanager.core.load.reports import BrokerLoadData, LocalBrokerData
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.policies.isolation import decode_policies
from loadmanager.core.strategies import cycle, registry
from loadmanager.core.strategies.decision import Plan, Skip, Split
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting import threshold
from loadmanager.core.strategies.splitting.algorithms import TopicLoad
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.simulator.lines import Line, Reports, SplitLine, decode_reports


class Deciding:
    """One leader's state over the lines of one input."""

    def __init__(self, rng: cycle.Rng) -> None:
        self._rng = rng
        self._memory = Memory()
        self._view = ClusterView()

    def decide(self, line: Line, strategies: StrategySettings, splits: SplitSettings) -> Plan:
        """What the leader does in this cycle. Raises `BadInputError`."""
        snapshot = self._snapshot(line, strategies)
        plan = Plan(cycle.shedder_of(snapshot, strategies).name)
        if "shed" in line.do:
            before = snapshot.with_to_place(line.place if "place" in line.do else ())
            plan, self._memory = cycle.shed(before, strategies, self._memory)
            for unload in plan.unloads:
                self._view.moved(unload.bundle, unload.source, snapshot.now_ms)
                if unload.destination is not None:
                    self._view.placed(unload.bundle, unload.destination, snapshot.now_ms)
        if "split" in line.do:
            done, skipped = self._split(line, snapshot, splits, strategies.load_manager_class)
            leaving = {unload.bundle for unload in plan.unloads}
            late = tuple(
                Skip(split.bundle, "Unloading: it leaves its broker in this cycle")
                for split in done
                if split.bundle in leaving
            )
            staying = tuple(split for split in done if split.bundle not in leaving)
            plan = replace(plan, splits=staying, skipped=(*plan.skipped, *skipped, *late))
        if "place" in line.do:
            # with the moves of this cycle
            snapshot = replace(snapshot, pending=self._view.pending())
            placements, self._memory = cycle.place(
                snapshot, line.place, strategies, self._memory, self._rng
            )
            plan = replace(plan, placements=tuple(placements))
            for item in placements:
                if item.broker is not None:
                    self._view.placed(item.bundle, item.broker, snapshot.now_ms)
        return plan

    def _snapshot(self, line: Line, strategies: StrategySettings) -> ClusterSnapshot:
        found, now_ms = decode_reports(line.brokers), int(line.now)
        self._observe(line, found, now_ms, strategies)
        snapshot = self._view.snapshot(
            now_ms,
            strategies,
            isolation_policies=decode_policies(bytes(line.isolation_policies)),
            anti_affinity_groups={
                name: item.anti_affinity_group
                for name, item in line.namespaces.items()
                if item.anti_affinity_group
            },
            failure_domains=line.failure_domains,
        )
        averages = {**snapshot.time_averages, **line.broker_time_averages}
        return replace(
            snapshot, time_averages=averages, owners=line.owners, unusable=found.unusable
        )

    def _observe(
        self, line: Line, found: Reports, now_ms: int, strategies: StrategySettings
    ) -> None:
        """Feed the view what a line says. A line names all brokers, so the others are gone."""
        view = self._view
        reports: dict[str, LocalBrokerData | BrokerLoadData] = {**found.local, **found.load}
        for broker in (view.reports.keys() | view.load_data.keys()) - reports.keys():
            view.gone(broker, now_ms)
        for broker in sorted(reports):
            view.observe(broker, reports[broker], now_ms)
            self._memory = cycle.observe(broker, reports[broker], strategies, self._memory)
        view.observe_top_bundles(line.top_bundles)
        if not line.now:
            view.forget_passing()
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
                name: TopicLoad(
                    topic_hash(name) if item.hash is None else item.hash,
                    item.msg_rate,
                    item.msg_throughput,
                )
                for name, item in found.items()
            }
            for bundle, found in line.topics.items()
        }
        if line.split:
            return _of_bundles(line, *self._explicit(line.split, topics, settings))
        counts: dict[str, int] = {}
        known = {
            bundle
            for report in snapshot.reports.values()
            for bundle in (*report.bundles, *report.last_stats)
        }
        known.update(
            item.bundle_name
            for top in snapshot.top_bundles.values()
            for item in top.top_bundles_load_data
        )
        for bundle in known:
            namespace = split_bundle_name(bundle)[0]
            counts[namespace] = counts.get(namespace, 0) + 1
        for name, item in line.namespaces.items():
            if item.boundaries:
                counts[name] = len(item.boundaries) - 1
        if not settings.enabled:
            return (), (Skip("cluster", "SplitDisabled: loadBalancerAutoBundleSplitEnabled"),)
        if snapshot.extensible or registry.short_name(load_manager) == "ExtensibleLoadManagerImpl":
            answer, self._memory = threshold.extensible(
                snapshot, settings, topics, counts, self._memory
            )
        else:
            answer = threshold.modular(snapshot, settings, topics, counts)
        return _of_bundles(line, answer.splits, answer.skipped)

    @staticmethod
    def _explicit(
        asked: list[SplitLine],
        topics: Mapping[str, Mapping[str, TopicLoad]],
        settings: SplitSettings,
    ) -> tuple[tuple[Split, ...], tuple[Skip, ...]]:
        done: list[Split] = []
        skipped: list[Skip] = []
        for item in asked:
            cuts, why_not = threshold.useful_cuts(
                item.algorithm or settings.algorithm,
                BundleRange.parse(split_bundle_name(item.bundle)[1]),
                topics.get(item.bundle, {}),
                settings=settings,
                positions=tuple(item.positions),
            )
            if Split(item.bundle, cuts, "Admin") in done:
                skipped.append(Skip(item.bundle, "AlreadyPlanned: twice in one cycle"))
            elif cuts:
                done.append(Split(item.bundle, cuts, "Admin"))
            else:
                skipped.append(Skip(item.bundle, f"Unsplittable: {why_not}"))
        return tuple(done), tuple(skipped)


def _of_bundles(
    line: Line, splits: tuple[Split, ...], skipped: tuple[Skip, ...]
) -> tuple[tuple[Split, ...], tuple[Skip, ...]]:
    """Splits of what is a bundle by its namespace's boundaries; the others are reported."""
    done: list[Split] = []
    gone: list[Skip] = []
    for split in splits:
        namespace, text = split_bundle_name(split.bundle)
        known = line.namespaces.get(namespace)
        edges = parse_boundaries(known.boundaries) if known is not None and known.boundaries else ()
        span = BundleRange.parse(text)
        if edges and (span.lower, span.upper) not in zip(edges, edges[1:], strict=False):
            gone.append(
                Skip(split.bundle, "NoSuchBundle: the namespace's boundaries are others by now")
            )
        else:
            done.append(split)
    return tuple(done), (*skipped, *gone)
