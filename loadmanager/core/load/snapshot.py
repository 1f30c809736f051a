"""The cluster at one moment: the one input of every strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loadmanager.core.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    TimeAverageBrokerData,
    TimeAverageMessageData,
    TopBundlesLoadData,
    default_bundle_data,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Everything that a decision may depend on."""

    now_ms: int
    reports: Mapping[str, LocalBrokerData]
    """brokerId → report of the modular manager; live brokers only."""
    bundle_data: Mapping[str, BundleData] = field(default_factory=dict)
    """Bundle → its averages."""
    time_averages: Mapping[str, TimeAverageBrokerData] = field(default_factory=dict)
    pending: Mapping[str, Mapping[str, BundleData]] = field(default_factory=dict)
    """brokerId → bundle → its averages: bundles that were placed and that the broker does not
    report yet. They count as placed.
    """
    to_place: Mapping[str, BundleData] = field(default_factory=dict)
    """Bundle → its averages: the bundles of this request, and those that wait for a lookup because
    their broker went.
    """
    placing: str | None = None
    """The bundle of `to_place` that a placement rule places now."""
    recently_unloaded_ms: Mapping[str, int] = field(default_factory=dict)
    """Bundle → when it was last moved."""
    load_data: Mapping[str, BrokerLoadData] = field(default_factory=dict)
    """brokerId → report of the extensible manager."""
    top_bundles: Mapping[str, TopBundlesLoadData] = field(default_factory=dict)
    """brokerId → its most loaded bundles, as published: ascending."""
    recently_unloaded_brokers_ms: Mapping[str, int] = field(default_factory=dict)
    """brokerId → when bundles were last moved away from it (extensible manager)."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Bundle → brokerId, where it differs from the reports."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """brokerId → why its report cannot be used. Nothing goes to these brokers or
    comes from them.
    """

    isolation_policies: Mapping[str, Any] = field(default_factory=dict)
    """Name → `core.policies.isolation.IsolationPolicy`, in order of name."""
    anti_affinity_groups: Mapping[str, str] = field(default_factory=dict)
    """Namespace → group."""
    failure_domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Domain → brokerIds; empty while failure domains do not count."""

    _ordered: dict[tuple[str, str], list[tuple[str, float]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """What `by_throughput` and `by_rate` have computed."""

    def by_throughput(self, broker: str) -> list[tuple[str, float]]:
        """The broker's bundles that have averages, with their short-term throughput (bytes/s);
        largest first, then by name. Sorted once.
        """
        return self._order(broker, "throughput", lambda data: data.throughput)

    def by_rate(self, broker: str) -> list[tuple[str, float]]:
        """The broker's bundles that have averages, with their short-term rate (messages/s); largest
        first, then by name. Sorted once.
        """
        return self._order(broker, "rate", lambda data: data.rate)

    def _order(
        self, broker: str, what: str, value: Callable[[TimeAverageMessageData], float]
    ) -> list[tuple[str, float]]:
        ordered = self._ordered.get((broker, what))
        if ordered is None:
            averages = self.bundle_data
            loads = [
                (-value(averages[bundle].short_term_data), bundle)
                for bundle in self.reports[broker].bundles
                if bundle in averages
            ]
            loads.sort()
            ordered = self._ordered[broker, what] = [(bundle, -load) for load, bundle in loads]
        return ordered

    def with_report(self, broker: str, report: LocalBrokerData) -> ClusterSnapshot:
        """This snapshot with one broker's report replaced; keeps the order of other brokers'
        bundles.
        """
        kept = {key: order for key, order in self._ordered.items() if key[0] != broker}
        return replace(self, reports={**self.reports, broker: report}, _ordered=kept)

    @property
    def extensible(self) -> bool:
        """Whether the reports are those of Pulsar's extensible load manager."""
        return bool(self.load_data) and not self.reports

    @property
    def available(self) -> set[str]:
        """brokerIds of the live brokers."""
        return set(self.reports or self.load_data)

    @property
    def brokers(self) -> list[str]:
        """brokerIds in the order in which every strategy walks them."""
        return sorted(self.reports)

    def with_to_place(self, bundles: Iterable[str]) -> ClusterSnapshot:
        """This snapshot with more bundles to place, but for those that are on their way."""
        under_way = {bundle for pending in self.pending.values() for bundle in pending}
        added = {bundle: self.data_of(bundle) for bundle in bundles if bundle not in under_way}
        return replace(self, to_place={**self.to_place, **added})

    def data_of(self, bundle: str) -> BundleData:
        """A bundle's averages; Pulsar's defaults for one that was never seen."""
        return self.bundle_data.get(bundle) or default_bundle_data()

    def pending_topics(self, broker: str) -> float:
        """Topics of the bundles that are on their way to a broker."""
        return sum(data.topics for data in self.pending.get(broker, {}).values())


def time_average_of(
    report: LocalBrokerData, bundle_data: Mapping[str, BundleData]
) -> TimeAverageBrokerData:
    """Sums of the averages of a broker's bundles (Pulsar `TimeAverageBrokerData.reset`).

    The sums are exact, so that the order of the bundles in a report does not matter.
    """
    unseen = default_bundle_data()
    averages = [bundle_data.get(bundle) or unseen for bundle in report.bundles or report.last_stats]
    short, long = (
        [data.short_term_data for data in averages],
        [data.long_term_data for data in averages],
    )
    return TimeAverageBrokerData(
        short_term_msg_throughput_in=math.fsum(data.msg_throughput_in for data in short),
        short_term_msg_throughput_out=math.fsum(data.msg_throughput_out for data in short),
        short_term_msg_rate_in=math.fsum(data.msg_rate_in for data in short),
        short_term_msg_rate_out=math.fsum(data.msg_rate_out for data in short),
        long_term_msg_throughput_in=math.fsum(data.msg_throughput_in for data in long),
        long_term_msg_throughput_out=math.fsum(data.msg_throughput_out for data in long),
        long_term_msg_rate_in=math.fsum(data.msg_rate_in for data in long),
        long_term_msg_rate_out=math.fsum(data.msg_rate_out for data in long),
    )
