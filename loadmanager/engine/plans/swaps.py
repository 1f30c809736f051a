"""Two bundles that change places: where none fits alone, the difference between two may."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.shedding.modelled import ModelledBrokers
from loadmanager.engine.strategies.shedding.search import BestMove, MoveSearch, may_go

BUNDLES_MAX = 100
"""The largest ones of a broker that are looked at; of smaller ones, some fits alone."""
TRIES = 20
"""The best pairs of two brokers that are looked at until policies allow one."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Each bundle of a more used broker with each of a less used one: `[bundle, other bundle]`."""

    source: int
    taker: int
    there: Rows
    back: Rows
    gains: Array
    prices: Array

    def moves(self, at: int) -> tuple[BestMove, BestMove]:
        """The two moves of a pair: the larger bundle goes first, and its place is taken then."""
        row, other = divmod(at, len(self.back))
        half = float(self.gains.flat[at]) / 2
        price = float(self.prices.flat[at]) / 2
        return (
            BestMove(self.source, self.taker, int(self.there[row]), half, price),
            BestMove(self.taker, self.source, int(self.back[other]), half, price),
        )


def best_swap(
    snapshot: ClusterSnapshot, cluster: ModelledBrokers, search: MoveSearch
) -> Generator[None, None, tuple[BestMove, BestMove] | None]:
    """The two moves of the swap that gains most after their prices; None if none gains anything.
    Each has half of the gain. The less used broker has room for both bundles for a moment. It
    yields after every few milliseconds of work.
    """
    best: tuple[BestMove, BestMove] | None = None
    for sources, takers in search.between():
        for taker in takers:
            yield
            for source in sources:
                if cluster.usage[source] > cluster.usage[taker]:
                    pairs = _pairs(cluster, search, source, taker)
                    moves = _best_of(snapshot, cluster, search, pairs)
                    if moves and (best is None or moves[0].net > best[0].net):
                        best = moves
    return best


def _pairs(cluster: ModelledBrokers, search: MoveSearch, source: int, taker: int) -> _Pairs:
    give, take = search.offered(source), search.offered(taker)
    there, back = (
        np.argsort(-cluster.brings(taker, offer.work), kind="stable")[:BUNDLES_MAX]
        for offer in (give, take)
    )
    more = give.work[:, there, None] - take.work[:, None, back]
    nothing = np.zeros((len(more), 1, 1))
    gains = sum(
        cluster.worth(row, nothing) - cluster.worth(row, change)
        for row, change in ((source, -more), (taker, more))
    )
    times = cluster.price_times([source], [taker])
    prices = (give.prices[there, None] + take.prices[back]) * times
    _, no_room = cluster.burden([source], [taker], give.work[:, there])
    return _Pairs(source, taker, there, back, np.where(no_room[:, None], -np.inf, gains), prices)


def _best_of(
    snapshot: ClusterSnapshot, cluster: ModelledBrokers, search: MoveSearch, pairs: _Pairs
) -> tuple[BestMove, BestMove] | None:
    """The best pair that policies allow."""
    net = (pairs.gains - pairs.prices).ravel()
    for at in np.argsort(-net, kind="stable")[:TRIES].tolist():
        if net[at] <= 0:
            return None
        moves = pairs.moves(at)
        if all(
            may_go(snapshot, search.bundle(move), cluster.names[move.destination]) for move in moves
        ):
            return moves
    return None
