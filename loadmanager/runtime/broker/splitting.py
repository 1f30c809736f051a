"""Splits a bundle on request: chooses the bundle and the new boundaries, and has the owner carry it
out.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.bundles.ranges import BundleRange, bundle_name, split_bundle_name, topic_hash
from loadmanager.core.conf import Live
from loadmanager.core.errors import BadInputError, ConflictError, NotFoundError
from loadmanager.core.strategies.splitting.algorithms import ALGORITHMS, TopicLoad, boundaries
from loadmanager.core.strategies.splitting.settings import SplitSettings
from loadmanager.core.strategies.splitting.threshold import limits_of, useful_cuts
from loadmanager.ports.hosting import BrokerAddress, Hosting
from loadmanager.runtime.broker.namespaces import Namespaces
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.shared.settings import BrokerSettings

LARGEST, HOT = "LARGEST", "HOT"

log = structlog.get_logger("splitting")


class Splitting:
    """Splits bundles of this broker."""

    def __init__(
        self,
        *,
        namespaces: Namespaces,
        ownership: Ownership,
        hosting: Hosting,
        self_address: BrokerAddress,
        settings: Live[SplitSettings],
        broker: Live[BrokerSettings],
    ) -> None:
        self._namespaces = namespaces
        self._ownership = ownership
        self._hosting = hosting
        self._self = self_address
        self._settings = settings
        self._broker = broker

    async def split(
        self,
        namespace: NamespaceName,
        bundle_range: str,
        *,
        algorithm: str | None = None,
        positions: Sequence[int] = (),
        unload: bool,
        automatic: bool = False,
    ) -> str | None:
        """Split a bundle (range, LARGEST or HOT) here; None when that is done, else the web URL of
        its owner, who must be asked.

        `automatic`: only if that divides its topics. Does nothing, successfully, where the
        algorithm finds no useful boundary (Pulsar's rule).
        """
        _require_algorithm(algorithm)
        bundles = await self._namespaces.bundles(namespace)
        if bundle_range in (LARGEST, HOT):
            bundle = self._pick(str(namespace), bundle_range)
        else:
            bundle = bundle_name(str(namespace), str(bundles.require(bundle_range)))
        span = BundleRange.parse(split_bundle_name(bundle)[1])
        if not span.splittable:
            raise BadInputError(f"{bundle} is one hash wide and cannot be split")
        owner = await self._ownership.owner(bundle)
        if owner is not None and owner.address != self._self:
            return owner.address.web_url
        if owner is None:
            await self._ownership.acquire(bundle, "to be split")
        settings = self._settings.value
        topics = {
            name: TopicLoad(
                topic_hash(name),
                traffic.msg_rate_in + traffic.msg_rate_out,
                traffic.msg_throughput_in + traffic.msg_throughput_out,
            )
            for name, traffic in self._hosting.topics(bundle).items()
        }
        if automatic:
            cuts, why_not = useful_cuts(settings.algorithm, span, topics, settings=settings)
        else:  # somebody's wish: as Pulsar does it
            cuts = boundaries(
                algorithm or settings.algorithm,
                span,
                topics,
                positions=positions,
                limits=limits_of(settings),
            )
            why_not = "no useful boundary: one topic, or topics of one hash"
        if not cuts:
            log.info("bundle not split", bundle=bundle, reason=why_not, topics=len(topics))
            return None
        if len(bundles.ranges) + len(cuts) > settings.bundles_max:
            raise ConflictError(
                f"{namespace} has {len(bundles.ranges)} bundles; "
                f"loadBalancerNamespaceMaximumBundles allows {settings.bundles_max}"
            )
        children = await self._ownership.split(bundle, list(cuts), "admin")
        log.info("bundle split", bundle=bundle, children=children, reason="admin")
        if unload:
            for child in children:
                await self._ownership.release(
                    child,
                    reason="split",
                    destination=None,
                    timeout_s=self._broker.value.bundle_unload_timeout_ms / 1000,
                )
        return None

    def _pick(self, namespace: str, which: str) -> str:
        """The namespace's bundle with most topics, or most traffic, among those served here."""
        stats = {
            name: bundle
            for name, bundle in self._hosting.bundle_stats().items()
            if name.startswith(f"{namespace}/")
        }
        if not stats:
            raise NotFoundError(f"{self._self.broker_id} serves no bundle of {namespace}")
        if which == LARGEST:
            return min(stats, key=lambda name: (-stats[name].topics, name))
        return min(stats, key=lambda name: (-stats[name].throughput, -stats[name].rate, name))


def _require_algorithm(name: str | None) -> None:
    """Raise `BadInputError` for one that does not exist, before anything is acquired for a split
    that cannot be.
    """
    if name is not None and name not in ALGORITHMS:
        raise BadInputError(f"split algorithm {name!r}: one of {', '.join(ALGORITHMS)} is allowed")
