"""The parts of brokers' answers that `loadmanager admin` relies on.

`AdminClient` checks each answer against its shape before a command sees it. Fields that are not
named here may be there, and are printed with --json as they came.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from loadmanager.limits.held_connection import HeldConnection

Names = list[str]
Texts = dict[str, str]
Document = dict[str, Any]
"""An object that is shown as it is."""


class Runtime(TypedDict):
    """The settings of a broker."""

    clusterName: str


class Usage(TypedDict):
    """One resource of a broker."""

    usage: float
    limit: float


class Report(TypedDict):
    """A load report."""

    cpu: NotRequired[Usage | None]
    memory: NotRequired[Usage | None]
    directMemory: NotRequired[Usage | None]
    bandwidthIn: NotRequired[Usage | None]
    bandwidthOut: NotRequired[Usage | None]
    msgRateIn: NotRequired[float]
    msgRateOut: NotRequired[float]
    numBundles: NotRequired[int]
    numTopics: NotRequired[int]
    lastStats: NotRequired[dict[str, BundleStatsShown] | None]


class Started(TypedDict):
    """When a broker began, in its load report."""

    startTimestamp: int


class BundleStatsShown(TypedDict):
    """The traffic of a bundle in a load report."""

    topics: NotRequired[int]
    msgRateIn: NotRequired[float]
    msgRateOut: NotRequired[float]
    msgThroughputIn: NotRequired[float]
    msgThroughputOut: NotRequired[float]


class LookupShown(TypedDict):
    """Where a topic is served."""

    brokerUrl: str
    httpUrl: str
    brokerUrlTls: NotRequired[str]
    httpUrlTls: NotRequired[str]


class SubscriptionStats(TypedDict):
    """A subscription of a topic."""

    type: str
    msgBacklog: int
    unackedMessages: int
    msgRateOut: float
    consumers: list[ConsumerStats]


class ConsumerStats(TypedDict):
    """A consumer of a subscription; of all partitions together, Pulsar says less of it."""

    consumerName: NotRequired[str]
    address: NotRequired[str]
    msgRateOut: NotRequired[float]
    unackedMessages: NotRequired[int]
    availablePermits: NotRequired[int]
    role: NotRequired[str]


class PublisherStats(TypedDict):
    """A producer of a topic."""

    producerName: str
    address: str
    accessMode: str
    msgRateIn: float
    role: NotRequired[str]


class TopicStats(TypedDict):
    """The traffic of a topic."""

    subscriptions: dict[str, SubscriptionStats]
    publishers: list[PublisherStats]
    msgRateIn: NotRequired[float]
    storageSize: NotRequired[int]
    lastPublishTimeStamp: NotRequired[int]


class LimitShown(TypedDict):
    """A limit in use on a broker."""

    name: str
    configuredMessagesPerS: float | None
    deliveredMessagesPerS: float | None
    configuredBytesPerS: float | None
    deliveredBytesPerS: float | None
    error: float | None
    queueLength: int


class Throttling(TypedDict):
    """The limits in use on a broker."""

    limits: list[LimitShown]


class SlowProducer(TypedDict):
    """A producer of a topic, and why it is slow."""

    producer: str
    why: str
    heldSeconds: float
    heldSecondsByCause: NotRequired[dict[str, float]]


class HeldSubscription(TypedDict):
    """A subscription of a topic, and what holds it."""

    held: bool
    throttledTimes: dict[str, int]
    heldConnections: NotRequired[list[str]]


class ThrottlingOfTopic(TypedDict):
    """What slows the clients of a topic."""

    producers: list[SlowProducer]
    subscriptions: dict[str, HeldSubscription]
    heldForOthers: NotRequired[list[HeldConnection]]


class IsolationPolicyShown(TypedDict):
    """Which brokers serve which namespaces."""

    namespaces: list[str]
    primary: list[str]
    secondary: NotRequired[list[str] | None]


class IsolatedBroker(TypedDict):
    """A live broker that an isolation policy names."""

    brokerName: str
    policyName: str
    primary: bool
