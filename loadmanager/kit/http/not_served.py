"""Routes of Pulsar's admin API that are not served here: they answer 501."""

from __future__ import annotations

import re

TREES = """
bookies | functions | packages | sink | sinks | source | sources | transactions |
worker | worker-stats
"""
NAMESPACE = """
allowedClusters | autoSubscriptionCreation | autoTopicCreation | clearBacklog |
compactionThreshold | deduplicationSnapshotInterval | delayedDelivery |
dispatcherPauseOnAckStatePersistent | encryptionRequired | entryFilters | inactiveTopicPolicies |
isAllowAutoUpdateSchema | maxConsumersPerSubscription |
maxConsumersPerTopic | maxProducersPerTopic | maxSubscriptionsPerTopic | maxTopicsPerNamespace |
maxUnackedMessagesPerConsumer | maxUnackedMessagesPerSubscription | migration |
offloadDeletionLagMs | offloadPolicies | offloadThreshold | offloadThresholdInSeconds |
persistence | properties | property | removeOffloadPolicies |
replicatorDispatchRate | scanOffloadedLedgers | schemaAutoUpdateCompatibilityStrategy |
schemaCompatibilityStrategy | schemaValidationEnforced | subscriptionAuthMode |
subscriptionExpirationTime | subscriptionTypesEnabled | unsubscribe
"""
TOPIC = """
all_subscription | autoSubscriptionCreation | backlog | backlogQuota | backlogQuotaMap |
backlogSize | compaction | compactionThreshold | deduplicationEnabled |
deduplicationSnapshotInterval | delayedDelivery | dispatcherPauseOnAckStatePersistent |
entryFilters | examinemessage | inactiveTopicPolicies | internal-info | internalStats | ledger |
maxConsumers | maxConsumersPerSubscription | maxMessageSize | maxProducers |
maxSubscriptionsPerTopic | maxUnackedMessagesOnConsumer | maxUnackedMessagesOnSubscription |
messageTTL | messageid | offload | offloadPolicies | partitioned-internalStats |
persistence | policies | properties | replication | replicatorDispatchRate | retention |
schemaCompatibilityStrategy | schemaValidationEnforced | shadowTopics | subscriptionTypesEnabled |
terminate | trim | truncate
"""
SUBSCRIPTION = """
analyzeBacklog | expireMessages | position | properties | replicatedSubscriptionStatus
"""
SCHEMA = "compatibility | metadata | schemas | version"
BROKER_STATS = "allocator-stats | bookieops | broker-resource-availability | destinations | mbeans"

_OF_NAMESPACE = "v2/namespaces/[^/]+/[^/]+"
_OF_TOPIC = "v2/(?:non-)?persistent/[^/]+/[^/]+/[^/]+"
TABLE = [
    (re.compile(rf"/admin/{pattern}/?", re.VERBOSE), what)
    for pattern, what in (
        (rf"v[23]/({TREES})(?:/.*)?", "{name}"),
        (rf"{_OF_NAMESPACE}/({NAMESPACE})(?:/.*)?", "{name} of a namespace"),
        (rf"{_OF_NAMESPACE}/[^/]+/(clearBacklog | unsubscribe)(?:/.*)?", "{name} of a bundle"),
        (rf"{_OF_NAMESPACE}/(0x[^/]+)", "the deletion of a bundle without its namespace"),
        (
            rf"{_OF_NAMESPACE}/permissions/(subscription | [^/]+/.+)",
            "permissions of a subscription",
        ),
        (r"v2/namespaces/(grant | revoke)PermissionsOnTopics", "permissions"),
        (rf"{_OF_TOPIC}/({TOPIC})(?:/.*)?", "{name} of a topic"),
        (rf"{_OF_TOPIC}/subscription/[^/]+/({SUBSCRIPTION})(?:/.*)?", "{name} of a subscription"),
        (rf"v2/schemas/[^/]+/[^/]+/[^/]+/({SCHEMA})", "{name} of a schema"),
        (rf"v2/broker-stats/({BROKER_STATS})(?:/.*)?", "{name} of a broker"),
        (r"v2/clusters/([^/]+)(?:/(?:peers | migrate))?", "changes of a cluster over HTTP"),
        (r"((?!v[23]/)[^/]+)/.*", "Pulsar's API before v2"),
    )
]
"""Path → what it is about, where `{name}` is its first group."""


def not_served(path: str) -> str | None:
    """The reason why a path of Pulsar's API is answered with 501; None for any other path."""
    for pattern, what in TABLE:
        if match := pattern.fullmatch(path):
            return f"loadmanager does not serve {what.format(name=match[1])}"
    return None
