"""A cycle over loads that were recorded, as a leader would have decided it that had seen those of
the time before.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loadmanager.engine.history.records import BrokerLoad, BundleLoad
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.engine.load.wishes import NO_WISHES, Wishes
from loadmanager.engine.policies.isolation import IsolationPolicies
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings


@dataclass(frozen=True, slots=True)
class PastReports:
    """The load reports of one moment."""

    at_ms: int
    reports: Mapping[str, LocalBrokerData]
    """brokerId → its report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesThen:
    """What limited moves at the last moment."""

    wishes: Wishes = NO_WISHES
    isolation: IsolationPolicies = field(default_factory=IsolationPolicies)
    failure_domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Failure domain → its brokerIds."""
    moved: Mapping[str, int] = field(default_factory=dict)
    """Bundle → when it was moved (ms)."""
    moved_brokers: Mapping[str, int] = field(default_factory=dict)
    """brokerId → when a bundle left it (ms)."""


@dataclass(frozen=True, slots=True)
class PlanThen:
    """What a cycle at the last of several moments would have decided."""

    plan: Plan
    moved_ms: list[int]
    """The moments before at which it would have moved bundles, too."""


def plan_then(
    looks: Sequence[PastReports], settings: StrategySettings, rules: RulesThen
) -> PlanThen:
    """The plan of a cycle at the last of these moments, the oldest first. What strategies learn,
    they have learned at the moments before; what they decided there was not carried out.
    """
    view, memories, plan = ClusterView(), Memories(), Plan("")
    moved_ms = list[int]()
    for look in looks:
        for broker in sorted(view.reports.keys() - look.reports.keys()):
            view.gone(broker, look.at_ms)
        for broker in sorted(look.reports):
            view.observe(broker, look.reports[broker], look.at_ms)
            memories = cycle.observe(broker, look.reports[broker], settings, memories)
        last = look is looks[-1]
        if last:
            view.know_moves(rules.moved, rules.moved_brokers)
        snapshot = view.snapshot(
            look.at_ms,
            settings,
            isolation_policies=rules.isolation if last else IsolationPolicies(),
            anti_affinity_groups={},
            failure_domains=rules.failure_domains,
            wishes=rules.wishes if last else NO_WISHES,
        )
        plan, memories = cycle.shed(snapshot, settings, memories)
        if last:
            rng = random.Random(0)  # noqa: S311 - reproducible, not secret
            plan, _ = cycle.destinations(snapshot, plan, settings, memories, rng)
        elif plan.unloads:
            moved_ms.append(look.at_ms)
    return PlanThen(plan, moved_ms)


def reports_of(
    records: Iterable[BrokerLoad | BundleLoad], owners: Mapping[str, str | None]
) -> dict[str, LocalBrokerData]:
    """Load reports made of what was recorded of one moment. `owners`: bundle → its owner, where
    another broker recorded its load than the one that had it by then; None: nobody had it.
    """
    reports, stats = dict[str, LocalBrokerData](), dict[str, dict[str, NamespaceBundleStats]]()
    for record in records:
        if isinstance(record, BrokerLoad):
            reports[record.broker] = _report(record)
        elif (owner := owners.get(record.bundle, record.broker)) is not None:
            stats.setdefault(owner, {})[record.bundle] = NamespaceBundleStats(
                msg_rate_in=record.msg_rate_in,
                msg_throughput_in=record.msg_throughput_in,
                msg_rate_out=record.msg_rate_out,
                msg_throughput_out=record.msg_throughput_out,
                consumer_count=record.consumers,
                producer_count=record.producers,
                topics=record.topics,
            )
    for broker, report in reports.items():
        report.last_stats = stats.get(broker, {})
        idle = {name for name, owner in owners.items() if owner == broker}
        report.bundles = sorted({*report.last_stats, *idle})
        report.num_bundles = len(report.bundles)
    return reports


def _report(record: BrokerLoad) -> LocalBrokerData:
    return LocalBrokerData(
        broker_id=record.broker,
        cpu=record.cpu,
        memory=record.memory,
        direct_memory=record.direct_memory,
        bandwidth_in=record.bandwidth_in,
        bandwidth_out=record.bandwidth_out,
        msg_rate_in=record.msg_rate_in,
        msg_rate_out=record.msg_rate_out,
        msg_throughput_in=record.msg_throughput_in,
        msg_throughput_out=record.msg_throughput_out,
        num_topics=record.topics,
        num_producers=record.producers,
        num_consumers=record.consumers,
        last_update=record.ts,
    )
