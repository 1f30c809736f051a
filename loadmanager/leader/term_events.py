"""Tells those who listen what happens in one term."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import partial

from loadmanager.engine.moves.move import Move
from loadmanager.kit.metadata.leader import Leader
from loadmanager.leader import story
from loadmanager.leader.decisions import Decisions, RecentDecision
from loadmanager.leader.documents.decisions import DecisionShown
from loadmanager.leader.documents.events import TermChange
from loadmanager.leader.events import EventHub
from loadmanager.leader.moves import Moves

OF_THEIR_OWN = ("split", "merge")
"""Decisions that are events of their own kind."""


@dataclass(slots=True, kw_only=True)
class TermEvents:
    """Publishes decisions, moves and the term itself, as a context manager."""

    leader: Leader
    events: EventHub
    decisions: Decisions
    moves: Moves

    def __enter__(self) -> TermEvents:
        """Say that the term has begun."""
        self.events.begin(self.leader.epoch)
        self._tell_leader(self.leader.broker_id)
        self.decisions.listener = self._on_decision
        self.moves.on_change.append(self._on_move)
        return self

    def __exit__(self, *_: object) -> None:
        """Say that it is over, and send the listeners away: to the next leader."""
        self.decisions.listener = lambda _decision: None
        self._tell_leader(None)
        self.events.end()

    def _tell_leader(self, leader: str | None) -> None:
        change = TermChange(
            at=self.moves.term.clock.now_ms(), leader=leader, epoch=self.leader.epoch
        )
        self.events.publish("leadership", lambda: change)

    def _on_decision(self, decision: RecentDecision) -> None:
        kind = decision.kind if decision.kind in OF_THEIR_OWN else "decision"
        self.events.publish(kind, partial(_shown, decision))

    def _on_move(self, move: Move) -> None:
        shown = copy(move)  # as it is now
        self.events.publish("move", lambda: shown)


def _shown(decision: RecentDecision) -> DecisionShown:
    shown = story.concerning(decision.shown(), None)
    assert shown is not None  # nothing was asked for in particular
    return shown
