"""What one broker asks of another broker."""

from __future__ import annotations

from typing import Protocol

from loadmanager.ports.hosting import BrokerAddress


class Peers(Protocol):
    """Calls to other brokers, bounded in time.

    Each raises `OperationalError` when the peer cannot be reached or refuses.

    `epoch` is the term of the leader that gave the order; a broker that knows of a newer term
    refuses it. None: an operator's wish, which belongs to no term.
    """

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> bool:
        """Ask the owner to unload a bundle; returns when it is released (and, with a destination,
        acquired there).

        False when the broker did not own the bundle, so that nothing was done.
        """
        ...

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> None:
        """Ask the owner to split a bundle by its default algorithm, and to unload the children
        then; returns when that is done.
        """
        ...

    async def close_topic(self, owner: BrokerAddress, topic: str, *, force: bool) -> bool:
        """Ask the owner to close a topic that is deleted; see `ports.hosting.Hosting.close_topic`.

        Raises `ConflictError` when the topic has clients, unless forced.
        """
        ...

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        """Ask a broker to acquire a bundle that nobody owns; returns when it owns it."""
        ...
