"""What the leader knows of the cluster's load: the brokers' reports, the averages of every bundle, and what is on its way.

Deviation from Pulsar: a bundle's averages take one sample for each report of *its* broker. (Pulsar samples every bundle whenever any broker writes, so
that its averages run faster the more brokers there are.)
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadmanager.core.load.reports import BundleData, LocalBrokerData, TimeAverageBrokerData, decode_bundle_data, default_bundle_data
from loadmanager.core.load.snapshot import ClusterSnapshot, time_average_of
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.ports.clock import Clock
from loadmanager.ports.store import Check, Create, Put, Store
from loadmanager.runtime.shared import paths
from loadmanager.runtime.shared.brokers import Brokers
from loadmanager.runtime.shared.documents import Corrupt
from loadmanager.runtime.shared.placement_policies import PlacementPolicies
from loadmanager.runtime.tasks import Steps

PENDING_MS_MAX = 60_000
"""A placement that is not in a report after this long did not happen."""
STORED_BUNDLES_MAX = 10_000
WRITES_PER_TRANSACTION = 200
"""Some 5 KB each: well below what a transaction holds."""


class LoadView:
    """Kept current by the brokers' reports; gives snapshots."""

    def __init__(self, brokers: Brokers, policies: PlacementPolicies, clock: Clock, corrupt: Corrupt, steps: Steps) -> None:
        self._brokers = brokers
        self._policies = policies
        self._clock = clock
        self._corrupt = corrupt
        self._steps = steps
        self.bundle_data: dict[str, BundleData] = {}
        self._time_averages: dict[str, TimeAverageBrokerData] = {}
        self._pending: dict[str, tuple[str, int]] = {}
        self._unloaded_ms: dict[str, int] = {}
        self._unloaded_brokers_ms: dict[str, int] = {}

    def __enter__(self) -> LoadView:
        """Take the present reports and listen to those that come."""
        for broker_id, report in self._brokers.reports.items():
            self.on_report(broker_id, report)
        self._brokers.listeners.append(self.on_report)
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more: the term is over."""
        self._brokers.listeners.remove(self.on_report)

    def on_report(self, broker_id: str, report: LocalBrokerData | None) -> None:
        """A broker came, reported, or went (None)."""
        try:
            self._observe(broker_id, report)
        except Exception as error:  # noqa: BLE001 - what the leader makes of a report must not keep others from reading it
            self._steps.failed("observe", error)

    def _observe(self, broker_id: str, report: LocalBrokerData | None) -> None:
        if report is None:
            self._time_averages.pop(broker_id, None)
            self._unloaded_brokers_ms.pop(broker_id, None)
            self._pending = {bundle: item for bundle, item in self._pending.items() if item[0] != broker_id}
            return
        for bundle, stats in report.last_stats.items():
            data = self.bundle_data.get(bundle)
            if data is None:
                data = self.bundle_data[bundle] = default_bundle_data()
            data.update(stats)
            if self._pending.get(bundle, ("", 0))[0] == broker_id:
                del self._pending[bundle]
        self._time_averages[broker_id] = time_average_of(report, self.bundle_data)

    def place(self, bundle: str, broker_id: str) -> None:
        """A bundle is on its way to a broker: it counts there until that broker reports it."""
        self._pending[bundle] = (broker_id, self._clock.now_ms())

    def not_placed(self, bundle: str) -> None:
        """A bundle is not on its way after all."""
        self._pending.pop(bundle, None)

    def placed(self, bundle: str) -> str | None:
        """Where a bundle is on its way to, if that broker lives."""
        known = self._pending.get(bundle)
        if known is None or self._clock.now_ms() - known[1] > PENDING_MS_MAX or known[0] not in self._brokers.reports:
            return None
        return known[0]

    def moved(self, bundle: str, source: str) -> None:
        """A bundle was moved away from a broker now."""
        self._unloaded_ms[bundle] = self._unloaded_brokers_ms[source] = self._clock.now_ms()

    def snapshot(self, settings: StrategySettings) -> ClusterSnapshot:
        """The cluster now. Forgets moves older than the grace period and placements that did not happen."""
        now_ms = self._clock.now_ms()
        oldest_ms = now_ms - settings.grace_period_minutes * 60_000
        self._unloaded_ms = {bundle: at_ms for bundle, at_ms in self._unloaded_ms.items() if at_ms >= oldest_ms}
        self._pending = {bundle: item for bundle, item in self._pending.items() if now_ms - item[1] <= PENDING_MS_MAX}
        pending: dict[str, dict[str, BundleData]] = {}
        for bundle, (broker_id, _) in self._pending.items():
            pending.setdefault(broker_id, {})[bundle] = self.bundle_data.get(bundle) or default_bundle_data()
        return ClusterSnapshot(
            now_ms=now_ms,
            reports=dict(self._brokers.reports),
            bundle_data=dict(self.bundle_data),
            time_averages=dict(self._time_averages),
            pending=pending,
            recently_unloaded_ms=dict(self._unloaded_ms),
            recently_unloaded_brokers_ms=dict(self._unloaded_brokers_ms),
            isolation_policies=self._policies.isolation,
            anti_affinity_groups=dict(self._policies.groups),
            failure_domains=self._policies.domains if settings.failure_domains else {},
        )

    async def restore(self, store: Store) -> None:
        """Begin from the averages that earlier leaders stored; what cannot be read is passed over."""
        names = []
        for tenant in await store.children(paths.BUNDLE_DATA):
            for namespace in await store.children(f"{paths.BUNDLE_DATA}/{tenant}"):
                names += [f"{tenant}/{namespace}/{span}" for span in await store.children(f"{paths.BUNDLE_DATA}/{tenant}/{namespace}")]
        names = names[:STORED_BUNDLES_MAX]
        for name, node in zip(names, await store.get_many([f"{paths.BUNDLE_DATA}/{name}" for name in names]), strict=True):
            with self._corrupt.left_out("averages", f"{paths.BUNDLE_DATA}/{name}"):
                if node is not None and node.value:
                    self.bundle_data[name] = decode_bundle_data(node.value)

    async def save(self, store: Store, bundles_per_broker: int, fence: Sequence[Check]) -> None:
        """Store the averages of the busiest bundles and of every broker, for the next leader (Pulsar `writeBundleDataOnZooKeeper`).

        Raises `VersionConflictError` when the term is over.
        """
        reported = {bundle for report in self._brokers.reports.values() for bundle in report.last_stats}
        self.bundle_data = {bundle: data for bundle, data in self.bundle_data.items() if bundle in reported}
        order = sorted(self.bundle_data, key=lambda bundle: (-self.bundle_data[bundle].long_term_data.throughput, bundle))
        limit = len(order) if bundles_per_broker < 0 else bundles_per_broker * max(len(self._brokers.reports), 1)
        values = {f"{paths.BUNDLE_DATA}/{bundle}": msgspec.json.encode(self.bundle_data[bundle]) for bundle in order[:limit]}
        for broker_id, average in self._time_averages.items():
            values[f"{paths.BROKER_TIME_AVERAGE}/{broker_id}"] = msgspec.json.encode(average)
        for parent in sorted({path.rpartition("/")[0] for path in values}):
            await store.create(parent, b"")  # a transaction makes no parents
        names = list(values)
        for start in range(0, len(names), WRITES_PER_TRANSACTION):
            batch = names[start : start + WRITES_PER_TRANSACTION]
            nodes = await store.get_many(batch)
            writes = [
                Create(path, values[path]) if node is None else Put(path, values[path]) for path, node in zip(batch, nodes, strict=True)
            ]
            await store.commit([*fence, *writes])
