"""An order to reach a goal, as it is stored: what was promised, and what has come of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from loadmanager.engine.plans.goals import Goal, PlanLimits
from loadmanager.engine.plans.planner import GoalPlan, Point
from loadmanager.kit.reason import Reason

CURVE_MAX = 25
"""Points of a curve that are kept."""


class CurvePoint(msgspec.Struct, frozen=True, rename="camel"):
    """What some moves come to. Usages are fractions."""

    moves: int
    traffic: float
    """Bytes/s of the moved bundles."""
    clients: float
    """Producers and consumers that are paused."""
    spread: float
    """Standard deviation of the brokers' usage."""
    farthest: float
    """How far the usage of the broker that is farthest from the mean is from it."""

    @classmethod
    def of(cls, point: Point) -> CurvePoint:
        """A point of a plan, rounded."""
        return cls(
            point.moves,
            round(point.traffic),
            round(point.clients, 1),
            round(point.spread, 4),
            round(point.farthest, 4),
        )


class Promise(msgspec.Struct, frozen=True, rename="camel"):
    """What a plan promised when it was made."""

    curve: tuple[CurvePoint, ...]
    """From before the first move to after the last one; some of those between are left out."""
    reached: bool
    ends: Reason
    """Why the plan has no further move."""
    error: float
    """The mean error of the model's usages."""

    @classmethod
    def of(cls, plan: GoalPlan) -> Promise:
        last = len(plan.curve) - 1
        step = max(1, -(-last // (CURVE_MAX - 1)))
        points = [plan.curve[at] for at in (*range(0, last, step), last)]
        curve = tuple(CurvePoint.of(point) for point in points)
        return cls(curve, plan.reached, plan.ends, round(plan.error, 4))

    @property
    def moves(self) -> int:
        return self.curve[-1].moves


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """What has come of an order."""

    ordered: int = 0
    """Moves that were ordered: counted before they begin, so that no limit is passed."""
    arrived: int = 0
    failed: int = 0
    """Moves that failed, or were cancelled."""
    traffic: float = 0.0
    """Bytes/s of the bundles whose moves were ordered."""
    clients: float = 0.0
    """The producers and consumers of these bundles."""
    client_seconds: float = 0.0
    """The sum of their pauses: as measured, or else as expected by the mean of other moves."""
    spread: float | None = None
    farthest: float | None = None
    """The brokers' usage when it was looked at last; see `CurvePoint`."""


class GoalOrder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An order to reach a goal. Times are milliseconds since the epoch."""

    id: str
    goal: Goal
    limits: PlanLimits
    state: Literal["proposed", "approved", "ended"] = "proposed"
    made_ms: int
    approved_ms: int | None = None
    ended_ms: int | None = None
    ended: Reason | None = None
    """Why it ended."""
    note: str = ""
    promise: Promise
    progress: Progress = Progress()
