"""What brokers use by the model while moves are planned, and what a move gains and costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.bundle_traffic import Traffic
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_model import CPU, UsageModel
from loadmanager.engine.strategies.shedding.by_sensors import SHOWN_FULL, BySensors
from loadmanager.engine.strategies.shedding.lost_traffic import NOTHING_CAME, Came
from loadmanager.engine.strategies.shedding.objective import (
    FULL,
    OVERLOAD,
    OVERLOAD_ABOVE,
    knee_of,
    objective,
)
from loadmanager.engine.strategies.shedding.reach import Reach
from loadmanager.engine.strategies.shedding.strained import Asked
from loadmanager.kit.units import MINUTE_MS

INTAKE_MAX = 0.08
"""A broker takes so much more usage in one cycle, or one bundle: clients that connect cost, too."""
FAR, FAR_POINTS, FAR_ERRORS = 0.2, 0.05, 3.0
"""A broker is far off if its usage differs from the mean by this part of the mean, by so many
points, and by so many times the model's error."""
NEAR = 0.05
"""It is brought as near as this part of the mean."""
OF_FAR = 0.15
"""The price of a move from or to a broker that is far off, as a part of the usual one."""
RISES = 1.5
"""A broker whose traffic is so many times what is known of its bundles gives nothing in a cycle,
unless it is full.
"""
CATCH_UP, CATCH_UP_MS = 3.0, 5 * MINUTE_MS
"""A bundle that came so lately counts as at most so many times what it carried before."""
ASKED, EXPLAINED, HELPS_BELOW = 1.05, 0.85, 0.9
"""A broker that stays full counts as asked for the first figure at least, if the model has it above
the second one, and the mean of all below the third, so that others can help.
"""
USED_LEAST = 0.25
"""A mean usage below this counts as this: in a cluster that does nothing, nothing needs moving."""
APART, OF_NEAR = 0.5, 10.0
"""In a cycle, moves between brokers that differ by less than this part of the difference cost so
many times the usual price, unless one is far off: a bundle that uses the CPU more than the network
cards would always fit another broker better, and make none more even.
"""
ERRORS_TOLD, TOLD_MOST = 1.5, 0.04
"""A difference between brokers that is less than so many usual errors of the model is worth no
move, up to this one.
"""
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


class _BundleWork:
    """What the bundles of all brokers carry, one broker after the other."""

    def __init__(self, snapshot: ClusterSnapshot, model: UsageModel, left: Left) -> None:
        bundles = {name: snapshot.reports[name].bundles for name in snapshot.columns.names}
        self.traffic = _settling(snapshot, snapshot.averages.traffic("quick", bundles), left)
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


def _settling(snapshot: ClusterSnapshot, traffic: Traffic, left: Left) -> Traffic:
    """The traffic without what clients catch up with where their bundles came a moment ago: it
    would send other bundles away, whose clients catch up, too. At strained brokers with what is
    asked for and not served.
    """
    since_ms = snapshot.now_ms - CATCH_UP_MS
    most = {
        bundle: CATCH_UP * it.bytes_s
        for bundle, it in left.came.items()
        if it.at_ms >= since_ms and it.bytes_s > 0
    }
    least = {bundle: bytes_s for of in left.asked.values() for bundle, bytes_s in of.items()}
    if not (most or least) or traffic.rows is None:
        return traffic
    rows = snapshot.averages.in_rows()
    highest, lowest = (
        rows.figures(of, other)[traffic.rows] for of, other in ((most, np.inf), (least, 0.0))
    )
    return replace(traffic, bytes_s=np.maximum(np.minimum(traffic.bytes_s, highest), lowest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What earlier cycles and plans have left behind."""

    leaving: Mapping[str, str] = field(default_factory=dict)
    """Bundle → the broker that it left, whose report may still have it."""
    far: Collection[str] = ()
    """Brokers that are brought near the mean since earlier cycles."""
    came: Mapping[str, Came] = field(default_factory=lambda: NOTHING_CAME)
    """The bundles that were moved."""
    asked: Asked = field(default_factory=dict)
    """What strained brokers are asked for."""


class FullBrokers(NamedTuple):
    """What sensors showed of full brokers lately."""

    lasting: Collection[str]
    """Those that show for some minutes that they are full."""
    leaves: Mapping[str, bool]
    """Those that were full lately → whether their bundles may be taken for dearer than the model
    has them.
    """


class ModelledBrokers:
    """The brokers' usage as the model has it, while moves are planned. Arrays are `[resource,
    broker]`, brokers in the order of `snapshot.columns`.

    `difference`: the difference between two brokers, as a part of the mean usage, that is worth
    moving a bundle of average size. `full`: what a cycle knows of full brokers; None: a plan
    towards a goal, for which sensors forbid only what would go to full brokers.
    """

    dearness = 1.0
    """How many times its price a move has to gain."""
    intake_max: float = INTAKE_MAX
    _apart = -np.inf
    """Moves between brokers that differ by less are dearer."""
    _rises: NDArray[np.bool_] | None = None
    """Brokers whose bundles have more traffic than is known of them."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        model: UsageModel,
        difference: float,
        left: Left,
        *,
        emptied: str | None = None,
        full: FullBrokers | None = None,
    ) -> None:
        columns, self.reach = snapshot.columns, Reach(snapshot)
        self._snapshot, self._model = snapshot, model
        self.names, self._row_of = columns.names, columns.row_of
        self.leaving = dict(self._left(left.leaving))
        self._work = _BundleWork(snapshot, model, left)
        carried = self._reported()
        self.reported_usage = self._most(model.usages(carried))
        """The usage of each broker without what is on its way: with what its report has."""
        usages = model.usages(self._with_moves(carried))
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
        if full is not None:
            self._ask_more(full.lasting)
        self.means = self._means()
        """The mean of those that can help each broker: of all, unless policies part them."""
        self._knee = knee_of(self.usage, self.size)
        self._room, self._relieved = self._rooms(doubting=emptied is None)
        """What moves may bring a broker to: the usual ones, and those from a broker above FULL."""
        self.by_sensors = BySensors(model, self._usual_most(), downhill=full is not None)
        """What sensors say, whatever the model does."""
        self._takes_below = np.full(len(self.names), np.inf)
        """The usage from which on a broker takes no bundle that has load."""
        self._share_out(emptied)
        self._emptied = emptied
        self.bundle = self._average_bundle(carried)
        """The usage of a bundle of average size at a broker of average size."""
        self.price = 2 * self._worth(difference) * self.bundle
        """What the move of such a bundle must gain."""
        self._of_clients = _part_of_clients(snapshot.pause_s)
        self.intake = model.per_byte.max(axis=0) * snapshot.under_way.sums(columns)[2]
        """Usage that is on its way to each broker."""
        self._count_unserved(left.asked)
        self.far = self._far(left.far)
        """True for brokers that are brought near the mean."""
        if full is not None:
            self._apart, self._rises = self._waits(difference)
            self._take_for_dearer(full.leaves)

    def _waits(self, difference: float) -> tuple[float, NDArray[np.bool_]]:
        """In a cycle, what may look otherwise a minute later can wait."""
        quick = self._work.traffic.totals(self._work.traffic.bytes_s)
        rises = self._snapshot.columns.throughputs > RISES * quick
        rises &= self._model.measured < SHOWN_FULL
        return APART * difference * max(self.mean, USED_LEAST), rises

    def _average_bundle(self, carried: Array) -> float:
        count = int((self._work.traffic.bytes_s > 0).sum())
        by_traffic = (self._model.per_byte * carried).max(axis=0)
        return float((self.size * by_traffic).sum()) / max(count, 1)

    def _left(self, leaving: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The others did not leave: a guard refused the move, or it failed."""
        snapshot = self._snapshot
        for bundle, source in leaving.items():
            if source in self._row_of and bundle in snapshot.reports[source].last_stats:
                goes = bundle in snapshot.recently_unloaded_ms or bundle in snapshot.leaving
                if goes or snapshot.under_way.broker_of(bundle) not in (None, source):
                    yield bundle, source

    def _take_for_dearer(self, relieved: Mapping[str, bool]) -> None:
        """What full brokers use more than the model explains is taken for the cost of their
        bundles, until they are as used as others.
        """
        by_sensors, per_byte = self.by_sensors, self._model.per_byte[CPU]
        which = np.zeros(len(self.names), np.bool_)
        which[[self._row_of[broker] for broker, leave in relieved.items() if leave]] = True
        which &= by_sensors.unexplained
        if not which.any():
            return
        more, of_bundles = by_sensors.take_for_dearer(which, self.usage)
        work = np.divide(of_bundles, per_byte, out=np.zeros_like(more), where=per_byte > 0)
        self._work.add(work, self._snapshot.averages.in_rows().messages_s)
        self._usages[self._counted == CPU] += more
        self.usage = self._most(self._usages)

    def _ask_more(self, full: Collection[str]) -> None:
        """Full brokers are asked for more than they serve; their traffic does not show how much."""
        if self.mean >= HELPS_BELOW:
            return
        rows = [self._row_of[broker] for broker in full]
        rows = [row for row in rows if EXPLAINED < self.usage[row] < ASKED]
        self._usages[:, rows] += (self._counted == CPU)[:, None] * (ASKED - self.usage[rows])
        self.usage[rows] = ASKED

    def _count_unserved(self, asked: Asked) -> None:
        """What strained brokers do not serve counts as a resource of its own: they use so much more
        of it than the mean, as a part of what they serve.
        """
        rows = [self._row_of[broker] for broker in asked]
        if not rows:
            return
        served = self._snapshot.columns.throughputs[rows]
        wanted = self._work.traffic.totals(self._work.traffic.bytes_s)[rows]
        usages, per_byte = np.zeros(len(self.names)), np.zeros(len(self.names))
        usages[rows], per_byte[rows] = self.means[rows] + wanted / served - 1, 1 / served
        self._counted = np.append(self._counted, len(self._model.base))
        self._usages = np.vstack([self._usages, usages])
        self._per_byte = np.vstack([self._per_byte, per_byte])
        self.usage = self._most(self._usages)
        self.by_sensors.doubt(rows)

    def _closed_by(self, snapshot: ClusterSnapshot) -> NDArray[np.bool_]:
        wishes, closed = snapshot.wishes, np.zeros(len(self.names), np.bool_)
        for name in (wishes.cordons.keys() | wishes.refusals.keys()) & self._row_of.keys():
            if name in wishes.cordons or wishes.refuses(name, None):
                closed[self._row_of[name]] = True
        return closed

    def _worth(self, difference: float) -> float:
        """The difference between two brokers from which on moves are worth their price; one that
        the model's error may have made is not.
        """
        error = float(np.median(self._model.error))
        most = max(TOLD_MOST, ERRORS_TOLD * self._model.noise)
        told_apart = min(ERRORS_TOLD * error, most)
        return max(difference * max(self.mean, USED_LEAST), told_apart)

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

    def _reported(self) -> Array:
        """What the brokers carry by their reports: `[resource, broker]`."""
        work = self._work
        carried = np.tile(work.traffic.totals(work.traffic.bytes_s), (len(self._model.base), 1))
        carried[CPU] = work.traffic.totals(work.of_cpu)
        return carried

    def _with_moves(self, carried: Array) -> Array:
        """The same, changed in place, with what is on its way to brokers, without what has left."""
        row_of = self._row_of
        for bundle, broker in self._snapshot.under_way.bundles.items():
            if broker in row_of:
                self._carry(carried, row_of[broker], bundle, 1)
        for bundle, source in self.leaving.items():
            self._carry(carried, row_of[source], bundle, -1)
        return carried

    def _carry(self, carried: Array, row: int, bundle: str, times: int) -> None:
        """Add a bundle to what a broker carries."""
        bytes_s = times * self._snapshot.averages.quick_of(bundle)
        self._model.carry(carried, row, bundle, bytes_s)

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
        refused |= self.by_sensors.refused(sources, takers)
        if self._rises is not None:
            refused |= self._rises[sources]
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

    def price_times(self, sources: Rows | list[int], takers: Rows | list[int]) -> Array:
        """What the prices of moves between these brokers are multiplied with: `[bundle]`."""
        times = np.where(self.usage[sources] - self.usage[takers] < self._apart, OF_NEAR, 1.0)
        times[self.far[takers] | self.far[sources]] = OF_FAR
        return times * self.dearness

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
    def rooms(self) -> Array:
        """The usage that moves may still bring to each broker: the usual ones, and those from a
        broker above FULL: `[2, broker]`.
        """
        rooms: Array = np.array([self._room, self._relieved]) - self.usage
        return rooms

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
        by_size = (self._model.per_byte * self.size).mean(axis=1)
        shares: Array = (by_size[:, None] * work).max(axis=0, initial=0.0)
        return shares

    @property
    def farthest(self) -> float:
        """How far the usage of the broker that is farthest from the mean of all that can help it is
        from that. Cordoned ones and one that is to be emptied do not count; one that takes nothing
        by itself does.
        """
        return self.reach.farthest(self.usage, self.size, self.compared)

    @property
    def spread(self) -> float:
        """The standard deviation of the usage of these brokers."""
        usage = self.usage[self.compared]
        return float(usage.std()) if len(usage) else 0.0

    @property
    def compared(self) -> NDArray[np.bool_]:
        """Without cordoned brokers and one that is to be emptied."""
        takes = np.ones(len(self.names), np.bool_)
        takes[[self._row_of[it] for it in self._snapshot.wishes.cordons if it in self._row_of]] = (
            False
        )
        if self._emptied is not None:
            takes[self._row_of[self._emptied]] = False
        return takes

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


def _part_of_clients(pause_s: float | None) -> float:
    """The part that a bundle's clients have in the price of its move."""
    pause = 1.0 if pause_s is None else pause_s / PAUSE_S
    return OF_CLIENTS * min(max(pause, PAUSE_LEAST), PAUSE_MOST)


def _multiples(counts: Array) -> Array:
    """Counts as multiples of their mean."""
    mean = counts.sum() / max(len(counts), 1)
    return counts / mean if mean > 0 else counts
