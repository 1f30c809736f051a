"""Splits a bundle on request: chooses the bundle and the new boundaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loadmanager.engine.bundles.ranges import (
    BundleRange,
    bundle_name,
    bundles_text,
    split_bundle_name,
    topic_hash,
)
from loadmanager.engine.ownership.states import OPERATORS_ORDER, LifeCause
from loadmanager.engine.strategies.splitting.algorithms import (
    ALGORITHMS,
    FLOW_OR_QPS,
    POSITIONS,
    RANGE,
    HashedTopic,
    boundaries,
    useful_boundaries,
)
from loadmanager.engine.strategies.splitting.settings import SplitSettings
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import BadInputError, ConflictError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.names import NamespaceName
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting, TopicTraffic
from loadmanager.member.ports.topics import TopicNames

LARGEST, HOT = "LARGEST", "HOT"

log = get_logger("splitting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Splitting:
    """Splits bundles of this broker."""

    topics: TopicNames
    ownership: Ownership
    hosting: Hosting
    base: Base
    cluster: Cluster

    async def choose(self, namespace: NamespaceName, wanted: str) -> str:
        """The range of the bundle to split, whoever owns it: `wanted`, unless that is LARGEST (most
        topics that exist) or HOT (most bytes/s, by the load reports).

        Raises `ConflictError` if no bundle has topics, or traffic.
        """
        if wanted not in (LARGEST, HOT):
            return wanted
        bundles = await self.cluster.namespaces.bundles(namespace)
        weights: dict[str, tuple[float, float]] = {}
        if wanted == LARGEST:
            served = [topic for name in bundles.names for topic in self.hosting.topics(name)]
            topics = await self.topics.of_namespace(namespace, "ALL", served)
            counts = Counter(bundles.bundle_of_topic(topic) for topic in topics)
            weights = {bundle: (count, 0) for bundle, count in counts.items()}
        else:
            reported = {
                bundle: stats
                for report in self.cluster.brokers.reports.values()
                for bundle, stats in report.last_stats.items()
            }
            present = self.hosting.bundle_stats()
            for bundle in bundles.names:
                stats = present.get(bundle) or reported.get(bundle)
                if stats is not None and stats.throughput > 0:
                    weights[bundle] = (stats.throughput, stats.rate)
        if not weights:
            has = "topics" if wanted == LARGEST else "traffic in the load reports"
            raise ConflictError(f"no bundle of {namespace} has {has}: {wanted} names none")
        busiest = min(weights, key=lambda name: (-weights[name][0], -weights[name][1], name))
        return split_bundle_name(busiest)[1]

    async def split(
        self,
        namespace: NamespaceName,
        bundle_range: str,
        *,
        algorithm: str | None = None,
        positions: Sequence[int] = (),
        unload: bool,
        automatic: bool = False,
    ) -> BrokerAddress | list[str]:
        """Split a bundle if this broker owns it.

        Returns the children if so, else the owner, which the caller must ask. `automatic`:
        split only if that divides the open topics; do nothing if it does not. An operator's request
        counts all topics that exist, and raises `ConflictError` if the algorithm finds no boundary:
        Pulsar says nothing then.
        """
        _require_algorithm(algorithm)
        bundles = await self.cluster.namespaces.bundles(namespace)
        span = bundles.require(bundle_range)
        bundle = bundle_name(str(namespace), str(span))
        if not span.splittable:
            raise BadInputError(f"{bundle} is one hash wide and cannot be split")
        elsewhere = await self._other_owner(bundle)
        if elsewhere is not None:
            return elsewhere
        settings = self.base.settings.live(SplitSettings).value
        algorithm = algorithm or settings.algorithm
        recorded = not automatic and algorithm != RANGE  # that one does not look at topics
        topics = await self._topics(namespace, bundle, span, recorded=recorded)
        limits = settings.flow_limits
        if automatic:
            new_boundaries, reason = useful_boundaries(algorithm, span, topics, limits=limits)
        else:  # an operator's request: without further conditions, as in Pulsar
            new_boundaries = boundaries(algorithm, span, topics, limits=limits, positions=positions)
            reason = _no_boundary(algorithm, span, positions)
        if not new_boundaries:
            log.info("bundle not split", bundle=bundle, reason=reason, topics=len(topics))
            if automatic:
                return []
            raise ConflictError(f"{bundle} with {len(topics)} topics is not split: {reason}")
        if len(bundles.ranges) + len(new_boundaries) > settings.bundles_max:
            raise ConflictError(
                f"{namespace} has {bundles_text(len(bundles.ranges))}; "
                f"loadBalancerNamespaceMaximumBundles allows {settings.bundles_max}"
            )
        reason = "leader" if automatic else OPERATORS_ORDER
        children = await self.ownership.split(bundle, list(new_boundaries), reason)
        log.info("bundle split", bundle=bundle, children=children, reason=reason)
        if unload:
            for child in children:
                await self.ownership.release(
                    child,
                    reason="split",
                    cause=LifeCause.SPLIT,
                    destination=None,
                    timeout_s=self.base.broker.value.bundle_unload_timeout_ms / 1000,
                )
        return children

    async def _other_owner(self, bundle: str) -> BrokerAddress | None:
        """A bundle's owner; None for this broker, which acquires it if need be."""
        owner = await self.ownership.owner(bundle)
        if owner is not None and owner.address != self.base.me:
            return owner.address
        if owner is None:
            await self.ownership.acquire(bundle, "to be split", LifeCause.SPLIT)
        return None

    async def _topics(
        self, namespace: NamespaceName, bundle: str, span: BundleRange, *, recorded: bool
    ) -> dict[str, HashedTopic]:
        """The open topics of a bundle with their traffic, and `recorded` ones without."""
        traffic = self.hosting.topics(bundle)
        names = list(traffic)
        if recorded:
            everything = await self.topics.of_namespace(namespace, "ALL", names)
            names = [name for name in everything if topic_hash(name) in span]
        none = TopicTraffic()
        return {
            name: HashedTopic(
                topic_hash(name),
                of_topic.msg_rate_in + of_topic.msg_rate_out,
                of_topic.msg_throughput_in + of_topic.msg_throughput_out,
            )
            for name in names
            for of_topic in (traffic.get(name, none),)
        }


def _no_boundary(algorithm: str, span: BundleRange, positions: Sequence[int]) -> str:
    if algorithm == POSITIONS and not any(span.lower < at < span.upper for at in positions):
        return f"none of the positions lies between its boundaries, {span}"
    if algorithm == FLOW_OR_QPS:
        return (
            "no useful boundary: fewer than two topics of different hashes have traffic, or all "
            "together exceed neither loadBalancerNamespaceBundleMaxMsgRate nor "
            "loadBalancerNamespaceBundleMaxBandwidthMbytes"
        )
    if algorithm == POSITIONS:
        return f"{POSITIONS} needs two topics in the bundle, as in Pulsar"
    return "no useful boundary: fewer than two topics, or all of one hash"


def _require_algorithm(name: str | None) -> None:
    """Raise `BadInputError` for an unknown algorithm, before `split` acquires the bundle."""
    if name is not None and name not in ALGORITHMS:
        raise BadInputError(f"split algorithm {name!r}: one of {', '.join(ALGORITHMS)} is allowed")
