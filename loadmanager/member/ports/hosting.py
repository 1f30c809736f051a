"""The host: the service whose bundles the runtime manages. It opens, closes and measures bundles.

The broker (`broker.protocol`) is one host; `examples/counters.py` is another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, Protocol, runtime_checkable

from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.addresses import BrokerAddress


class SubscriptionBacklog(NamedTuple):
    """What a subscription has not acknowledged."""

    name: str
    messages: int
    consumers: int
    """Those of this subscription."""
    oldest_ms: int | None = None
    """When the oldest of these messages was published, by its client's clock; None: not known."""


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Traffic of one topic, over the last stats period or since it was opened.

    Rates are in messages/s, throughputs in bytes/s.
    """

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    producers: int = 0
    consumers: int = 0
    backlog_messages: int = 0
    """Of all subscriptions together."""
    backlogs: Sequence[SubscriptionBacklog] = ()
    """The subscriptions with messages to acknowledge, and those that had many lately."""
    publish_limited_times: int = 0
    """How often its producers were held by publish limits."""
    subscriptions: int = 0
    stored_bytes: int = 0
    """What it has stored, also what every subscription has acknowledged."""
    published_ms: int | None = None
    """When the last message came; None: none since it was opened, and of before it is not known."""


class CountedTraffic(NamedTuple):
    """What was counted, since it was counted before."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def plus(self, other: CountedTraffic) -> CountedTraffic:
        """Both together."""
        return CountedTraffic(*map(add, self, other))


@dataclass(frozen=True, slots=True)
class Returns:
    """The present clients of a bundle, and when they came to it."""

    returned_ms: Sequence[int] = ()
    """For each that is served: how long after the bundle began to be served here it came, and, if
    it wanted something then, got its first receipt or delivery.
    """
    unserved: int = 0
    """Those that want something and have got nothing yet."""
    served_ms: int | None = None
    """For how long the bundle has been served here; None: not known."""


@dataclass(frozen=True, slots=True)
class HostUsage:
    """The host's own memory (topics and publish buffers: Pulsar's direct memory) and traffic."""

    memory_used_bytes: int
    memory_limit_bytes: int
    bytes_in_total: int
    """Bytes read from all connections since start."""
    bytes_out_total: int
    """Bytes written to all connections since start."""
    failures: int = 0
    """Bugs of the host that cost a client its connection, since start."""
    refused_connections: int = 0
    """Connections refused because there were too many, since start."""


class Hosting(Protocol):
    """The host. All methods are called on the event loop.

    `life` is the token of an acquisition of a bundle: the id of the transaction that took its
    claim, which grows from life to life. A call for any life but the open one must do nothing.
    """

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Prepare a bundle whose claim this broker holds, and serve it when this returns.

        Replaces an older life of the bundle. Raises `OperationalError` when the bundle cannot be
        served here; then the caller gives up the claim, and another member is to try.
        """
        ...

    def fence_bundle(self, bundle: str, life: int) -> None:
        """First phase of an unload: stop serving the bundle at once.

        Ignore what clients send, and tell them nothing yet. Idempotent. Before `close_bundle`, the
        runtime gives up the claim, and the destination, if there is one, acquires the bundle.
        """
        ...

    async def settle_bundle(self, bundle: str, life: int) -> None:
        """Leave what the next owner needs; called between `fence_bundle` and giving up the claim.

        The claim is given up whatever this raises, and after `member.hooks.HookLimits.settle_s`.
        """
        ...

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Second phase: tell producers and consumers where to go, and forget the topics.

        Fences the bundle first if it was not fenced. Takes at most `timeout_s`. Returns the number
        of topics closed.
        """
        ...

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """Close a deleted topic: tell its clients, and forget its messages.

        Returns whether it was open. Raises `ConflictError` for a topic with clients, unless forced.
        """
        ...

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """Replace a bundle by its children, which share one token; topics stay open."""
        ...

    def merge_bundles(self, parts: dict[str, int], merged: str, merged_life: int) -> None:
        """Replace neighbouring bundles, each with its life, by one; topics stay open.

        Do nothing unless every part is open in its life.
        """
        ...

    def fence_all(self) -> None:
        """Stop serving every bundle at once, and drop the clients: the session is not proven."""
        ...

    def bundle_stats(self) -> Mapping[str, NamespaceBundleStats]:
        """Open bundle → traffic over the last stats period, including bundles without topics.

        May compute the traffic of a bundle when it is taken; a bundle that is not open any more is
        not in it then. Broker code takes many in slices, and does other work between them.
        """
        ...

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """Full name → traffic of a bundle's open topics."""
        ...

    def clients(self, bundle: str) -> int:
        """Producers and consumers of a bundle now, or whatever else is told where the bundle goes
        when it moves.
        """
        ...

    def usage(self) -> HostUsage:
        """The host's own use of resources."""
        ...


class TrafficCounter(Protocol):
    """What a host counts. Only who records takes the counts."""

    def take_carried(self, bundle: str) -> Mapping[str, CountedTraffic]:
        """Full name → what each open topic of a bundle carried since it was asked before."""
        ...

    def take_closed(self) -> Mapping[str, CountedTraffic]:
        """Bundle → what its topics that were closed since this was asked carried until then, and
        had not been asked for.
        """
        ...


@runtime_checkable
class Counting(Protocol):
    """A host that counts what it carries, so that what is recorded are means over the whole time
    between two records.
    """

    counter: TrafficCounter


@runtime_checkable
class SelfChecking(Protocol):
    """A host that knows whether it can serve."""

    async def trouble(self, *, tries: bool = False) -> str:
        """Why this broker should have no bundles at present, for people; empty: it is well.

        `tries`: others are not well, so one failure is enough, and is looked for.
        """
        ...


@runtime_checkable
class SelfFencing(Protocol):
    """A host that has a fence of its own for some of what it serves: whoever takes that over ends
    the service here, whatever this broker knows of its session. Such are the logs of stored topics.
    """

    def fence_unproven(self, lives: Mapping[str, int]) -> Collection[str]:
        """The lease has run out, and the session is not known to be over.

        Stop at once all that only the session protects, every bundle but these lives, and open
        nothing until the lease is held again. Returns the bundles of which something goes on; they
        stay open. `fence_all` follows if the session turns out to be over.
        """
        ...
