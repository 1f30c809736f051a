"""What clients went through today."""

from __future__ import annotations

import msgspec

from loadmanager.kit.model import Shape


class MoveReturn(Shape):
    """The clients of a move, by their own records."""

    move: str
    """Its id."""
    clients: int
    """How many it interrupted."""
    back: int
    """How many of them were seen to be attached again."""
    longest_ms: float
    """The longest wait of these."""


class InterruptionsShown(Shape):
    """Moves, losses and standstills of brokers since a time, and the clients that they interrupted.
    Nothing happened: all is 0.
    """

    since: int
    """Midnight (UTC), or since when there are records, in milliseconds since the epoch."""
    moves: int = 0
    failed: int = 0
    """Moves that failed."""
    lost: int = 0
    """How often a broker was lost."""
    lost_brokers: int = 0
    """How many brokers these were."""
    stood: int = 0
    """How often a broker stood still."""
    clients: int = 0
    """How often a producer or consumer was interrupted."""
    back: int = 0
    """Those of them that were seen to be served again."""
    attached: int = 0
    """Others that are attached again, after so long that they may have given up: they are back once
    they have stayed for some seconds.
    """
    longest_ms: float = 0.0
    """The longest wait of one that is back."""
    longest_most_ms: float = 0.0
    """It was this at most: a client of a lost broker may have waited since the last sign of that.
    """
    sum_ms: float = 0.0
    """The waits of all that are back."""
    sum_most_ms: float = 0.0
    """They were this at most, for the same reason; with `byLeaders` it is not known."""
    unheard_ms: int = 0
    """With `byLeaders`: the clients of a lost broker may have waited for so much longer."""
    by_leaders: bool = False
    """Whether leaders counted the clients: not all have records of their own, or they are those of
    too many brokers. Else each client was counted by its own records, until it was attached again.
    """
    lacking: list[str] = msgspec.field(default_factory=list)
    """Brokers whose archives do not answer, or lack records of this time: there may be more."""
    unsure: int = 0
    """Clients that are not counted, because nobody knows whether they were still there: steps of
    clients were recorded by their number only since the last record of each.
    """
    returned: list[MoveReturn] = msgspec.field(default_factory=list)
    """The moves of which more clients are back, by their own records, than the leader counted while
    it waited for them; the newest first.
    """
