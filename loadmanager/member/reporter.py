"""Publishes this broker's load report by Pulsar's rules (`ModularLoadManagerImpl`).

With many bundles the report is shortened, so that it fits into a node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import (
    BrokerLookupData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    disks_of,
)
from loadmanager.engine.load.usage import exponential_average, max_weighted_usage
from loadmanager.kit.addresses import listeners_document
from loadmanager.kit.logger import get_logger
from loadmanager.kit.metadata import paths
from loadmanager.kit.metadata.store import (
    VALUE_BYTES_MAX,
    Node,
    VersionConflictError,
    delete_below,
)
from loadmanager.kit.sampler import Reading, Sampler, SensorFault, SystemUsage
from loadmanager.kit.system.settings import SamplerSettings
from loadmanager.kit.tasks import Interval, every, sleep
from loadmanager.kit.units import MIB
from loadmanager.leader.members import say_farewell
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting
from loadmanager.member.traffic import bundle_traffic

REGISTER_POLL_S = 0.2
DISK_POINTS = 1.0
"""A report is due when a disk is fuller or emptier by this much of it, in percent."""
REPORT_BYTES_MAX = VALUE_BYTES_MAX - 50_000
NOTHING_USED = SystemUsage(Reading(0, 0), Reading(0, 0), Reading(0, 0), Reading(0, 0))

log = get_logger("load-report")


@dataclass(frozen=True, slots=True)
class _Published:
    """The figures that decide whether a new report is due."""

    at_s: float
    """On the monotonic clock, because the wall clock may be set back."""
    rate: float
    throughput: float
    bundles: int
    clients: int
    usage: float
    disks: Mapping[str, ResourceUsage]
    epoch: int


@dataclass(slots=True, kw_only=True)
class Reporter:
    """Registers the broker with its report, and keeps the report current."""

    base: Base
    cluster: Cluster
    hosting: Hosting
    ownership: Ownership
    sampler: Sampler
    version: str
    extensible: bool = False
    """Whether the registration is that of the extensible manager, without the report."""
    published: bytes = field(default=b"{}", init=False)
    """The last report published, as JSON."""
    report: LocalBrokerData = field(default_factory=LocalBrokerData, init=False)
    """The last report built."""
    usage_average: float = field(default=math.nan, init=False)
    """Weighted usage of the most used resource, averaged over reports; a fraction."""
    _usage: SystemUsage = NOTHING_USED
    _published: _Published | None = None
    _leaving: bool = False
    _reported_bundles: set[str] = field(default_factory=set)
    _faults: set[str] = field(default_factory=set)
    _shortened: bool = False
    _started_ms: int = field(init=False)

    def __post_init__(self) -> None:
        """Remember when this broker started."""
        self._started_ms = self.base.clock.now_ms()

    @property
    def faults(self) -> tuple[SensorFault, ...]:
        """The sensors that cannot be trusted now."""
        return self._usage.faults

    def current(self) -> bytes:
        """The load report as JSON: as last published, or as last built in the extensible manager,
        which publishes none.
        """
        return msgspec.json.encode(self.report) if self.extensible else self.published

    def begin(self) -> None:
        """Sample the machine and report at intervals, in the member's scope."""
        base = self.base
        sampler = base.settings.live(SamplerSettings)
        sampling = Interval(sampler, lambda settings: settings.interval_minutes * 60)
        reporting = Interval(base.broker, lambda settings: settings.report_interval_min_ms / 1000)
        first_s = min(1.0, sampling())
        sample = every(sampling, self.sample, "sample", base.steps, first_after_s=first_s)
        base.scope.spawn(sample, "sample")
        base.scope.spawn(every(reporting, self.tick, "report", base.steps), "report")

    async def sample(self) -> None:
        """Sample the system; logs each failure of a sensor, and its recovery, once."""
        self._usage = self.sampler.sample()
        failing = {fault.sensor for fault in self._usage.faults}
        for fault in self._usage.faults:
            if fault.sensor not in self._faults:
                log.warning(
                    "a sensor cannot be trusted; it drives no decision",
                    sensor=fault.sensor,
                    reason=fault.reason,
                    scope=self.sampler.scope,
                )
        for sensor in sorted(self._faults - failing):
            log.info("a sensor can be trusted again", sensor=sensor)
        self._faults = failing

    async def register(self) -> bool:
        """Register this broker in the present session, with a new report; returns False if this
        broker is leaving.

        Waits while another session holds the registration: an earlier session of this broker until
        it expires, or that of another broker with the same name until that broker stops.
        """
        self._published = None
        path = paths.broker(self.base.me.broker_id)
        began_s, warnings = self.base.clock.monotonic_s(), 0
        while not self._leaving:
            await self._build()
            if self._leaving or await self.base.store.create(path, self._encode(), ephemeral=True):
                break
            node = await self.base.store.get(path)
            if node is not None and await self._refreshed(path, node):
                break
            waited_s = self.base.clock.monotonic_s() - began_s
            if warnings == 0 and node is not None:
                warnings = 1
                log.warning(
                    "waiting for an earlier session of this broker to expire",
                    path=path,
                    timeout_s=self.base.store.session_timeout_s,
                )
            elif (
                warnings == 1
                and node is not None
                and waited_s > 2 * self.base.store.session_timeout_s
            ):
                warnings = 2
                log.error(
                    "another broker runs under this broker's name; stop it, or give this one "
                    "another advertisedAddress or webServicePort",
                    path=path,
                )
            await sleep(REGISTER_POLL_S)
        if not self._leaving:
            self._remember()
        return not self._leaving

    async def unregister(self) -> None:
        """Delete the registration for good: no more bundles are placed here."""
        self._leaving, self._published = True, None
        path = paths.broker(self.base.me.broker_id)
        node = await self.base.store.get(path)
        if node is not None and node.ephemeral_owner == self.base.store.session_id:
            await say_farewell(self.base.store, self.base.broker_id, self.base.clock.now_ms())
            await self.base.store.delete(path)

    async def tick(self) -> None:
        """Publish the report if a figure changed enough, or if the last report is old."""
        await self._build()
        if self._published is None or self.extensible or not self._due(self._published):
            return
        path = paths.broker(self.base.me.broker_id)
        node = await self.base.store.get(path)
        if node is None or node.ephemeral_owner != self.base.store.session_id:
            log.error("this broker's registration is gone; registering again", path=path)
            await self.register()
        elif await self._refreshed(path, node):
            self._remember()

    async def _refreshed(self, path: str, node: Node) -> bool:
        """Write the report into the registration; returns False if this session does not hold it.

        Deletes a registration that no session holds. Writes by compare-and-set: if the session
        expired meanwhile, a plain write would create a persistent node, which would keep this
        broker from registering.
        """
        if node.ephemeral_owner not in (0, self.base.store.session_id):
            return False
        try:
            if node.ephemeral_owner == 0:
                await delete_below(self.base.store, path)
                await self.base.store.delete(path, version=node.version)
                return False
            await self.base.store.put(path, self._encode(), version=node.version)
        except VersionConflictError:
            return False
        return True

    def _due(self, before: _Published) -> bool:
        settings, report = self.base.broker.value, self.report
        if self.cluster.leading.epoch != before.epoch:
            return True
        if self.base.clock.monotonic_s() - before.at_s > settings.report_interval_max_minutes * 60:
            return True
        if fuller_or_emptier(before.disks, disks_of(report)):
            return True
        change = max(
            percent_change(before.rate, report.rate),
            percent_change(before.throughput, report.throughput),
            percent_change(before.bundles, report.num_bundles),
            percent_change(before.clients, report.num_producers + report.num_consumers),
            100
            * abs(before.usage - max_weighted_usage(report, self.base.strategies.value.weights)),
        )
        return change > settings.report_threshold_percent

    async def _build(self) -> None:
        stats = await bundle_traffic(self.hosting)
        owned = self.ownership.owned()
        host = self.hosting.usage()
        manager = Manager.EXTENSIBLE if self.extensible else Manager.MODULAR
        report = LocalBrokerData(
            web_service_url=self.base.me.web_url or None,
            web_service_url_tls=self.base.me.web_url_tls or None,
            pulsar_service_url=self.base.me.service_url or None,
            pulsar_service_url_tls=self.base.me.service_url_tls or None,
            cpu=_usage(self._usage.cpu),
            memory=_usage(self._usage.memory),
            direct_memory=ResourceUsage(
                usage=host.memory_used_bytes // MIB, limit=host.memory_limit_bytes // MIB
            ),
            bandwidth_in=_usage(self._usage.bandwidth_in),
            bandwidth_out=_usage(self._usage.bandwidth_out),
            last_update=self.base.clock.now_ms(),
            last_stats={bundle: stats.get(bundle) or NamespaceBundleStats() for bundle in owned},
            num_bundles=len(owned),
            bundles=owned,
            last_bundle_gains=sorted(set(owned) - self._reported_bundles),
            last_bundle_losses=sorted(self._reported_bundles - set(owned)),
            broker_version_string=self.version,
            broker_id=self.base.me.broker_id,
            advertised_listeners=listeners_document(self.base.me.listeners),
            load_manager_class_name=manager.value,
            start_timestamp=self._started_ms,
            disks={name: _usage(it) for name, it in self._usage.disks.items()} or msgspec.UNSET,
        )
        for bundle_stats in report.last_stats.values():
            report.msg_rate_in += bundle_stats.msg_rate_in
            report.msg_rate_out += bundle_stats.msg_rate_out
            report.msg_throughput_in += bundle_stats.msg_throughput_in
            report.msg_throughput_out += bundle_stats.msg_throughput_out
            report.num_topics += bundle_stats.topics
            report.num_consumers += bundle_stats.consumer_count
            report.num_producers += bundle_stats.producer_count
        self.report = report
        strategies = self.base.strategies.value
        self.usage_average = exponential_average(
            None if math.isnan(self.usage_average) else self.usage_average,
            max_weighted_usage(report, strategies.weights),
            strategies.history_weight,
        )

    def _encode(self) -> bytes:
        if self.extensible:
            report = self.report
            return msgspec.json.encode(
                BrokerLookupData(
                    web_service_url=report.web_service_url,
                    web_service_url_tls=report.web_service_url_tls,
                    pulsar_service_url=report.pulsar_service_url,
                    pulsar_service_url_tls=report.pulsar_service_url_tls,
                    advertised_listeners=report.advertised_listeners,
                    load_manager_class_name=report.load_manager_class_name,
                    start_timestamp=report.start_timestamp,
                    broker_version=report.broker_version_string,
                )
            )
        self.published, left_out = shorten(self.report, REPORT_BYTES_MAX)
        if bool(left_out) != self._shortened:
            self._shortened = bool(left_out)
            log.warning(
                "the load report contains only the busiest bundles, to fit into a node",
                left_out=left_out,
            )
        return self.published

    def _remember(self) -> None:
        report = self.report
        self._reported_bundles = set(report.bundles)
        usage = max_weighted_usage(report, self.base.strategies.value.weights)
        self._published = _Published(
            self.base.clock.monotonic_s(),
            report.rate,
            report.throughput,
            int(report.num_bundles),
            int(report.num_producers + report.num_consumers),
            usage,
            disks_of(report),
            self.cluster.leading.epoch,
        )


def shorten(report: LocalBrokerData, bytes_max: int) -> tuple[bytes, int]:
    """The report's JSON in at most `bytes_max` bytes, and the number of bundles left out.

    The least busy bundles are left out first. Counts and sums still include all bundles.
    """
    encoded = msgspec.json.encode(report)
    if len(encoded) <= bytes_max:
        return encoded, 0
    busiest = sorted(
        report.last_stats,
        key=lambda bundle: (
            -report.last_stats[bundle].throughput,
            -report.last_stats[bundle].rate,
            bundle,
        ),
    )
    low, high, best = 0, len(busiest), b""
    while low < high:
        middle = (low + high + 1) // 2
        bundles = sorted(busiest[:middle])
        shorter = msgspec.structs.replace(
            report,
            bundles=bundles,
            last_stats={bundle: report.last_stats[bundle] for bundle in bundles},
            last_bundle_gains=[],
            last_bundle_losses=[],
        )
        encoded = msgspec.json.encode(shorter)
        if len(encoded) <= bytes_max:
            low, best = middle, encoded
        else:
            high = middle - 1
    return best, len(busiest) - low


def _usage(reading: Reading) -> ResourceUsage:
    return ResourceUsage(usage=reading.usage, limit=reading.limit)


def fuller_or_emptier(
    before: Mapping[str, ResourceUsage], after: Mapping[str, ResourceUsage]
) -> bool:
    """Whether a disk came or went, or is at another percent than it was told at."""
    if before.keys() != after.keys():
        return True
    return any(abs(before[it].percent - after[it].percent) >= DISK_POINTS for it in after)


def percent_change(before: float, after: float) -> float:
    """The change of a figure in percent, by Pulsar's rule: relative to the old value; infinite if
    that is 0 and the new value is not.
    """
    if before == 0:
        return 0.0 if after == 0 else math.inf
    return 100 * abs((before - after) / before)
