"""Plans all moves towards a goal at once, by the model and the search of `BalancedShedder`.

A plan has the curve from moves to evenness, so that its reader can stop where more moves are not
worth it. It is made of a snapshot, and moves nothing. A cycle's limits do not hold: it takes many
cycles to carry out, and is to be made anew after every few moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load import usage_model
from loadmanager.engine.load.bundle_columns import clients_of
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_model import Learned
from loadmanager.engine.plans.goals import NO_LIMITS, Emptied, Even, Filled, Goal, PlanLimits
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.evening import (
    REFUSED_MAX,
    BestMove,
    ModelledBrokers,
    MoveSearch,
    SearchScope,
    may_go,
)

DIFFERENCE = 0.01
"""The difference, as a part of the mean usage, that is worth a move of an average bundle: a goal is
what says when it is enough.
"""


@dataclass(frozen=True, slots=True)
class Point:
    """What some moves come to."""

    moves: int
    traffic: float
    """Bytes/s of the moved bundles."""
    clients: float
    spread: float
    """Standard deviation of the brokers' usage."""
    farthest: float
    """The usage of the broker that is farthest from the mean, less the mean."""


@dataclass(frozen=True, slots=True)
class GoalPlan:
    """The moves towards a goal, in the order in which to make them."""

    goal: Goal
    moves: tuple[Unload, ...]
    curve: tuple[Point, ...]
    """Before the first move, and after each."""
    reached: bool
    ends: str
    """Why it has no further move: one word."""


def plan(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    goal: Goal,
    limits: PlanLimits = NO_LIMITS,
    learned: Learned | None = None,
) -> GoalPlan:
    """The fewest moves that the search finds towards a goal.

    `learned`: what `BalancedShedder` remembers of usage. Raises `KeyError` for a broker that does
    not report.
    """
    columns, before = snapshot.columns, learned or Learned()
    model = usage_model.fit(
        columns, snapshot.averages, settings.weights, before, learning=learned is None
    )
    cluster = ModelledBrokers(snapshot, model, DIFFERENCE, leaving={}, far=())
    cluster.intake_max = math.inf
    return _Planning(snapshot, settings, cluster, goal, limits).made()


class _Planning:
    """One plan while it is made."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        settings: StrategySettings,
        cluster: ModelledBrokers,
        goal: Goal,
        limits: PlanLimits,
    ) -> None:
        self._snapshot, self._cluster, self._goal, self._limits = snapshot, cluster, goal, limits
        self._search = MoveSearch(snapshot, settings, cluster, _scope(cluster, goal, limits))
        self._moves: list[Unload] = []
        self._curve = [Point(0, 0.0, 0.0, float(cluster.usage.std()), cluster.farthest)]

    def made(self) -> GoalPlan:
        ends = "Reached"
        while not self._reached():
            best = self._search.best()
            if best is None or (best.net <= 0 and not isinstance(self._goal, Emptied)):
                ends = "NothingHelps"
                break
            if not may_go(
                self._snapshot, self._search.bundle(best), self._cluster.names[best.destination]
            ):
                self._search.refuse(best)
                if len(self._search.refused) > REFUSED_MAX:
                    ends = "NothingHelps"
                    break
                continue
            if (point := self._after(best)) is None:
                ends = "Limits"
                break
            self._make(best, point)
        reached = self._reached() or (isinstance(self._goal, Emptied) and self._is_empty())
        return GoalPlan(
            self._goal,
            tuple(self._moves),
            tuple(self._curve),
            reached,
            "Reached" if reached else ends,
        )

    def _after(self, move: BestMove) -> tuple[float, float] | None:
        """Bytes/s and clients that have moved after this move; None if those are too many."""
        bundle, source = self._search.bundle(move), self._cluster.names[move.source]
        clients = clients_of(self._snapshot.reports[source].last_stats, [bundle])
        traffic = self._curve[-1].traffic + self._snapshot.averages.quick_of(bundle)
        paused = self._curve[-1].clients + float(clients[0])
        limits = self._limits
        fits = len(self._moves) < limits.moves
        fits = fits and traffic <= limits.traffic and paused <= limits.clients
        return (traffic, paused) if fits else None

    def _make(self, move: BestMove, after: tuple[float, float]) -> None:
        cluster = self._cluster
        names = cluster.names[move.source], cluster.names[move.destination]
        why: dict[str, float | str] = {
            "gain": move.gain,
            "usage": cluster.fields(move.source)[0],
            "destinationUsage": cluster.fields(move.destination)[0],
        }
        (bundle,) = self._search.make(move, np.array([move.at]))
        why["usageAfter"] = cluster.fields(move.source)[0]
        why["destinationUsageAfter"] = cluster.fields(move.destination)[0]
        self._moves.append(Unload(bundle, *names, type(self._goal).__name__, why))
        spread, farthest = float(cluster.usage.std()), cluster.farthest
        self._curve.append(Point(len(self._moves), *after, spread, farthest))

    def _reached(self) -> bool:
        cluster, goal = self._cluster, self._goal
        if isinstance(goal, Even):
            return cluster.farthest <= goal.within
        if isinstance(goal, Filled):
            return cluster.fields(cluster.row(goal.broker))[0] >= goal.part * cluster.mean
        return False

    def _is_empty(self) -> bool:
        assert isinstance(self._goal, Emptied)
        gone = {move.bundle for move in self._moves}
        return gone >= self._snapshot.reports[self._goal.broker].last_stats.keys()


def _scope(cluster: ModelledBrokers, goal: Goal, limits: PlanLimits) -> SearchScope:
    if isinstance(goal, Even):
        return SearchScope(stay=limits.stay)
    row: Sequence[int] = [cluster.row(goal.broker)]
    if isinstance(goal, Filled):
        return SearchScope(takers=row, stay=limits.stay)
    return SearchScope(sources=row, stay=limits.stay)
