"""The metrics of a broker, under Pulsar's names where Pulsar has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.usage import max_usage
from loadmanager.kit.metadata.documents import KINDS
from loadmanager.kit.tasks import LoopBusy
from loadmanager.kit.telemetry import Metric, Sample, counter, gauge
from loadmanager.leader.decision_telemetry import Counts
from loadmanager.leader.decision_telemetry import samples as decision_samples
from loadmanager.member.base import Base, Cluster
from loadmanager.member.hooks import HOOKS, Hooks
from loadmanager.member.lookup import Lookups
from loadmanager.member.move_pauses import Pauses
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.reporter import Reporter
from loadmanager.member.session_keeper import SessionKeeper
from loadmanager.member.wellness import Wellness

SENSORS = ("cpu", "memory", "bandwidthIn", "bandwidthOut", "nicSpeed")
QUANTILES = (0.5, 0.99, 0.999, 1.0)

USAGES = {
    name: gauge(f"pulsar_lb_{name}_usage", f"Usage of {name}, in percent of its limit", "metric")
    for name in ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out")
}
RESOURCE_USAGE = gauge(
    "pulsar_lb_resource_usage",
    "Share that is used of the most used resource: now, unweighted, and weighted and averaged",
    "metric",
    "feature",
)
OWNED = gauge("pulsar_sunit_state_chn_owned_su_total", "The same as loadmanager_bundles", "metric")
SPLITS = counter("pulsar_lb_bundles_split", "Bundles that this broker split", "metric")
SENSOR_TRUSTED = gauge(
    "loadmanager_sensor_trusted",
    "1 if the sensor can be trusted, 0 if it drives no decision",
    "sensor",
)
BUNDLES = gauge("loadmanager_bundles", "Bundles that this broker serves")
BYTES_IN = counter("loadmanager_read_bytes", "Bytes read from client connections")
BYTES_OUT = counter("loadmanager_written_bytes", "Bytes written to client connections")

LOOKUP_ANSWERS = counter(
    "pulsar_broker_lookup_answers", "Lookups answered with an owner", broker=False
)
LOOKUP_REDIRECTS = counter(
    "pulsar_broker_lookup_redirects", "Lookups sent to another broker", broker=False
)
LOOKUP_FAILURES = counter("pulsar_broker_lookup_failures", "Lookups that failed", broker=False)
LOOKUPS_PENDING = gauge(
    "pulsar_broker_lookup_pending_requests", "Lookups in progress", broker=False
)
_LOOKUP = ("pulsar_broker_lookup", "Duration of lookups in ms; quantiles of the last ones")
LOOKUP_QUANTILES = Metric(*_LOOKUP, ("quantile",), "summary", broker=False)
LOOKUP_SUMS = Metric(*_LOOKUP, (), "summary", broker=False)

BUNDLE_LOADS = {
    field: gauge(f"pulsar_bundle_{name}", doc, "bundle", "metric")
    for field, name, doc in (
        ("msg_rate_in", "msg_rate_in", "Messages/s published to the bundle"),
        ("msg_rate_out", "msg_rate_out", "Messages/s delivered from the bundle"),
        ("msg_throughput_in", "msg_throughput_in", "Bytes/s published to the bundle"),
        ("msg_throughput_out", "msg_throughput_out", "Bytes/s delivered from the bundle"),
        ("topics", "topics_count", "Open topics of the bundle"),
        ("consumer_count", "consumer_count", "Consumers of the bundle"),
        ("producer_count", "producer_count", "Producers of the bundle"),
    )
}
"""Field of the bundle's statistics → metric; shown with exposeBundlesMetricsInPrometheus=true."""

PROTOCOL_FAILURES = counter(
    "loadmanager_protocol_failures",
    "Bugs of the broker that cost a client its connection; the log has them",
)
REFUSED_CONNECTIONS = counter(
    "loadmanager_refused_connections",
    "Client connections that were refused because there were too many",
)
HOOK_FAILURES = counter(
    "loadmanager_hook_failures",
    "Calls of what hosts the bundles that failed or took too long",
    "hook",
)
CORRUPT_DATA = counter(
    "loadmanager_corrupt_data", "Corrupt data in the metadata store that was left out", "kind"
)
WATCH_FAILURES = counter(
    "loadmanager_watch_failures", "Changes in the metadata store that a reader failed to process"
)
STEP_FAILURES = counter("pulsar_lb_step_failures", "Contained failures of periodic steps", "step")
LEASE_SECONDS = gauge(
    "loadmanager_session_lease_seconds", "Seconds until the lease of the session runs out"
)
UNLEASED = gauge(
    "loadmanager_bundles_without_lease",
    "Bundles whose stored topics go on while the session is not proven",
)
UNWELL = gauge(
    "loadmanager_broker_unwell",
    "1 if this broker is not well (storage, session, stalls), 2 if it gave up its bundles",
)
FENCED = counter(
    "loadmanager_fenced",
    "Times that its session was not proven, and at most stored topics that were open went on",
)
LEADER = gauge("loadmanager_leader", "1 if this broker leads")
LOOP_BUSY = gauge(
    "loadmanager_event_loop_busy_ratio", "Share of the time that the event loop works"
)
LOOP_LAG = gauge("loadmanager_event_loop_lag_seconds", "How late the event loop's last timer was")
REJECTED_DYNAMIC = gauge(
    "loadmanager_rejected_dynamic_values",
    "Stored dynamic settings that cannot be used, so that other values are in force",
)
TIME = gauge("loadmanager_time_seconds", "This machine's wall clock, in seconds since the epoch")
REPORT_AGE = gauge(
    "loadmanager_report_age_seconds", "How old the load report is that this broker made last"
)
INFO = gauge("loadmanager_info", "The running version", "version")


def bundle_samples(traffic: Mapping[str, NamespaceBundleStats]) -> Iterator[Sample]:
    """The samples of all bundles, each computed when it is taken; without those that have closed
    since the first one was taken.
    """
    for bundle in list(traffic):
        stats = traffic.get(bundle)
        if stats is not None:
            for field, metric in BUNDLE_LOADS.items():
                yield metric.sample(getattr(stats, field), bundle, "bundle")


@dataclass(slots=True, kw_only=True)
class BrokerTelemetry:
    """Reads the present samples of one broker."""

    base: Base
    cluster: Cluster
    reporter: Reporter
    lookups: Lookups
    ownership: Ownership
    hosting: Hooks
    busy: LoopBusy
    counts: Counts
    session_keeper: SessionKeeper
    wellness: Wellness
    watch_failures: Callable[[], int]
    steps: Sequence[Mapping[str, int]]
    """Step → contained failures: of this broker, and of its terms as leader."""
    expose_bundles: bool
    pauses: Pauses
    version: str

    def samples(self) -> Iterator[Sample]:
        yield from self._load()
        yield from self._lookups()
        yield from self._session()
        yield from self._stored_data()
        if self.expose_bundles:
            yield from bundle_samples(self.hosting.bundle_stats())

    def _load(self) -> Iterator[Sample]:
        report = self.reporter.report
        for name, usage in (
            ("cpu", report.cpu),
            ("memory", report.memory),
            ("directMemory", report.direct_memory),
            ("bandwidth_in", report.bandwidth_in),
            ("bandwidth_out", report.bandwidth_out),
        ):
            yield USAGES[name].sample(usage.percent, "loadBalancing")
        yield RESOURCE_USAGE.sample(max_usage(report), "loadBalancing", "max")
        yield RESOURCE_USAGE.sample(self.reporter.usage_average, "loadBalancing", "max_ema")
        yield from decision_samples(self.counts, self.lookups.placements, self.cluster.leading)
        yield SPLITS.sample(self.ownership.splits, "bundlesSplit")
        yield from self.pauses.samples()
        failing = {fault.sensor for fault in self.reporter.faults}
        for sensor in SENSORS:
            yield SENSOR_TRUSTED.sample(sensor not in failing, sensor)
        traffic = self.hosting.usage()
        owned = len(self.ownership.owned())
        yield BUNDLES.sample(owned)
        yield OWNED.sample(owned, "sunitStateChn")
        yield BYTES_IN.sample(traffic.bytes_in_total)
        yield BYTES_OUT.sample(traffic.bytes_out_total)
        yield PROTOCOL_FAILURES.sample(traffic.failures)
        yield REFUSED_CONNECTIONS.sample(traffic.refused_connections)
        for hook in dict.fromkeys((*HOOKS, *self.hosting.failures)):
            yield HOOK_FAILURES.sample(self.hosting.failures[hook], hook)

    def _lookups(self) -> Iterator[Sample]:
        lookups = self.lookups
        yield LOOKUP_ANSWERS.sample(lookups.answers)
        yield LOOKUP_REDIRECTS.sample(lookups.redirects)
        yield LOOKUP_FAILURES.sample(lookups.failures)
        yield LOOKUPS_PENDING.sample(lookups.pending)
        taken = sorted(lookups.took_s)
        for quantile in QUANTILES:
            if taken:
                value_ms = 1000 * taken[min(len(taken) - 1, int(quantile * len(taken)))]
                yield LOOKUP_QUANTILES.sample(value_ms, str(quantile))
        count = lookups.answers + lookups.redirects + lookups.failures
        yield LOOKUP_SUMS.sample(count, suffix="_count")
        yield LOOKUP_SUMS.sample(1000 * lookups.took_s_total, suffix="_sum")

    def _stored_data(self) -> Iterator[Sample]:
        for kind in KINDS:
            yield CORRUPT_DATA.sample(self.base.corrupt.counts.get(kind, 0), kind)
        yield WATCH_FAILURES.sample(self.watch_failures())
        for failures in self.steps:
            for step, count in sorted(failures.items()):
                yield STEP_FAILURES.sample(count, step)

    def _session(self) -> Iterator[Sample]:
        lease_s = self.base.store.lease.valid_until_s - self.base.clock.monotonic_s()
        yield LEASE_SECONDS.sample(max(0.0, lease_s))
        yield UNWELL.sample(2 if self.wellness.given_up else int(bool(self.wellness.reason)))
        yield UNLEASED.sample(self.session_keeper.unleased_bundles)
        yield FENCED.sample(self.session_keeper.fenced_times)
        yield LEADER.sample(self.cluster.leading.load_manager is not None)
        yield LOOP_BUSY.sample(self.busy.fraction)
        yield LOOP_LAG.sample(self.busy.lag_s)
        yield REJECTED_DYNAMIC.sample(len(self.base.settings.rejected))
        now_ms, made_ms = self.base.clock.now_ms(), self.reporter.report.last_update
        yield TIME.sample(now_ms / 1000)
        yield REPORT_AGE.sample(max(0.0, (now_ms - made_ms) / 1000) if made_ms else 0.0)
        yield INFO.sample(1, self.version)
