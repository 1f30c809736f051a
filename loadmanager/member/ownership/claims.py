"""Claims: how the store says which session owns a bundle, by a lock or a state record.

There is one kind for each load manager: `locks` for the modular one, `state_records` for the
extensible one. Everything else about the life of a bundle on a broker is the same for both
(`ownership`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from loadmanager.kit.addresses import BrokerAddress
from loadmanager.kit.metadata.store import Change, Operation

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a bundle, and the session that its claim names."""

    address: BrokerAddress
    session_id: int


class Claims(Protocol):
    """Takes and gives up this broker's claims, and knows those of other brokers.

    `token` is the id of the transaction in which a claim was taken: that of its life.
    """

    def on_change(self, change: Change) -> None:
        """Learn of a change of the claims."""
        ...

    def forget_all(self) -> None:
        """Trust nothing that was read in the session that is lost."""
        ...

    def cached_owner(self, bundle: str) -> Owner | None:
        """The owner, if it is known without asking the store."""
        ...

    async def owner(self, bundle: str) -> Owner | None:
        """The owner; None: nobody owns the bundle. Raises `CorruptDataError`."""
        ...

    async def take(self, bundle: str, boundaries_version: int) -> int | None:
        """Take a bundle that nobody owns; returns the token, or None if another broker owns it or
        is to.

        Raises `OperationalError` if the boundaries no longer have that version.
        """
        ...

    async def give_back(
        self,
        bundle: str,
        token: int,
        session_id: int,
        *,
        again: bool,
        destination: BrokerAddress | None = None,
    ) -> None:
        """Give up a claim of that session. `again`: an earlier attempt may have succeeded.

        The claim may name the destination, which alone may take the bundle then. Raises
        `OperationalError`.
        """
        ...

    async def hand_over(
        self, bundle: str, destination: BrokerAddress, *, epoch: int | None
    ) -> None:
        """Return when the destination serves a bundle that was given up. Raises `OperationalError`
        if it does not take it. `epoch` as in `leader.ports.peers.Peers`.
        """
        ...

    async def holds(self, bundle: str, token: int) -> bool:
        """True if this session holds the claim with this token."""
        ...

    async def token_in_session(self, bundle: str) -> int | None:
        """The token under which this session holds the claim, or None."""
        ...

    async def missing(self, tokens: dict[str, int]) -> list[str]:
        """Find those of the bundles (bundle → token) whose claim is no longer ours.

        Restores a claim that is ours but was overwritten.
        """
        ...

    async def split_operations(
        self, parent: str, children: Sequence[str], session_id: int
    ) -> list[Operation]:
        """Make the operations that give up the parent's claim and take those of the children, in
        one transaction.
        """
        ...

    async def merge_operations(
        self, parts: Sequence[str], merged: str, session_id: int
    ) -> list[Operation]:
        """Make the operations that give up the claims of the parts and take that of the new bundle,
        in one transaction.
        """
        ...

    async def renew_session(self) -> None:
        """Create the session's own node again, which an operator may have deleted."""
        ...
