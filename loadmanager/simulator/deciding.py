"""Consecutive cycles of one leader over recorded snapshots: what each would have decided. State carries over from line to line and starts empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loadmanager.core.bundles.ranges import BundleRange, parse_boundaries, split_bundle_name, topic_hash
from loadmanager.core.load.reports import BundleData, LocalBrokerData, default_bundle_data
from loadmanager.core.load.snapshot import ClusterSnapshot, time_average_of
from loadmanager.core.policies.isolation import decode_policies
from loadmanager.core.strategies import cycle, registry
from loadmanager.core.strategies.decision import Plan, Skip, Split
from loadmanager.core.strategies.memory import Memory
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.splitting import threshold
from loadmanager.core.strategies.splitting.algorithms import TopicLoad
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.simulator.lines import Line, Reports, SplitLine, decode_reports

PENDING_MS_MAX = 60_000
"""A placement that no report shows after this long did not happen, as in the live leader."""


class Deciding:
    """One leader's state over the lines of one input."""

    def __init__(self, rng: cycle.Rng) -> None:
        self._rng = rng
        self._memory = Memory()
        self._bundle_data: dict[str, BundleData] = {}
        self._unloaded_ms: dict[str, int] = {}
        self._unloaded_brokers_ms: dict[str, int] = {}
        self._placed: dict[str, tuple[str, int]] = {}
        """Bundle → where it was placed, and when; until a report shows it."""

    def decide(self, line: Line, strategies: StrategySettings, splits: SplitSettings) -> Plan:
        """What the leader does in this cycle. Raises `BadInputError`."""
        snapshot = self._snapshot(line, strategies)
        plan = Plan(cycle.shedder_name(snapshot, strategies))
        if "shed" in line.do:
            plan, self._memory = cycle.shed(snapshot, strategies, self._memory)
            for unload in plan.unloads:
                self._unloaded_ms[unload.bundle] = snapshot.now_ms
                self._unloaded_brokers_ms[unload.source] = snapshot.now_ms
        if "split" in line.do:
            done, skipped = self._split(line, snapshot, splits, strategies.load_manager_class)
            leaving = {unload.bundle for unload in plan.unloads}
            late = tuple(Skip(split.bundle, "Unloading: it leaves its broker in this cycle") for split in done if split.bundle in leaving)
            staying = tuple(split for split in done if split.bundle not in leaving)
            plan = replace(plan, splits=staying, skipped=(*plan.skipped, *skipped, *late))
        if "place" in line.do:
            snapshot = _with_moves(snapshot, plan)
            placements, self._memory = cycle.place(snapshot, line.place, strategies, self._memory, self._rng)
            plan = replace(plan, placements=tuple(placements))
            self._placed.update((item.bundle, (item.broker, snapshot.now_ms)) for item in placements if item.broker is not None)
        return plan

    def _snapshot(self, line: Line, strategies: StrategySettings) -> ClusterSnapshot:
        found = decode_reports(line.brokers)
        reports, load_data = found.local, found.load
        now_ms = int(line.now)
        self._sample(line, reports)
        self._unloaded_ms.update((bundle, int(at_ms)) for bundle, at_ms in line.recently_unloaded.items())
        self._unloaded_brokers_ms.update((broker, int(at_ms)) for broker, at_ms in line.recently_unloaded_brokers.items())
        oldest_ms = now_ms - strategies.grace_period_minutes * 60_000
        self._unloaded_ms = {bundle: at_ms for bundle, at_ms in self._unloaded_ms.items() if at_ms >= oldest_ms}
        averages = {broker: time_average_of(report, self._bundle_data) for broker, report in reports.items()}
        policies = decode_policies(bytes(line.isolation_policies))
        groups = {name: item.anti_affinity_group for name, item in line.namespaces.items() if item.anti_affinity_group}
        return ClusterSnapshot(
            isolation_policies=policies,
            anti_affinity_groups=groups,
            failure_domains=line.failure_domains if strategies.failure_domains else {},
            now_ms=now_ms,
            reports=reports,
            bundle_data=self._bundle_data,
            time_averages={**averages, **line.broker_time_averages},
            pending=self._pending(line, found),
            recently_unloaded_ms=dict(self._unloaded_ms),
            load_data=load_data,
            top_bundles=line.top_bundles,
            recently_unloaded_brokers_ms=dict(self._unloaded_brokers_ms),
            owners=line.owners,
            unusable=found.unusable,
        )

    def _pending(self, line: Line, found: Reports) -> dict[str, dict[str, BundleData]]:
        """Placements of earlier lines that count until their broker reports them, goes, or a minute passes; without a time none do."""

        def counts(bundle: str, broker: str, at_ms: int) -> bool:
            shown = bundle in found.local[broker].bundles if broker in found.local else bundle in tops.get(broker, ())
            return (broker in found.local or broker in found.load) and int(line.now) - at_ms < PENDING_MS_MAX and not shown

        tops = {broker: {item.bundle_name for item in top.top_bundles_load_data} for broker, top in line.top_bundles.items()}
        placed = self._placed.items() if line.now else ()
        self._placed = {bundle: (broker, at_ms) for bundle, (broker, at_ms) in placed if counts(bundle, broker, at_ms)}
        pending: dict[str, dict[str, BundleData]] = {}
        for bundle, (broker, _) in self._placed.items():
            pending.setdefault(broker, {})[bundle] = self._bundle_data.get(bundle) or default_bundle_data()
        return pending

    def _sample(self, line: Line, reports: Mapping[str, LocalBrokerData]) -> None:
        """The line's averages if it has them, else a sample of each report into ours; bundles that nobody reports are forgotten."""
        if line.bundle_data is not None:
            self._bundle_data = line.bundle_data
            return
        reported: dict[str, BundleData] = {}
        for broker in sorted(reports):
            for bundle, stats in reports[broker].last_stats.items():
                data = reported[bundle] = self._bundle_data.get(bundle) or default_bundle_data()
                data.update(stats)
        self._bundle_data = reported

    def _split(
        self, line: Line, snapshot: ClusterSnapshot, settings: SplitSettings, load_manager: str
    ) -> tuple[tuple[Split, ...], tuple[Skip, ...]]:
        topics = {
            bundle: {
                name: TopicLoad(topic_hash(name) if item.hash is None else item.hash, item.msg_rate, item.msg_throughput)
                for name, item in found.items()
            }
            for bundle, found in line.topics.items()
        }
        if line.split:
            return _of_bundles(line, *self._explicit(line.split, topics, settings))
        counts: dict[str, int] = {}
        known = {bundle for report in snapshot.reports.values() for bundle in (*report.bundles, *report.last_stats)}
        known.update(item.bundle_name for top in snapshot.top_bundles.values() for item in top.top_bundles_load_data)
        for bundle in known:
            namespace = split_bundle_name(bundle)[0]
            counts[namespace] = counts.get(namespace, 0) + 1
        for name, item in line.namespaces.items():
            if item.boundaries:
                counts[name] = len(item.boundaries) - 1
        if not settings.enabled:
            return (), (Skip("cluster", "SplitDisabled: loadBalancerAutoBundleSplitEnabled"),)
        if snapshot.extensible or registry.short_name(load_manager) == "ExtensibleLoadManagerImpl":
            answer, self._memory = threshold.extensible(snapshot, settings, topics, counts, self._memory)
        else:
            answer = threshold.modular(snapshot, settings, topics, counts)
        return _of_bundles(line, answer.splits, answer.skipped)

    @staticmethod
    def _explicit(
        asked: list[SplitLine], topics: Mapping[str, Mapping[str, TopicLoad]], settings: SplitSettings
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


def _of_bundles(line: Line, splits: tuple[Split, ...], skipped: tuple[Skip, ...]) -> tuple[tuple[Split, ...], tuple[Skip, ...]]:
    """Splits of what is a bundle by its namespace's boundaries; the others are reported."""
    done: list[Split] = []
    gone: list[Skip] = []
    for split in splits:
        namespace, text = split_bundle_name(split.bundle)
        known = line.namespaces.get(namespace)
        edges = parse_boundaries(known.boundaries) if known is not None and known.boundaries else ()
        span = BundleRange.parse(text)
        if edges and (span.lower, span.upper) not in zip(edges, edges[1:], strict=False):
            gone.append(Skip(split.bundle, "NoSuchBundle: the namespace's boundaries are others by now"))
        else:
            done.append(split)
    return tuple(done), (*skipped, *gone)


def _with_moves(snapshot: ClusterSnapshot, plan: Plan) -> ClusterSnapshot:
    """What was planned in this cycle counts where it goes."""
    pending = {broker: dict(bundles) for broker, bundles in snapshot.pending.items()}
    for unload in plan.unloads:
        if unload.destination is not None:
            pending.setdefault(unload.destination, {})[unload.bundle] = snapshot.data_of(unload.bundle)
    return replace(snapshot, pending=pending)
