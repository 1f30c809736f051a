"""Members of a service give their orders through the store, and ask each other nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import ChangeShown
from loadmanager.kit.errors import OperationalError
from loadmanager.leader.ports.mover import ClientsBack, Released


class PeersInStore:
    """Implements `leader.ports.peers.Peers`: nobody is reached but through the store."""

    order_merge: Callable[[str, str, str], Awaitable[str]]
    """Has a member merge two shards."""

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """The order goes through the state record."""
        raise _unreachable(owner)

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        """Likewise."""
        raise _unreachable(broker)

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> list[str]:
        """Each member splits its own."""
        raise _unreachable(owner)

    async def merge_bundles(
        self, owner: BrokerAddress, left: str, right: str, *, epoch: int | None
    ) -> str:
        """By a node."""
        return await self.order_merge(owner.broker_id, left, right)

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        """How many clients a member has is its own business."""
        raise _unreachable(broker)

    async def clients_back(
        self, broker: BrokerAddress, bundle: str, closed: int
    ) -> ClientsBack | None:
        """Likewise."""
        raise _unreachable(broker)

    async def last_release(self, broker: BrokerAddress, bundle: str) -> Released | None:
        """Not known."""
        raise _unreachable(broker)

    async def tell_changes(self, leader: BrokerAddress, changes: Sequence[ChangeShown]) -> None:
        """There is nobody who changes anything."""

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        """There are no topics."""
        return False


def _unreachable(member: BrokerAddress) -> OperationalError:
    return OperationalError(f"{member.broker_id} is asked through the store only")
