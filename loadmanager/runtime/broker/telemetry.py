"""What a broker says on its metrics page, under Pulsar's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loadmanager.core.load.reports import ResourceUsage
from loadmanager.core.strategies.decision import Plan
from loadmanager.ports.hosting import Hosting
from loadmanager.ports.store import Store
from loadmanager.ports.telemetry import Sample
from loadmanager.runtime.broker.guard import SessionGuard
from loadmanager.runtime.broker.lookup import Lookups
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.broker.reporter import Reporter
from loadmanager.runtime.shared.documents import Corrupt
from loadmanager.runtime.shared.leading import Leading
from loadmanager.runtime.tasks import LoopBusy

SENSORS = ("cpu", "memory", "bandwidthIn", "bandwidthOut", "nicSpeed")
LOAD = (("metric", "loadBalancing"),)
UNLOADING = (("metric", "bundleUnloading"),)
QUANTILES = (0.5, 0.99, 0.999, 1.0)


@dataclass(slots=True)
class Counts:
    """What is counted as it happens."""

    unloaded_bundles: int = 0
    unload_cycles: int = 0

    def on_plan(self, plan: Plan) -> None:
        """The leader, which is this broker, decided."""
        self.unload_cycles += bool(plan.unloads)
        self.unloaded_bundles += len(plan.unloads)


@dataclass(slots=True, kw_only=True)
class BrokerTelemetry:
    """Gives the present samples of one broker."""

    reporter: Reporter
    lookups: Lookups
    ownership: Ownership
    hosting: Hosting
    leading: Leading
    store: Store
    busy: LoopBusy
    counts: Counts
    guard: SessionGuard
    corrupt: Corrupt
    watch_failures: Callable[[], int]
    steps: Sequence[Mapping[str, int]]
    """Step → failures that were contained, of this broker and of its terms as leader."""
    expose_bundles: bool
    rejected_settings: Callable[[], int]
    protocol_failures: Callable[[], int]
    """Errors of our own in serving clients that were contained."""
    refused_connections: Callable[[], int]
    monotonic_s: Callable[[], float]
    version: str

    def samples(self) -> Iterator[Sample]:
        """All samples now."""
        yield from self._load()
        yield from self._lookups()
        yield from self._session()
        yield from self._clients()
        yield from self._stored_data()
        if self.expose_bundles:
            yield from self._bundles()

    def _load(self) -> Iterator[Sample]:
        report = self.reporter.report
        usages: tuple[tuple[str, ResourceUsage], ...] = (
            ("cpu", report.cpu),
            ("memory", report.memory),
            ("directMemory", report.direct_memory),
            ("bandwidth_in", report.bandwidth_in),
            ("bandwidth_out", report.bandwidth_out),
        )
        for name, usage in usages:
            yield Sample(
                f"pulsar_lb_{name}_usage",
                f"Usage of {name}, in percent of its limit",
                usage.percent,
                LOAD,
            )
        counts = self.counts
        yield Sample(
            "pulsar_lb_unload_broker",
            "Shedding cycles that moved bundles, as leader",
            counts.unload_cycles,
            UNLOADING,
            "counter",
        )
        yield Sample(
            "pulsar_lb_unload_bundle",
            "Bundles that this broker, as leader, moved",
            counts.unloaded_bundles,
            UNLOADING,
            "counter",
        )
        yield Sample(
            "pulsar_lb_bundles_split",
            "Bundles that this broker split",
            self.ownership.splits,
            (("metric", "bundlesSplit"),),
            "counter",
        )
        failing = {fault.sensor for fault in self.reporter.faults}
        for sensor in SENSORS:
            trusted = sensor not in failing
            yield Sample(
                "pulsar_lb_sensor_trusted",
                "1 if the sensor can be trusted, 0 if it drives no decision",
                trusted,
                (("sensor", sensor),),
            )
        traffic = self.hosting.usage()
        yield Sample(
            "pulsar_lb_bundles_count",
            "Bundles that this broker serves",
            len(self.ownership.owned()),
        )
        yield Sample("pulsar_rate_in", "Messages/s published", report.msg_rate_in)
        yield Sample("pulsar_rate_out", "Messages/s delivered", report.msg_rate_out)
        yield Sample("pulsar_throughput_in", "Bytes/s published", report.msg_throughput_in)
        yield Sample("pulsar_throughput_out", "Bytes/s delivered", report.msg_throughput_out)
        yield Sample("pulsar_topics_count", "Open topics", report.num_topics)
        yield Sample(
            "pulsar_broker_bytes_in",
            "Bytes read from client connections",
            traffic.bytes_in_total,
            (),
            "counter",
        )
        yield Sample(
            "pulsar_broker_bytes_out",
            "Bytes written to client connections",
            traffic.bytes_out_total,
            (),
            "counter",
        )

    def _lookups(self) -> Iterator[Sample]:
        lookups = self.lookups
        yield Sample(
            "pulsar_broker_lookup_answers",
            "Lookups answered with an owner",
            lookups.answers,
            (),
            "counter",
        )
        yield Sample(
            "pulsar_broker_lookup_redirects",
            "Lookups sent to another broker",
            lookups.redirects,
            (),
            "counter",
        )
        yield Sample(
            "pulsar_broker_lookup_failures", "Lookups that failed", lookups.failures, (), "counter"
        )
        yield Sample(
            "pulsar_broker_lookup_pending_requests", "Lookups in progress", lookups.pending
        )

        taken = sorted(lookups.took_s)
        summary = (
            "pulsar_broker_lookup",
            "How long lookups took, in ms; quantiles of the last ones",
        )
        for quantile in QUANTILES:
            if taken:
                value_ms = 1000 * taken[min(len(taken) - 1, int(quantile * len(taken)))]
                yield Sample(*summary, value_ms, (("quantile", f"{quantile:g}"),), "summary")
        yield Sample(
            *summary,
            lookups.answers + lookups.redirects + lookups.failures,
            (),
            "summary",
            "_count",
        )
        yield Sample(*summary, 1000 * lookups.took_s_total, (), "summary", "_sum")

    def _clients(self) -> Iterator[Sample]:
        doc = "Errors of our own in serving clients that were contained; the log has them"
        yield Sample("loadmanager_protocol_failures", doc, self.protocol_failures(), (), "counter")
        doc = "Client connections that were refused because there were too many"
        count = self.refused_connections()
        yield Sample("loadmanager_refused_connections", doc, count, (), "counter")

    def _bundles(self) -> Iterator[Sample]:
        for bundle, stats in self.hosting.bundle_stats().items():
            labels = (("bundle", bundle), ("metric", "bundle"))
            for name, doc, value in (
                ("msg_rate_in", "Messages/s published to the bundle", stats.msg_rate_in),
                ("msg_rate_out", "Messages/s delivered from the bundle", stats.msg_rate_out),
                ("msg_throughput_in", "Bytes/s published to the bundle", stats.msg_throughput_in),
                (
                    "msg_throughput_out",
                    "Bytes/s delivered from the bundle",
                    stats.msg_throughput_out,
                ),
                ("topics_count", "Open topics of the bundle", stats.topics),
                ("consumer_count", "Consumers of the bundle", stats.consumer_count),
                ("producer_count", "Producers of the bundle", stats.producer_count),
            ):
                yield Sample(f"pulsar_bundle_{name}", doc, value, labels)

    def _stored_data(self) -> Iterator[Sample]:
        doc = "Corrupt things that were met in the metadata store and left out"
        for kind, count in sorted(self.corrupt.counts.items()):
            yield Sample("loadmanager_corrupt_data", doc, count, (("kind", kind),), "counter")
        doc = "Changes in the metadata store that a reader could not take in"
        yield Sample("loadmanager_watch_failures", doc, self.watch_failures(), (), "counter")
        doc = "Failures of steps whose next turn ran all the same"
        for failures in self.steps:
            for step, count in sorted(failures.items()):
                yield Sample("pulsar_lb_step_failures", doc, count, (("step", step),), "counter")

    def _session(self) -> Iterator[Sample]:
        left_s = max(0.0, self.store.lease.valid_until_s - self.monotonic_s())
        yield Sample(
            "loadmanager_session_lease_seconds", "How long the session is proven from now", left_s
        )
        yield Sample(
            "loadmanager_fenced",
            "Times that serving stopped for want of a proven session",
            self.guard.fenced_times,
            (),
            "counter",
        )
        yield Sample(
            "loadmanager_leader", "1 if this broker leads", self.leading.load_manager is not None
        )
        yield Sample(
            "loadmanager_event_loop_busy_ratio",
            "How much of its time the event loop works",
            self.busy.fraction,
        )
        yield Sample(
            "loadmanager_event_loop_lag_seconds",
            "How late the event loop's last timer was",
            self.busy.lag_s,
        )
        yield Sample(
            "loadmanager_rejected_dynamic_values",
            "Stored dynamic settings that cannot be used, so that other values are in force",
            self.rejected_settings(),
        )
        yield Sample("loadmanager_info", "The running version", 1, (("version", self.version),))
