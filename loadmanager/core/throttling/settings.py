"""broker.conf keys of throttling."""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.core.conf import conf

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
"""What Pulsar's int and long hold."""
_WITHOUT_EFFECT = "Accepted for the sake of old files, without effect (as in Pulsar since PIP-322)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingSettings:
    """Limits of the broker itself, and of topics and subscriptions that no policy mentions.

    Rates per second, 0: unlimited.
    """

    broker_publish_messages_per_s: int = conf(
        "brokerPublisherThrottlingMaxMessageRate",
        0,
        "Publish limit of the broker in messages/s; 0: none",
        minimum=-1,
        maximum=INT_MAX,
        dynamic=True,
    )
    broker_publish_bytes_per_s: int = conf(
        "brokerPublisherThrottlingMaxByteRate",
        0,
        "Publish limit of the broker in bytes/s; 0: none",
        minimum=-1,
        maximum=LONG_MAX,
        dynamic=True,
    )
    topic_publish_messages_per_s: int = conf(
        "maxPublishRatePerTopicInMessages",
        0,
        "Publish limit of each topic in messages/s; 0: none",
        minimum=-1,
        maximum=INT_MAX,
        dynamic=True,
    )
    topic_publish_bytes_per_s: int = conf(
        "maxPublishRatePerTopicInBytes",
        0,
        "Publish limit of each topic in bytes/s; 0: none",
        minimum=-1,
        maximum=LONG_MAX,
        dynamic=True,
    )
    pending_publishes_per_connection: int = conf(
        "maxPendingPublishRequestsPerConnection",
        1000,
        "After this many publishes of a connection, its receipts are written and other "
        "connections have their turn; 0: no limit",
        minimum=0,
    )
    subscribes_per_consumer: int = conf(
        "subscribeThrottlingRatePerConsumer",
        0,
        "SUBSCRIBE requests of one consumer per period; 0: no limit",
        minimum=-1,
        maximum=INT_MAX,
        dynamic=True,
    )
    subscribe_period_s: int = conf(
        "subscribeRatePeriodPerConsumerInSecond",
        30,
        "Period of subscribeThrottlingRatePerConsumer in seconds",
        minimum=1,
        maximum=INT_MAX,
        dynamic=True,
    )
    broker_dispatch_messages_per_s: int = conf(
        "dispatchThrottlingRateInMsg",
        0,
        "Dispatch limit of the broker in messages/s; 0: none",
        minimum=-1,
        maximum=INT_MAX,
        dynamic=True,
    )
    broker_dispatch_bytes_per_s: int = conf(
        "dispatchThrottlingRateInByte",
        0,
        "Dispatch limit of the broker in bytes/s; 0: none",
        minimum=-1,
        maximum=LONG_MAX,
        dynamic=True,
    )
    topic_dispatch_messages_per_s: int = conf(
        "dispatchThrottlingRatePerTopicInMsg",
        0,
        "Dispatch limit of each topic in messages/s; 0: none",
        minimum=-1,
        maximum=INT_MAX,
        dynamic=True,
    )
    topic_dispatch_bytes_per_s: int = conf(
        "dispatchThrottlingRatePerTopicInByte",
        0,
        "Dispatch limit of each topic in bytes/s; 0: none",
        minimum=-1,
        maximum=LONG_MAX,
        dynamic=True,
    )
    subscription_dispatch_messages_per_s: int = conf(
        "dispatchThrottlingRatePerSubscriptionInMsg",
        0,
        "Dispatch limit of each subscription in messages/s; 0: none",
        minimum=-1,
        maximum=INT_MAX,
        dynamic=True,
    )
    subscription_dispatch_bytes_per_s: int = conf(
        "dispatchThrottlingRatePerSubscriptionInByte",
        0,
        "Dispatch limit of each subscription in bytes/s; 0: none",
        minimum=-1,
        maximum=LONG_MAX,
        dynamic=True,
    )
    replicator_dispatch_messages_per_s: int = conf(
        "dispatchThrottlingRatePerReplicatorInMsg",
        0,
        "Accepted, without effect: there is no geo-replication",
        minimum=-1,
        maximum=INT_MAX,
    )
    replicator_dispatch_bytes_per_s: int = conf(
        "dispatchThrottlingRatePerReplicatorInByte",
        0,
        "Accepted, without effect: there is no geo-replication",
        minimum=-1,
        maximum=LONG_MAX,
    )
    dispatch_relative_to_publish: bool = conf(
        "dispatchThrottlingRateRelativeToPublishRate",
        False,
        "Add each topic's publish rate to the dispatch limits of this file",
    )
    dispatch_limits_caught_up: bool = conf(
        "dispatchThrottlingOnNonBacklogConsumerEnabled",
        True,
        "Whether dispatch limits apply to subscriptions without backlog",
        dynamic=True,
    )
    dispatch_charges_entries: bool = conf(
        "dispatchThrottlingOnBatchMessageEnabled",
        False,
        "Dispatch limits in messages count a batch as one message",
    )
    dispatch_charges_filtered: bool = conf(
        "dispatchThrottlingForFilteredEntriesEnabled",
        False,
        "Accepted, without effect: there are no entry filters",
    )
    precise_dispatcher_flow_control: bool = conf(
        "preciseDispatcherFlowControl",
        False,
        "Accepted, without effect: consumers' permits are always checked entry by entry",
    )
    dispatcher_read_batch_max: int = conf(
        "dispatcherMaxReadBatchSize",
        100,
        "Accepted, without effect: entries are handed out one by one, from memory",
        minimum=1,
    )
    dispatcher_read_batch_min: int = conf(
        "dispatcherMinReadBatchSize",
        1,
        "Accepted, without effect: reads from memory cannot fail",
        minimum=1,
    )
    dispatcher_read_max_bytes: int = conf(
        "dispatcherMaxReadSizeBytes",
        5_242_880,
        "Accepted, without effect: entries are handed out one by one, from memory",
        minimum=1,
    )
    usage_transport_class: str = conf(
        "resourceUsageTransportClassName",
        "",
        "Accepted; only empty is supported: every broker applies the whole limit of a "
        "resource group",
    )
    usage_publish_interval_s: int = conf(
        "resourceUsageTransportPublishIntervalInSecs",
        60,
        "Accepted, without effect: there is no usage transport",
        minimum=1,
    )
    usage_suppress_rounds: int = conf(
        "resourceUsageMaxUsageReportSuppressRounds",
        5,
        "Accepted, without effect: there is no usage transport",
        minimum=0,
    )
    legacy_broker_tick_ms: int = conf(
        "brokerPublisherThrottlingTickTimeMillis", 50, _WITHOUT_EFFECT, minimum=0
    )
    legacy_topic_tick_ms: int = conf(
        "topicPublisherThrottlingTickTimeMillis", 10, _WITHOUT_EFFECT, minimum=0
    )
    legacy_precise_publish: bool = conf(
        "preciseTopicPublishRateLimiterEnable", False, _WITHOUT_EFFECT
    )
    burst_ms: int = conf(
        "throttlingBurstMillis",
        25,
        "What an idle limit saves up, in milliseconds of its rate (Pulsar: 1000, which grants "
        "twice the limit in the first second)",
        minimum=1,
        maximum=60_000,
    )
    debt_max_ms: int = conf(
        "throttlingMaxDebtMillis",
        60_000,
        "A huge batch stops its producer for at most this many milliseconds; debt beyond that is "
        "forgiven and counted",
        minimum=100,
    )
    resolution_ms: int = conf(
        "throttlingResolutionMillis",
        16,
        "Tokens are granted at most this often, in milliseconds; 0: at every call",
        minimum=0,
        maximum=1000,
    )
