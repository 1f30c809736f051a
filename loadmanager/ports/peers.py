"""The requests of one broker to another."""

from __future__ import annotations

from typing import Protocol

from loadmanager.ports.hosting import BrokerAddress
from loadmanager.ports.mover import Mover


class Peers(Mover, Protocol):
    """Requests to other brokers; what `Mover` says of orders holds for all."""

    async def merge_bundles(
        self, owner: BrokerAddress, left: str, right: str, *, epoch: int | None
    ) -> str:
        """Ask the owner of two neighbours, the lower one first, to merge them; returns the name of
        the new bundle.
        """
        ...

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        """Ask the owner to close a deleted topic; see `ports.hosting.Hosting.close_topic`.

        Raises `ConflictError` when the topic has clients, unless forced.
        """
        ...
