"""Moves and splits bundles: our own brokers over their HTTP API, or those of a Pulsar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.errors import OperationalError


@dataclass(frozen=True, slots=True)
class Released:
    """The answer of a broker that has unloaded a bundle."""

    clients: int | None = None
    """Producers and consumers that it had just before; None: not told."""
    pause_ms: float | None = None
    """From the fence until the destination, if any, had acquired it; None: not told."""
    life: int | None = None
    """The life of the bundle that ended; None: not told."""


@dataclass(frozen=True, slots=True)
class ClientsBack:
    """The clients of a bundle at the broker that it was moved to."""

    count: int
    returned_ms: tuple[float, ...] = ()
    """How long after it began to be served there each of them came, and got its first receipt or
    delivery if it wanted one; the first one first; as many as had been closed, at most
    `RETURNED_MAX`. Empty: not told.
    """
    unserved: int | None = None
    """Further ones, which are connected, want something, and have got nothing yet; None: not
    told.
    """
    served_ms: float | None = None
    """For how long it has been served there; None: not told."""


RETURNED_MAX = 1_000


class NotSentError(OperationalError):
    """An order was not sent: it is nobody's failure."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not sent: {why}")
        self.why = why


class NotAgainError(OperationalError):
    """An order was sent and not followed, and is not sent again, because something holds moves."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not ordered again: {why}")


class OrderGate(Protocol):
    """Checks whether an order may still be sent. Raises `NotSentError` if it may not."""

    async def first(self, bundle: str) -> None:
        """Before an order to move or to split a bundle."""
        ...

    async def again(self, bundle: str) -> None:
        """Before a further order of a move whose bundle went elsewhere, or came back."""
        ...


class Mover(Protocol):
    """Orders to the brokers, bounded in time.

    Each raises `OperationalError` when the broker cannot be reached or refuses.

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
        """Have the owner unload a bundle; returns when the destination, if any, has acquired it.

        None if the broker does not own the bundle.
        """
        ...

    async def acquire_bundle(
        self, broker: BrokerAddress, bundle: str, *, epoch: int | None
    ) -> None:
        """Have a broker acquire a bundle without an owner; returns when it owns the bundle."""
        ...

    async def served_bundles(
        self, broker: BrokerAddress, bundle: str | None = None
    ) -> Mapping[str, int]:
        """The bundles that a broker serves now, or the one that is named if it serves it; each with
        the number of its producers and consumers.
        """
        ...

    async def clients_back(
        self, broker: BrokerAddress, bundle: str, closed: int
    ) -> ClientsBack | None:
        """The clients of a bundle of which so many were closed; None if the broker does not serve
        it, or does not tell.
        """
        ...

    async def split_bundle(
        self, owner: BrokerAddress, bundle: str, *, unload: bool, epoch: int | None
    ) -> Sequence[str]:
        """Have the owner split a bundle by its default algorithm; returns the bundles that replaced
        it, none if no boundary divides its topics.

        With `unload`, the owner then unloads the children.
        """
        ...


class Release(Protocol):
    """The load manager's way to move a bundle: `Mover.release_bundle` of the
    modular one.
    """

    async def __call__(
        self,
        owner: BrokerAddress,
        bundle: str,
        destination: BrokerAddress | None,
        *,
        epoch: int | None,
    ) -> Released | None:
        """Move a bundle; returns when the destination has it. None: it is not the source's."""
        ...
