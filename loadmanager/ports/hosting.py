"""What the runtime asks of the service whose bundles it manages (the tenant): open a bundle, close
a bundle, report its traffic.

Our broker (`adapters.protocol`) is one such tenant; `examples/counters.py` is another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from loadmanager.core.load.reports import NamespaceBundleStats


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where a broker is reached. `broker_id` is Pulsar's `<advertised host>:<web port>`."""

    broker_id: str
    service_url: str
    """`pulsar://host:port`"""
    web_url: str
    """`http://host:port`"""


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Traffic of one topic since it was opened or over the last stats period: rates in messages/s,
    throughputs in bytes/s.
    """

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    producers: int = 0
    consumers: int = 0
    backlog_messages: int = 0
    publish_limited_times: int = 0
    """How often its producers were held by publish limits."""


@dataclass(frozen=True, slots=True)
class HostUsage:
    """What the tenant itself uses of its own limits: in-memory topics and publish buffers (Pulsar's
    direct memory), and bytes on the wire.
    """

    memory_used_bytes: int
    memory_limit_bytes: int
    bytes_in_total: int
    """Bytes read from all connections since start."""
    bytes_out_total: int
    """Bytes written to all connections since start."""
    failures: int = 0
    """Bugs of the tenant that cost a client its connection, since start."""
    refused_connections: int = 0
    """Connections that were refused because there were too many, since start."""


class Hosting(Protocol):
    """The tenant. All methods are called on the event loop; none may raise for traffic reasons.

    `life` names one acquisition of a bundle: the id of the transaction that created its lock, which
    grows from each life of a bundle to the next. A call for another life than the open one does
    nothing.
    """

    async def open_bundle(self, bundle: str, life: int) -> None:
        """Prepare to serve a bundle that this broker owns from now on, and serve it when this
        returns.

        Replaces an older life of the bundle. Raises `OperationalError` when the bundle cannot be
        served here: the caller gives the lock back.
        """
        ...

    def fence_bundle(self, bundle: str, life: int) -> None:
        """First phase of an unload: from now on nothing of the bundle is served; what clients still
        send is ignored, and they are told nothing yet.

        Synchronous and idempotent. The runtime releases the lock, and lets the destination acquire
        it, before `close_bundle` tells the clients.
        """
        ...

    async def close_bundle(
        self, bundle: str, life: int, *, destination: BrokerAddress | None, timeout_s: float
    ) -> int:
        """Second phase (fences first if that was not done): tell producers and consumers, with the
        destination if known, and forget the topics.

        Returns how many topics were closed. Bounded by `timeout_s`.
        """
        ...

    def close_topic(self, topic: str, *, force: bool) -> bool:
        """Close one open topic for good: its clients are told, and its messages forgotten.

        Returns whether it was open. Raises `ConflictError` for a topic with clients, unless forced.
        """
        ...

    def split_bundle(self, parent: str, life: int, children: list[str], children_life: int) -> None:
        """The bundle continues as `children` on this broker, all in one new life: topics stay open,
        clients notice nothing.
        """
        ...

    def fence_all(self) -> None:
        """The session cannot be proven: stop serving every bundle now, before anything else;
        clients' connections are dropped. Synchronous.
        """
        ...

    def bundle_stats(self) -> dict[str, NamespaceBundleStats]:
        """Traffic by open bundle over the last stats period (also bundles without topics)."""
        ...

    def topics(self, bundle: str) -> dict[str, TopicTraffic]:
        """Open topics of a bundle with their traffic, by full topic name."""
        ...

    def usage(self) -> HostUsage:
        """Resource use of the tenant itself."""
        ...
