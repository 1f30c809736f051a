"""What a leader tells its listeners, beside decisions, moves and changes.

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Literal

from loadmanager.kit.model import Shape


class OwnershipChange(Shape):
    """A broker reported that it has other bundles; of each list, the first ones are named."""

    at: int
    broker: str
    gained: list[str]
    lost: list[str]
    gained_count: int
    lost_count: int


class BrokerChange(Shape):
    """A broker came or went; `bundles`: those that are without an owner now."""

    at: int
    broker: str
    state: Literal["active", "gone"]
    bundles: int


class TermChange(Shape):
    """A term began, or ended (then `leader` is null)."""

    at: int
    leader: str | None
    epoch: int


class Lost(Shape):
    """So many events were not sent, because the listener was too slow."""

    lost: int
