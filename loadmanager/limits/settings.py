"""broker.conf keys of throttling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loadmanager.kit.conf import conf, without_effect

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
"""The largest values of Pulsar's int and long."""


def _messages(name: str, limit: str) -> Any:
    doc = f"{limit} in messages/s; 0: none"
    return conf(name, 0, doc, minimum=-1, maximum=INT_MAX, dynamic=True)


def _bytes(name: str, limit: str) -> Any:
    doc = f"{limit} in bytes/s; 0: none"
    return conf(name, 0, doc, minimum=-1, maximum=LONG_MAX, dynamic=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingSettings:
    """Limits of the broker itself, and of topics and subscriptions that no policy mentions.

    Rates per second, 0: unlimited.
    """

    broker_publish_messages_per_s: int = _messages(
        "brokerPublisherThrottlingMaxMessageRate", "Publish limit of the broker"
    )
    broker_publish_bytes_per_s: int = _bytes(
        "brokerPublisherThrottlingMaxByteRate", "Publish limit of the broker"
    )
    topic_publish_messages_per_s: int = _messages(
        "maxPublishRatePerTopicInMessages", "Publish limit of each topic"
    )
    topic_publish_bytes_per_s: int = _bytes(
        "maxPublishRatePerTopicInBytes", "Publish limit of each topic"
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
    broker_dispatch_messages_per_s: int = _messages(
        "dispatchThrottlingRateInMsg", "Dispatch limit of the broker"
    )
    broker_dispatch_bytes_per_s: int = _bytes(
        "dispatchThrottlingRateInByte", "Dispatch limit of the broker"
    )
    topic_dispatch_messages_per_s: int = _messages(
        "dispatchThrottlingRatePerTopicInMsg", "Dispatch limit of each topic"
    )
    topic_dispatch_bytes_per_s: int = _bytes(
        "dispatchThrottlingRatePerTopicInByte", "Dispatch limit of each topic"
    )
    subscription_dispatch_messages_per_s: int = _messages(
        "dispatchThrottlingRatePerSubscriptionInMsg", "Dispatch limit of each subscription"
    )
    subscription_dispatch_bytes_per_s: int = _bytes(
        "dispatchThrottlingRatePerSubscriptionInByte", "Dispatch limit of each subscription"
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


_ONE_BY_ONE = "entries are handed out one by one, as far as permits and limits allow"
_NO_TRANSPORT = "every broker applies the whole limit of a resource group"
_PIP_322 = "as in Pulsar since PIP-322"

_WITHOUT_EFFECT: dict[str, tuple[int | bool | str, str]] = {
    "dispatchThrottlingRatePerReplicatorInMsg": (0, "there is no geo-replication"),
    "dispatchThrottlingRatePerReplicatorInByte": (0, "there is no geo-replication"),
    "dispatchThrottlingForFilteredEntriesEnabled": (False, "there are no entry filters"),
    "preciseDispatcherFlowControl": (False, "permits are always checked entry by entry"),
    "dispatcherMaxReadBatchSize": (100, _ONE_BY_ONE),
    "dispatcherMinReadBatchSize": (1, _ONE_BY_ONE),
    "dispatcherMaxReadSizeBytes": (5_242_880, _ONE_BY_ONE),
    "resourceUsageTransportClassName": ("", _NO_TRANSPORT),
    "resourceUsageTransportPublishIntervalInSecs": (60, _NO_TRANSPORT),
    "resourceUsageMaxUsageReportSuppressRounds": (5, _NO_TRANSPORT),
    "brokerPublisherThrottlingTickTimeMillis": (50, _PIP_322),
    "topicPublisherThrottlingTickTimeMillis": (10, _PIP_322),
    "preciseTopicPublishRateLimiterEnable": (False, _PIP_322),
}
"""Key of Pulsar's files → its default there, and why it does nothing here."""

IgnoredSettings = without_effect(
    "IgnoredSettings", "Keys of throttling that do nothing here.", _WITHOUT_EFFECT
)
