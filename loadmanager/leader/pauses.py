"""How long a client waits for a move, as it was measured here: one figure, by which moves are
priced, goals are planned and their limits are counted.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadmanager.engine.moves.move import Move, MoveState, Outcome
from loadmanager.engine.moves.queue import MoveQueue
from loadmanager.leader.documents.goals import PauseSource

PAUSE_S = 1.0
"""The pause of a client that is assumed where none was measured: with this, no limit is passed."""
CANARY = "Canary"
"""The reason of moves that are made to measure the pause of a client."""
MOVES_LAST, CANARY_LAST = 20, 5
"""So many of the last pauses count, of moves and of a canary: a figure that one crash does not
spoil, and that follows what is true now.
"""
DIGITS = 3
PAUSE_SOURCES: Mapping[PauseSource, str] = {
    "assumed": "assumed, because none was measured yet, nor stored by a leader before",
    "moves": "the median of the last moves",
    "canary": "the canary measured that",
    "goal": "the mean of what its own moves took",
    "promise": "as was measured when it was proposed",
}
"""For people: where the pause of a client comes from."""


@dataclass(frozen=True, slots=True)
class CanaryPause:
    """A pause that a canary measured, and when."""

    at_ms: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ExpectedPause:
    """The pause of a client that a move of now is expected to cost."""

    seconds: float
    source: PauseSource = "assumed"
    at_ms: int | None = None
    """When the canary measured last, if it is the source."""

    @property
    def measured_s(self) -> float | None:
        """Seconds, to the millisecond; None: not measured."""
        return None if self.source == "assumed" else round(self.seconds, DIGITS)


@dataclass(frozen=True, slots=True)
class ClientPauses:
    """The pauses that the moves of a term, and a canary, have measured."""

    queue: MoveQueue
    canary: Callable[[], Sequence[CanaryPause]] = tuple
    """The last pauses that a canary measured, where the clients' own cannot be seen."""
    before_s: float | None = None
    """The same of the last moves before this term; None: none is stored."""

    def expected(self) -> ExpectedPause:
        """The median pause of the last moves; where none of theirs was measured, that of the
        canary's last ones, or of the last moves before this term, else `PAUSE_S`.
        """
        measured_ms = (
            wait_ms
            for move in self.queue.ended  # the newest first
            if move.reason != CANARY
            and move.state is MoveState.DONE
            and (wait_ms := waited_ms(move)) is not None
            and move.outcome is not None
            and move.outcome.clients_closed != 0  # nobody waited
        )
        waits_ms = list(itertools.islice(measured_ms, MOVES_LAST))
        if waits_ms:
            return ExpectedPause(statistics.median(waits_ms) / 1000, "moves")
        canary = self.canary()[-CANARY_LAST:]
        if canary:
            middle = statistics.median(each.seconds for each in canary)
            return ExpectedPause(middle, "canary", canary[-1].at_ms)
        if self.before_s is not None:
            return ExpectedPause(self.before_s, "moves")
        return ExpectedPause(PAUSE_S)

    def of_moves_s(self) -> float | None:
        """What is to be stored for the next leader: the pause by moves; None: none was measured."""
        expected = self.expected()
        return expected.measured_s if expected.source == "moves" else self.before_s


def waited_ms(move: Move) -> float | None:
    """How long a client of a move waited, on the mean: until it was back, where that was seen, else
    until the bundle had an owner; None: not measured. Clients that waited for a broker that died do
    not count: another broker served them in the end, or the source gave no answer.
    """
    outcome: Outcome | None = move.outcome
    if outcome is None or outcome.pause_ms is None:
        return None
    if outcome.clients_back_at is not None or outcome.unanswered_since is not None:
        return None
    return outcome.clients_waited_mean_ms or outcome.pause_ms
