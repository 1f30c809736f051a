"""Limits of the in-memory topics and of the connections that reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadmanager.kit.conf import conf

REQUEST_HOLD, EXCEPTION, CONSUMER_EVICTION = QUOTA_POLICIES = (
    "producer_request_hold",
    "producer_exception",
    "consumer_backlog_eviction",
)


def _at_most(name: str, what: str) -> Any:
    return conf(name, 0, f"{what} (0 or -1: no limit)", minimum=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagingSettings:
    """Topics, subscriptions and client connections."""

    message_bytes_max: int = conf(
        "maxMessageSize",
        5 * 1024 * 1024,
        "Largest message, in bytes",
        minimum=1024,
        maximum=1 << 30,
    )
    retention_mb: float = conf(
        "defaultRetentionSizeInMB",
        8.0,
        "How much acknowledged data a topic keeps, for readers and seeks (-1: any)",
        minimum=-1,
    )
    retention_minutes: float = conf(
        "defaultRetentionTimeInMinutes",
        -1.0,
        "How long a topic keeps acknowledged data, at most defaultRetentionSizeInMB (-1: any time)",
        minimum=-1,
    )
    quota_s: int = conf(
        "backlogQuotaDefaultLimitSecond",
        -1,
        "How old the oldest unacknowledged message of a topic may be (-1: any)",
        minimum=-1,
    )
    quota_policy: str = conf(
        "backlogQuotaDefaultRetentionPolicy",
        REQUEST_HOLD,
        "What happens when a backlog is too large or too old: producers wait, producers get an "
        "exception, or the oldest messages count as acknowledged",
        choices=QUOTA_POLICIES,
    )
    ttl_s: int = conf(
        "ttlDurationDefaultInSeconds",
        0,
        "After how long messages count as acknowledged (0: never)",
        minimum=0,
    )
    expiry_minutes: float = conf(
        "messageExpiryCheckIntervalInMinutes",
        5.0,
        "How often messages that are too old are looked for",
        minimum=0.01,
    )
    quota_check_s: float = conf(
        "backlogQuotaCheckIntervalInSeconds",
        60.0,
        "How often backlogs that are too large or too old are looked for",
        minimum=0.5,
    )
    backlog_bytes_max: int = conf(
        "backlogQuotaDefaultLimitBytes",
        256 * 1024 * 1024,
        "How much data a topic may hold in memory before producers are refused (-1: no limit)",
        minimum=-1,
    )
    backlog_gb_max: float = conf(
        "backlogQuotaDefaultLimitGB",
        -1.0,
        "How much data a stored topic may hold before producers are refused (-1: no limit)",
        minimum=-1,
    )
    topics_memory_mb: int = conf(
        "topicsMemoryLimitMB",
        1024,
        "How much data all topics of this broker together may hold in memory",
        minimum=1,
    )
    topics_max: int = conf(
        "loadManagerMaxTopicsPerBroker",
        100_000,
        "How many topics may be open on this broker when another one is created, shared fairly by "
        "the namespaces (0: any number)",
        minimum=0,
    )
    publish_buffer_mb: int = conf(
        "maxMessagePublishBufferSizeInMB",
        256,
        "How much received but unprocessed data all connections together may hold, and as much "
        "again of messages that have not arrived completely (-1: no limit)",
        minimum=-1,
        dynamic=True,
    )
    unacked_per_consumer_max: int = conf(
        "maxUnackedMessagesPerConsumer",
        50_000,
        "A shared consumer with this many unacknowledged messages gets no more (0 or -1: no limit)",
        minimum=-1,
    )
    round_robin_entries_max: int = conf(
        "dispatcherMaxRoundRobinBatchSize",
        20,
        "How many entries a consumer of a shared subscription gets in one turn",
        minimum=1,
        dynamic=True,
    )
    delayed: bool = conf(
        "delayedDeliveryEnabled",
        True,
        "Shared subscriptions deliver a message when its producer asked for it, not before",
    )
    keep_alive_s: float = conf(
        "keepAliveIntervalSeconds", 30.0, "How often an idle connection is probed", minimum=0.5
    )
    connections_max: int = conf(
        "brokerMaxConnections",
        0,
        "How many client connections this broker takes (0 or -1: as many as the limit of "
        "open files allows); when it has so many, the address that has the most gives way",
        minimum=-1,
    )
    connections_per_address_max: int = _at_most(
        "brokerMaxConnectionsPerIp", "How many client connections of one address this broker takes"
    )
    connections_per_role_max: int = conf(
        "loadManagerMaxConnectionsPerRole",
        10_000,
        "How many client connections of one role this broker takes (0: any number)",
        minimum=0,
    )
    requests_per_role_max: int = conf(
        "loadManagerMaxRequestsInProgressPerRole",
        100,
        "How many requests of one role, which wait for the metadata store or the disk, are in "
        "progress at once; further ones wait (0: any number). Without authentication: of one "
        "connection",
        minimum=0,
        dynamic=True,
    )
    refusals_per_s: int = conf(
        "loadManagerMaxRefusedRequestsPerSecondPerRole",
        100,
        "With more refused requests per second than this, for ten seconds, the connections of a "
        "role are served slowly, and then closed (0: any number)",
        minimum=0,
        maximum=1_000_000,
        dynamic=True,
    )
    producers_per_topic_max: int = _at_most(
        "maxProducersPerTopic", "How many producers a topic takes"
    )
    producers_per_address_max: int = _at_most(
        "maxSameAddressProducersPerTopic", "How many producers of one client address a topic takes"
    )
    consumers_per_topic_max: int = _at_most(
        "maxConsumersPerTopic", "How many consumers a topic takes"
    )
    consumers_per_address_max: int = _at_most(
        "maxSameAddressConsumersPerTopic", "How many consumers of one client address a topic takes"
    )
    consumers_per_subscription_max: int = _at_most(
        "maxConsumersPerSubscription", "How many consumers a subscription takes"
    )
    subscriptions_per_topic_max: int = conf(
        "maxSubscriptionsPerTopic",
        0,
        "How many subscriptions a topic takes (0 or -1: 10,000)",
        minimum=-1,
    )
    deduplicates: bool = conf(
        "brokerDeduplicationEnabled",
        False,
        "A producer's sequence ids must rise, also those of a new producer with an old name; "
        "others are duplicates, which are acknowledged and not stored",
    )
    producers_remembered_max: int = conf(
        "brokerDeduplicationMaxNumberOfProducers",
        10_000,
        "A topic remembers the last sequence ids of this many producers that lost their connection",
        minimum=0,
    )
    producers_remembered_minutes: float = conf(
        "brokerDeduplicationProducerInactivityTimeoutMinutes",
        360.0,
        "How long a topic remembers the last sequence id of a producer that lost its connection",
        minimum=0,
    )
    outbound_buffer_kb: int = conf(
        "connectionOutboundBufferKB",
        4096,
        "A connection with this much unsent data gets no more messages and is not read",
        minimum=64,
    )
    stats_interval_s: float = conf(
        "statsUpdateFrequencyInSecs", 60.0, "Over how long traffic is averaged", minimum=0.1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """The storage of `persistent://` topics."""

    directory: str = conf(
        "loadManagerStorageDirectory",
        "",
        "Folder of persistent topics, which all brokers share; empty: they are kept in memory, "
        "and a move loses what was not consumed",
    )
    sync: str = conf(
        "loadManagerStorageSync",
        "always",
        "When messages are on the disk: always (before their receipt is sent), interval (later; a "
        "killed broker loses nothing, a machine that fails may), never (when the system likes)",
        choices=("always", "interval", "never"),
    )
    sync_interval_ms: float = conf(
        "loadManagerStorageSyncIntervalMillis",
        100.0,
        "How often messages are brought to the disk with loadManagerStorageSync=interval",
        minimum=1,
    )
    timeout_s: float = conf(
        "loadManagerStorageTimeoutSeconds",
        15.0,
        "How long a call of the storage may take before it counts as failed",
        minimum=0.1,
    )
    segment_entries_max: int = conf(
        "managedLedgerMaxEntriesPerLedger",
        50_000,
        "A segment of a topic is finished when it has this many entries",
        minimum=1,
    )
    segment_mb_max: int = conf(
        "managedLedgerMaxSizePerLedgerMbytes",
        64,
        "A segment of a topic is finished when it has this many MB, 128 at most",
        minimum=1,
    )
    cache_mb: int = conf(
        "managedLedgerCacheSizeMB",
        64,
        "Memory for messages of stored topics that were written or read last",
        minimum=1,
    )
    cursor_saves_per_s: float = conf(
        "managedLedgerDefaultMarkDeleteRateLimit",
        1.0,
        "How often per second the cursors of a topic are saved",
        minimum=0.01,
    )
    ranges_max: int = conf(
        "managedLedgerMaxUnackedRangesToPersist",
        10_000,
        "How many ranges of single acknowledgements a saved cursor has, 20,000 at most",
        minimum=0,
    )
