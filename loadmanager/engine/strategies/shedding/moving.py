"""Makes moves one after the other: those of a cycle of `BalancedShedder`, which goes on while a
move is worth its price, and those of a plan, which ends at its goal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load.columns import Rows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.shedding.modelled import ModelledBrokers
from loadmanager.engine.strategies.shedding.search import BestMove, MoveSearch


@dataclass(slots=True)
class Moving:
    """The moves that a search finds in a cluster, as they are made."""

    snapshot: ClusterSnapshot
    cluster: ModelledBrokers
    search: MoveSearch
    not_made: BestMove | None = None
    """The best move when none was worth its price."""

    def worth_it(self) -> BestMove | None:
        """The next move that gains more than its price."""
        self.not_made = best = self.search.best()
        return best if best is not None and best.net > 0 else None

    def make(
        self, move: BestMove, at: Rows | None = None
    ) -> tuple[list[str], dict[str, float | str]]:
        """The bundle of a move goes, or those at `at` between the same two brokers; returns their
        names, and the usages that they come to.
        """
        cluster, source, destination = self.cluster, move.source, move.destination
        before, other = usages_of(cluster, move)
        names = self.search.make(move, np.array([move.at]) if at is None else at)
        return names, {
            **before,
            "usageAfter": cluster.fields(source)[0],
            **other,
            "destinationUsageAfter": cluster.fields(destination)[0],
        }


def usages_of(
    cluster: ModelledBrokers, move: BestMove
) -> tuple[dict[str, float], dict[str, float]]:
    """What the brokers of a move use, by the model and by their sensors, and the model's error: of
    the source and of the destination.
    """
    source, destination = cluster.fields(move.source), cluster.fields(move.destination)
    return (
        dict(zip(("usage", "usageMeasured", "usageError"), source, strict=True)),
        dict(
            zip(
                ("destinationUsage", "destinationMeasured", "destinationError"),
                destination,
                strict=True,
            )
        ),
    )
