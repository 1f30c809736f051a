"""The decisions of a leader, and the story of a bundle.

Times are milliseconds since the epoch, rates messages/s, throughputs bytes/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType, structs

from loadmanager.engine.moves.move import Move, Outcome, PartialOutcome
from loadmanager.engine.strategies.plan import Placement, Plan, Split
from loadmanager.engine.strategies.plan_document import (
    Inputs,
    MoveInShort,
    PlacementShown,
    PlanShown,
    SkipShown,
    SplitShown,
    UnloadShown,
)
from loadmanager.kit.model import Shape
from loadmanager.leader.documents.cluster import BundleShown
from loadmanager.leader.documents.loss import LostBundle
from loadmanager.leader.documents.moves import PinShown


class DecisionShown(Shape):
    """A decision. Which fields it has depends on its kind.

    `shed`: a cycle with its plan; `place`: a bundle got a broker; `split`, `merge`; `move`: a move
    has ended; `newcomers`: why nearly empty brokers get no bundle; `skip`: something was not done;
    `failure`: a step of the leader failed. Of each list at most 200 entries are shown; `…Count`
    says how many there are.
    """

    id: str
    ts: int
    kind: str
    epoch: int
    cycle: int
    times: int | UnsetType = UNSET
    """The number of cycles in a row, from `firstAt` until `ts`, that moved nothing for the same
    reasons.
    """
    first_at: int | UnsetType = UNSET
    strategy: str | UnsetType = UNSET
    unloads: list[UnloadShown] | UnsetType = UNSET
    placements: list[PlacementShown] | UnsetType = UNSET
    splits: list[SplitShown] | UnsetType = UNSET
    skipped: list[SkipShown] | UnsetType = UNSET
    inputs: Inputs | UnsetType = UNSET
    unloads_count: int | UnsetType = UNSET
    placements_count: int | UnsetType = UNSET
    splits_count: int | UnsetType = UNSET
    skipped_count: int | UnsetType = UNSET
    move: str | UnsetType = UNSET
    bundle: str | UnsetType = UNSET
    parts: list[str] | UnsetType = UNSET
    source: str | UnsetType = UNSET
    destination: str | UnsetType | None = UNSET
    boundaries: list[str] | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    why: dict[str, float | str] | UnsetType = UNSET
    broker: str | UnsetType | None = UNSET
    candidates: list[str] | UnsetType = UNSET
    rejected: dict[str, str] | UnsetType = UNSET
    rejected_count: int | UnsetType = UNSET
    author: str | UnsetType = UNSET
    swap: str | UnsetType | None = UNSET
    state: str | UnsetType = UNSET
    created_at: int | UnsetType = UNSET
    started_at: int | UnsetType | None = UNSET
    ended_at: int | UnsetType | None = UNSET
    outcome: Outcome | UnsetType | None = UNSET
    clients: int | UnsetType | None = UNSET
    step: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


def of_cycle(
    plan: Plan, moves: Mapping[str, Move] | None, inputs: Inputs | UnsetType, **head: Any
) -> DecisionShown:
    """A plan as a decision; `moves`: bundle → what its move has come to; `head`: what every
    decision has.
    """
    shown = PlanShown.of(plan)
    if moves is not None:
        for unload in shown.unloads:
            unload.move = _in_short(moves.get(unload.bundle))
    return DecisionShown(**head, **structs.asdict(shown), inputs=inputs)


def _in_short(move: Move | None) -> MoveInShort | None:
    if move is None:
        return None
    outcome = move.outcome or Outcome("")
    text = None if move.outcome is None else outcome.text
    return MoveInShort(id=move.id, state=move.state.value, outcome=text, owner=outcome.owner)


def of_placement(placement: Placement, **head: Any) -> DecisionShown:
    """A bundle got a broker."""
    return DecisionShown(**head, **structs.asdict(PlacementShown.of(placement)))


def of_split(split: Split, broker: str, **head: Any) -> DecisionShown:
    """A split at the owner of the bundle, with its outcome; null while it is under way."""
    end, outcome = split.end, None
    if end is not None:
        outcome = PartialOutcome(end.text, children=list(end.children))
    shown = structs.asdict(SplitShown.of(split))
    return DecisionShown(**head, **shown, broker=broker, state=split.state, outcome=outcome)


def of_move(move: Move, **head: Any) -> DecisionShown:
    """A move that has ended."""
    fields = structs.asdict(move) | {"author": move.author.value, "state": move.state.value}
    return DecisionShown(**(fields | head), move=move.id)


class DecisionsShown(Shape):
    """Decisions, the newest first."""

    at: int
    kept_since: int | None
    """When the oldest decision was made that is still kept."""
    decisions: list[DecisionShown]


class AverageShown(Shape):
    """An average over the last samples of a bundle."""

    rate: float
    throughput: float
    samples: int


class AveragesShown(Shape):
    """The averages that placement and shedding decide from."""

    short_term: AverageShown
    long_term: AverageShown


class BundleStory(BundleShown):
    """A bundle, with the decisions that concern it, the newest first."""

    at: int
    replaced_by: list[str]
    """The bundles that it was split or merged into; empty while it is a bundle."""
    average: AveragesShown | None
    pin: PinShown | None
    move: Move | None
    history: list[DecisionShown]
    elsewhere: LostBundle | None = None
    """What placement would do were its owner lost now; null: without an owner or another broker."""
