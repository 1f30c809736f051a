"""The requests of one broker to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from loadmanager.ports.hosting import BrokerAddress


@dataclass(frozen=True, slots=True)
class Released:
    """What a broker says of a bundle that it has unloaded."""

    clients: int | None = None
    """Producers and consumers that it had just before; None: not told."""
    pause_ms: float | None = None
    """From the fence until the destination, if any, had acquired it; None: not told."""


class Peers(Protocol):
    """Requests to other brokers, bounded in time.

    Each raises `OperationalError` when the peer cannot be reached or refuses.

    `epoch` is the epoch of the leader that gives the order; a broker that knows of a newer term
    refuses it. None: an operator's request, which belongs to no term.
    """

    async def release_bundle(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """Ask the owner to unload a bundle; returns when the destination, if any, has acquired it.

        None if the broker does not own the bundle.
        """
        ...

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        """The bundles that a broker serves now, or the one that is named if it serves it; each with
        the number of its producers and consumers.
        """
        ...

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> None:
        """Ask the owner to split a bundle by its default algorithm; returns when that is done.

        With `unload`, the owner then unloads the children.
        """
        ...

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

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        """Ask a broker to acquire a bundle without an owner; returns when it owns the bundle."""
        ...
