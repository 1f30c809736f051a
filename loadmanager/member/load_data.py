"""Load data of the extensible manager: what this broker publishes, and what others published.

Pulsar keeps it in two topics; here it is in the store, in ephemeral nodes. A broker publishes by
Pulsar's rules (`BrokerLoadDataReporter`, `TopBundleLoadDataReporter`).

Deviation: when a bundle comes or goes, Pulsar deletes the load data of its broker until the next
report. Here the averages start again, and the next tick publishes; placements under way count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    PublishedClients,
    ResourceUsage,
    TopBundlesLoadData,
    decode_broker_load_data,
    decode_published_clients,
    decode_top_bundles,
    disks_of,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.ownership.state_records import StateRecord, UnitState
from loadmanager.engine.strategies.shedding.from_reports import load_data, top_bundles
from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import BadInputError, CorruptDataError
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.documents import Corrupt
from loadmanager.kit.metadata.store import (
    Change,
    ChangeKind,
    Store,
    VersionConflictError,
    delete_below,
)
from loadmanager.leader.brokers import DEPARTED_MAX, RATE_MAX, check_bundles
from loadmanager.leader.returning import clients_of_bundles
from loadmanager.member.base import Base, Cluster
from loadmanager.member.reporter import Reporter, fuller_or_emptier, percent_change

TOP_BUNDLES_MAX = 1_000
"""At most so many bundles are published, whatever is configured: a node holds 1 MB."""
CLIENTS_LEAST = 10
"""If fewer come or go, no load data is published for them alone."""


@dataclass(slots=True, kw_only=True)
class LoadPublisher:
    """Publishes this broker's load data when it changed enough, or is old."""

    base: Base
    cluster: Cluster
    reporter: Reporter
    _averages: tuple[float, float] | None = None
    _last: BrokerLoadData | None = None
    """The load data published last."""
    _published_s: float = -math.inf
    _clients: int = 0
    """Those that were published last."""
    _disks: Mapping[str, ResourceUsage] = field(default_factory=dict)
    _top: bytes = b""
    _published_in: tuple[int, int] = (0, 0)
    """Session and epoch."""

    def on_record(self, _bundle: str, record: StateRecord | None) -> None:
        """Start the averages again when a bundle came or is to go (Pulsar's rule)."""
        if record is None:
            return
        left = record.state in (UnitState.RELEASING, UnitState.SPLITTING)
        came = record.state is UnitState.OWNED
        if (left and record.source_broker == self.base.broker_id) or (
            came and record.dst_broker == self.base.broker_id
        ):
            self._averages, self._last = None, None

    async def tick(self) -> None:
        """Advance the averages, and publish what is due."""
        report, strategies = self.reporter.report, self.base.strategies.value
        data = load_data(report, strategies, self._averages, self.base.clock.now_ms())
        self._averages = (data.weighted_max_ema, data.msg_throughput_ema)
        now_in = (self.base.store.session_id, self.cluster.leading.epoch)
        new = self._published_in != now_in
        clients = clients_of_bundles(report.last_stats)
        count = sum(clients.values())
        more = abs(count - self._clients) >= CLIENTS_LEAST and self._is_much(
            percent_change(self._clients, count)
        )
        disks = disks_of(report)
        if new or more or fuller_or_emptier(self._disks, disks) or self._due(data):
            data.reported_at = self.base.clock.now_ms()
            path = f"{paths.LOAD_DATA}/{self.base.broker_id}"
            published = msgspec.to_builtins(data) | {"bundleClients": clients}
            if disks:
                published["disks"] = disks
            if not await self._write(path, msgspec.json.encode(published)):
                return
            self._last, self._published_s = data, self.base.clock.monotonic_s()
            self._clients, self._disks = count, disks
        top = msgspec.json.encode(self._busiest())
        if new or top != self._top:
            if not await self._write(f"{paths.TOP_BUNDLES}/{self.base.broker_id}", top):
                return
            self._top = top
        self._published_in = now_in

    def _due(self, data: BrokerLoadData) -> bool:
        settings, last = self.base.broker.value, self._last
        age_s = self.base.clock.monotonic_s() - self._published_s
        if last is None or age_s > settings.report_interval_max_minutes * 60:
            return True
        change = max(
            100 * abs(last.max_resource_usage - data.max_resource_usage),
            percent_change(
                last.msg_rate_in + last.msg_rate_out, data.msg_rate_in + data.msg_rate_out
            ),
            percent_change(
                last.msg_throughput_in + last.msg_throughput_out,
                data.msg_throughput_in + data.msg_throughput_out,
            ),
            percent_change(last.bundle_count, data.bundle_count),
        )
        return self._is_much(change)

    def _is_much(self, change_percent: float) -> bool:
        return change_percent > self.base.broker.value.report_threshold_percent

    def _busiest(self) -> TopBundlesLoadData:
        limit = self.base.strategies.value.bundles_in_report_max
        count = TOP_BUNDLES_MAX if limit < 0 else min(limit, TOP_BUNDLES_MAX)
        policies = ClusterSnapshot(
            now_ms=0,
            reports={},
            isolation_policies=self.cluster.policies.isolation,
            anti_affinity_groups=self.cluster.policies.groups,
        )
        return top_bundles(
            policies, self.reporter.report.last_stats, self.base.strategies.value, count
        )

    async def _write(self, path: str, value: bytes) -> bool:
        """Write an ephemeral node of this session; False while an earlier session has it."""
        session_id = self.base.store.session_id
        if await self.base.store.create(path, value, ephemeral=True):
            return True
        node = await self.base.store.get(path)
        try:
            if node is not None and node.ephemeral_owner == session_id:
                await self.base.store.put(path, value, version=node.version)
                return True
            if node is not None and node.ephemeral_owner == 0:
                await delete_below(self.base.store, path)
                await self.base.store.delete(path, version=node.version)
        except VersionConflictError:
            pass
        return False


class LoadStore:
    """The load data of the live brokers, in this broker's view of the cluster."""

    def __init__(self, store: Store, view: ClusterView, clock: Clock, corrupt: Corrupt) -> None:
        self._store = store
        self._view = view
        self._clock = clock
        self._corrupt = corrupt
        self.listeners: list[Callable[[str, BrokerLoadData], None]] = []
        """Called with a brokerId and the load data that it published."""

    def on_record(self, bundle: str, record: StateRecord | None) -> None:
        """Tell the view who owns a bundle."""
        owner = None if record is None or record.owner is None else record.owner[0]
        self._view.owned_by(bundle, owner)

    async def on_change(self, change: Change) -> None:
        """Read the load data that a change concerns."""
        if change.kind is ChangeKind.RESYNC:
            present = await self._store.children(paths.LOAD_DATA)
            for broker_id in self._view.load_data.keys() - set(present):
                self._forget(broker_id)
            for broker_id in present:
                await self._read(broker_id)
            return
        broker_id = change.path[len(paths.LOAD_DATA) + 1 :]
        if change.kind is ChangeKind.DELETED and broker_id:
            self._forget(broker_id)
        elif broker_id:
            await self._read(broker_id)

    async def _read(self, broker_id: str) -> None:
        path = f"{paths.LOAD_DATA}/{broker_id}"
        node = await self._store.get(path)
        if node is None:
            self._forget(broker_id)
            return
        if node.ephemeral_owner == 0:
            problem = "no session holds it, as that of a live broker would; delete the node"
            self._corrupt.add("report", path, CorruptDataError(f"{path} is corrupt: {problem}"))
            return
        with self._corrupt.left_out("report", path):
            data = decode_broker_load_data(node.value)
            _check(data)
            data.updated_at = min(data.updated_at, self._clock.now_ms())
            self._view.observe(broker_id, data, self._clock.now_ms())
            self._view.clients[broker_id] = _clients(node.value)
            self._view.clients_of_left.pop(broker_id, None)
            for listener in self.listeners:
                listener(broker_id, data)
            return
        self._view.gone(broker_id, self._clock.now_ms())

    def _forget(self, broker_id: str) -> None:
        self._corrupt.mended(f"{paths.LOAD_DATA}/{broker_id}")
        if (clients := self._view.clients.pop(broker_id, None)) is not None:
            left = self._view.clients_of_left
            left.pop(broker_id, None)
            if len(left) >= DEPARTED_MAX:
                del left[next(iter(left))]
            left[broker_id] = clients
        if broker_id in self._view.load_data:
            self._view.gone(broker_id, self._clock.now_ms())

    async def read_top_bundles(self) -> None:
        """Tell the view which bundles the live brokers published."""
        brokers = sorted(self._view.load_data)
        places = [f"{paths.TOP_BUNDLES}/{broker}" for broker in brokers]
        published: dict[str, TopBundlesLoadData] = {}
        for broker, path, node in zip(
            brokers, places, await self._store.get_many(places), strict=True
        ):
            if node is None or node.ephemeral_owner == 0:
                continue
            with self._corrupt.left_out("report", path):
                top = decode_top_bundles(node.value)
                check_bundles(bundle.bundle_name for bundle in top.top_bundles_load_data)
                published[broker] = top
        self._view.observe_top_bundles(published)


def _clients(value: bytes) -> PublishedClients:
    """The clients in a load report; none where they cannot be read: the rest of it counts."""
    try:
        return decode_published_clients(value)
    except BadInputError:
        return PublishedClients()


def _check(data: BrokerLoadData) -> None:
    """Raise `BadInputError` for figures that are negative or impossibly high."""
    figures = (
        data.msg_rate_in,
        data.msg_rate_out,
        data.msg_throughput_in,
        data.msg_throughput_out,
        data.msg_throughput_ema,
        data.weighted_max_ema,
        data.max_resource_usage,
        data.topics,
        data.bundle_count,
    )
    if not all(0 <= figure <= RATE_MAX for figure in figures):
        raise BadInputError(f"an impossible figure: 0 to {RATE_MAX:g} is possible")
