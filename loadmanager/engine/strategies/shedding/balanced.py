"""BalancedShedder: make the move that lowers one objective most, while that is worth its price.

The objective is the sum over all brokers of size × (usage² + 4 × (usage above 70 %)²). It is lowest
when all brokers are equally used, and an overloaded broker counts most; in a full cluster the 70 %
are more. A move has a price in the same unit, which is higher for a bundle with many clients. There
are no thresholds.

A broker's usage is not what its sensors say, which are noisy and late, but what its bundles carry,
smoothed, times what a byte/s of such a bundle costs in this cluster, plus what the broker uses
beside that. Both are learned slowly. A bundle that moves takes its part along at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.bundles.ranges import split_bundle_name
from loadmanager.engine.load.bundle_columns import clients_of
from loadmanager.engine.load.bundle_traffic import Traffic, cost_class_of
from loadmanager.engine.load.columns import Array, Costs, Rows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.policies import anti_affinity
from loadmanager.engine.strategies import filters
from loadmanager.engine.strategies.plan import Skip, Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import class_costs
from loadmanager.engine.strategies.shedding.selection import movable, plainly_movable
from loadmanager.engine.strategies.strategy import Shed, Shedder, Tries
from loadmanager.kit.conf import conf

KNEE = 0.7
"""Above this usage a broker counts as on its way to overload."""
MEAN_OF_KNEE = 0.65
"""If the mean of all is above this, the knee rises twice as fast: where all brokers are near
overload, none can help another, and the same few points of difference are not worth five times as
much as before.
"""
KNEE_WEIGHT = 4.0
LOOKED_AT = 6
"""Moves are sought from so many of the most used brokers to so many of the least used ones."""
MOVES_MAX = 30
"""In one cycle, so that a cycle takes a bounded time."""
INTAKE_MAX = 0.08
"""A broker takes so much more usage in one cycle, or one bundle: clients that connect cost, too."""
BESIDE_KEPT = 0.85
"""What a broker uses beside its bundles: how much of the average is left after a report."""
CPU = 0
"""The resource whose use depends on what the traffic is; the others count bytes."""
FULL = 0.98
"""A broker whose CPU is used more than this does not say what its traffic costs."""
CLIENTS_WEIGHT = 0.2
"""How much the price of a bundle grows with its part of the clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedSettings:
    """BalancedShedder."""

    price: float = conf(
        "loadManagerBalancedMovePrice",
        0.004,
        "BalancedShedder: what a move must gain. Lower: more even, more moves. Higher: calmer",
        minimum=1e-6,
        dynamic=True,
    )


Beside = tuple[float, float, float, float, float]
"""When a broker reported (ms), then what it uses beside its bundles, by resource."""


class _Learned(Mapping[str, Beside]):
    """brokerId → `Beside`, in columns: `[figure, row]`. Never changed."""

    __slots__ = ("columns", "row_of")

    def __init__(self, row_of: Mapping[str, int], columns: Array) -> None:
        self.row_of = row_of
        self.columns = columns

    def __getitem__(self, broker: str) -> Beside:
        beside: Beside = tuple(self.columns[:, self.row_of[broker]].tolist())
        return beside

    def __iter__(self) -> Iterator[str]:
        return iter(self.row_of)

    def __len__(self) -> int:
        return len(self.row_of)


@dataclass(frozen=True, slots=True)
class BalancedMemory:
    """The traffic and costs that the shedder learned."""

    beside: Mapping[str, Beside] = field(default_factory=dict)
    """By brokerId."""
    leaving: Mapping[str, str] = field(default_factory=dict)
    """Bundle → the broker that it left, until that broker's report shows it."""
    costs: Mapping[int, float] = field(default_factory=dict)
    """Class of namespaces → what the CPU of its byte/s costs, as a multiple of the mean; 1 where it
    has none.
    """


def knee_of(usage: Array, size: Array) -> float:
    """The usage above which a broker counts more, in a cluster of these brokers."""
    mean = float((usage * size).sum() / size.sum())
    return KNEE + 2 * max(mean - MEAN_OF_KNEE, 0)


def objective(usage: Array, knee: float = KNEE) -> Array:
    """The part of the objective that a broker of size 1 with this usage (a fraction) adds."""
    worth: Array = usage * usage
    if usage.size and usage.flat[usage.argmax()] > knee:
        worth += KNEE_WEIGHT * np.maximum(usage - knee, 0) ** 2
    return worth


class _Model:
    """The brokers' usage as the model has it, while moves are planned. Arrays are `[resource,
    broker]`, brokers in the order of `snapshot.columns`.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, settings: StrategySettings, memory: BalancedMemory
    ) -> None:
        columns = snapshot.columns
        self._snapshot = snapshot
        self.names, self._row_of = columns.names, columns.row_of
        costs = columns.costs(settings.weights)
        self.leaving = {
            bundle: source
            for bundle, source in memory.leaving.items()
            if source in self._row_of
            and bundle in snapshot.reports[source].last_stats
            and (
                bundle in snapshot.recently_unloaded_ms
                or bundle in snapshot.leaving
                or snapshot.under_way.broker_of(bundle) not in (None, source)
            )
        }  # the others did not leave: a guard refused the move, or it failed
        self._counted = np.arange(len(costs.usages))
        known = self._known(memory.beside, 1 + len(costs.usages))
        new = (columns.updated_ms != known[0]) | (columns.updated_ms == 0)
        self._class_costs = class_costs.in_columns(memory.costs)
        samples = self._samples(costs, np.flatnonzero(new), known[0])
        kept = np.where(new, BESIDE_KEPT, 1.0)
        beside = np.where(np.isnan(known[0]), samples, kept * known[1:] + (1 - kept) * samples)
        quick = snapshot.averages.quick_of_all(self._bundles(self.names))
        carried = np.tile(quick.totals(quick.bytes_s), (len(costs.usages), 1))
        carried[CPU] = quick.totals(quick.bytes_s * self._class_costs[quick.cost_classes])
        for bundle, broker in snapshot.under_way.bundles.items():
            if broker in self._row_of:
                self._carry(carried[:, self._row_of[broker]], bundle, 1)
        for bundle, source in self.leaving.items():
            self._carry(carried[:, self._row_of[source]], bundle, -1)
        usages = beside + costs.per_byte * carried
        used = np.flatnonzero(usages.any(axis=1) | costs.per_byte.any(axis=1))
        self._counted, self._unused = used, len(used) < len(usages)
        self._usages, self._per_byte = usages[used], costs.per_byte[used]
        self.size = costs.size
        self.usage = self._most(self._usages)
        """The most used resource of each broker."""
        self._knee = knee_of(self.usage, self.size)
        self.intake = costs.per_byte.max(axis=0) * snapshot.under_way.sums(columns)[2]
        """Usage that is on its way to each broker."""
        self.memory = BalancedMemory(
            _Learned(self._row_of, np.vstack([columns.updated_ms, beside])),
            self.leaving,
            class_costs.told_apart(self._class_costs),
        )
        """What is remembered for the next cycle."""

    def _known(self, beside: Mapping[str, Beside], figures: int) -> Array:
        """What is remembered of each broker: `[figure, broker]`; NaN: nothing."""
        if isinstance(beside, _Learned) and beside.row_of is self._row_of:
            return beside.columns
        unknown = (np.nan,) * figures
        return np.array([beside.get(name, unknown) for name in self.names]).T

    def _bundles(self, brokers: Iterable[str]) -> dict[str, Sequence[str]]:
        return {broker: self._snapshot.reports[broker].bundles for broker in brokers}

    def _samples(self, costs: Costs, rows: Rows, before: Array) -> Array:
        """The usage that the brokers in these rows have beside their bundles, by their new reports;
        `[resource, broker]`. What classes of namespaces cost is learned first, but not from a
        broker's first report (NaN in `before`), nor from one without a time.
        """
        used, bytes_s = costs.usages[CPU, rows], self._snapshot.columns.throughputs
        tells = (used > 0) & (used < FULL) & ~np.isnan(before[rows])
        tells &= self._snapshot.columns.updated_ms[rows] > 0
        work = np.tile(bytes_s, (len(costs.usages), 1))
        if tells.any() or (self._class_costs != 1).any():
            names = [self.names[row] for row in rows.tolist()]
            last = self._snapshot.averages.last_of_all(self._bundles(names))
            expected = np.where(tells, costs.per_byte[CPU, rows] * bytes_s[rows], 0.0)
            self._class_costs = class_costs.learn(self._class_costs, last, used, expected)
            work[CPU, rows] *= class_costs.dearness(self._class_costs, last)
        samples: Array = costs.usages - costs.per_byte * work
        return samples

    def work(self, traffic: Traffic) -> Array:
        """The traffic of each bundle as each resource counts it, in bytes/s that cost as much as
        the mean: `[resource, bundle]`.
        """
        work = np.tile(traffic.bytes_s, (len(self._counted), 1))
        work[self._counted == CPU] *= self._class_costs[traffic.cost_classes]
        return work

    def _carry(self, carried: Array, bundle: str, times: int) -> None:
        """Add a bundle to what a broker carries: `[resource]`."""
        bytes_s = times * self._snapshot.averages.quick_of(bundle)
        carried += bytes_s
        carried[CPU] += bytes_s * (self._class_costs[cost_class_of(bundle)] - 1)

    def _most(self, usages: Array) -> Array:
        """The most used resource, of `[used resource, …]`; the others are at 0."""
        if not len(usages):
            return np.zeros(usages.shape[1:])
        most: Array = usages[0] if len(usages) == 1 else np.maximum.reduce(usages)
        return np.maximum(most, 0.0) if self._unused else most

    def extremes(self) -> tuple[list[int], list[int]]:
        """The most used brokers, the most used first, and the least used ones, the least used
        first; equal ones in order of name, or the other way round among the most used.
        """
        usage, count = self.usage, len(self.usage)
        ends = [min(LOOKED_AT, count) - 1, max(count - LOOKED_AT, 0)]
        few, many = np.partition(usage, ends)[ends]
        near = np.flatnonzero((usage <= few) | (usage >= many))
        order = near[np.argsort(usage[near], kind="stable")].tolist()
        return order[: -LOOKED_AT - 1 : -1], order[:LOOKED_AT]

    def relief(self, source: int, work: Array) -> Array:
        """The fall of the objective when a broker carries one of these less: `[bundle]`."""
        before = objective(self.usage[source : source + 1], self._knee)
        left = self._usages[:, source, None] - self._per_byte[:, source, None] * work
        relief: Array = self.size[source] * (before - objective(self._most(left), self._knee))
        return relief

    def burden(self, takers: Sequence[int], work: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The rise of the objective (below 0) when a broker also carries one of these; and whether
        that is more than it takes in one cycle: `[broker, bundle]`.
        """
        before, intake = self.usage[takers, None], self.intake[takers, None]
        more = self._per_byte[:, takers, None] * work[:, None]
        after = self._most(self._usages[:, takers, None] + more)
        fall = objective(before, self._knee) - objective(after, self._knee)
        burden: Array = self.size[takers, None] * fall
        return burden, (intake > 0) & (intake + after - before > INTAKE_MAX)

    def move(self, source: int, destination: int, work: Array) -> None:
        """A bundle with this work moves."""
        self._usages[:, source] -= self._per_byte[:, source] * work
        more = self._per_byte[:, destination] * work
        self._usages[:, destination] += more
        for row in (source, destination):
            self.usage[row] = self._most(self._usages[:, row, None])[0]
        self.intake[destination] += more.max(initial=0)


@dataclass(slots=True)
class _Movable:
    """The bundles of a broker that may leave it."""

    names: list[str]
    work: Array
    """`_Model.work`."""
    prices: Array
    relief: Array
    """What the objective falls by when the broker does not carry the bundle."""

    def without(self, at: int) -> None:
        """One bundle less."""
        del self.names[at]
        self.work, self.prices = np.delete(self.work, at, axis=1), np.delete(self.prices, at)


@dataclass(frozen=True, slots=True)
class _Move:
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


class _Search:
    """Seeks the move that gains most after its price, from a most used to a least used broker.

    A move changes two brokers; what is known of moves between others stays known.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, settings: StrategySettings, model: _Model
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._model = model
        self._movable: dict[int, _Movable] = {}
        self._known: dict[int, dict[int, _Move | None]] = {}
        """Source → destination → the best move."""
        self._counts: dict[str, dict[str, int]] = {}
        """Anti-affinity group → `filters.group_counts`."""
        self.refused: set[tuple[int, str]] = set()
        """Destinations with bundles that may not go there."""

    def best(self) -> _Move | None:
        """The best move; of equal ones that to the least used, and from the most used broker."""
        sources, takers = self._model.extremes()
        fresh = [source for source in sources if source not in self._known]
        others = [source for source in sources if source in self._known]
        self._look(fresh, takers)
        self._look(others, [t for t in takers if any(t not in self._known[s] for s in others)])
        moves = [self._known[source][taker] for taker in takers for source in sources]
        return max((move for move in moves if move), key=lambda move: move.net, default=None)

    def _look(self, sources: list[int], takers: list[int]) -> None:
        """Find the best move from each of these brokers to each of those."""
        if not sources or not takers:
            return
        offers = [self._offer(source) for source in sources]
        work, prices, relief = (
            np.concatenate([getattr(offer, what) for offer in offers], axis=-1)
            for what in ("work", "prices", "relief")
        )
        burden, refused = self._model.burden(takers, work)
        gains = relief + burden
        net = np.where(refused, -np.inf, gains - prices)
        end = 0
        for source, offer in zip(sources, offers, strict=True):
            begin, end = end, end + len(offer.names)
            for row, taker in enumerate(takers):
                self._known.setdefault(source, {})[taker] = None
                for name in (name for where, name in self.refused if where == taker):
                    if name in offer.names:
                        net[row, begin + offer.names.index(name)] = -np.inf
                if taker != source and begin < end:
                    at = begin + int(net[row, begin:end].argmax())
                    if net[row, at] > -np.inf:
                        self._known[source][taker] = _Move(
                            source, taker, at - begin, float(gains[row, at]), float(prices[at])
                        )

    def _offer(self, source: int) -> _Movable:
        if source not in self._known:
            if source not in self._movable:
                broker = self._model.names[source]
                self._movable[source] = _movable(
                    self._snapshot, self._settings, self._model, broker, self._counts
                )
            offer = self._movable[source]
            offer.relief = self._model.relief(source, offer.work)
        return self._movable[source]

    def bundle(self, move: _Move) -> str:
        """The bundle of a move."""
        return self._movable[move.source].names[move.at]

    def refuse(self, move: _Move) -> None:
        """The bundle may not go there."""
        self.refused.add((move.destination, self.bundle(move)))
        del self._known[move.source][move.destination]

    def make(self, move: _Move) -> None:
        """The move is made."""
        offer = self._movable[move.source]
        self._model.move(move.source, move.destination, offer.work[:, move.at])
        offer.without(move.at)
        for changed in (move.source, move.destination):
            self._known.pop(changed, None)
            for known in self._known.values():
                known.pop(changed, None)


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: BalancedMemory) -> Shed:
    """One cycle."""
    model = _Model(snapshot, settings, memory)
    search = _Search(snapshot, settings, model)
    unloads: list[Unload] = []
    best: _Move | None = None
    while len(unloads) < MOVES_MAX:
        best = search.best()
        if best is None or best.gain <= best.price:
            break
        bundle = search.bundle(best)
        source, destination = model.names[best.source], model.names[best.destination]
        if not _may_go(snapshot, bundle, destination):
            search.refuse(best)
            if len(search.refused) > MOVES_MAX:
                break
            continue
        why: dict[str, float | str] = {
            "gain": best.gain,
            "price": best.price,
            "usage": float(model.usage[best.source]),
            "usageAfter": 0.0,
            "destinationUsage": float(model.usage[best.destination]),
        }
        search.make(best)
        why["usageAfter"] = float(model.usage[best.source])
        why["destinationUsageAfter"] = float(model.usage[best.destination])
        unloads.append(Unload(bundle, source, destination, "Gain", why))
        model.leaving[bundle] = source
    skipped = [] if unloads else [_why_not(best)]
    return Shed(tuple(unloads), tuple(skipped), model.memory)


def _why_not(best: _Move | None) -> Skip:
    if best is None:
        text = "no bundle of a busy broker may move to a less used one"
        return Skip("cluster", "NoBundles", text)
    text = f"the best move gains {best.gain:.5f}, its price is {best.price:.5f}"
    return Skip("cluster", "NotWorthIt", text)


def _movable(
    snapshot: ClusterSnapshot,
    settings: StrategySettings,
    model: _Model,
    broker: str,
    counts: dict[str, dict[str, int]],
) -> _Movable:
    may_shed, under_way = movable(snapshot, broker), snapshot.under_way.bundles
    names, traffic = snapshot.averages.quick(broker, snapshot.reports[broker].bundles)
    rows = np.flatnonzero(traffic.bytes_s > 0).tolist()
    if not (plainly_movable(snapshot, names) and under_way.keys().isdisjoint(names)):
        rows = [row for row in rows if may_shed(names[row]) and names[row] not in under_way]
    stays = _stays(snapshot, settings, broker, counts)
    rows = [row for row in rows if not stays(names[row])] if stays else rows
    names = [names[row] for row in rows]
    clients = clients_of(snapshot.reports[broker].last_stats, names)
    mean = clients.mean() if len(clients) else 0.0
    factors = 1 + CLIENTS_WEIGHT * clients / mean if mean > 0 else np.ones(len(names))
    price = settings.of(BalancedSettings).price
    return _Movable(names, model.work(traffic)[:, rows], price * factors, np.zeros(0))


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


def _may_go(snapshot: ClusterSnapshot, bundle: str, destination: str) -> bool:
    if not snapshot.isolation_policies:
        return True
    return destination in filters.may_serve(snapshot, split_bundle_name(bundle)[0])[0]


SHEDDER = Shedder(
    name="BalancedShedder",
    shed=shed,
    memory=BalancedMemory,
    stored=BalancedMemory,
    settings=BalancedSettings,
    extensible=False,
    goes_with="BalancedPlacement",
    names_destinations=True,
    tries=(Tries("loadManagerBalancedMovePrice", (0.002, 0.004, 0.008), 0.001, 0.03),),
    fewer_moves="A higher loadManagerBalancedMovePrice saves such moves.",
    more_even="A lower loadManagerBalancedMovePrice makes it more even, with more moves. Try it",
)
