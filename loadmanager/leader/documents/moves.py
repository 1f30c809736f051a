"""The queue of moves, and what operators want of it: pauses, pins, cordons, merges.

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from loadmanager.engine.load import wishes
from loadmanager.engine.moves.move import Move, Outcome
from loadmanager.kit.model import Shape


class PauseShown(Shape):
    """No queued move begins before `until`."""

    until: int
    note: str
    by: str = ""
    """Who ordered it: a role, or without authentication an address; empty: nobody, or not known."""
    since: int | None = None

    @staticmethod
    def of(pause: wishes.Pause | None) -> PauseShown | None:
        """The pause as it is stored; None: nothing is paused."""
        if pause is None:
            return None
        return PauseShown(until=pause.until_ms, note=pause.note, by=pause.by, since=pause.since_ms)


class MovesShown(Shape):
    """The queue of moves, then the last moves that ended, those of this leader first."""

    paused: PauseShown | None
    waiting: int
    running: int
    moves: list[Move]
    taken_up: list[str] = msgspec.field(default_factory=list)
    """Those of them that an earlier leader made, by id: it had not seen all of their clients back,
    and this one counts them.
    """


class Moved(Move):
    """A move that an operator ordered, once it has ended."""

    pinned_until: int | UnsetType = UNSET


class NothingMoved(Shape):
    """There was nothing to move: `outcome` says why."""

    bundle: str
    state: None
    outcome: Outcome
    pinned_until: int | UnsetType = UNSET


class Cancelled(Shape):
    """The number of cancelled moves."""

    cancelled: int


class Merged(Shape):
    """The new bundle."""

    merged: str


class PinShown(Shape):
    """A bundle that stays at a broker until a time."""

    broker: str
    until: int
    note: str
    by: str = ""
    """Who ordered it: a role, or without authentication an address; empty: nobody, or not known."""

    @staticmethod
    def of(pin: wishes.Pin) -> PinShown:
        """The pin as it is stored."""
        return PinShown(broker=pin.broker, until=pin.until_ms, note=pin.note, by=pin.by)


class CordonShown(Shape):
    """A broker that gets no new bundle, with the progress of its drain, if it is drained."""

    broker: str
    since: int
    note: str
    until_restart: bool
    """Whether it ends when the broker is back."""
    state: Literal["cordoned", "draining", "drained", "stopped"]
    """`stopped`: it was drained, and is not running."""
    active: bool
    by: str = ""
    """Who ordered it: a role, or without authentication an address; empty: nobody, or not known."""
    total: int | UnsetType = UNSET
    left: int | UnsetType | None = UNSET
    moved: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    moves_per_minute: float | UnsetType = UNSET
    seconds_left: int | UnsetType | None = UNSET
    problem: str | UnsetType = UNSET
