"""The parts of brokers' answers that `loadmanager admin` relies on.

`AdminClient` checks each answer against its shape before a command sees it. Fields that are not
named here may be there, and are printed with --json as they came.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Names = list[str]
Texts = dict[str, str]
Document = dict[str, Any]
"""An object that is shown as it is."""
Why = dict[str, str | float]


class Addresses(TypedDict):
    """The addresses of one broker; an empty one is not served."""

    webServiceUrl: str
    webServiceUrlTls: str


class Runtime(TypedDict):
    """The settings of a broker."""

    clusterName: str


class Leader(TypedDict):
    """The leader."""

    brokerId: str
    serviceUrl: str


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
    lastStats: NotRequired[dict[str, BundleStats] | None]


class Started(TypedDict):
    """When a broker began, in its load report."""

    startTimestamp: int


class BundleStats(TypedDict):
    """The traffic of a bundle in a load report."""

    topics: NotRequired[int]
    msgRateIn: NotRequired[float]
    msgRateOut: NotRequired[float]
    msgThroughputIn: NotRequired[float]
    msgThroughputOut: NotRequired[float]


class Cordon(TypedDict):
    """A broker that gets no new bundle; what follows `untilRestart` only while it is drained."""

    broker: str
    note: str
    state: str
    active: bool
    untilRestart: bool
    total: NotRequired[int]
    left: NotRequired[int | None]
    moved: NotRequired[int]
    failed: NotRequired[int]
    secondsLeft: NotRequired[int | None]
    problem: NotRequired[str]


class Bundles(TypedDict):
    """The boundaries of a namespace's bundles."""

    boundaries: list[str]
    numBundles: int


class Tenant(TypedDict):
    """The administrators and clusters of a tenant."""

    adminRoles: NotRequired[list[str] | None]
    allowedClusters: NotRequired[list[str] | None]


class Partitions(TypedDict):
    """The number of partitions of a topic."""

    partitions: int


class Lookup(TypedDict):
    """Where a topic is served."""

    brokerUrl: str
    httpUrl: str


class SubscriptionStats(TypedDict):
    """A subscription of a topic."""

    type: str
    msgBacklog: int
    unackedMessages: int
    msgRateOut: float
    consumers: list[Any]


class PublisherStats(TypedDict):
    """A producer of a topic."""

    producerName: str
    address: str
    accessMode: str
    msgRateIn: float


class TopicStats(TypedDict):
    """The traffic of a topic."""

    subscriptions: dict[str, SubscriptionStats]
    publishers: list[PublisherStats]


class Pause(TypedDict):
    """A pause of the queue of moves."""

    until: int
    note: str


class Outcome(TypedDict):
    """What became of a move."""

    text: str
    owner: NotRequired[str | None]
    clientsClosed: NotRequired[int | None]
    clientsBack: NotRequired[int | None]
    pauseMs: NotRequired[float | None]


class Move(TypedDict):
    """A move in the queue."""

    id: str
    state: str
    bundle: str
    source: str
    destination: str | None
    reason: str
    author: str
    outcome: Outcome | None


class Moves(TypedDict):
    """The queue of moves."""

    paused: Pause | None
    moves: list[Move]


class Moved(TypedDict):
    """The answer to an order to move; without a state there was nothing to move."""

    state: str | None
    outcome: Outcome
    source: NotRequired[str]
    pinnedUntil: NotRequired[int]


class Pinned(TypedDict):
    """The answer to a pin."""

    pinnedUntil: int


class Pin(TypedDict):
    """A bundle that stays at a broker."""

    broker: str
    until: int
    note: str


class Story(TypedDict):
    """A bundle."""

    owner: str | None
    pin: Pin | None


class Cancelled(TypedDict):
    """A number of moves."""

    cancelled: int


class Merged(TypedDict):
    """The bundle that two became."""

    merged: str


class Unload(TypedDict):
    """A move in a plan."""

    bundle: str
    source: str
    destination: str | None
    reason: str
    why: Why


class Placement(TypedDict):
    """A placement in a plan."""

    bundle: str
    broker: str | None
    candidates: list[str]
    rejected: dict[str, str]


class Split(TypedDict):
    """A split in a plan."""

    bundle: str
    boundaries: list[str]
    reason: str
    why: Why


class Skip(TypedDict):
    """Something that a plan leaves as it is."""

    what: str
    reason: str


class Plan(TypedDict):
    """What a cycle decided."""

    unloads: list[Unload]
    placements: list[Placement]
    splits: list[Split]
    skipped: list[Skip]


class Decision(TypedDict):
    """One decision of a leader; further fields are shown as they are."""

    ts: NotRequired[int]
    kind: NotRequired[str]
    times: NotRequired[int]
    firstAt: NotRequired[int]
    unloads: NotRequired[list[Unload]]
    placements: NotRequired[list[Placement]]
    splits: NotRequired[list[Split]]
    skipped: NotRequired[list[Skip]]


class Decisions(TypedDict):
    """Decisions, the newest first."""

    decisions: list[Decision]


class SealedSummary(TypedDict):
    """A sealed plan in a list."""

    id: str
    state: str
    createdAt: int
    shedder: str
    placement: str
    settings: dict[str, str]
    unloadCount: int


class SealedPlans(TypedDict):
    """Sealed plans, the newest first."""

    plans: list[SealedSummary]


class MoveOfPlan(TypedDict):
    """A move of a plan that was carried out."""

    state: str
    bundle: str
    outcome: Outcome | None


class SealedPlan(TypedDict):
    """A sealed plan with its reasons."""

    id: str
    state: str
    expiresAt: int
    shedder: str
    unloadCount: int
    plan: Plan
    moves: list[MoveOfPlan]


class Limit(TypedDict):
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

    limits: list[Limit]


class SlowProducer(TypedDict):
    """A producer of a topic, and why it is slow."""

    producer: str
    why: str
    heldSeconds: float


class HeldSubscription(TypedDict):
    """A subscription of a topic, and what holds it."""

    held: bool
    throttledTimes: dict[str, int]


class ThrottlingOfTopic(TypedDict):
    """What slows the clients of a topic."""

    producers: list[SlowProducer]
    subscriptions: dict[str, HeldSubscription]


class IsolationPolicy(TypedDict):
    """Which brokers serve which namespaces."""

    namespaces: list[str]
    primary: list[str]
    secondary: NotRequired[list[str] | None]


class IsolatedBroker(TypedDict):
    """A live broker that an isolation policy names."""

    brokerName: str
    policyName: str
    primary: bool
