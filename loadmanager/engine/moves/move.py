"""A move of a bundle from one broker to another, from its decision to its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from loadmanager.engine.load.wishes import Wishes


class MoveState(Enum):
    """The state of a move."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    """The destination owns the bundle; without a destination: the source no longer does."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


ENDED = frozenset(
    (MoveState.DONE, MoveState.FAILED, MoveState.CANCELLED, MoveState.EXPIRED),
)


class Author(Enum):
    """The one who wants a move."""

    CYCLE = "cycle"
    """A shedding cycle of the leader."""
    OPERATOR = "operator"
    """An operator's request for this bundle: it is not held by a pause."""
    DRAIN = "drain"
    """A broker is drained."""
    PLAN = "plan"
    """A sealed plan that an operator had carried out."""
    MERGE = "merge"
    """A bundle is brought to its neighbour, to be merged with it."""


NOT_SENT = "NotSent"
"""The order was not sent."""
NOT_OWNED = "NotOwned"
"""The source did not own the bundle."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verified result of a move."""

    text: str
    owner: str | None = None
    """The broker that owned the bundle afterwards."""
    clients_closed: int | None = None
    """Producers and consumers that the source had; None: not told."""
    clients_back: int | None = None
    """Producers and consumers that the destination had soon afterwards."""
    pause_ms: float | None = None
    """From the fence at the source to the acquisition by the destination."""
    life: int | None = None
    """The life of the bundle at the source, which the move ended; None: not told."""
    code: str | None = None
    """`NOT_SENT` or `NOT_OWNED`, which are not failures of a broker; else None."""


@dataclass(slots=True, eq=False, kw_only=True)
class Move:
    """One move. Times are milliseconds since the epoch."""

    id: str
    """`<epoch>-<number>`."""
    bundle: str
    source: str
    destination: str | None
    reason: str
    author: Author
    why: Mapping[str, float | str] = field(default_factory=dict)
    swap: str | None = None
    """The swap that this move belongs to: its moves are made one after the other, or none is."""
    created_ms: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    state: MoveState = MoveState.QUEUED
    outcome: Outcome | None = None

    @property
    def ended(self) -> bool:
        """True if nothing more happens to this move."""
        return self.state in ENDED


def move_document(move: Move) -> dict[str, Any]:
    """A move as plain data for JSON: the one description of a move."""
    outcome = move.outcome
    return {
        "id": move.id,
        "bundle": move.bundle,
        "source": move.source,
        "destination": move.destination,
        "reason": move.reason,
        "why": dict(move.why),
        "author": move.author.value,
        "swap": move.swap,
        "state": move.state.value,
        "createdAt": move.created_ms,
        "startedAt": move.started_ms,
        "endedAt": move.ended_ms,
        "outcome": None
        if outcome is None
        else {
            "text": outcome.text,
            "code": outcome.code,
            "owner": outcome.owner,
            "clientsClosed": outcome.clients_closed,
            "clientsBack": outcome.clients_back,
            "pauseMs": outcome.pause_ms,
        },
    }


def wish_against(move: Move, wishes: Wishes) -> str | None:
    """Say which wish forbids a move that no operator ordered; None: no wish does."""
    if move.author is Author.OPERATOR:
        return None
    if move.destination in wishes.cordons:
        return f"{move.destination} was cordoned meanwhile"
    pin = wishes.pin_of(move.bundle)
    if pin is not None and pin.broker == move.source and move.author is not Author.DRAIN:
        return f"it was pinned to {pin.broker} meanwhile"
    return None
