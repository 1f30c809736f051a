"""BalancedShedder: make the move that lowers one objective most, while that is worth its price.

The objective is the sum over all brokers of size × (usage² + 4 × (usage above 70 %)²). It is lowest
when all brokers are equally used, and an overloaded broker counts most. A move has a price in the
same unit, which is higher for a bundle with many clients. There are no thresholds.

A broker's usage is not what its sensors say, which are noisy and late, but what its bundles carry,
smoothed, times what a byte/s costs in this cluster, plus what the broker uses beside that, which is
learned slowly. A bundle that moves takes its part along at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from loadmanager.core.bundles.ranges import split_bundle_name
from loadmanager.core.conf import conf
from loadmanager.core.load.bundle_columns import clients_of
from loadmanager.core.load.columns import Array, Rows
from loadmanager.core.load.snapshot import ClusterSnapshot
from loadmanager.core.strategies import filters
from loadmanager.core.strategies.plan import Skip, Unload
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.core.strategies.shedding.selection import movable, plainly_movable
from loadmanager.core.strategies.strategy import Shed, Shedder

KNEE = 0.7
"""Above this usage a broker counts as on its way to overload."""
KNEE_WEIGHT = 4.0
LOOKED_AT = 6
"""Moves are sought from so many of the most used brokers to so many of the least used ones."""
MOVES_MAX = 30
"""In one cycle, so that a cycle takes a bounded time."""
INTAKE_MAX = 0.08
"""A broker takes so much more usage in one cycle, or one bundle: clients that connect cost, too."""
BESIDE_KEPT = 0.85
"""What a broker uses beside its bundles: how much of the average is left after a report."""
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


@dataclass(frozen=True, slots=True)
class BalancedMemory:
    """What the shedder learned."""

    beside: Mapping[str, Beside] = field(default_factory=dict)
    """By brokerId."""
    leaving: Mapping[str, str] = field(default_factory=dict)
    """Bundle → the broker that it left, until that broker's report shows it."""


def objective(usage: Array) -> Array:
    """What a broker of size 1 with this usage (a fraction) adds to the objective."""
    worth: Array = usage * usage
    if usage.size and usage.flat[usage.argmax()] > KNEE:
        worth += KNEE_WEIGHT * np.maximum(usage - KNEE, 0) ** 2
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
        self.size, self._per_byte = costs.size, costs.per_byte
        self.leaving = {
            bundle: source
            for bundle, source in memory.leaving.items()
            if source in self._row_of and bundle in snapshot.reports[source].last_stats
        }
        self.beside = self._learned(memory, costs.usages - costs.per_byte * columns.throughputs)
        carried = snapshot.averages.quick_totals(
            {broker: snapshot.reports[broker].bundles for broker in self.names}
        )
        for bundle, broker in snapshot.under_way.bundles.items():
            if broker in self._row_of:
                carried[self._row_of[broker]] += snapshot.averages.quick_of(bundle)
        for bundle, source in self.leaving.items():
            carried[self._row_of[source]] -= snapshot.averages.quick_of(bundle)
        self.usages: Array = self.beside + self._per_byte * carried
        self.intake = self._per_byte.max(axis=0) * snapshot.under_way.sums(columns)[2]
        """Usage that is on its way to each broker."""

    def _learned(self, before: BalancedMemory, samples: Array) -> Array:
        """What brokers use beside their bundles, with the samples of new reports."""
        unknown = (np.nan,) * (1 + len(samples))
        known = np.array([before.beside.get(name, unknown) for name in self.names]).T
        updated_ms = self._snapshot.columns.updated_ms
        again = (updated_ms == known[0]) & (updated_ms > 0)
        kept = np.where(again, 1.0, BESIDE_KEPT)
        learned: Array = np.where(
            np.isnan(known[0]), samples, kept * known[1:] + (1 - kept) * samples
        )
        return learned

    def memory(self) -> BalancedMemory:
        """What is remembered for the next cycle."""
        rows = np.vstack([self._snapshot.columns.updated_ms, self.beside]).T.tolist()
        beside: list[Beside] = [tuple(row) for row in rows]
        return BalancedMemory(dict(zip(self.names, beside, strict=True)), self.leaving)

    @property
    def usage(self) -> Array:
        """The most used resource of each broker."""
        usage: Array = self.usages.max(axis=0)
        return usage

    def without(self, rows: Rows, bytes_s: Array) -> Array:
        """Usage of each of these brokers if it carried so much less."""
        usage: Array = (self.usages[:, rows] - self._per_byte[:, rows] * bytes_s).max(axis=0)
        return usage

    def having(self, rows: Rows, bytes_s: Array) -> Array:
        """Usage of each of these brokers if it carried one of these, too: `[broker, bundle]`."""
        more = self._per_byte[:, rows, None] * bytes_s
        usage: Array = (self.usages[:, rows, None] + more).max(axis=0)
        return usage

    def move(self, source: int, destination: int, bytes_s: float) -> None:
        """A bundle moves."""
        self.usages[:, source] -= self._per_byte[:, source] * bytes_s
        more = self._per_byte[:, destination] * bytes_s
        self.usages[:, destination] += more
        self.intake[destination] += more.max()


@dataclass(slots=True)
class _Movable:
    """The bundles of a broker that may leave it."""

    names: list[str]
    bytes_s: Array
    prices: Array


@dataclass(frozen=True, slots=True)
class _Move:
    source: int
    destination: int
    at: int
    """The bundle's place among the movable ones of the source."""
    gain: float
    price: float


def shed(snapshot: ClusterSnapshot, settings: StrategySettings, memory: BalancedMemory) -> Shed:
    """One cycle."""
    own, model = settings.of(BalancedSettings), _Model(snapshot, settings, memory)
    movables: dict[int, _Movable] = {}
    unloads: list[Unload] = []
    refused: set[tuple[int, str]] = set()
    best: _Move | None = None
    while len(unloads) < MOVES_MAX:
        best = _best(snapshot, model, own, movables, refused)
        if best is None or best.gain <= best.price:
            break
        bundles = movables[best.source]
        bundle, bytes_s = bundles.names[best.at], float(bundles.bytes_s[best.at])
        source, destination = model.names[best.source], model.names[best.destination]
        if not _may_go(snapshot, bundle, destination):
            refused.add((best.destination, bundle))
            if len(refused) > MOVES_MAX:
                break
            continue
        before = model.usage
        model.move(best.source, best.destination, bytes_s)
        after = model.usage
        why: dict[str, float | str] = {
            "gain": best.gain,
            "price": best.price,
            "usage": float(before[best.source]),
            "usageAfter": float(after[best.source]),
            "destinationUsage": float(before[best.destination]),
            "destinationUsageAfter": float(after[best.destination]),
        }
        unloads.append(Unload(bundle, source, destination, "Gain", why))
        model.leaving[bundle] = source
        _without(bundles, best.at)
    skipped = [] if unloads else [Skip("cluster", _why_not(best))]
    return Shed(tuple(unloads), tuple(skipped), model.memory())


def _why_not(best: _Move | None) -> str:
    if best is None:
        return "NoBundles: no bundle of a busy broker may move to a less used one"
    return f"NotWorthIt: the best move gains {best.gain:.5f}, its price is {best.price:.5f}"


def _best(
    snapshot: ClusterSnapshot,
    model: _Model,
    own: BalancedSettings,
    movables: dict[int, _Movable],
    refused: set[tuple[int, str]],
) -> _Move | None:
    """The move with the largest gain after its price, from a most used to a least used broker."""
    usage = model.usage
    order = np.argsort(usage, kind="stable")
    sources, takers = order[::-1][:LOOKED_AT].tolist(), order[:LOOKED_AT]
    for source in sources:
        if source not in movables:
            movables[source] = _movable(snapshot, model.names[source], own.price)
    offers = [movables[source] for source in sources]
    counts = [len(bundles.names) for bundles in offers]
    if not sum(counts):
        return None
    of = np.repeat(sources, counts)
    bytes_s = np.concatenate([bundles.bytes_s for bundles in offers])
    prices = np.concatenate([bundles.prices for bundles in offers])
    left, after = model.without(of, bytes_s), model.having(takers, bytes_s)
    gains = model.size[of] * (objective(usage[of]) - objective(left))
    least = usage[takers, None]
    gains = gains + model.size[takers, None] * (objective(least) - objective(after))
    intake = model.intake[takers, None]
    full = (intake > 0) & (intake + after - least > INTAKE_MAX)
    net = np.where(full | (takers[:, None] == of), -np.inf, gains - prices)
    if refused:
        names = [name for bundles in offers for name in bundles.names]
        for destination, bundle in refused:
            if bundle in names:
                net[takers == destination, names.index(bundle)] = -np.inf
    at_to, at = np.unravel_index(int(net.argmax()), net.shape)
    if net[at_to, at] == -np.inf:
        return None
    source, gain, price = int(of[at]), float(gains[at_to, at]), float(prices[at])
    first = sum(counts[: sources.index(source)])
    return _Move(source, int(takers[at_to]), int(at) - first, gain, price)


def _movable(snapshot: ClusterSnapshot, broker: str, price: float) -> _Movable:
    may_shed, under_way = movable(snapshot, broker), snapshot.under_way.bundles
    all_names, bytes_s = snapshot.averages.quick(broker, snapshot.reports[broker].bundles)
    rows = np.flatnonzero(bytes_s > 0).tolist()
    if not (plainly_movable(snapshot, all_names) and under_way.keys().isdisjoint(all_names)):
        rows = [row for row in rows if may_shed(all_names[row]) and all_names[row] not in under_way]
    names = [all_names[row] for row in rows]
    clients = clients_of(snapshot.reports[broker].last_stats, names)
    mean = clients.mean() if len(clients) else 0.0
    factors = 1 + CLIENTS_WEIGHT * clients / mean if mean > 0 else np.ones(len(names))
    return _Movable(names, bytes_s[rows], price * factors)


def _without(bundles: _Movable, at: int) -> None:
    del bundles.names[at]
    bundles.bytes_s = np.delete(bundles.bytes_s, at)
    bundles.prices = np.delete(bundles.prices, at)


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
)
