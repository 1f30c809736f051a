"""A leader's view of the cluster's load: events go in, snapshots come out.

The live leader and `decide` feed the same object, so that both decide the same on the same events.

Deviation: a bundle's averages take one sample for each report of *its* broker. Pulsar samples every
bundle whenever any broker writes, so that averages run faster the more brokers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from loadmanager.core.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    TimeAverageBrokerData,
    TopBundlesLoadData,
    default_bundle_data,
)
from loadmanager.core.load.snapshot import ClusterSnapshot, time_average_of

PENDING_MS_MAX = 60_000
"""A placement that no report shows by then did not happen."""
UNREPORTED_MS_MAX = 15 * 60_000
"""The averages of a bundle that no broker reports for this long are forgotten."""


class ViewSettings(Protocol):
    """The settings that a snapshot depends on."""

    @property
    def grace_period_minutes(self) -> float:
        """For how long a move counts as recent."""
        ...

    @property
    def failure_domains(self) -> bool:
        """Whether failure domains count."""
        ...


class ClusterView:
    """The last reports, the averages of every bundle, placements under way and recent moves.

    All times are milliseconds since the epoch.
    """

    def __init__(self) -> None:
        self.reports: dict[str, LocalBrokerData] = {}
        """brokerId → last report, in the modular manager."""
        self.load_data: dict[str, BrokerLoadData] = {}
        """brokerId → last report, in the extensible manager."""
        self.bundle_data: dict[str, BundleData] = {}
        """Bundle → its averages."""
        self._top_bundles: Mapping[str, TopBundlesLoadData] = {}
        self._time_averages: dict[str, TimeAverageBrokerData] = {}
        """brokerId → sums over its bundles; absent until computed from its last report."""
        self._pending: dict[str, tuple[str, int]] = {}
        """Bundle → the broker it was placed on, and when."""
        self._unloaded_ms: dict[str, int] = {}
        self._unloaded_brokers_ms: dict[str, int] = {}
        self._unreported_ms: dict[str, int] = {}
        """Bundle → when its broker stopped reporting it. Another broker may report it since."""
        self._orphans: set[str] = set()
        """Bundles of brokers that went: unowned until a lookup has them placed."""

    # Events

    def observe(
        self, broker_id: str, report: LocalBrokerData | BrokerLoadData, now_ms: int
    ) -> None:
        """A broker reported. Bundles in its report are no longer under way."""
        if isinstance(report, BrokerLoadData):
            if broker_id in self.reports:
                self.gone(broker_id, now_ms)
            self.load_data[broker_id] = report
            return
        self.load_data.pop(broker_id, None)
        before = self.reports.get(broker_id)
        self.reports[broker_id] = report
        self._time_averages.pop(broker_id, None)
        if before is not None:
            self._unreport(before.last_stats.keys() - report.last_stats.keys(), now_ms)
        for bundle in self._unreported_ms.keys() & report.last_stats.keys():
            del self._unreported_ms[bundle]
        self._orphans.difference_update(report.last_stats, report.bundles)
        for bundle, stats in report.last_stats.items():
            data = self.bundle_data.get(bundle)
            if data is None:
                data = self.bundle_data[bundle] = default_bundle_data()
            data.update(stats)
        self._arrived(broker_id, report.bundles or report.last_stats)

    def observe_top_bundles(self, top_bundles: Mapping[str, TopBundlesLoadData]) -> None:
        """The brokers published their busiest bundles (extensible manager): brokerId → bundles."""
        self._top_bundles = top_bundles
        for broker_id, top in top_bundles.items():
            self._arrived(broker_id, [bundle.bundle_name for bundle in top.top_bundles_load_data])

    def gone(self, broker_id: str, now_ms: int) -> None:
        """A broker died or left. Its bundles, and those on their way to it, have no owner now."""
        report = self.reports.pop(broker_id, None)
        if report is not None:
            self._unreport(report.last_stats, now_ms)
            owned = {bundle for other in self.reports.values() for bundle in other.last_stats}
            self._orphans.update(report.last_stats.keys() - owned - self._pending.keys())
        self._orphans.update(name for name, place in self._pending.items() if place[0] == broker_id)
        self.load_data.pop(broker_id, None)
        self._time_averages.pop(broker_id, None)
        self._pending = {
            bundle: place for bundle, place in self._pending.items() if place[0] != broker_id
        }

    def placed(self, bundle: str, broker_id: str, now_ms: int) -> None:
        """A bundle is on its way to a broker: it counts there until that broker reports it."""
        if self.under_way(bundle, now_ms) != broker_id:  # a repeated lookup does not renew it
            self._pending[bundle] = (broker_id, now_ms)
        self._orphans.discard(bundle)

    def not_placed(self, bundle: str) -> None:
        """A bundle is not on its way after all."""
        self._pending.pop(bundle, None)

    def moved(self, bundle: str, source: str, now_ms: int) -> None:
        """A bundle was moved away from a broker."""
        self.know_moves({bundle: now_ms}, {source: now_ms})

    def know_moves(self, bundles: Mapping[str, int], brokers: Mapping[str, int]) -> None:
        """Bundles were moved: bundle → when, and the broker that it left → when."""
        self._unloaded_ms.update(bundles)
        self._unloaded_brokers_ms.update(brokers)

    def restore(self, bundle_data: Mapping[str, BundleData], now_ms: int) -> None:
        """Replace all averages by stored or given ones."""
        self.bundle_data = dict(bundle_data)
        self._time_averages.clear()
        self._unreport(bundle_data, now_ms)

    def forget_passing(self) -> None:
        """Forget everything that is kept for a limited time, because there is no clock."""
        self._pending.clear()
        self._forget_unreported(list(self._unreported_ms))

    # Queries

    def under_way(self, bundle: str, now_ms: int) -> str | None:
        """The broker that a bundle is on its way to."""
        broker_id, at_ms = self._pending.get(bundle, (None, 0))
        return broker_id if now_ms - at_ms < PENDING_MS_MAX else None

    def pending(self) -> dict[str, dict[str, BundleData]]:
        """brokerId → bundles on their way there → their averages."""
        pending: dict[str, dict[str, BundleData]] = {}
        for bundle, (broker_id, _) in self._pending.items():
            pending.setdefault(broker_id, {})[bundle] = (
                self.bundle_data.get(bundle) or default_bundle_data()
            )
        return pending

    def time_averages(self) -> dict[str, TimeAverageBrokerData]:
        """brokerId → the sums of its bundles' averages at its last report."""
        for broker_id, report in self.reports.items():
            if broker_id not in self._time_averages:
                self._time_averages[broker_id] = time_average_of(report, self.bundle_data)
        return dict(self._time_averages)

    def snapshot(
        self,
        now_ms: int,
        settings: ViewSettings,
        *,
        isolation_policies: Mapping[str, Any],
        anti_affinity_groups: Mapping[str, str],
        failure_domains: Mapping[str, Sequence[str]],
    ) -> ClusterSnapshot:
        """The cluster now. Forgets moves, placements and averages that are too old to count."""
        oldest_ms = now_ms - settings.grace_period_minutes * 60_000
        self._unloaded_ms = {
            bundle: at_ms for bundle, at_ms in self._unloaded_ms.items() if at_ms >= oldest_ms
        }
        # A broker that comes back soon still cools down.
        self._unloaded_brokers_ms = {
            broker: at_ms
            for broker, at_ms in self._unloaded_brokers_ms.items()
            if at_ms >= oldest_ms or broker in self.reports or broker in self.load_data
        }
        self._pending = {
            bundle: place
            for bundle, place in self._pending.items()
            if now_ms - place[1] < PENDING_MS_MAX
        }
        self._forget_unreported(
            [
                name
                for name, at_ms in self._unreported_ms.items()
                if now_ms - at_ms >= UNREPORTED_MS_MAX
            ]
        )
        return ClusterSnapshot(
            now_ms=now_ms,
            reports=dict(self.reports),
            bundle_data=dict(self.bundle_data),
            time_averages=self.time_averages(),
            pending=self.pending(),
            to_place={
                bundle: self.bundle_data[bundle]
                for bundle in sorted(self._orphans)
                if bundle in self.bundle_data
            },
            recently_unloaded_ms=dict(self._unloaded_ms),
            load_data=dict(self.load_data),
            top_bundles=self._top_bundles,
            recently_unloaded_brokers_ms=dict(self._unloaded_brokers_ms),
            isolation_policies=isolation_policies,
            anti_affinity_groups=dict(anti_affinity_groups),
            failure_domains=dict(failure_domains) if settings.failure_domains else {},
        )

    def _arrived(self, broker_id: str, bundles: Iterable[str]) -> None:
        expected = {bundle for bundle, place in self._pending.items() if place[0] == broker_id}
        for bundle in expected.intersection(bundles) if expected else ():
            del self._pending[bundle]

    def _unreport(self, bundles: Iterable[str], now_ms: int) -> None:
        self._unreported_ms.update(dict.fromkeys(bundles, now_ms))

    def _forget_unreported(self, bundles: list[str]) -> None:
        reported = (
            {bundle for report in self.reports.values() for bundle in report.last_stats}
            if bundles
            else set()
        )
        for bundle in bundles:
            del self._unreported_ms[bundle]
            self._orphans.discard(bundle)
            if bundle not in reported:
                self.bundle_data.pop(bundle, None)
