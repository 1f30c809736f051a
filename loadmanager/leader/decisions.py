"""The last decisions of this broker with their reasons, for operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from msgspec import UNSET

from loadmanager.kit.clock import Clock
from loadmanager.leader.documents.decisions import DecisionShown

DECISIONS_MAX = 1_000
WEIGHT_MAX = 200_000
"""Moves and refusals of all kept decisions together: about 50 MB."""


@dataclass(slots=True, eq=False)
class RecentDecision:
    """One decision, or several cycles in a row that moved nothing for the same reasons."""

    id: str
    kind: str
    epoch: int
    cycle: int
    first_ms: int
    last_ms: int
    details: Callable[..., DecisionShown]
    """Makes the decision; called with the names of what every decision has."""
    weight: int
    same: Hashable
    """Cycles with the same value are folded into one; None: never."""
    times: int = 1

    def shown(self) -> DecisionShown:
        """The whole decision."""
        again = self.times > 1
        return self.details(
            id=self.id,
            ts=self.last_ms,
            kind=self.kind,
            epoch=self.epoch,
            cycle=self.cycle,
            times=self.times if again else UNSET,
            first_at=self.first_ms if again else UNSET,
        )


class Decisions:
    """Remembers the last decisions; makes them in full when somebody asks for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: deque[RecentDecision] = deque()
        self._weight = 0
        self._number = 0
        self.listener: Callable[[RecentDecision], None] = lambda _decision: None
        """Called with each decision that is new or changed, or that another cycle was folded into.
        """

    def remember(
        self,
        kind: str,
        details: Callable[..., DecisionShown],
        *,
        epoch: int,
        cycle: int,
        weight: int = 1,
        same: Hashable = None,
        at_ms: int | None = None,
    ) -> RecentDecision:
        """Remember a decision of a kind; `at_ms`: when it was made; None: now.

        A cycle that is the same as the last one of its kind is counted there, with the newer
        figures. `weight`: how many moves and refusals it has.
        """
        now_ms = self._clock.now_ms() if at_ms is None else at_ms
        decision = None if same is None else self._last(kind)
        if decision is not None and (decision.epoch, decision.same) == (epoch, same):
            self._recent.remove(decision)
            self._weight -= decision.weight
            decision.times += 1
            decision.cycle, decision.last_ms = cycle, now_ms
            decision.details, decision.weight = details, weight
        else:
            self._number += 1
            decision = RecentDecision(
                f"{epoch}-{self._number}", kind, epoch, cycle, now_ms, now_ms, details, weight, same
            )
        place = 0
        while at_ms is not None and place < len(self._recent):
            if self._recent[place].last_ms <= at_ms:
                break
            place += 1
        self._recent.insert(place, decision)
        self._weight += weight
        while len(self._recent) > DECISIONS_MAX or (
            self._weight > WEIGHT_MAX and len(self._recent) > 1
        ):
            oldest = self._recent.pop()
            self._weight -= oldest.weight
            oldest.details = DecisionShown  # an event of it may be kept for longer
        self.listener(decision)
        return decision

    def changed(self, decision: RecentDecision, details: Callable[..., DecisionShown]) -> None:
        """A decision has an outcome now; its place among the others stays."""
        if decision in self._recent:
            decision.details = details
            self.listener(decision)

    def _last(self, kind: str) -> RecentDecision | None:
        return next((decision for decision in self._recent if decision.kind == kind), None)

    def newest_first(self) -> Iterator[RecentDecision]:
        """The decisions that are kept, the newest first."""
        return iter(list(self._recent))

    def last(self, limit: int) -> list[DecisionShown]:
        """The last decisions, newest first."""
        return [decision.shown() for decision in list(self._recent)[:limit]]
