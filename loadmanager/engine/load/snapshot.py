"""The cluster at one moment: the one input of every strategy."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from loadmanager.engine.load.averages import BundleAverages, Ordered
from loadmanager.engine.load.columns import BrokerColumns
from loadmanager.engine.load.pending import Pending
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    TimeAverageBrokerData,
    TopBundlesLoadData,
)
from loadmanager.engine.load.served import Served
from loadmanager.engine.load.wishes import NO_WISHES, Wishes
from loadmanager.kit.reason import Reason

T = TypeVar("T")


@dataclass(slots=True)
class Derived:
    """Values that a snapshot computes once, when asked; each stands beside what it was made of."""

    columns: BrokerColumns | None = None
    averages: tuple[object, BundleAverages] | None = None
    pending: tuple[object, Pending] | None = None
    served: tuple[object, object, object, Served] | None = None
    available: tuple[object, frozenset[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """Everything that a decision may depend on."""

    now_ms: int
    extensible: bool = False
    """Whether this is a cluster of Pulsar's extensible load manager, also before any report."""
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
    versions: Mapping[str, str] = field(default_factory=dict)
    """brokerId → version, in the extensible manager, whose reports do not tell it."""
    top_bundles: Mapping[str, TopBundlesLoadData] = field(default_factory=dict)
    """brokerId → its most loaded bundles, as published: ascending."""
    recently_unloaded_brokers_ms: Mapping[str, int] = field(default_factory=dict)
    """brokerId → when bundles were last moved away from it (extensible manager)."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Bundle → brokerId, where it differs from the reports."""
    unusable: Mapping[str, Reason] = field(default_factory=dict)
    """brokerId → why its report cannot be used. Nothing goes to these brokers or
    comes from them.
    """

    isolation_policies: Mapping[str, Any] = field(default_factory=dict)
    """Name → `engine.policies.isolation.IsolationPolicy`, in order of name."""
    anti_affinity_groups: Mapping[str, str] = field(default_factory=dict)
    """Namespace → group."""
    failure_domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Domain → brokerIds; empty while failure domains do not count."""

    wishes: Wishes = NO_WISHES
    """The pins and cordons of operators."""
    leaving: Mapping[str, str] = field(default_factory=dict)
    """Bundle → the broker that it leaves: moves that wait or are under way."""
    pause_s: float | None = None
    """How long a client usually waits for a move here, as measured; None: it was not."""

    _whole: ClusterSnapshot | None = field(default=None, compare=False, repr=False)
    """The snapshot that this one leaves brokers out of."""
    _derived: Derived = field(default_factory=Derived, compare=False, repr=False)

    @property
    def columns(self) -> BrokerColumns:
        """The figures of the modular reports, as arrays over all brokers."""
        columns = self._derived.columns
        if columns is None or columns.reports is not self.reports:
            columns = self._derived.columns = BrokerColumns(self.reports)
        return columns

    @property
    def averages(self) -> BundleAverages:
        """`bundle_data` in columns."""
        cached = self._derived.averages
        if cached is None or cached[0] is not self.bundle_data:
            cached = self.bundle_data, BundleAverages.of(self.bundle_data)
            self._derived.averages = cached
        return cached[1]

    @property
    def under_way(self) -> Pending:
        """`pending` with what it adds up to."""
        cached = self._derived.pending
        if cached is None or cached[0] is not self.pending:
            cached = self._derived.pending = self.pending, Pending.of(self.pending)
        return cached[1]

    @property
    def served(self) -> Served:
        """The numbers of bundles of each namespace that the brokers serve: by their reports (in the
        extensible manager, by what they published), by `pending` and by `owners`.
        """
        cached = self._derived.served
        if (
            cached is None
            or cached[0] is not (self.reports or self.top_bundles)
            or cached[1] is not self.pending
            or cached[2] is not self.owners
        ):
            source = self.reports or self.top_bundles
            cached = self._derived.served = source, self.pending, self.owners, self._counted()
        return cached[3]

    def _counted(self) -> Served:
        whole = self._whole
        if whole is None or whole.pending is not self.pending or whole.owners is not self.owners:
            pending = {name: self.pending[name] for name in self.available & self.pending.keys()}
            return Served(self._reported(), pending, self.owners)
        served = whole.served.copy()
        for broker in whole.available - self.available:
            served.gone(broker)
        return served

    def _reported(self) -> dict[str, list[str]]:
        if self.reports:
            return {broker: report.bundles for broker, report in self.reports.items()}
        published = dict.fromkeys(self.available, TopBundlesLoadData()) | dict(self.top_bundles)
        return {
            broker: [bundle.bundle_name for bundle in published[broker].top_bundles_load_data]
            for broker in self.available
        }

    def known_bundles(self, broker: str) -> Set[str]:
        """The bundles of a broker with load: those in its report, or those that it published
        (extensible manager).
        """
        report = self.reports.get(broker)
        if report is not None:
            return report.last_stats.keys()
        top = self.top_bundles.get(broker)
        return {bundle.bundle_name for bundle in top.top_bundles_load_data} if top else set()

    @property
    def available(self) -> frozenset[str]:
        """brokerIds of the live brokers."""
        reports: Mapping[str, object] = self.load_data if self.extensible else self.reports
        cached = self._derived.available
        if cached is None or cached[0] is not reports:
            cached = self._derived.available = reports, frozenset(reports)
        return cached[1]

    @property
    def brokers(self) -> Sequence[str]:
        """brokerIds of the modular reports, in the order in which every strategy walks them."""
        return self.columns.names

    def by_throughput(self, broker: str) -> Ordered:
        """The broker's bundles that have averages, with their short-term throughput (bytes/s);
        largest first, then by name. Sorted once.
        """
        return self.averages.ordered("throughput", broker, self.reports[broker].bundles)

    def by_rate(self, broker: str) -> Ordered:
        """The broker's bundles that have averages, with their short-term rate (messages/s); largest
        first, then by name. Sorted once.
        """
        return self.averages.ordered("rate", broker, self.reports[broker].bundles)

    def with_to_place(self, bundles: Iterable[str]) -> ClusterSnapshot:
        """This snapshot with more bundles in `to_place`, except those on their way to a broker. Of
        one bundle alone, it is the one that is placed now.
        """
        under_way = self.under_way.bundles
        added = {bundle: self.data_of(bundle) for bundle in bundles if bundle not in under_way}
        waiting: Any = self.to_place
        placing = next(iter(added)) if len(added) == 1 else self.placing
        return self.having(to_place=ChainMap(added, waiting) if waiting else added, placing=placing)

    def having(self, **changes: Any) -> ClusterSnapshot:
        """This snapshot with other values of some fields; ten times as fast as `replace`."""
        other = object.__new__(ClusterSnapshot)
        other.__dict__.update(self.__dict__, **changes)
        return other

    def planning(self) -> ClusterSnapshot:
        """This snapshot with its own `pending`, for `add_placement`."""
        pending, served = self.under_way.copy(), self.served.copy()
        derived = replace(self._derived, pending=(pending, pending))
        derived.served = self.reports or self.top_bundles, pending, self.owners, served
        return self.having(pending=pending, _derived=derived)

    def add_placement(self, bundle: str, broker: str) -> None:
        """Count a bundle as on its way to a broker, in a snapshot made by `planning`."""
        before = self.under_way.broker_of(bundle)
        if bundle not in self.owners:  # those count where their owner is
            if before is not None and before in self.available:
                self.served.not_placed(before, [bundle])
            self.served.placed(broker, [bundle])
        self.under_way.add(bundle, broker, self.data_of(bundle))

    def without(self, unusable: Mapping[str, Reason]) -> ClusterSnapshot:
        """This snapshot without some brokers: brokerId → why their reports cannot be used."""
        return self.having(
            reports=_but(self.reports, unusable),
            load_data=_but(self.load_data, unusable),
            unusable={**self.unusable, **unusable},
            _whole=self,
            _derived=replace(self._derived, columns=None, served=None, available=None),
        )

    def data_of(self, bundle: str) -> BundleData:
        """A bundle's averages; what is expected of one that was never seen."""
        return self.averages.expect(bundle)


def _but(reports: Mapping[str, T], brokers: Mapping[str, Reason]) -> dict[str, T]:
    return {broker: report for broker, report in reports.items() if broker not in brokers}


NOTHING_KNOWN = ClusterSnapshot(now_ms=0, reports={})
