"""Sealed plans: what dry runs leave behind. Times are milliseconds since the epoch."""

from __future__ import annotations

from typing import Literal

import msgspec

from loadmanager.engine.moves.move import Move
from loadmanager.engine.strategies.plan_document import Bounds, Drift, Inputs, PlanShown
from loadmanager.kit.model import Shape
from loadmanager.leader.documents.replays import ReplayShown, not_measured


class BasedOn(Inputs):
    """The data that a plan was made from."""

    at: int


class SealedSummary(Shape):
    """A sealed plan."""

    id: str
    state: Literal["ready", "expired", "executed"]
    created_at: int
    expires_at: int
    executed_at: int | None
    epoch: int
    shedder: str
    placement: str
    settings: dict[str, str]
    unload_count: int


class SealedPlan(SealedSummary):
    """A sealed plan with its reasons; `moves` is empty until it is carried out."""

    based_on: BasedOn
    bounds: Bounds
    plan: PlanShown
    moves: list[Move]
    replay: ReplayShown = msgspec.field(default_factory=not_measured)
    """How far off the last replay of a recorded day was."""


class SealedPlans(Shape):
    """The plans of this term, the newest first."""

    plans: list[SealedSummary]


class Refusal(Shape):
    """Why a sealed plan is not carried out; `drift` has every difference."""

    reason: str
    drift: list[Drift] = msgspec.field(default_factory=list)
