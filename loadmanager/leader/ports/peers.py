"""The requests of one broker to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.audit import ChangeShown
from loadmanager.leader.ports.mover import Mover, Released


class Peers(Mover, Protocol):
    """Requests to other brokers; what `Mover` says of orders holds for all."""

    async def last_release(self, broker: BrokerAddress, bundle: str) -> Released | None:
        """Ask a broker for the pause and the life of its last release of a bundle.

        None until that release has ended, and if the broker does not know.
        """
        ...

    async def merge_bundles(
        self, owner: BrokerAddress, left: str, right: str, *, epoch: int | None
    ) -> str:
        """Ask the owner of two neighbours, the lower one first, to merge them; returns the name of
        the new bundle.
        """
        ...

    async def tell_changes(self, leader: BrokerAddress, changes: Sequence[ChangeShown]) -> None:
        """Tell the leader of changes that were allowed here, for those who listen to its events."""
        ...

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        """Ask the owner to close a deleted topic; see `member.ports.hosting.Hosting.close_topic`.

        Raises `ConflictError` when the topic has clients, unless forced.
        """
        ...
