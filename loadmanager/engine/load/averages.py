"""The averages of many bundles in columns: one array operation for the samples of all reports."""

from __future__ import annotations

import math
import struct
import weakref
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Literal

import numpy as np

from loadmanager.engine.load.bundle_columns import BundleColumns
from loadmanager.engine.load.bundle_traffic import BundleRows, Traffic, cost_class_of
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.quotas import Expected
from loadmanager.engine.load.reports import (
    DEFAULT_RATE,
    BundleData,
    NamespaceBundleStats,
    TimeAverageBrokerData,
    TimeAverageMessageData,
    default_bundle_data,
)
from loadmanager.kit.names import no_monitoring_bundle

SHORT, LONG, TOPICS, QUICK, REPORTER, LAST, COST_CLASS = 0, 6, 12, 13, 14, 15, 16
"""Where the short-term average, the long-term average and the topics of a bundle begin; `QUICK` is
`BundleAverages.quick`, which Pulsar does not have and no `BundleData` keeps; `REPORTER` is the
number of the broker that sampled the bundle last, `LAST` that sample in bytes/s; `COST_CLASS` is
`cost_class_of` its namespace.
"""
COLUMNS = 17
NOBODY = 0.0
QUICK_WEIGHT, QUICK_RISE = 0.3, 5.0
"""The weight of the last sample in a quick average, in which it counts as at most so many times the
average or the sample before, if there was any: a counter may be wrong once.
"""
ROWS_MIN = 64
_SAMPLE = struct.Struct("5d")


@dataclass(slots=True)
class Ordered:
    """Bundles with a load each, the largest load first, then by name."""

    listed: Sequence[str]
    """The bundles in order of name."""
    order: Rows
    """Where each bundle is in `listed`."""
    loads: Array
    plain: bool
    """Whether surely none is a monitoring bundle."""
    _carried: list[float] | None = None
    """The load of the first n bundles together, or of fewer of them if that is more."""
    _names: list[str] = field(default_factory=list)
    """The first bundles, as many as were asked for: of thousands, few are moved."""

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self.first(len(self.order)), self.loads.tolist(), strict=True)

    def __getitem__(self, at: int) -> str:
        name: str = self.listed[self.order[at]]
        return name

    def first(self, count: int) -> list[str]:
        """The `count` largest bundles; all if there are fewer."""
        more = self.order[len(self._names) : count].tolist()
        self._names += [self.listed[at] for at in more]
        return self._names[:count]

    def reaching(self, goal: float) -> list[str]:
        """The largest bundles whose loads together reach `goal`; all if all do not."""
        if self._carried is None:
            self._carried = np.maximum.accumulate(np.cumsum(self.loads)).tolist()
        return self.first(bisect_left(self._carried, goal) + 1)


@dataclass(slots=True)
class _Listed:
    """The rows of a list of bundles in the table."""

    bundles: Sequence[str]
    names: list[str]
    rows: Rows
    missing: int
    at: tuple[int, int]
    """How often bundles had been added and forgotten when this was made."""
    plain: bool | None = None
    """Whether surely none is a monitoring bundle; None: nobody asked."""
    orders: dict[str, tuple[int, Ordered]] = field(default_factory=dict)
    """What is ordered → the version of the table that it was made from, and the order."""

    def apart(self) -> _Listed:
        """The same for a table of its own."""
        return replace(self, orders=dict(self.orders))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the bundles of many brokers are in the table, one broker after the other."""

    bundles: list[Sequence[str]]
    """Those of each broker."""
    at: tuple[int, int]
    """How often bundles had been added and forgotten when this was made."""
    where: Rows
    counts: Rows
    cost_classes: Rows
    span: slice | Rows
    """The same places as `where`, as a slice if they lie one after the other."""

    def are_of(self, bundles: list[Sequence[str]], at: tuple[int, int]) -> bool:
        """Whether they are those of these very lists: to put them together takes longer."""
        same = at == self.at and len(bundles) == len(self.bundles)
        return same and all(map(is_, bundles, self.bundles))


class _Reader:
    """Lives as long as the `BundleAverages` that has it."""


class BundleAverages(Mapping[str, BundleData]):
    """Bundle → its averages; a `BundleData` is made when it is asked for.

    `observe` keeps the samples of a report until somebody reads, so that many reports cost one
    array operation. A copy is cheap: the first one that changes takes its own table.
    """

    def __init__(
        self, data: Mapping[str, BundleData] | None = None, *, expected: Expected | None = None
    ) -> None:
        self._expected = expected or Expected()
        self._row_of: dict[str, int] = {}
        self._table: Array = np.zeros((COLUMNS, ROWS_MIN))
        """`[column, row]`: a row for each bundle."""
        self._changed: Rows = np.zeros(ROWS_MIN, np.int64)
        """Row → the version of the table that changed it last."""
        self._free: list[int] = []
        self._names_shared = False
        self._reader = _Reader()
        self._readers = weakref.WeakSet((self._reader,))
        """The readers of this table: it changes in place only while it has one reader."""
        self._added = self._forgotten = self._version = 0
        self._waiting: dict[str, tuple[Rows, Mapping[str, NamespaceBundleStats]]] = {}
        """brokerId → samples that are not in the table yet."""
        self._reported: dict[str, _Listed] = {}
        """brokerId → the bundles with a sample in its last report, in the report's order."""
        self._settled: dict[str, TimeAverageBrokerData] = {}
        """brokerId → its sums at its last report, if another broker has sampled a bundle of it
        since.
        """
        self._numbers: dict[str, float] = {}
        """brokerId → its number in the table."""
        self._listed: dict[str, _Listed] = {}
        """brokerId → bundles in order of name; copies share it."""
        self._places: dict[int, _Places] = {}
        """Column → where the bundles were of which it was read last; copies share it."""
        for bundle, averages in (data or {}).items():
            self[bundle] = averages

    @staticmethod
    def of(data: Mapping[str, BundleData]) -> BundleAverages:
        return data if isinstance(data, BundleAverages) else BundleAverages(data)

    def copy(self) -> BundleAverages:
        """The same averages; changes of one do not show in the other."""
        self._flush()
        other = BundleAverages()
        other.__dict__.update(self.__dict__)
        other._waiting, other._reported = {}, dict(self._reported)
        other._settled, other._expected = dict(self._settled), self._expected.copy()
        self._names_shared = other._names_shared = True
        other._reader = _Reader()
        self._readers.add(other._reader)
        return other

    def expect(self, bundle: str) -> BundleData:
        """A bundle's averages, or what one without averages is expected to carry."""
        return self[bundle] if bundle in self._row_of else self._expected.of(bundle)

    # Events

    def observe(self, broker_id: str, stats: Mapping[str, NamespaceBundleStats]) -> bool:
        """Add a broker's samples: bundle → traffic. Whether its bundles are others than before."""
        if broker_id in self._waiting:
            self._flush()
        names, listed = list(stats), self._reported.get(broker_id)
        changed = listed is None or listed.bundles != names
        if listed is None or changed or listed.at[1] != self._forgotten:
            added = [name for name in names if name not in self._row_of]
            if added:
                for name in added:
                    self[name] = self._expected.of(name)
            rows = np.fromiter(map(self._row_of.__getitem__, names), np.int64, len(names))
            listed = self._reported[broker_id] = _Listed(
                names, names, rows, 0, (self._added, self._forgotten)
            )
        assert listed is not None
        if names:
            self._waiting[broker_id] = (listed.rows, stats)
        else:
            self._settled.pop(broker_id, None)
        return changed

    def repeat(self, times: Mapping[str, int]) -> None:
        """Brokers carry what they reported last: count it so many times again in their bundles'
        quick averages, which else would stay for minutes as they were before a step.
        """
        times = {broker: count for broker, count in times.items() if broker in self._reported}
        if not times:
            return
        self._own_table()
        rows = [self._rows(broker, self._reported[broker].bundles)[0] for broker in times]
        sizes = list(map(len, rows))
        where = np.concatenate(rows)
        numbers = np.repeat([self._numbers.get(broker, -1.0) for broker in times], sizes)
        counts = np.repeat(np.fromiter(times.values(), np.int64), sizes)
        own = self._table[REPORTER, where] == numbers  # others have reported some since
        where, counts = where[own], counts[own]
        last, quick = self._table[LAST, where], self._table[QUICK, where]
        for done in range(int(counts.max(initial=0))):  # the same, however often it is called
            quick = np.where(done < counts, quick + QUICK_WEIGHT * (last - quick), quick)
        self._table[QUICK, where] = quick

    def gone(self, broker_id: str) -> None:
        """Forget which bundles a broker has; their averages stay."""
        self._flush()
        for by_broker in (self._reported, self._listed, self._settled):
            by_broker.pop(broker_id, None)

    def __setitem__(self, bundle: str, data: BundleData) -> None:
        self._own_table()
        row = self._row_of.get(bundle)
        if row is None:
            self._own_names()
            row = self._free.pop() if self._free else len(self._row_of)
            if row == len(self._changed):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
                self._changed = np.concatenate([self._changed, np.zeros_like(self._changed)])
            self._row_of[bundle] = row
            self._added += 1
        self._changed[row] = self._version
        short, long = data.short_term_data, data.long_term_data
        averages = *_columns(short), *_columns(long), data.topics
        quick = short.throughput
        self._table[:, row] = (*averages, quick, NOBODY, quick, cost_class_of(bundle))

    def forget(self, bundle: str) -> None:
        """Remove a bundle that no broker reports."""
        self._flush()
        if bundle in self._row_of:
            self._own_table()
            self._own_names()
            row = self._row_of.pop(bundle)
            self._table[:, row] = 0.0  # `in_rows` has all rows
            self._free.append(row)
            self._forgotten += 1

    def _own_names(self) -> None:
        """Before names change: take ones that no copy reads."""
        if self._names_shared:
            self._row_of, self._free = dict(self._row_of), list(self._free)
            self._listed, self._places = {}, {}
            self._names_shared = False

    def _own_table(self) -> None:
        """Before figures change: add the samples that wait, and take a table that no copy reads."""
        self._flush()
        self._version += 1
        if len(self._readers) > 1:
            self._table, self._changed = self._table.copy(), self._changed.copy()
            self._listed = {broker: listed.apart() for broker, listed in self._listed.items()}
            self._readers.discard(self._reader)
            self._readers = weakref.WeakSet((self._reader,))

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        self._own_table()
        brokers = list(waiting)
        rows = np.concatenate([rows for rows, _ in waiting.values()])
        samples = _samples([stats for _, stats in waiting.values()], len(rows))
        if len(brokers) == 1 or np.bincount(rows).max() == 1:
            self._take(brokers, [len(rows) for rows, _ in waiting.values()], rows, samples)
            return
        at = 0
        for broker, (some, _) in waiting.items():  # two brokers report one bundle: in turn
            self._take([broker], [len(some)], some, samples[:, at : at + len(some)])
            at += len(some)

    def _take(self, brokers: list[str], counts: list[int], rows: Rows, samples: Array) -> None:
        """Add the samples of some brokers, so many of each."""
        for broker in brokers:
            self._numbers.setdefault(broker, len(self._numbers) + 1.0)
        numbers = np.repeat([self._numbers[broker] for broker in brokers], counts)
        before = self._table[REPORTER, rows]
        others = before[(before != numbers) & (before != NOBODY)]
        if len(others):
            names = list(self._numbers)
            for number in np.unique(others).tolist():
                other = names[int(number) - 1]
                if other in self._reported and other not in brokers:
                    self.settle(other, self._reported[other].bundles)
        self._add(rows, samples)
        self._table[REPORTER, rows] = numbers
        for broker in brokers:
            self._settled.pop(broker, None)

    def settle(self, broker_id: str, bundles: Collection[str]) -> None:
        """A broker's sums are these from now on, until it reports again."""
        if broker_id not in self._settled:
            self._settled[broker_id] = self._sums(*self._rows(broker_id, bundles))

    def _add(self, rows: Rows, samples: Array) -> None:
        """Pulsar `TimeAverageMessageData.update`, for many bundles."""
        where = _span(rows)
        table = self._table[:, where]  # a view if the rows follow each other: eight times as fast
        sample, quick = samples[0] + samples[1], table[QUICK]
        most = QUICK_RISE * np.maximum(table[LAST], quick)
        counted = np.where(most > 0, np.minimum(sample, most), sample)
        table[LAST] = sample
        table[QUICK] = np.where(
            table[LONG + 1] == 0, sample, quick + QUICK_WEIGHT * (counted - quick)
        )
        for start in (SHORT, LONG):
            n = np.trunc(np.minimum(table[start + 1] + 1, table[start]))
            n[n == 0] = 1
            table[start + 1] = n
            figures = table[start + 2 : start + 6]
            figures *= n - 1
            figures += samples[:4]
            figures /= n
        table[TOPICS] = samples[4]
        if where is rows:
            self._table[:, rows] = table
        self._changed[where] = self._version

    # Queries

    def __getitem__(self, bundle: str) -> BundleData:
        row = self._row_of[bundle]
        self._flush()
        values = self._table[:, row].tolist()
        return BundleData(
            short_term_data=_average(values[SHORT:LONG]),
            long_term_data=_average(values[LONG:TOPICS]),
            topics=_whole(values[TOPICS]),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._row_of)

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, bundle: object) -> bool:
        return bundle in self._row_of

    def ordered(
        self, by: Literal["throughput", "rate"], broker_id: str, bundles: Sequence[str]
    ) -> Ordered:
        """A broker's bundles that have averages, by short-term bytes/s, or by messages/s."""
        return self._ordered(broker_id, bundles, by, SHORT + (2 if by == "throughput" else 4))

    def names(self, broker_id: str, bundles: Sequence[str]) -> Sequence[str]:
        """A broker's bundles that have averages, in order of name: the order of what follows."""
        return self._list(broker_id, bundles).names

    def traffic(
        self, of: Literal["last", "quick"], bundles: Mapping[str, Sequence[str]]
    ) -> Traffic:
        """The bytes/s of each broker's bundles, brokers in the order given: their last samples, or
        the averages over the last few.
        """
        column = LAST if of == "last" else QUICK
        places = self._places_of(column, bundles)
        bytes_s = self._table[column, places.span].copy()
        return Traffic(bytes_s, places.cost_classes, places.counts, places.where)

    def usual_of_all(self, bundles: Mapping[str, Sequence[str]]) -> Array:
        """The usual bytes/s of each broker's bundles together, brokers in the order given: those of
        a burst are not among the long-term ones, and those of before not among the short-term ones.
        """
        places = self._places_of(QUICK, bundles)
        sums = []
        for start in (SHORT, LONG):
            amounts = self._table[start + 2, places.span] + self._table[start + 3, places.span]
            sums.append(Traffic(amounts, places.cost_classes, places.counts).totals(amounts))
        return np.minimum(*sums)

    def _places_of(self, column: int, bundles: Mapping[str, Sequence[str]]) -> _Places:
        self._flush()
        lists, at = list(bundles.values()), (self._added, self._forgotten)
        places = next((each for each in self._places.values() if each.are_of(lists, at)), None)
        if places is None:
            rows = self._rows_of_all(bundles)
            where = np.concatenate(rows) if rows else np.zeros(0, np.int64)
            classes = self._table[COST_CLASS, where].astype(np.int64)
            counts = np.fromiter(map(len, rows), np.int64, len(rows))
            places = _Places(lists, at, where, counts, classes, _span(where))
        self._places[column] = places
        return places

    def _rows_of_all(self, bundles: Mapping[str, Sequence[str]]) -> list[Rows]:
        return [
            listed.rows
            if (listed := self._listed.get(broker)) is not None
            and listed.bundles is names
            and not listed.missing
            and listed.at[1] == self._forgotten
            else self._list(broker, names).rows
            for broker, names in bundles.items()
        ]

    def in_rows(self) -> BundleRows:
        """The bundles in the order that `Traffic.rows` goes by."""
        self._flush()
        of_bundle = self._table[SHORT + 2 : SHORT + 6]
        bytes_s, messages_s = of_bundle[0] + of_bundle[1], of_bundle[2] + of_bundle[3]
        return BundleRows(self._row_of, bytes_s, messages_s)

    def quick_of(self, bundle: str, *, lasting: bool = False) -> float:
        """A bundle's quick average in bytes/s; 0 for one without averages. `lasting`: without what
        is a burst by its short-term or long-term average.
        """
        self._flush()
        row = self._row_of.get(bundle)
        if row is None:
            return 0.0
        table = self._table
        quick = float(table[QUICK, row])
        if not lasting:
            return quick
        return min(quick, *(float(table[it + 2, row] + table[it + 3, row]) for it in (SHORT, LONG)))

    def sums(self, broker_id: str, bundles: Collection[str]) -> TimeAverageBrokerData:
        """Sums of the averages of a broker's bundles (Pulsar `TimeAverageBrokerData.reset`), as
        they were when it reported these bundles.

        The sums are exact, so that the order of the bundles does not matter.
        """
        self._flush()
        settled = self._settled.get(broker_id)
        return settled or self._sums(*self._rows(broker_id, bundles))

    def long_rates(self, broker_id: str, bundles: Collection[str]) -> tuple[float, float]:
        """Sums of the long-term messages/s of a broker's bundles, in and out: as in `sums`."""
        self._flush()
        settled = self._settled.get(broker_id)
        if settled is not None:
            return settled.long_term_msg_rate_in, settled.long_term_msg_rate_out
        rows, missing = self._rows(broker_id, bundles)
        rates_in, rates_out = self._table[LONG + 4 : LONG + 6, rows].tolist()
        unseen = [DEFAULT_RATE] * missing
        return math.fsum(rates_in + unseen), math.fsum(rates_out + unseen)

    def _sums(self, rows: Rows, missing: int) -> TimeAverageBrokerData:
        unseen = default_bundle_data()

        def total(start: int, default: TimeAverageMessageData) -> list[float]:
            return [
                math.fsum([*self._table[start + 2 + at, rows].tolist(), *[value] * missing])
                for at, value in enumerate(_columns(default)[2:])
            ]

        values = total(SHORT, unseen.short_term_data) + total(LONG, unseen.long_term_data)
        return TimeAverageBrokerData(
            **dict(zip(TimeAverageBrokerData.__struct_fields__, values, strict=True))
        )

    def _rows(self, broker_id: str, bundles: Collection[str]) -> tuple[Rows, int]:
        """The rows of the bundles in a broker's last report, and the number of those
        without a row.
        """
        listed = self._reported.get(broker_id)
        if listed is not None and listed.at[1] == self._forgotten:
            return listed.rows, 0
        rows = [self._row_of[name] for name in bundles if name in self._row_of]
        return np.array(rows, np.int64), len(bundles) - len(rows)

    def _ordered(self, broker_id: str, bundles: Sequence[str], what: str, column: int) -> Ordered:
        listed = self._list(broker_id, bundles)
        version, ordered = listed.orders.get(what, (self._version, None))
        if ordered is None or (
            version != self._version
            and (version > self._version or (self._changed[listed.rows] > version).any())
        ):
            loads = self._table[column, listed.rows] + self._table[column + 1, listed.rows]
            order = np.argsort(-loads, kind="stable")
            if listed.plain is None:
                listed.plain = no_monitoring_bundle(listed.names)
            ordered = Ordered(listed.names, order, loads[order], listed.plain)
        listed.orders[what] = self._version, ordered
        return ordered

    def _list(self, broker_id: str, bundles: Sequence[str]) -> _Listed:
        """The rows of a broker's bundles, in order of name; kept while nothing changes."""
        self._flush()
        listed = self._listed.get(broker_id)
        if (
            listed is not None
            and listed.at[1] == self._forgotten
            and (not listed.missing or listed.at[0] == self._added)
            and (listed.bundles is bundles or listed.bundles == bundles)
        ):
            return listed
        names = sorted(name for name in bundles if name in self._row_of)
        rows = np.fromiter(map(self._row_of.__getitem__, names), np.int64, len(names))
        listed = _Listed(
            bundles, names, rows, len(bundles) - len(names), (self._added, self._forgotten)
        )
        self._listed[broker_id] = listed
        return listed


def _samples(reports: Sequence[Mapping[str, NamespaceBundleStats]], count: int) -> Array:
    """The figures of each bundle of each report: `[figure, bundle]`."""
    samples, at = np.empty((count, _SAMPLE.size // 8)), 0
    for report in reports:
        rows = samples[at : at + len(report)]
        at += len(report)
        if isinstance(report, BundleColumns):
            rows[:] = report.figures[: rows.shape[1]].T
            continue
        packed = [  # half the time that a list for each figure takes
            _SAMPLE.pack(
                traffic.msg_throughput_in,
                traffic.msg_throughput_out,
                traffic.msg_rate_in,
                traffic.msg_rate_out,
                traffic.topics,
            )
            for traffic in report.values()
        ]
        rows[:] = np.frombuffer(b"".join(packed)).reshape(rows.shape)
    return samples.T


def _span(rows: Rows) -> slice | Rows:
    """Rows as a slice if each is the one after the last."""
    if not len(rows):
        return rows
    first, last = int(rows[0]), int(rows[-1])
    if last - first == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        return slice(first, last + 1)
    return rows


def _columns(data: TimeAverageMessageData) -> tuple[float, ...]:
    return (
        data.max_samples,
        data.num_samples,
        data.msg_throughput_in,
        data.msg_throughput_out,
        data.msg_rate_in,
        data.msg_rate_out,
    )


def _average(values: Sequence[float]) -> TimeAverageMessageData:
    return TimeAverageMessageData(
        max_samples=_whole(values[0]),
        num_samples=_whole(values[1]),
        msg_throughput_in=values[2],
        msg_throughput_out=values[3],
        msg_rate_in=values[4],
        msg_rate_out=values[5],
    )


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value
