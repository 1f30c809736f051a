"""A leader's view of the cluster's load: events go in, snapshots come out.

The live leader and `decide` feed the same object, so that both decide the same on the same events.

Deviation: a bundle's averages take one sample for each report of *its* broker. Pulsar samples every
bundle whenever any broker writes, so that averages run faster the more brokers there are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.broker_sums import BrokerSums
from loadmanager.engine.load.columns import BrokerColumns
from loadmanager.engine.load.pending import Pending
from loadmanager.engine.load.quotas import Expected
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    PublishedClients,
    TopBundlesLoadData,
)
from loadmanager.engine.load.served import Served
from loadmanager.engine.load.snapshot import NOTHING_KNOWN, ClusterSnapshot, Derived
from loadmanager.engine.load.wishes import NO_WISHES, Wishes

T = TypeVar("T")

ABSENT_MS_MAX = 24 * 3600_000
"""When a bundle last left a broker is forgotten after this time, if the broker is not there."""
PENDING_MS_MAX = 60_000
"""A placement that no report shows within this time does not count any more; one whose broker has
reported nothing since counts until it does, as brokers that little happens to report rarely.
"""
REPEATS_MS, LATE_MS, REPEATS_MAX = 60_000, 30_000, 60
"""A broker that has not reported for so long carries what it reported last, as brokers report only
what changes: that counts as one more sample each minute, so many times at most.
"""
NO_OWNERS: Mapping[str, str] = {}
NO_VERSIONS: Mapping[str, str] = {}
NOBODY = ""
"""The owner of a published bundle that nobody owns."""
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
        """True if failure domains count."""
        ...


class _Times(dict[str, int]):
    """Names with a time each (ms since the epoch), the oldest first unless the clock was set back
    or times were restored.
    """

    _latest_ms = 0
    _in_order = True
    _oldest_ms: float = 0
    """No time is older than this one, while they are out of order."""

    def set(self, names: Iterable[str], at_ms: int) -> None:
        """These names have this time now."""
        names = list(names)
        for name in names:
            self.pop(name, None)
        self.update(dict.fromkeys(names, at_ms))
        self._in_order = self._in_order and at_ms >= self._latest_ms
        self._oldest_ms = min(self._oldest_ms, at_ms)
        self._latest_ms = max(self._latest_ms, at_ms)

    def until(self, oldest_ms: float) -> list[str]:
        """The names that are older."""
        if not self._in_order:
            if oldest_ms <= self._oldest_ms:
                return []
            times_ms = list(self.values())
            self._latest_ms = max(times_ms, default=0)
            self._in_order = times_ms == sorted(times_ms)
            names = [name for name, at_ms in self.items() if at_ms < oldest_ms]
            self._oldest_ms = 0 if names else min(times_ms, default=0)
            return names
        names = []
        for name, at_ms in self.items():
            if at_ms >= oldest_ms:
                break
            names.append(name)
        return names


class ClusterView:
    """The last reports, the averages of every bundle, placements under way and recent moves.

    All times are milliseconds since the epoch. Nothing that an event changes takes longer the more
    bundles other brokers have.
    """

    def __init__(self, *, knows_owners: bool = False) -> None:
        self.reports: dict[str, LocalBrokerData] = {}
        """brokerId → last report, in the modular manager."""
        self.load_data: dict[str, BrokerLoadData] = {}
        """brokerId → last report, in the extensible manager."""
        self.clients: dict[str, PublishedClients] = {}
        """brokerId → what it said last of its clients, in the extensible manager."""
        self.clients_of_left: dict[str, PublishedClients] = {}
        """brokerId → the same, when it left."""
        self.expected = Expected()
        self.bundle_data = BundleAverages(expected=self.expected)
        """Bundle → its averages."""
        self._present: Mapping[str, LocalBrokerData] = MappingProxyType(self.reports)
        """The reports as a passing snapshot shows them: no strategy changes them."""
        self.time_averages = BrokerSums(self._present, self.bundle_data)
        """brokerId → the sums of its bundles' averages."""
        self._columns = BrokerColumns(self._present)
        self._others: set[str] = set()
        """Brokers with a report that is not in the columns."""
        self._top_bundles: Mapping[str, TopBundlesLoadData] = {}
        self._owners: dict[str, str] = {}
        """Bundle → brokerId, in the extensible manager, where ownership is known by itself."""
        self.knows_owners = knows_owners
        """Whether `owned_by` tells of every bundle: then reports that say otherwise are late."""
        self._pending = Pending()
        self._served = Served({}, {}, {})
        self._placed_ms = _Times()
        """Bundle on its way → when it was placed, for a minute."""
        self._unconfirmed_ms = _Times()
        """The same, of those whose brokers have reported nothing since."""
        self._reported_ms: dict[str, int] = {}
        """brokerId → when its last report came, in the modular manager."""
        self._repeated: dict[str, int] = {}
        """brokerId → how often what it reported last has counted again."""
        self._repeats_ms: float = math.inf
        """When that of a broker does so next."""
        self._unloaded_ms = _Times()
        self._unloaded_brokers_ms = _Times()
        self._unreported_ms = _Times()
        """Bundle → when its broker stopped reporting it. Another broker may report it since."""
        self._orphans: set[str] = set()
        """Bundles of brokers that went: unowned until a lookup has them placed."""
        self.placed_again: set[str] = set()
        """Bundles of brokers that went, on their way to another one."""

    # Events

    def observe(
        self, broker_id: str, report: LocalBrokerData | BrokerLoadData, now_ms: int
    ) -> None:
        """A broker reported. Bundles in its report are no longer under way."""
        self.forget_old(now_ms)  # or else a bundle's averages would depend on who asked when
        self._repeat(now_ms)
        if isinstance(report, BrokerLoadData):
            if broker_id in self.reports:
                self.gone(broker_id, now_ms)
            self.load_data[broker_id] = report
            return
        self.load_data.pop(broker_id, None)
        before = self.reports.get(broker_id)
        self.reports[broker_id] = report
        self._others.add(broker_id)
        again = before is not None and 0 < report.last_update == before.last_update
        if not again:
            self._reported_ms[broker_id] = now_ms
            self._repeated[broker_id] = 0
            self._repeats_ms = min(self._repeats_ms, now_ms + REPEATS_MS + LATE_MS)
        self.time_averages.changed(broker_id)
        if self.bundle_data.observe(broker_id, report.last_stats) and before is not None:
            self._unreported_ms.set(before.last_stats.keys() - report.last_stats.keys(), now_ms)
        for bundle in self._unreported_ms.keys() & report.last_stats.keys():
            del self._unreported_ms[bundle]
        if self._orphans:
            self._orphans.difference_update(report.last_stats, report.bundles)
        if before is None or before.bundles != report.bundles:
            self._served.reported(broker_id, report.bundles, self._pending.get(broker_id, ()))
        if self._pending:
            self._arrived(broker_id, report.bundles or report.last_stats)
            coming = self._pending.bundles.keys() & report.last_stats.keys()
            self._pending.update(self.bundle_data.expect, sorted(coming))
            if self._unconfirmed_ms and not again:
                on_its_way = self._pending.get(broker_id, {})
                self._forget_placements([it for it in on_its_way if it in self._unconfirmed_ms])

    def _repeat(self, now_ms: int) -> None:
        """Have what brokers reported last count again that have not reported for a while."""
        if now_ms < self._repeats_ms:
            return
        times, next_ms = dict[str, int](), math.inf
        for broker_id, repeated in self._repeated.items():
            since_ms = self._reported_ms[broker_id] + LATE_MS
            count = min((now_ms - since_ms) // REPEATS_MS, REPEATS_MAX)
            if count > repeated:
                times[broker_id] = count - repeated
                self._repeated[broker_id] = count
            if max(count, repeated) < REPEATS_MAX:
                next_ms = min(next_ms, since_ms + (max(count, repeated) + 1) * REPEATS_MS)
        self._repeats_ms = next_ms
        if times:
            self.bundle_data.repeat(times)

    def observe_top_bundles(self, top_bundles: Mapping[str, TopBundlesLoadData]) -> None:
        """The brokers published their busiest bundles (extensible manager): brokerId → bundles."""
        self._top_bundles = top_bundles
        for broker_id, top in top_bundles.items():
            self._arrived(broker_id, [bundle.bundle_name for bundle in top.top_bundles_load_data])

    def owned_by(self, bundle: str, broker_id: str | None) -> None:
        """A bundle has this owner now, or none (extensible manager)."""
        before = self._owners.get(bundle)
        if before != broker_id:
            if before is not None:
                del self._owners[bundle]
                self._served.not_placed(before, [bundle])
            if broker_id is not None:
                self._owners[bundle] = broker_id
                self._served.placed(broker_id, [bundle])
        if broker_id is not None:
            self._arrived(broker_id, [bundle])

    def gone(self, broker_id: str, now_ms: int) -> None:
        """A broker died or left. Its bundles, and those on their way to it, have no owner now."""
        report = self.reports.pop(broker_id, None)
        coming = list(self._pending.get(broker_id, ()))
        if report is not None:
            self._others.add(broker_id)
            self._served.reported(broker_id, (), coming)
            self.bundle_data.gone(broker_id)
            self.time_averages.changed(broker_id)
            self._unreported_ms.set(report.last_stats, now_ms)
            lost = set(report.last_stats)
            self._orphans |= lost - self._reported(lost) - self._pending.bundles.keys()
        self._orphans.update(coming)
        self._unreported_ms.set(coming, now_ms)
        self.load_data.pop(broker_id, None)
        self._reported_ms.pop(broker_id, None)
        self._repeated.pop(broker_id, None)
        self._forget_placements(coming)

    def placed(self, bundle: str, broker_id: str, now_ms: int) -> None:
        """A bundle is on its way to a broker: it counts there until that broker reports it."""
        if self.under_way(bundle, now_ms) != broker_id:  # a repeated lookup does not renew it
            if bundle in self._pending.bundles:
                self._forget_placements([bundle])
            self._pending.add(bundle, broker_id, self.bundle_data.expect(bundle))
            self._served.placed(broker_id, [bundle])
            self._placed_ms.set([bundle], now_ms)
        if bundle in self._orphans:
            self._orphans.remove(bundle)
            self.placed_again.add(bundle)

    def not_placed(self, bundle: str) -> None:
        """Forget that a bundle is on its way."""
        self._forget_placements([bundle])

    def moved(self, bundle: str, source: str, now_ms: int) -> None:
        """A bundle was moved away from a broker."""
        self.know_moves({bundle: now_ms}, {source: now_ms})

    def know_moves(self, bundles: Mapping[str, int], brokers: Mapping[str, int]) -> None:
        """Bundles were moved: bundle → when, and the broker that it left → when."""
        for times, moves in ((self._unloaded_ms, bundles), (self._unloaded_brokers_ms, brokers)):
            for name, at_ms in moves.items():
                times.set([name], at_ms)

    def recent_moves(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Bundle → when it was moved, and broker → when a bundle left it."""
        return self._unloaded_ms, self._unloaded_brokers_ms

    def restore(self, bundle_data: Mapping[str, BundleData], now_ms: int) -> None:
        """Replace all averages by stored or given ones."""
        self.bundle_data = BundleAverages(bundle_data, expected=self.expected)
        self.time_averages = BrokerSums(self._present, self.bundle_data)
        for broker_id, report in self.reports.items():
            self.bundle_data.settle(broker_id, report.last_stats)
        self._pending.update(self.bundle_data.expect, list(self._pending.bundles))
        self._unreported_ms.set(bundle_data, now_ms)

    def forget_ageing(self) -> None:
        """Forget placements under way and whatever else ages, because the input has no clock."""
        self._forget_placements([*self._placed_ms, *self._unconfirmed_ms])
        self._forget_unreported(list(self._unreported_ms))

    # Queries

    @property
    def top_bundles(self) -> Mapping[str, TopBundlesLoadData]:
        """brokerId → its busiest bundles, as last read (extensible manager)."""
        return self._top_bundles

    @property
    def owners(self) -> Mapping[str, str]:
        """Bundle → brokerId, where ownership is known by itself (extensible manager)."""
        return MappingProxyType(self._owners)

    def under_way(self, bundle: str, now_ms: int) -> str | None:
        """The broker that a bundle is on its way to."""
        at_ms = self._placed_ms.get(bundle, 0)
        return self._pending.broker_of(bundle) if now_ms - at_ms < PENDING_MS_MAX else None

    def coming(self) -> Collection[str]:
        """The bundles that are on their way to a broker."""
        return self._pending.bundles.keys()

    def traffic(self) -> Mapping[str, LocalBrokerData | TopBundlesLoadData]:
        """brokerId → its last report of bundles, in either manager."""
        return {**self._top_bundles, **self.reports}

    def pending(self) -> Pending:
        """brokerId → bundles on their way there → their averages."""
        return self._pending.copy()

    def snapshot(
        self,
        now_ms: int,
        settings: ViewSettings,
        *,
        isolation_policies: Mapping[str, Any],
        anti_affinity_groups: Mapping[str, str],
        failure_domains: Mapping[str, Sequence[str]],
        versions: Mapping[str, str] = NO_VERSIONS,
        wishes: Wishes = NO_WISHES,
        leaving: Mapping[str, str] = NO_OWNERS,
        passing: bool = False,
    ) -> ClusterSnapshot:
        """The cluster now. Forgets moves, placements and averages that are too old to count.

        Later events do not change the snapshot, unless it is a `passing` one, which is made without
        copies, for one decision before the next event.
        """
        self.forget_old(now_ms)
        self._repeat(now_ms)
        if not passing:
            self._forget_moves(now_ms, settings.grace_period_minutes * 60_000)
        reports, averages, pending = self._present, self.bundle_data, self._pending
        columns = self._present_columns()
        sums, orphans = self.time_averages, self._orphans
        derived = Derived(columns)
        served = self._served
        if not passing:
            reports, averages, pending = dict(reports), averages.copy(), pending.copy()
            served = served.copy()
            derived.columns, orphans = columns.copy(reports), set(orphans)
            sums = sums.copy(reports, averages)
        owners = NO_OWNERS if passing or not self.knows_owners else self._published_owners()
        served_by = self._top_bundles if self.knows_owners else reports
        derived.served = served_by, pending, owners, served
        return NOTHING_KNOWN.having(  # half the time that the constructor takes
            now_ms=now_ms,
            # `decide` is not told owners: its reports say which manager it is.
            extensible=self.knows_owners or (bool(self.load_data) and not self.reports),
            reports=reports,
            bundle_data=averages,
            time_averages=sums,
            pending=pending,
            to_place=_Waiting(orphans, averages) if orphans else {},
            recently_unloaded_ms=_shown(self._unloaded_ms, passing=passing),
            load_data=_shown(self.load_data, passing=passing),
            versions=versions,
            top_bundles=self._top_bundles,
            recently_unloaded_brokers_ms=_shown(self._unloaded_brokers_ms, passing=passing),
            owners=owners,
            isolation_policies=isolation_policies,
            anti_affinity_groups=anti_affinity_groups if passing else dict(anti_affinity_groups),
            failure_domains=dict(failure_domains) if settings.failure_domains else {},
            wishes=wishes,
            leaving=leaving,
            _derived=derived,
        )

    def _published_owners(self) -> dict[str, str]:
        """The owners of the bundles that brokers published; `NOBODY` for those without one."""
        return {
            bundle.bundle_name: self._owners.get(bundle.bundle_name, NOBODY)
            for top in self._top_bundles.values()
            for bundle in top.top_bundles_load_data
        }

    def _present_columns(self) -> BrokerColumns:
        if not self._others:
            return self._columns
        if self._columns.row_of.keys() == self.reports.keys():
            self._columns.changed(sorted(self._others & self.reports.keys()))
        else:
            self._columns = BrokerColumns(self._present)
        self._others.clear()
        return self._columns

    def _arrived(self, broker_id: str, bundles: Iterable[str]) -> None:
        expected = self._pending.get(broker_id)
        if expected:
            # A report may name a bundle twice.
            self._forget_placements(set(bundles).intersection(expected))

    def _forget_placements(self, bundles: Collection[str]) -> None:
        for bundle in bundles:
            broker = self._pending.broker_of(bundle)
            if broker is not None:
                self._served.not_placed(broker, [bundle])
            self._placed_ms.pop(bundle, None)
            self._unconfirmed_ms.pop(bundle, None)
        self.placed_again.difference_update(bundles)
        self._pending.remove(bundles)

    def _forget_moves(self, now_ms: int, grace_ms: float) -> None:
        for bundle in self._unloaded_ms.until(now_ms - grace_ms):
            del self._unloaded_ms[bundle]
        for broker in self._unloaded_brokers_ms.until(now_ms - max(grace_ms, ABSENT_MS_MAX)):
            # A broker that comes back soon still cools down.
            if broker not in self.reports and broker not in self.load_data:
                del self._unloaded_brokers_ms[broker]

    def forget_old(self, now_ms: int) -> None:
        """Forget what has aged; each report and each snapshot does it."""
        lost = self._placed_ms.until(now_ms - PENDING_MS_MAX + 1)
        if lost:
            self._doubt_placements(lost)
        unconfirmed = self._unconfirmed_ms.until(now_ms - UNREPORTED_MS_MAX + 1)
        if unconfirmed:
            self._forget_placements(unconfirmed)
        unreported = self._unreported_ms.until(now_ms - UNREPORTED_MS_MAX + 1)
        if unreported:
            self._forget_unreported(unreported)

    def _doubt_placements(self, bundles: Iterable[str]) -> None:
        """Forget these placements, but for those whose brokers have reported nothing since."""
        for bundle in bundles:
            reported_ms = self._reported_ms.get(self._pending.broker_of(bundle) or "")
            placed_ms = self._placed_ms[bundle]
            if reported_ms is None or reported_ms > placed_ms:
                self._forget_placements([bundle])
            else:
                del self._placed_ms[bundle]
                self._unconfirmed_ms.set([bundle], placed_ms)

    def _forget_unreported(self, bundles: list[str]) -> None:
        reported = self._reported(set(bundles))
        for bundle in sorted(bundles):  # in their order, new ones get the rows of these
            del self._unreported_ms[bundle]
            self._orphans.discard(bundle)
            if bundle not in reported:
                self.bundle_data.forget(bundle)

    def _reported(self, bundles: set[str]) -> set[str]:
        """The given bundles that a broker reports."""
        return {
            bundle
            for report in self.reports.values()
            for bundle in bundles & report.last_stats.keys()
        }


def _shown(values: dict[str, T], *, passing: bool) -> Mapping[str, T]:
    return MappingProxyType(values) if passing else dict(values)


class _Waiting(Mapping[str, BundleData]):
    """The bundles that wait for a lookup and have averages, in order of name."""

    def __init__(self, bundles: Set[str], averages: BundleAverages) -> None:
        self._bundles = bundles
        self._averages = averages

    def __getitem__(self, bundle: str) -> BundleData:
        if bundle not in self._bundles:
            raise KeyError(bundle)
        return self._averages[bundle]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._bundles & self._averages.keys()))

    def __len__(self) -> int:
        return len(self._bundles & self._averages.keys())

    def __bool__(self) -> bool:
        return bool(self._bundles)
