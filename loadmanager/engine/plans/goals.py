"""What a plan is for, and within which limits."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Even:
    """Every broker's usage is within this part of 1 of the mean of all."""

    within: float


@dataclass(frozen=True, slots=True)
class Filled:
    """A broker, a new one say, has this part of the mean usage."""

    broker: str
    part: float = 0.95


@dataclass(frozen=True, slots=True)
class Emptied:
    """A broker has no bundle that may leave it."""

    broker: str


Goal = Even | Filled | Emptied


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """What a plan may cost at most, and what it leaves alone."""

    moves: int = 10_000
    traffic: float = math.inf
    """Bytes/s of the bundles that move."""
    clients: float = math.inf
    """Producers and consumers that are paused."""
    stay: Collection[str] = frozenset()
    """Bundles and namespaces that stay where they are."""


NO_LIMITS = PlanLimits()
