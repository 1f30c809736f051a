"""Orders to reach goals. Times are milliseconds since the epoch."""

from __future__ import annotations

from typing import Literal

import msgspec

from loadmanager.engine.plans.goals import Goal, PlanLimits
from loadmanager.engine.plans.order import MARK_BYTES, Afterwards, MadeAsShown, Progress, Promise
from loadmanager.engine.strategies.plan import Unload
from loadmanager.kit.model import Shape
from loadmanager.kit.reason import Reason
from loadmanager.leader.documents.replays import ReplayShown, not_measured

PauseSource = Literal["assumed", "moves", "canary", "goal", "promise"]


class PlannedMove(Shape):
    """A move of a plan, with the figures behind it."""

    bundle: str
    source: str
    destination: str | None
    why: dict[str, float | str]

    @classmethod
    def of(cls, move: Unload) -> PlannedMove:
        """A move of a plan."""
        return cls(
            bundle=move.bundle,
            source=move.source,
            destination=move.destination,
            why=dict(move.why),
        )


class ComparedMoves(Shape):
    """What was made of the moves that were shown: moves are planned anew on fresh figures."""

    shown: int
    made: int
    as_shown: int
    """Bundles that went where it was shown."""
    others: list[str]
    """The first of those that went elsewhere, or had not been shown: bundle `to` broker."""

    @classmethod
    def of(cls, moves: MadeAsShown) -> ComparedMoves:
        """As it is counted in the order."""
        return cls(
            shown=len(moves.shown) // MARK_BYTES,
            made=moves.made,
            as_shown=moves.as_shown,
            others=list(moves.others),
        )


class DurationShown(Shape):
    """How long what is left of an order takes, by what was measured here."""

    text: str
    """For people, with where the figures come from."""
    seconds: float | None
    """From its first move on; times at which it may make none do not count. Null: it makes none."""
    moves: int
    looks: int
    """Waits for fresh reports, between every few moves."""
    done_ms: int | None
    """When it is done, if nothing but its own hours keeps it waiting; null: not by `until_ms`."""
    until_ms: int
    """When it ends in any case."""
    move_seconds: float
    moves_measured: int
    """Moves of this leader's term of which that is the median; 0: it is assumed."""
    look_seconds: float
    looks_measured: int
    """Waits of this leader's term of which that is the median; 0: it is what they took under the
    leader before, or the longest.
    """
    end_seconds: float = 0.0
    """From the end of the last moves until the looks at reports are made by which it ends."""
    ends_measured: int = 0
    """Goals of this leader's term of which that is the median; 0: it is the longest."""


class GoalShown(Shape):
    """An order to reach a goal: what was promised, and what has come of it."""

    id: str
    goal: Goal
    limits: PlanLimits
    state: Literal["proposed", "approved", "ended"]
    made_ms: int
    approved_ms: int | None
    ended_ms: int | None
    ended: Reason | None
    """Why it ended."""
    note: str
    promise: Promise
    progress: Progress
    waits: Reason | None
    """Why an approved order does nothing now, or what it waits for between its moves (`OwnMoves`,
    `Clients`, `Reports`).
    """
    pause_seconds: float
    """The pause of a client that counts for each of its next moves."""
    pause_source: PauseSource
    """Whether that is the median of the last moves (of earlier leaders, where none was measured in
    this term), of what a canary measured last (beside a
    Pulsar), the mean of what its own moves took, what was measured when it was proposed, or assumed
    because there is none of these.
    """
    pause_at: int | None
    """When the canary measured last, if it is the source."""
    moves: list[PlannedMove] = msgspec.field(default_factory=list)
    """The first moves of a plan that was just made; they are planned anew after every few."""
    afterwards: Afterwards | None = None
    drain: bool = False
    """Whether it goes with the drain of a cordoned broker."""
    under_way: int = 0
    """Moves that were ordered, and of which it is not known yet what came of them."""
    stays_cordoned: str | None = None
    """The broker that was to be emptied, and is still cordoned although the order has ended."""
    replay: ReplayShown = msgspec.field(default_factory=not_measured)
    """How far off the last replay of a recorded day was: what is promised goes by the same model.
    """
    duration: DurationShown | None = None
    """Of an order that has not ended; null: as many moves as were promised are made and none is
    under way, or it is a drain.
    """
    lapses_ms: int | None = None
    """From when on a proposal cannot be approved any more; null: it is none."""
    compared: ComparedMoves | None = None
    """The moves that were shown beside those that were made; null: it is a drain, or a leader of an
    earlier version planned it.
    """
    bounds: list[str] = msgspec.field(default_factory=list)
    """What it may cost at most, what stays, and its note: for people who approve it."""


class GoalsShown(Shape):
    """Orders, the newest first."""

    goals: list[GoalShown]
