"""What one broker asks of another broker."""

from __future__ import annotations

from typing import Protocol

from loadmanager.ports.hosting import BrokerAddress


class Peers(Protocol):
    """Calls to other brokers, bounded in time. Each raises `OperationalError` when the peer cannot be reached or refuses."""

    async def release_bundle(self, owner: BrokerAddress, bundle: str, destination: BrokerAddress | None) -> None:
        """Ask the owner to unload a bundle; returns when it is released (and, with a destination, acquired there)."""
        ...

    async def split_bundle(self, owner: BrokerAddress, bundle: str, *, unload: bool) -> None:
        """Ask the owner to split a bundle by its default algorithm, and to unload the children then; returns when that is done."""
        ...

    async def acquire_bundle(self, broker: BrokerAddress, bundle: str) -> None:
        """Ask a broker to acquire a bundle that nobody owns; returns when it owns it."""
        ...
