"""Settings of a broker process: its addresses, load reports, namespaces, lookups and shutdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadmanager.kit.conf import conf
from loadmanager.kit.units import MINUTE_MS

NAMESPACE_BUNDLES_MAX = 50_000
"""The boundaries of one namespace must fit into a node of 1 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The broker process."""

    cluster_name: str = conf(
        "clusterName", "standalone", "Name of the cluster that this broker belongs to"
    )
    bind_address: str = conf("bindAddress", "0.0.0.0", "Host name or address to listen on")
    advertised_address: str = conf(
        "advertisedAddress",
        "",
        "Host name or address that others reach this broker by; empty: the machine's name",
    )
    advertised_listeners: tuple[str, ...] = conf(
        "advertisedListeners",
        (),
        "Addresses for different clients, name:pulsar://host:port or name:http://host:port; "
        "clients choose by name, or by the address in bindAddresses that they come through",
    )
    internal_listener: str = conf(
        "internalListenerName",
        "",
        "The listener for other brokers, and for clients that name none; empty: the first of "
        "advertisedListeners",
    )
    bind_addresses: tuple[str, ...] = conf(
        "bindAddresses",
        (),
        "More addresses to listen on, name:pulsar://host:port or name:http://host:port, each for "
        "the clients of an advertised listener",
    )
    broker_port: int | None = conf(
        "brokerServicePort",
        6650,
        "Port of the binary protocol; 0 takes a free one, empty: with TLS only",
        minimum=0,
        maximum=65535,
    )
    web_port: int | None = conf(
        "webServicePort",
        8080,
        "Port of the admin API, lookups and metrics; 0 takes a free one, empty: with TLS only",
        minimum=0,
        maximum=65535,
    )
    broker_port_tls: int | None = conf(
        "brokerServicePortTls",
        None,
        "Port of the binary protocol over TLS; 0 takes a free one, empty: none",
        minimum=0,
        maximum=65535,
    )
    web_port_tls: int | None = conf(
        "webServicePortTls",
        None,
        "Port of the admin API, lookups and metrics over TLS; 0 takes a free one, empty: none",
        minimum=0,
        maximum=65535,
    )
    load_balancer_enabled: bool = conf(
        "loadBalancerEnabled", True, "Publish load reports and balance load"
    )
    report_threshold_percent: int = conf(
        "loadBalancerReportUpdateThresholdPercentage",
        10,
        "Publish the load report when a figure changed by more than this many percent",
        minimum=0,
        dynamic=True,
    )
    report_interval_min_ms: int = conf(
        "loadBalancerReportUpdateMinIntervalMillis",
        5000,
        "Interval of the check whether to publish the load report",
        minimum=50,
        dynamic=True,
    )
    report_interval_max_minutes: float = conf(
        "loadBalancerReportUpdateMaxIntervalMinutes",
        15.0,
        "Publish the load report at least this often",
        minimum=0.01,
        dynamic=True,
    )
    quota_update_interval_minutes: float = conf(
        "loadBalancerResourceQuotaUpdateIntervalMinutes",
        15.0,
        "How often the leader stores bundle and broker averages",
        minimum=0.01,
    )
    default_bundles: int = conf(
        "defaultNumberOfNamespaceBundles",
        4,
        "Bundles of a namespace that is created without a number",
        minimum=1,
        maximum=NAMESPACE_BUNDLES_MAX,
        dynamic=True,
    )
    bundle_unload_timeout_ms: int = conf(
        "namespaceBundleUnloadingTimeoutMs",
        60_000,
        "How long one bundle may take to unload",
        minimum=100,
        dynamic=True,
    )
    shutdown_timeout_ms: int = conf(
        "brokerShutdownTimeoutMs",
        60_000,
        "How long a graceful stop may take",
        minimum=0,
        dynamic=True,
    )
    shutdown_unloads_max: int = conf(
        "brokerShutdownMaxConcurrentUnloads",
        20,
        "How many bundles are released at once during a graceful stop",
        minimum=1,
    )
    history_cycles: bool = conf(
        "loadManagerHistoryCyclesEnabled",
        True,
        "Record what each cycle of the leader saw and used, for `replay --exact`",
    )
    unwell_gives_up: bool = conf(
        "loadManagerUnwellBrokersGiveUp",
        True,
        "A broker whose storage fails, or whose session is lost again and again, cordons itself "
        "until it is well, if most others are",
    )
    history_interval_s: float = conf(
        "loadManagerHistoryIntervalSeconds",
        60.0,
        "How often loads and limits are recorded in the history",
        minimum=0.1,
        dynamic=True,
    )
    history_topics_max: int = conf(
        "loadManagerHistoryMaxTopics",
        100,
        "How many of a broker's busiest topics the history records",
        minimum=0,
        dynamic=True,
    )
    lookups_max: int = conf(
        "maxConcurrentLookupRequest",
        50_000,
        "How many lookups may be in progress at once",
        minimum=1,
        dynamic=True,
    )
    auto_create_topics: bool = conf(
        "allowAutoTopicCreation",
        True,
        "Create a topic when a producer or consumer asks for it",
        dynamic=True,
    )
    topics_per_namespace_max: int = conf(
        "maxTopicsPerNamespace",
        0,
        "How many persistent topics a namespace may have, partitions counted one by one "
        "(0 or -1: no limit)",
        minimum=-1,
        dynamic=True,
    )
    namespaces_per_tenant_max: int = conf(
        "maxNamespacesPerTenant",
        0,
        "How many namespaces a tenant may have (0 or -1: no limit)",
        minimum=-1,
        dynamic=True,
    )
    delete_namespace_force: bool = conf(
        "forceDeleteNamespaceAllowed",
        False,
        "Allow a namespace to be deleted with its topics",
        dynamic=True,
    )
    log_level: str = conf(
        "logLevel",
        "info",
        "Least severity that is logged",
        choices=("debug", "info", "warning", "error"),
    )
    event_loop_uvloop: bool = conf("eventLoopUvloop", True, "Run on uvloop, where it is installed")

    def contradictions(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The shortest interval of reports must not be longer than the longest."""
        low = "loadBalancerReportUpdateMinIntervalMillis"
        high = "loadBalancerReportUpdateMaxIntervalMinutes"
        least_ms, most_minutes = self.report_interval_min_ms, self.report_interval_max_minutes
        if least_ms > most_minutes * MINUTE_MS:
            yield (low, high), f"{low} = {least_ms} is longer than {high} = {most_minutes:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """The state records of the extensible load manager."""

    in_flight_ms: int = conf(
        "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
        30_000,
        "Extensible manager: how long a lookup waits for a bundle that is in transit, and how old "
        "such a state gets before it is repaired",
        minimum=100,
    )
    monitor_interval_s: int = conf(
        "loadBalancerServiceUnitStateMonitorIntervalInSeconds",
        60,
        "Extensible manager: how often the leader looks for states to repair",
        minimum=1,
    )
    tombstone_delay_s: int = conf(
        "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds",
        3600,
        "Extensible manager: how old the record of a bundle without an owner gets before it is "
        "removed",
        minimum=1,
    )

    def contradictions(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """A record must not be removed while its state is in transit."""
        low = "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis"
        high = "loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds"
        if self.tombstone_delay_s * 1000 < self.in_flight_ms:
            yield (
                (low, high),
                f"{low} = {self.in_flight_ms} is longer than {high} = {self.tombstone_delay_s}",
            )
