"""Seeks the next best move between brokers: `BalancedShedder`, derived on its page in docs/."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import NamedTuple

import numpy as np

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.bundle_columns import clients_and_topics
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies import anti_affinity
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.grace import stays_since_ms
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.modelled import ModelledBrokers
from loadmanager.engine.strategies.shedding.objective import FULL
from loadmanager.engine.strategies.shedding.selection import movable, plainly_movable

LOOKED_AT, LOOKED_AT_MOST = 6, 96
"""Moves are sought from so many of the most used brokers to so many of the least used ones; where
none of these helps, as if nothing that they have fits anywhere, twice as many are looked at, and
twice as many again, up to the second number.
"""
MOVES_MAX = 100
"""In one cycle, so that it takes a bounded time."""
PAIRS_AT_ONCE = 64
"""Pairs of brokers between which moves are sought together: more need memory."""
SPENT_MAX = 60
SMALL, WORTH_OF_SEVERAL = 8.0, 0.75
"""Bundles that together are this part of the difference between two brokers are moved at once: the
last one then still gains so much of what the first one does.
"""


@dataclass(slots=True)
class Movable:
    """The bundles of a broker that may leave it."""

    names: Sequence[str]
    work: Array
    """Their traffic as each resource that is used counts it: `[resource, bundle]`."""
    prices: Array
    kinds: Rows
    """What `Reach.bars` goes by."""
    relief: Array
    """What the objective falls by when the broker does not carry the bundle."""

    def without(self, at: Rows) -> None:
        """Some bundles less."""
        stays = np.ones(len(self.names), np.bool_)
        stays[at] = False
        self.names = list(compress(self.names, stays.tolist()))
        self.work = self.work[:, stays]
        self.prices, self.kinds = self.prices[stays], self.kinds[stays]


class BestMove(NamedTuple):
    """The best move between two brokers."""

    source: int
    destination: int
    at: int
    """The bundle's place among the movable ones of the source."""
    gain: float
    price: float
    gains: Array = np.zeros(0)
    """What each movable bundle of the source gains there; -inf: it may not go there."""
    prices: Array = np.zeros(0)

    @property
    def net(self) -> float:
        """The gain after the price."""
        return self.gain - self.price


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """The moves that are looked for: from the most used to the least used brokers if it does not
    say otherwise.
    """

    sources: Sequence[int] | None = None
    takers: Sequence[int] | None = None
    leaves: Callable[[str], bool] | None = None
    """Whether a bundle may move; None: each may."""


EVERYWHERE = SearchScope()


class MoveSearch:
    """Seeks the move that gains most after its price, from a most used to a least used broker.

    A move changes two brokers; what is known of moves between others stays known. Of bundles that
    are small beside the difference between two brokers, several are moved at once.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        settings: StrategySettings,
        cluster: ModelledBrokers,
        scope: SearchScope = EVERYWHERE,
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._cluster = cluster
        self._scope = scope
        self._movable: dict[int, Movable] = {}
        self._best: dict[int, dict[int, BestMove | None]] = {}
        """Source → destination → the best move."""
        self._best_of: dict[int, BestMove | None] = {}
        """Group of brokers → the best move from there."""
        self._looked_at: dict[int, int] = {}
        """Group → how many of its brokers are looked at, if more than `LOOKED_AT`."""
        self._spent = np.zeros(len(cluster.names), np.bool_)
        """Brokers that have nothing to give."""
        self._counts: dict[str, dict[str, int]] = {}
        """Anti-affinity group → `filters.group_counts`."""

    def best(self) -> BestMove | None:
        """The best move; of equal ones that to the least used, and from the most used broker."""
        groups = range(len(self._cluster.reach.alike) if self._scope.sources is None else 1)
        for group in groups:
            if group not in self._best_of:
                self._best_of[group] = self._best_from(group)
        moves = [self._best_of[group] for group in groups]
        return max((move for move in moves if move), key=lambda move: move.net, default=None)

    def _best_from(self, group: int) -> BestMove | None:
        """The best move from the brokers of a group."""
        while True:
            sources, takers = self._between(group)
            self._look(sources, takers)
            moves = [
                move
                for taker in takers
                for source in sources
                if (move := self._best[source].get(taker)) is not None
            ]
            if any(move.gain > 0 for move in moves) or not self._looks_further(group):
                return max(moves, key=lambda move: move.net, default=None)

    def _looks_further(self, group: int) -> bool:
        """Whether there is more to look at; it is looked at from now on."""
        scope, count = self._scope, self._looked_at.get(group, LOOKED_AT)
        all_are = count >= min(LOOKED_AT_MOST, len(self._cluster.names))
        if all_are or (scope.sources is not None and scope.takers is not None):
            return False
        self._looked_at[group] = 2 * count
        return True

    def between(self) -> Iterator[tuple[list[int], list[int]]]:
        """From which brokers to which to look, for each group of brokers."""
        groups = range(len(self._cluster.reach.alike) if self._scope.sources is None else 1)
        return map(self._between, groups)

    def _between(self, group: int) -> tuple[list[int], list[int]]:
        """From which brokers of a group to which to look; not from those that have nothing to
        give.
        """
        scope, reach, count = self._scope, self._cluster.reach, self._looked_at.get(group)
        looked_at = count or LOOKED_AT
        if scope.sources is not None:
            takers = scope.takers or ()
            return list(scope.sources), [each for each in takers if each not in scope.sources]
        while True:
            sources, takers = self._cluster.extremes(reach.alike[group], looked_at, self._spent)
            spent = [source for source in sources if not self.offered(source).names]
            if not spent or self._spent.sum() > SPENT_MAX:
                break
            self._spent[spent] = True
        if scope.takers is not None:
            takers = list(scope.takers)
        elif len(reach.reaches[group]) > 1:
            takers = [
                taker
                for other in reach.reaches[group]
                for taker in self._cluster.extremes(reach.alike[other], looked_at, self._spent)[1]
            ]
            takers.sort(key=lambda taker: self._cluster.usage[taker])
        return [source for source in sources if source not in spent], takers

    def _look(self, sources: list[int], takers: list[int]) -> None:
        """Find the best move from each of these brokers to each of those, where it is not known."""
        for source in sources:
            if source not in self._best:
                offer = self.offered(source)
                offer.relief = self._cluster.relief(source, offer.work)
                self._best[source] = {}
        pairs = [
            (source, taker)
            for source in sources
            for taker in takers
            if taker not in self._best[source]
        ]
        for begin in range(0, len(pairs), PAIRS_AT_ONCE):
            self._look_between(pairs[begin : begin + PAIRS_AT_ONCE])

    def _look_between(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Find the best moves between pairs of brokers. Arrays are `[bundle]`: for each pair, those
        of the source.
        """
        offers = [self._movable[source] for source, _ in pairs]
        counts = [len(offer.names) for offer in offers]
        sources, takers = np.repeat(np.array(pairs).T, counts, axis=1)
        work = np.concatenate([offer.work for offer in offers], axis=1)
        prices = np.concatenate([offer.prices for offer in offers])
        gains, refused = self._cluster.burden(sources, takers, work)
        gains += np.concatenate([offer.relief for offer in offers])
        refused |= sources == takers
        if not self._cluster.reach.everywhere:
            kinds = np.concatenate([offer.kinds for offer in offers])
            refused |= self._cluster.reach.bars(takers, kinds)
        prices *= self._cluster.price_times(sources, takers)
        gains[refused] = -np.inf
        net, end = gains - prices, 0
        for (source, taker), count in zip(pairs, counts, strict=True):
            begin, end = end, end + count
            at = begin + int(net[begin:end].argmax()) if count else 0
            if count == 0 or net[at] == -np.inf:
                self._best[source][taker] = None
            else:
                gain, price, here = float(gains[at]), float(prices[at]), slice(begin, end)
                self._best[source][taker] = BestMove(
                    source, taker, at - begin, gain, price, gains[here], prices[here]
                )

    def with_others(self, move: BestMove) -> tuple[Rows, Array, Array]:
        """The bundle of a move, with the next best ones between the two brokers as long as all are
        small beside their difference; what each gains, and its price.
        """
        cluster, offer = self._cluster, self._movable[move.source]
        alone = np.array([move.at]), np.array([move.gain]), np.array([move.price])
        room = (cluster.usage[move.source] - cluster.usage[move.destination]) / SMALL
        room = min(room, cluster.intake_max - cluster.intake[move.destination])
        room = min(room, cluster.usage[move.source] - cluster.means[move.source])
        relieves = cluster.usage[move.source] > FULL
        room = min(room, cluster.rooms[int(relieves), move.destination])
        brings = cluster.brings(move.destination, offer.work)
        if 2 * brings[move.at] > room:
            return alone
        gains, prices = move.gains, move.prices
        good = np.flatnonzero(WORTH_OF_SEVERAL * gains > prices)
        order = good[np.argsort(prices[good] - gains[good], kind="stable")]
        count = int(np.searchsorted(np.cumsum(brings[order]), room, side="right"))
        return (order[:count], gains[order[:count]], prices[order[:count]]) if count > 1 else alone

    @property
    def takers(self) -> Sequence[int]:
        """The brokers that bundles may go to, if the scope says which."""
        return self._scope.takers or ()

    def offered(self, source: int) -> Movable:
        """What may leave a broker."""
        if source not in self._movable:
            broker = self._cluster.names[source]
            offer = _movable(
                self._snapshot,
                self._settings,
                self._cluster,
                broker,
                self._counts,
                idle=self._scope.sources is not None,
            )
            leaves = self._scope.leaves
            if leaves is not None:
                stays = [at for at, name in enumerate(offer.names) if not leaves(name)]
                offer.without(np.array(stays, np.int64))
            self._movable[source] = offer
        return self._movable[source]

    def bundle(self, move: BestMove) -> str:
        return self._movable[move.source].names[move.at]

    def at_prices(self, dearness: float) -> None:
        """Look anew, for moves that gain so many times their price."""
        self._cluster.dearness = dearness
        self._best.clear()
        self._best_of.clear()

    def leave_out(self, source: int, stays: Callable[[str], bool]) -> None:
        """Bundles of a broker are not to move."""
        offer = self.offered(source)
        rows = [row for row, name in enumerate(offer.names) if stays(name)]
        offer.without(np.array(rows, np.int64))
        self._best.pop(source, None)
        for group in self._cluster.reach.around(source):
            self._best_of.pop(group, None)

    def make(self, move: BestMove, at: Rows) -> list[str]:
        """These bundles of the source move; returns their names."""
        offer = self._movable[move.source]
        names = [offer.names[row] for row in at.tolist()]
        self._cluster.move(move.source, move.destination, offer.work[:, at].sum(axis=1))
        offer.without(at)
        for changed in (move.source, move.destination):
            self._best.pop(changed, None)
            for best in self._best.values():
                best.pop(changed, None)
            for group in self._cluster.reach.around(changed):
                self._best_of.pop(group, None)
        return names


def _movable(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    cluster: ModelledBrokers,
    broker: str,
    counts: dict[str, dict[str, int]],
    *,
    idle: bool,
) -> Movable:
    """The bundles that may leave a broker; `idle`: also those without traffic."""
    may_shed = movable(snapshot, broker, stays_since_ms(snapshot, broker, settings.weights))
    under_way = snapshot.under_way.bundles
    names, bytes_s, work = cluster.traffic_of(broker)
    rows = np.flatnonzero((bytes_s > 0) | idle).tolist()
    if not (plainly_movable(snapshot, names) and under_way.keys().isdisjoint(names)):
        rows = [row for row in rows if may_shed(names[row]) and names[row] not in under_way]
    stays = _stays(snapshot, settings, broker, counts)
    rows = [row for row in rows if not stays(names[row])] if stays else rows
    if len(rows) < len(names):
        names, work = [names[row] for row in rows], work[:, rows]
    clients, topics = clients_and_topics(snapshot.reports[broker].last_stats, names)
    prices = cluster.prices(broker, work, clients, topics)
    return Movable(names, work, prices, cluster.reach.kinds_of(names), np.zeros(0))


def _stays(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    broker: str,
    counts: dict[str, dict[str, int]],
) -> Callable[[str], bool] | None:
    """A test for bundles without a pin that the guards keep at this broker, wherever they would go;
    None if they keep none. Without it the same move would be proposed and refused in each cycle.
    """
    groups = snapshot.anti_affinity_groups
    if broker in snapshot.leaving.values():
        return lambda _bundle: True
    if not (settings.excluded_namespaces or groups):
        return None

    @cache
    def namespace_stays(namespace: str) -> bool:
        if namespace in settings.excluded_namespaces:
            return True
        group = groups.get(namespace)
        if group is None:
            return False
        candidates, _ = filters.may_serve(snapshot, namespace)
        if group not in counts:
            counts[group] = filters.group_counts(snapshot, group)
        return not anti_affinity.may_unload(broker, candidates, counts[group])

    return lambda bundle: namespace_stays(split_bundle_name(bundle)[0])


def may_go(snapshot: ClusterSnapshot, bundle: str, destination: str) -> bool:
    """Whether the policies let a broker serve the bundle."""
    if not snapshot.isolation_policies:
        return True
    return destination in filters.may_serve(snapshot, split_bundle_name(bundle)[0])[0]
