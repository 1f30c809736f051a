"""Storage of operators' wishes: pins, cordons, a pause, orders to reach goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from loadmanager.engine.load.wishes import Cordon, Pause, Pin, Wishes
from loadmanager.engine.plans.order import GoalOrder
from loadmanager.kit.metadata.store import Check


class WishBook(Protocol):
    """The wishes of operators; they outlive the process that leads.

    A change is made under the checks of a leader's term. It raises `OperationalError` if it cannot
    be kept.
    """

    @property
    def pins(self) -> Mapping[str, Pin]:
        """Bundle → its pin, also one that is over."""
        ...

    @property
    def cordons(self) -> Mapping[str, Cordon]:
        """brokerId → its cordon."""
        ...

    @property
    def goals(self) -> Mapping[str, GoalOrder]:
        """Id → the order to reach a goal."""
        ...

    def now(self) -> Wishes:
        """The wishes that count now."""
        ...

    def pause(self) -> Pause | None:
        """The pause, unless it is over."""
        ...

    async def pin(self, bundle: str, pin: Pin | None, checks: Sequence[Check]) -> None:
        """Pin a bundle, or remove its pin. Raises `NotFoundError`, `ConflictError`."""
        ...

    async def cordon(self, broker: str, cordon: Cordon | None, checks: Sequence[Check]) -> None:
        """Cordon a broker, or end its cordon. Raises `NotFoundError`, `ConflictError`."""
        ...

    async def set_goal(
        self, order_id: str, order: GoalOrder | None, checks: Sequence[Check]
    ) -> None:
        """Store an order, or forget it."""
        ...

    async def set_pause(self, pause: Pause | None, checks: Sequence[Check]) -> None:
        """Pause the queue of moves, or let it go on."""
        ...
