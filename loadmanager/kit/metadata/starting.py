"""A start goes on when the store is away for a moment in the middle of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from loadmanager.kit.metadata.store import StoreAwayError
from loadmanager.kit.tasks import retrying

T = TypeVar("T")


async def answered(step: Callable[[], Awaitable[T]], name: str, within_s: float) -> T:
    """The result of a step of a start, which may be done twice: it is done again while the store is
    away, for `within_s` at most. Raises what the step raises.
    """
    return await retrying(step, name, max_s=1.0, on=StoreAwayError, within_s=within_s)
