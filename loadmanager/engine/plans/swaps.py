"""Two bundles that change places: where none fits alone, the difference between two may, or one
that leaves first makes room.
"""

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
TAKERS_MAX = 16
"""The least used brokers at which room is made."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Each bundle of a more used broker with each of a less used one: `[bundle, other bundle]`."""

    source: int
    taker: int
    there: Rows
    back: Rows
    gains: Array
    """Of each pair; -inf: there is no room for it on the way."""
    prices: Array

    def moves(self, at: int) -> tuple[BestMove, BestMove]:
        """The two moves of a pair: there, and back."""
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
                    pairs = _pairs(cluster, search, source, taker, room_first=False)
                    moves = _best_of(snapshot, cluster, search, pairs, least=0.0)
                    if moves and (best is None or moves[0].net > best[0].net):
                        best = moves
    return best


def room_and_move(
    snapshot: ClusterSnapshot, cluster: ModelledBrokers, search: MoveSearch
) -> Generator[None, None, tuple[BestMove, BestMove] | None]:
    """The move of a bundle that has to leave, after one that makes room for it: a bundle of the
    broker that it goes to comes to its broker first. Of all such pairs the one that gains most
    after its price, or costs least; None: none has the room. It yields as `best_swap` does.
    """
    best: tuple[BestMove, BestMove] | None = None
    for sources, takers in search.between():
        for taker in sorted(takers, key=lambda row: (cluster.usage[row], row))[:TAKERS_MAX]:
            yield
            for source in sources:
                pairs = _pairs(cluster, search, source, taker, room_first=True)
                moves = _best_of(snapshot, cluster, search, pairs, least=-np.inf)
                if moves and (best is None or moves[0].net > best[0].net):
                    best = moves
    return best and (best[1], best[0])


def _pairs(
    cluster: ModelledBrokers, search: MoveSearch, source: int, taker: int, *, room_first: bool
) -> _Pairs:
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
    if room_first:
        _, no_room_here = cluster.burden([taker], [source], take.work[:, back])
        _, none_there = cluster.burden([source], [taker], more.reshape(len(more), -1))
        no_room = none_there.reshape(len(there), len(back)) | no_room_here
    else:
        no_room = cluster.burden([source], [taker], give.work[:, there])[1][:, None]
    return _Pairs(source, taker, there, back, np.where(no_room, -np.inf, gains), prices)


def _best_of(
    snapshot: ClusterSnapshot,
    cluster: ModelledBrokers,
    search: MoveSearch,
    pairs: _Pairs,
    *,
    least: float,
) -> tuple[BestMove, BestMove] | None:
    """The best pair that policies allow, and that gains more than so much after its price."""
    net = (pairs.gains - pairs.prices).ravel()
    for at in np.argsort(-net, kind="stable")[:TRIES].tolist():
        if net[at] <= least:
            return None
        moves = pairs.moves(at)
        if all(
            may_go(snapshot, search.bundle(move), cluster.names[move.destination]) for move in moves
        ):
            return moves
    return None
