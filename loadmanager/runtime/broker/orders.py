"""What other brokers order of this one; `ports.peers.Peers` is the ordering side.

The order of a deposed leader is refused with `ConflictError`.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.core.bundles.names import NamespaceName
from loadmanager.core.errors import OperationalError
from loadmanager.ports.hosting import BrokerAddress
from loadmanager.runtime.broker.ownership import Ownership
from loadmanager.runtime.broker.splitting import Splitting
from loadmanager.runtime.broker.unloading import Unloading
from loadmanager.runtime.shared.leading import Leading


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Carries out orders.

    `epoch` is the term of the leader that gave one; None: an operator's wish.
    """

    self_address: BrokerAddress
    leading: Leading
    ownership: Ownership
    unloading: Unloading
    splitting: Splitting

    async def acquire(self, bundle: str, *, epoch: int | None = None) -> None:
        """Own a bundle that nobody owns. Raises `OperationalError` when another broker has it."""
        self.leading.check(epoch)
        owner = await self.ownership.acquire(bundle, "transferred")
        if owner.address != self.self_address:
            raise OperationalError(f"{bundle} is owned by {owner.address.broker_id}")

    async def release(
        self,
        bundle: str,
        destination: BrokerAddress | None,
        reason: str,
        *,
        epoch: int | None = None,
    ) -> bool:
        """Unload a bundle; see `Unloading.release`."""
        self.leading.check(epoch)
        return await self.unloading.release(bundle, destination, reason, epoch=epoch)

    async def split(
        self, namespace: NamespaceName, bundle_range: str, *, unload: bool, epoch: int | None = None
    ) -> None:
        """Split a bundle, if that divides its topics.

        Raises `OperationalError` when another broker has it.
        """
        self.leading.check(epoch)
        if (
            await self.splitting.split(namespace, bundle_range, unload=unload, automatic=True)
            is not None
        ):
            raise OperationalError("the bundle has another owner by now")
