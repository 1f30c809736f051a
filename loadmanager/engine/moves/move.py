"""A move of a bundle from one broker to another, from its decision to its outcome."""

from __future__ import annotations

from enum import Enum

from msgspec import UNSET, UnsetType

from loadmanager.engine.load.wishes import Wishes
from loadmanager.kit.model import Shape


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
    GOAL = "goal"
    """An order to reach a goal."""
    MERGE = "merge"
    """A bundle is brought to its neighbour, to be merged with it."""


NOT_SENT = "NotSent"
"""The order was not sent."""
NOT_AGAIN = "NotAgain"
"""An order was sent and not followed, and a hold kept the next one back."""
NOT_OWNED = "NotOwned"
"""The source did not own the bundle."""


class Outcome(Shape, kw_only=False):
    """The verified result of a move; or of a split, which has `children`."""

    text: str
    code: str | None = None
    """`NotSent`: no order was sent. `NotAgain`: one was sent and not followed, and something held
    the next one back. `NotOwned`: the source did not own the bundle. Else null.
    """
    owner: str | None = None
    """The broker that owned the bundle afterwards."""
    clients_closed: int | None = None
    """Producers and consumers that the source had; null: not told."""
    clients_back: int | None = None
    """Producers and consumers that the destination served soon afterwards: each had its first
    receipt or delivery, if it wanted one.
    """
    clients_unserved: int | None = None
    """Those that were connected to it and had got nothing of what they wanted."""
    clients_waited_ms: float | None = None
    """From the fence at the source until the last of those that came back was served."""
    clients_waited_mean_ms: float | None = None
    """The same for all of these, on the mean."""
    pause_ms: float | None = None
    """From the fence at the source to the acquisition by the destination; if that did not take the
    bundle, until the leader had found it another owner; null: not known, or it had none.
    """
    unanswered_since: int | None = None
    """When the source was ordered to give the bundle up, if it gave no answer: from then on it may
    have served nobody.
    """
    clients_back_at: str | None = None
    """The broker that served those that came back, if it was another one than the destination: the
    bundle had gone on from there.
    """
    clients_within_ms: int | None = None
    """How long after the move's end it was last looked who is back: a client may have come later.
    """
    children: list[str] | UnsetType = UNSET
    """The bundles that replaced the one that was split; none if it was not split."""


class PartialOutcome(Outcome, omit_defaults=True):
    """An outcome without the fields that do not apply: of a split, or where nothing was moved."""


class Move(Shape, eq=False):
    """A move of a bundle. Times are milliseconds since the epoch."""

    id: str
    """`<epoch>-<number>`."""
    bundle: str
    source: str
    destination: str | None
    reason: str
    why: dict[str, float | str]
    author: Author
    swap: str | None
    """Moves with the same `swap` are made together, one after the other, or not at all."""
    state: MoveState
    created_at: int
    started_at: int | None
    ended_at: int | None
    outcome: Outcome | None
    clients: int | None = None
    """Producers and consumers of the bundle when the move began, by the source's last report; null:
    not told.
    """

    @property
    def ended(self) -> bool:
        """True if nothing more happens to this move."""
        return self.state in ENDED


def wish_against(move: Move, wishes: Wishes) -> str | None:
    """Say which wish forbids a move that no operator ordered; None: no wish does."""
    if move.author is Author.OPERATOR:
        return None
    if move.destination in wishes.cordons:
        return f"{move.destination} was cordoned meanwhile"
    if move.destination is not None and wishes.refuses(move.destination, move.bundle):
        return f"{move.destination} could not open it a moment ago"
    pin = wishes.pin_of(move.bundle)
    if pin is not None and pin.broker == move.source and move.author is not Author.DRAIN:
        return f"it was pinned to {pin.broker} meanwhile"
    return None
