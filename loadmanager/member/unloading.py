"""Unloads bundles at an operator's request, whichever broker owns them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loadmanager.engine.bundles.ranges import bundle_name
from loadmanager.engine.ownership.states import OPERATORS_ORDER
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import ConflictError, OperationalError
from loadmanager.kit.names import NamespaceName
from loadmanager.kit.tasks import for_each
from loadmanager.leader.ports.mover import Released
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting

AT_ONCE_MAX = 20
"""How many bundles are unloaded at once for one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unloading:
    """Releases bundles of this broker, and asks other brokers to release theirs."""

    base: Base
    cluster: Cluster
    ownership: Ownership
    hosting: Hosting
    released: Callable[[str], Released | None]
    """What is known of a bundle's last release here; see `OwnershipLog.released`."""

    async def namespace(self, namespace: NamespaceName) -> None:
        """Unload all bundles of a namespace, `AT_ONCE_MAX` at once."""
        bundles = await self.cluster.namespaces.bundles(namespace)
        await self.all_of(bundles.names, f"unload of namespace {namespace}")

    async def all_of(self, bundles: Sequence[str], reason: str) -> None:
        """Unload these bundles, `AT_ONCE_MAX` at once; then raises the first error, if any."""
        await for_each(
            bundles, lambda bundle: self._anywhere(bundle, reason), AT_ONCE_MAX, "unload"
        )

    async def bundle(
        self, namespace: NamespaceName, bundle_range: str, *, destination: str | None = None
    ) -> BrokerAddress | None:
        """Unload one bundle; returns None, or the broker that the caller must ask.

        That broker is the owner; with a destination it is the leader, which moves the bundle, and
        prefers the destination at its next placement (Pulsar's unload affinity).
        `destination` is a brokerId or its web URL. Raises `ConflictError` when it is not an active
        broker, or when the bundle does not exist.
        """
        bundles = await self.cluster.namespaces.bundles(namespace)
        bundle = bundle_name(str(namespace), str(bundles.require(bundle_range)))
        if destination:
            return await self._to(bundle, destination.partition("://")[2] or destination)
        owner = await self.ownership.owner(bundle)
        if owner is None:
            return None
        if owner.address != self.base.me:
            return owner.address
        await self.release(bundle, None, OPERATORS_ORDER)
        return None

    async def _to(self, bundle: str, destination: str) -> BrokerAddress | None:
        if self.cluster.brokers.address(destination) is None:
            raise ConflictError(
                f"Destination broker {destination} is not active: the brokers are "
                f"{', '.join(sorted(self.cluster.brokers.reports))}"
            )
        if self.cluster.leading.load_manager is None:
            leader = self.cluster.leading.leader
            if leader is None or leader.broker_id == self.base.me.broker_id:
                raise OperationalError("The leader is not known yet; try again")
            return self.cluster.brokers.of_leader(leader)
        assert (
            self.cluster.leading.operations is not None
        )  # `PresentLeader` gets it before the load manager
        await self.cluster.leading.operations.move(bundle, destination)
        return None

    async def _anywhere(self, bundle: str, reason: str) -> None:
        owner = await self.ownership.owner(bundle)
        if owner is None:
            return
        if owner.address == self.base.me:  # served, or an idle lock
            await self.release(bundle, None, reason)
        else:
            await self.base.peers.release_bundle(owner.address, bundle, None, epoch=None)

    async def release(
        self,
        bundle: str,
        destination: BrokerAddress | None,
        reason: str,
        *,
        epoch: int | None = None,
    ) -> Released | None:
        """Unload a bundle of this broker; returns None if this broker does not own it.

        `epoch` as in `leader.ports.peers.Peers`. Raises `ConflictError` while the bundle is in
        transit.
        """
        timeout_s = self.base.broker.value.bundle_unload_timeout_ms / 1000
        clients = self.hosting.clients(bundle)
        closed = await self.ownership.release(
            bundle, reason=reason, destination=destination, timeout_s=timeout_s, epoch=epoch
        )
        if closed is None:
            return None
        return replace(self.released(bundle) or Released(), clients=clients)
