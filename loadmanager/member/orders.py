"""Carries out the orders of other brokers, which send them through `leader.ports.peers.Peers`.

The order of a deposed leader is refused with `ConflictError`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from loadmanager.engine.ownership.states import OPERATORS_ORDER, LifeCause
from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.names import NamespaceName
from loadmanager.leader.ports.mover import RETURNED_MAX, ClientsBack, Released
from loadmanager.member.base import Base, Cluster
from loadmanager.member.ownership.ownership import Ownership
from loadmanager.member.ports.hosting import Hosting, Returns
from loadmanager.member.splitting import Splitting
from loadmanager.member.unloading import Unloading


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Carries out orders. `epoch` is that of the leader's term; None: an operator's request."""

    base: Base
    cluster: Cluster
    ownership: Ownership
    unloading: Unloading
    splitting: Splitting
    hosting: Hosting
    returns: Callable[[str], Returns]
    """The present clients of a bundle, and when they came to it."""

    async def acquire(self, bundle: str, *, epoch: int | None = None) -> None:
        """Acquire a bundle. Raises `OperationalError` when another broker owns it."""
        self.cluster.leading.check(epoch)
        owner = await self.ownership.acquire(bundle, "transferred", LifeCause.of_order(epoch))
        if owner.address != self.base.me:
            raise OperationalError(f"{bundle} is owned by {owner.address.broker_id}")

    async def release(
        self,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None = None,
    ) -> Released | None:
        """Unload a bundle; see `Unloading.release`."""
        self.cluster.leading.check(epoch)
        reason = OPERATORS_ORDER if epoch is None else "leader"
        return await self.unloading.release(bundle, destination, reason, epoch=epoch)

    def released(self, bundle: str) -> Released | None:
        """The pause and the life of a bundle's last release here; None until it has ended."""
        return self.unloading.released(bundle)

    async def merge(self, left: str, right: str, *, epoch: int | None = None) -> str:
        """Merge two bundles of this broker; returns the name of the new one.

        Raises `ConflictError` unless both are owned here, and neighbours, the lower one first.
        """
        self.cluster.leading.check(epoch)
        reason = OPERATORS_ORDER if epoch is None else "leader"
        return await self.ownership.merge(left, right, reason)

    def served(self, bundle: str | None) -> dict[str, int]:
        """The bundles that this broker serves, or the one that is named if it serves it; each with
        the number of its producers and consumers.
        """
        if bundle is None:
            return {name: self.hosting.clients(name) for name in self.ownership.owned()}
        return {bundle: self.hosting.clients(bundle)} if self.ownership.served(bundle) else {}

    def clients_back(self, bundle: str, closed: int) -> ClientsBack | None:
        """The clients of a bundle of which so many were closed; None if it is not served here."""
        if not self.ownership.served(bundle):
            return None
        returns = self.returns(bundle)
        first = heapq.nsmallest(min(closed, RETURNED_MAX), returns.returned_ms)
        count = max(0, self.hosting.clients(bundle) - returns.unserved)
        return ClientsBack(count, tuple(first), returns.unserved, returns.served_ms)

    async def split(
        self, namespace: NamespaceName, bundle_range: str, *, unload: bool, epoch: int | None = None
    ) -> list[str]:
        """Split a bundle, if that divides its topics; returns the children.

        Raises `OperationalError` when another broker owns it.
        """
        self.cluster.leading.check(epoch)
        children = await self.splitting.split(
            namespace, bundle_range, unload=unload, automatic=True
        )
        if isinstance(children, BrokerAddress):
            raise OperationalError(f"the bundle has another owner: {children.broker_id}")
        return children
