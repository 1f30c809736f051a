"""Plans moves that make all brokers equally used: `BalancedShedder`, derived on its page in docs/.

`ModelledBrokers` has what brokers use while moves are planned, `MoveSearch` finds the next best
move.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.bundle_columns import clients_and_topics
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_model import CPU, UsageModel
from loadmanager.engine.policies import anti_affinity
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.grace import stays_since_ms
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.by_sensors import BySensors
from loadmanager.engine.strategies.shedding.reach import Reach
from loadmanager.engine.strategies.shedding.selection import movable, plainly_movable

KNEE = 0.7
"""Above this usage a broker counts as on its way to overload."""
MEAN_OF_KNEE = 0.65
"""If the mean of all is above this, the knee rises twice as fast: where all brokers are near
overload, none can help another, and the same few points of difference are not worth five times as
much as before.
"""
KNEE_WEIGHT = 4.0
OVERLOAD, OVERLOAD_ABOVE, FULL = 0.85, 0.1, 1.0
"""No move brings a broker above this usage, or so far above the mean of all if that is more; but
never above all that it has: where the others are full, too, they could do no more of the work.
"""
UNDONE_WEIGHT = 10.0
"""What a broker has above FULL is work that it cannot do."""
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
INTAKE_MAX = 0.08
"""A broker takes so much more usage in one cycle, or one bundle: clients that connect cost, too."""
FAR, FAR_POINTS, FAR_ERRORS = 0.2, 0.05, 3.0
"""A broker is far off if its usage differs from the mean by this part of the mean, by so many
points, and by so many times the model's error."""
NEAR = 0.05
"""It is brought as near as this part of the mean."""
OF_FAR = 0.15
"""The price of a move from or to a broker that is far off, as a part of the usual one."""
USED_LEAST = 0.1
"""A mean usage below this counts as this: in a cluster that does nothing, nothing needs moving."""
OF_TOPICS, OF_TRAFFIC, OF_CLIENTS = 0.2, 0.24, 0.56
"""The parts that a bundle's topics, which its new owner opens, its traffic and its clients have in
the price of its move, if it has as much of them as an average one.
"""
PRICE_LEAST = 0.1
"""Each move costs this part of an average one, so that moves end, however small bundles are."""
PAUSE_S = 0.15
"""The pause of a client at which the difference of the settings is worth a move, and which counts
until one is measured. A longer one makes clients dearer in proportion, within bounds.
"""
PAUSE_LEAST, PAUSE_MOST = 0.5, 4.0


def knee_of(usage: Array, size: Array) -> float:
    """The usage above which a broker counts more, in a cluster of these brokers."""
    mean = float((usage * size).sum() / size.sum())
    return KNEE + 2 * max(mean - MEAN_OF_KNEE, 0)


def objective(usage: Array, knee: float = KNEE) -> Array:
    """The part of the objective that a broker of size 1 with this usage (a fraction) adds."""
    worth: Array = usage * usage
    if usage.size and usage.flat[usage.argmax()] > knee:
        worth += KNEE_WEIGHT * np.maximum(usage - knee, 0) ** 2
        worth += UNDONE_WEIGHT * np.maximum(usage - FULL, 0)
    return worth


class _BundleWork:
    """What the bundles of all brokers carry, one broker after the other."""

    def __init__(self, snapshot: ClusterSnapshot, model: UsageModel) -> None:
        bundles = {name: snapshot.reports[name].bundles for name in snapshot.columns.names}
        self.traffic = snapshot.averages.quick_of_all(bundles)
        self.of_cpu = self.traffic.bytes_s * model.costs.of(self.traffic)
        """What the CPU counts of it."""
        self._ends = [0, *np.cumsum(self.traffic.counts).tolist()]

    def add(self, more: Array, messages: Array) -> None:
        """The bundles of brokers carry so much more of what the CPU counts, `[broker]`: half of it
        by their messages, and half of it each alike. `messages`: those of each row of the averages.
        """
        traffic = self.traffic
        if traffic.rows is None:
            return
        share = messages[traffic.rows]
        alike = np.maximum(traffic.totals(share) / np.maximum(traffic.counts, 1), 1.0)
        share += np.repeat(alike, traffic.counts)
        all_of_it = traffic.totals(share)
        each = np.divide(more, all_of_it, out=np.zeros_like(more), where=all_of_it > 0)
        self.of_cpu += share * np.repeat(each, traffic.counts)

    def of(self, row: int) -> tuple[Array, Array]:
        """A broker's bundles in order of name: their bytes/s, and what the CPU counts of these."""
        here = slice(self._ends[row], self._ends[row + 1])
        return self.traffic.bytes_s[here], self.of_cpu[here]


class ModelledBrokers:
    """The brokers' usage as the model has it, while moves are planned. Arrays are `[resource,
    broker]`, brokers in the order of `snapshot.columns`.

    `difference`: the difference between two brokers, as a part of the mean usage, that is worth
    moving a bundle of average size. `leaving`: bundle → the broker that it left, whose report may
    still have it. `far`: brokers that are brought near the mean since earlier cycles. `relieved`:
    brokers that were full lately → whether their bundles may be taken for dearer than the model has
    them; None: no bundles are, and sensors forbid only full brokers.
    """

    dearness = 1.0
    """How many times its price a move has to gain."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        model: UsageModel,
        difference: float,
        *,
        leaving: Mapping[str, str],
        far: Collection[str],
        emptied: str | None = None,
        relieved: Mapping[str, bool] | None = None,
    ) -> None:
        columns = snapshot.columns
        self.reach = Reach(snapshot)
        self._snapshot, self._model = snapshot, model
        self.names, self._row_of = columns.names, columns.row_of
        self.leaving = {
            bundle: source
            for bundle, source in leaving.items()
            if source in self._row_of
            and bundle in snapshot.reports[source].last_stats
            and (
                bundle in snapshot.recently_unloaded_ms
                or bundle in snapshot.leaving
                or snapshot.under_way.broker_of(bundle) not in (None, source)
            )
        }  # the others did not leave: a guard refused the move, or it failed
        self._work = _BundleWork(snapshot, model)
        bundle_count = int((self._work.traffic.bytes_s > 0).sum())
        carried = self._carried()
        usages = model.usages(carried)
        self._counted = np.flatnonzero(usages.any(axis=1) | model.per_byte.any(axis=1))
        self._usages, self._per_byte = usages[self._counted], model.per_byte[self._counted]
        self.size = model.size
        self.usage = self._most(self._usages)
        """The most used resource of each broker."""
        self.beside = self._most(model.base[self._counted])
        """What of it is used beside traffic."""
        self._closed = self._closed_by(snapshot)
        """True for brokers that take nothing."""
        self.mean = float((self.usage * self.size).sum() / self.size.sum())
        self.means = self._means()
        """The mean of those that can help each broker: of all, unless policies part them."""
        self._knee = knee_of(self.usage, self.size)
        self._room, self._relieved = self._rooms(doubting=emptied is None)
        """What moves may bring a broker to: the usual ones, and those from a broker above FULL."""
        downhill = relieved is not None
        self.by_sensors = BySensors(model, self._usual_most(), downhill=downhill)
        """What sensors say, whatever the model does."""
        self._takes_below = np.full(len(self.names), np.inf)
        """The usage from which on a broker takes no bundle that has load."""
        self._share_out(emptied)
        self._emptied = emptied
        by_traffic = (model.per_byte * carried).max(axis=0)
        self.bundle = float((self.size * by_traffic).sum()) / max(bundle_count, 1)
        """The usage of a bundle of average size at a broker of average size."""
        self.price = 2 * difference * max(self.mean, USED_LEAST) * self.bundle
        """What the move of such a bundle must gain."""
        self._of_clients = _part_of_clients(snapshot.pause_s)
        self.intake = model.per_byte.max(axis=0) * snapshot.under_way.sums(columns)[2]
        """Usage that is on its way to each broker."""
        self.intake_max = INTAKE_MAX
        self.far = self._far(far)
        """True for brokers that are brought near the mean."""
        if relieved is not None:
            self._take_for_dearer(relieved)

    def _take_for_dearer(self, relieved: Mapping[str, bool]) -> None:
        """What full brokers use more than the model explains is taken for the cost of their
        bundles, until they are as used as others.
        """
        by_sensors, per_byte = self.by_sensors, self._model.per_byte[CPU]
        which = by_sensors.unexplained & by_sensors.full
        for broker, leave in relieved.items():
            row = self._row_of[broker]
            which[row] = leave and by_sensors.unexplained[row]
        if not which.any():
            return
        more, of_bundles = by_sensors.take_for_dearer(which, self.usage)
        work = np.divide(of_bundles, per_byte, out=np.zeros_like(more), where=per_byte > 0)
        self._work.add(work, self._snapshot.averages.in_rows().messages_s)
        self._usages[self._counted == CPU] += more
        self.usage = self._most(self._usages)

    def _closed_by(self, snapshot: ClusterSnapshot) -> NDArray[np.bool_]:
        wishes, closed = snapshot.wishes, np.zeros(len(self.names), np.bool_)
        for name in (wishes.cordons.keys() | wishes.refusals.keys()) & self._row_of.keys():
            if name in wishes.cordons or wishes.refuses(name, None):
                closed[self._row_of[name]] = True
        return closed

    def _means(self) -> Array:
        means = np.full(len(self.names), self.mean)
        for rows in self.reach.together if len(self.reach.together) > 1 else ():
            means[rows] = (self.usage[rows] * self.size[rows]).sum() / self.size[rows].sum()
        return means

    def _usual_most(self) -> Array:
        """What moves may bring each broker to, if none of them is above FULL."""
        most: Array = np.maximum(OVERLOAD, np.minimum(self.means + OVERLOAD_ABOVE, FULL))
        return most

    def _rooms(self, *, doubting: bool) -> Array:
        """What moves may bring each broker to, and those that relieve a broker: `[2, broker]`;
        `doubting`: also if its sensor claims too little.
        """
        model = self._model
        full = np.array([self._usual_most(), np.full(len(self.names), FULL)])
        if doubting:
            full -= model.unproven
        return np.where(model.trusted, full, np.minimum(self.means, full))

    def _share_out(self, emptied: str | None) -> None:
        """A broker without a sensor to be trusted takes bundles of this one until it has its fair
        share of what the others will carry; the last one may exceed it.
        """
        if emptied is None:
            return
        others = ~self._closed
        others[self._row_of[emptied]] = False
        unseen = ~self._model.trusted & others
        if unseen.any():
            share = float((self.usage * self.size).sum() / self.size[others].sum())
            self._room[unseen], self._takes_below[unseen] = np.inf, share

    def _far(self, before: Collection[str]) -> NDArray[np.bool_]:
        off, means = np.abs(self.usage - self.means), self.means
        begins = np.maximum(FAR * means, np.maximum(FAR_POINTS, FAR_ERRORS * self._model.error))
        was = np.zeros(len(self.names), np.bool_)
        was[[self._row_of[name] for name in before if name in self._row_of]] = True
        far: NDArray[np.bool_] = (off > begins) | (was & (off > NEAR * means))
        return far

    def _carried(self) -> Array:
        """What the brokers carry, with what is on its way to them: `[resource, broker]`."""
        work, row_of = self._work, self._row_of
        carried = np.tile(work.traffic.totals(work.traffic.bytes_s), (len(self._model.base), 1))
        carried[CPU] = work.traffic.totals(work.of_cpu)
        for bundle, broker in self._snapshot.under_way.bundles.items():
            if broker in row_of:
                self._carry(carried, row_of[broker], bundle, 1)
        for bundle, source in self.leaving.items():
            self._carry(carried, row_of[source], bundle, -1)
        return carried

    def _carry(self, carried: Array, row: int, bundle: str, times: int) -> None:
        """Add a bundle to what a broker carries."""
        bytes_s = times * self._snapshot.averages.quick_of(bundle)
        carried[:, row] += bytes_s
        carried[CPU, row] += bytes_s * (self._model.costs.of_bundle(bundle) - 1)

    def _most(self, usages: Array) -> Array:
        """The most used resource, of `[resource, …]`."""
        if not len(usages):
            return np.zeros(usages.shape[1:])
        most: Array = usages[0] if len(usages) == 1 else np.maximum.reduce(usages)
        return np.maximum(most, 0.0)

    def extremes(
        self, group: Rows, count: int, spent: NDArray[np.bool_]
    ) -> tuple[list[int], list[int]]:
        """Of a group of brokers, so many of the most used ones but for those that have nothing to
        give, the most used first, and of the least used ones, the least used first; equal ones in
        order of name, or the other way round among the most used.
        """
        usage, count = self.usage[group], min(count, len(group))
        gives = np.where(spent[group], -1.0, usage)
        closed = self._closed[group]
        usage = np.where(closed, np.inf, usage)
        few = np.partition(usage, count - 1)[count - 1]
        many = np.partition(gives, len(group) - count)[len(group) - count]
        least = np.flatnonzero((usage <= few) & ~closed)
        most = np.flatnonzero((gives >= many) & (gives >= 0))
        takers = group[least[np.argsort(usage[least], kind="stable")]].tolist()
        sources = group[most[np.argsort(gives[most], kind="stable")]].tolist()
        return sources[: -count - 1 : -1], takers[:count]

    def relief(self, source: int, work: Array) -> Array:
        """The fall of the objective when a broker carries one of these less: `[bundle]`."""
        before = objective(self.usage[source : source + 1], self._knee)
        left = self._usages[:, source, None] - self._per_byte[:, source, None] * work
        relief: Array = self.size[source] * (before - objective(self._most(left), self._knee))
        return relief

    def burden(
        self, sources: Rows | list[int], takers: Rows | list[int], work: Array
    ) -> tuple[Array, NDArray[np.bool_]]:
        """The rise of the objective (below 0) when a broker also carries a bundle; and whether that
        is more than it takes in one cycle, or at all: `[bundle]`. `sources` and `takers`: where
        each bundle is, and where it would go, or one broker for all.
        """
        before, intake = self.usage[takers], self.intake[takers]
        after = self._most(self._usages[:, takers] + self._per_byte[:, takers] * work)
        fall = objective(before, self._knee) - objective(after, self._knee)
        burden: Array = self.size[takers] * fall
        refused = (intake > 0) & (intake + after - before > self.intake_max)
        relieved = self.usage[sources] > FULL
        refused |= after > np.where(relieved, self._relieved[takers], self._room[takers])
        refused |= self.by_sensors.refused(sources, takers, relieved)
        if self._emptied is not None:
            refused |= (before >= self._takes_below[takers]) & work.any(axis=0)
        return burden, refused

    def worth(self, row: int, more: Array) -> Array:
        """What a broker adds to the objective when it carries so much more: `[resource, …]`."""
        each = (slice(None), row) + (None,) * (more.ndim - 1)
        after = self._most(self._usages[each] + self._per_byte[each] * more)
        worth: Array = self.size[row] * objective(after, self._knee)
        return worth

    def move(self, source: int, destination: int, work: Array) -> None:
        """A bundle with this work moves."""
        self._usages[:, source] -= self._per_byte[:, source] * work
        more = self._per_byte[:, destination] * work
        self._usages[:, destination] += more
        for row in (source, destination):
            self.usage[row] = self._most(self._usages[:, row, None])[0]
        self.intake[destination] += more.max(initial=0)
        self.by_sensors.gave(source, float((self._per_byte[:, source] * work).max(initial=0)))

    def cheaper(self, sources: Rows | list[int], takers: Rows | list[int]) -> Array:
        """What the prices of moves between these brokers are multiplied with: `[bundle]`."""
        far = self.far[takers] | self.far[sources]
        return np.where(far, OF_FAR * self.dearness, self.dearness)

    def brings(self, taker: int, work: Array) -> Array:
        """The usage that each of these bundles adds to a broker: `[bundle]`."""
        more: Array = (self._per_byte[:, taker, None] * work).max(axis=0, initial=0.0)
        return more

    def traffic_of(self, broker: str) -> tuple[Sequence[str], Array, Array]:
        """A broker's bundles in order of name, their bytes/s, and what each resource that is used
        counts of these: `[resource, bundle]`.
        """
        names = self._snapshot.averages.names(broker, self._snapshot.reports[broker].bundles)
        bytes_s, of_cpu = self._work.of(self._row_of[broker])
        work = np.tile(bytes_s, (len(self._counted), 1))
        work[self._counted == CPU] = of_cpu
        return names, bytes_s, work

    def prices(self, broker: str, work: Array, clients: Array, topics: Array) -> Array:
        """What the moves of a broker's bundles cost: `[bundle]`."""
        row = self._row_of[broker]
        traffic = self.size[row] * self.brings(row, work) / max(self.bundle, 1e-12)
        disruption = OF_TRAFFIC * traffic + self._of_clients * _multiples(clients)
        disruption += OF_TOPICS * _multiples(topics)
        prices: Array = self.price * np.maximum(disruption, PRICE_LEAST)
        return prices

    @property
    def rows(self) -> range:
        return range(len(self.names))

    @property
    def open_rows(self) -> list[int]:
        """The rows of the brokers that take bundles."""
        rows: list[int] = np.flatnonzero(~self._closed).tolist()
        return rows

    def shares(self, bundles: Sequence[str]) -> Array:
        """The usage that each bundle adds to a broker of average size."""
        averages = self._snapshot.averages
        work = np.tile(
            [averages.quick_of(bundle) for bundle in bundles], (len(self._model.base), 1)
        )
        work[CPU] *= [self._model.costs.of_bundle(bundle) for bundle in bundles]
        by_size = (self._per_byte * self.size).mean(axis=1)
        shares: Array = (by_size[:, None] * work[self._counted]).max(axis=0, initial=0.0)
        return shares

    @property
    def farthest(self) -> float:
        """How far the usage of the broker that is farthest from the mean of all that take bundles
        and can help it is from that; one that is to be emptied does not count.
        """
        takes = ~self._closed
        if self._emptied is not None:
            takes[self._row_of[self._emptied]] = False
        farthest = 0.0
        for group in self.reach.together:
            rows = group[takes[group]]
            usage, size = self.usage[rows], self.size[rows]
            if len(rows):
                off = np.abs(usage - (usage * size).sum() / size.sum()).max()
                farthest = max(farthest, float(off))
        return farthest

    def row(self, broker: str) -> int:
        """The row of a broker. Raises `KeyError` for one that does not report."""
        return self._row_of[broker]

    def fields(self, row: int) -> tuple[float, float, float]:
        """A broker's usage by the model, by its sensors, and the error of the former."""
        return (
            float(self.usage[row]),
            float(self._model.measured[row]),
            float(self._model.error[row]),
        )


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
        prices *= self._cluster.cheaper(sources, takers)
        net, end = np.where(refused, -np.inf, gains - prices), 0
        for (source, taker), count in zip(pairs, counts, strict=True):
            begin, end = end, end + count
            at = begin + int(net[begin:end].argmax()) if count else 0
            if count == 0 or net[at] == -np.inf:
                self._best[source][taker] = None
            else:
                gain, price = float(gains[at]), float(prices[at])
                self._best[source][taker] = BestMove(source, taker, at - begin, gain, price)

    def with_others(self, move: BestMove) -> tuple[Rows, Array, Array]:
        """The bundle of a move, with the next best ones between the two brokers as long as all are
        small beside their difference; what each gains, and its price.
        """
        cluster, offer = self._cluster, self._movable[move.source]
        alone = np.array([move.at]), np.array([move.gain]), np.array([move.price])
        room = (cluster.usage[move.source] - cluster.usage[move.destination]) / SMALL
        room = min(room, cluster.intake_max - cluster.intake[move.destination])
        room = min(room, cluster.usage[move.source] - cluster.means[move.source])
        brings = cluster.brings(move.destination, offer.work)
        if 2 * brings[move.at] > room:
            return alone
        pair = [move.source], [move.destination]
        burden, refused = cluster.burden(*pair, offer.work)
        refused |= cluster.reach.bars([move.destination], offer.kinds)
        gains = offer.relief + burden
        prices = offer.prices * cluster.cheaper(*pair)
        good = np.flatnonzero((WORTH_OF_SEVERAL * gains > prices) & ~refused)
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


def _part_of_clients(pause_s: float | None) -> float:
    """The part that a bundle's clients have in the price of its move."""
    pause = 1.0 if pause_s is None else pause_s / PAUSE_S
    return OF_CLIENTS * min(max(pause, PAUSE_LEAST), PAUSE_MOST)


def _multiples(counts: Array) -> Array:
    """Counts as multiples of their mean."""
    mean = counts.sum() / max(len(counts), 1)
    return counts / mean if mean > 0 else counts


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
