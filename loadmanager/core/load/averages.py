"""The averages of many bundles in columns: one array operation for the samples of all reports."""

from __future__ import annotations

import math
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadmanager.core.load.bundle_columns import BundleColumns
from loadmanager.core.load.columns import Array, BrokerColumns, Rows
from loadmanager.core.load.quotas import Expected
from loadmanager.core.load.reports import (
    DEFAULT_RATE,
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    TimeAverageBrokerData,
    TimeAverageMessageData,
    default_bundle_data,
)

SHORT, LONG, TOPICS, QUICK = 0, 6, 12, 13
"""Where the short-term average, the long-term average and the topics of a bundle begin; `QUICK` is
`BundleAverages.quick`, which Pulsar does not have and no `BundleData` keeps.
"""
COLUMNS = 14
QUICK_WEIGHT = 0.3
"""Of the last sample in a quick average."""
ROWS_MIN = 64


@dataclass(slots=True)
class Ordered:
    """Bundles with a load each, the largest load first, then by name."""

    names: Sequence[str]
    loads: Array
    _reached: list[float] | None = None
    """What the first bundles carry together, or fewer of them if that is more."""

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return zip(self.names, self.loads.tolist(), strict=True)

    def reaching(self, goal: float) -> Sequence[str]:
        """The largest bundles whose loads together reach `goal`; all if all do not."""
        if self._reached is None:
            self._reached = np.maximum.accumulate(np.cumsum(self.loads)).tolist()
        return self.names[: bisect_left(self._reached, goal) + 1]


@dataclass(slots=True)
class _Listed:
    """Where the bundles of a list are in the table."""

    bundles: Sequence[str]
    names: list[str]
    rows: Rows
    missing: int
    at: tuple[int, int]
    """How often bundles had been added and forgotten when this was made."""
    orders: dict[str, tuple[int, Ordered]] = field(default_factory=dict)
    """What is ordered → the version of the table that it was made from, and the order."""

    def apart(self) -> _Listed:
        """The same for a table of its own."""
        return replace(self, orders=dict(self.orders))


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
        self._listed: dict[str, _Listed] = {}
        """brokerId → bundles in order of name; copies share it."""
        for bundle, averages in (data or {}).items():
            self[bundle] = averages

    @staticmethod
    def of(data: Mapping[str, BundleData]) -> BundleAverages:
        """These averages in columns."""
        return data if isinstance(data, BundleAverages) else BundleAverages(data)

    def copy(self) -> BundleAverages:
        """The same averages; changes of one do not show in the other."""
        self._flush()
        other = BundleAverages()
        other.__dict__.update(self.__dict__)
        other._waiting, other._reported = {}, dict(self._reported)
        self._names_shared = other._names_shared = True
        other._reader = _Reader()
        self._readers.add(other._reader)
        return other

    def expect(self, bundle: str) -> BundleData:
        """A bundle's averages, or what one without averages is expected to carry."""
        return self.get(bundle) or self._expected.of(bundle)

    # Events

    def observe(self, broker_id: str, stats: Mapping[str, NamespaceBundleStats]) -> bool:
        """Add a broker's samples: bundle → traffic. Whether its bundles are others than before."""
        if broker_id in self._waiting:
            self._flush()
        names, known = list(stats), self._reported.get(broker_id)
        changed = known is None or known.bundles != names
        if known is None or changed or known.at[1] != self._forgotten:
            added = [name for name in names if name not in self._row_of]
            if added:
                for name in added:
                    self[name] = self._expected.of(name)
            rows = np.fromiter(map(self._row_of.__getitem__, names), np.int64, len(names))
            known = self._reported[broker_id] = _Listed(
                names, names, rows, 0, (self._added, self._forgotten)
            )
        assert known is not None
        if names:
            self._waiting[broker_id] = (known.rows, stats)
        return changed

    def gone(self, broker_id: str) -> None:
        """Forget which bundles a broker has; their averages stay."""
        self._flush()
        self._reported.pop(broker_id, None)
        self._listed.pop(broker_id, None)

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
        self._table[:, row] = (*_columns(short), *_columns(long), data.topics, short.throughput)

    def forget(self, bundle: str) -> None:
        """Remove a bundle that no broker reports."""
        self._flush()
        self._own_names()
        row = self._row_of.pop(bundle, None)
        if row is not None:
            self._free.append(row)
            self._forgotten += 1

    def _own_names(self) -> None:
        """Before names change: take ones that no copy reads."""
        if self._names_shared:
            self._row_of, self._free = dict(self._row_of), list(self._free)
            self._listed = {}
            self._names_shared = False

    def _own_table(self) -> None:
        """Before figures change: add the samples that wait, and take a table that no copy reads."""
        self._flush()
        self._version += 1
        if len(self._readers) > 1:
            self._table, self._changed = self._table.copy(), self._changed.copy()
            self._listed = {broker: known.apart() for broker, known in self._listed.items()}
            self._readers.discard(self._reader)
            self._readers = weakref.WeakSet((self._reader,))

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = list(self._waiting.values()), {}
        self._own_table()
        rows = np.concatenate([rows for rows, _ in waiting])
        samples = _samples([stats for _, stats in waiting], len(rows))
        if len(waiting) == 1 or np.bincount(rows).max() == 1:
            self._add(rows, samples)
            return
        at = 0
        for some, _ in waiting:  # two brokers report the same bundle: one after the other
            self._add(some, samples[:, at : at + len(some)])
            at += len(some)

    def _add(self, rows: Rows, samples: Array) -> None:
        """Pulsar `TimeAverageMessageData.update`, for many bundles."""
        where = _span(rows)
        table = self._table[:, where]  # a view if the rows follow each other: eight times as fast
        sample, quick = samples[0] + samples[1], table[QUICK]
        table[QUICK] = np.where(
            table[LONG + 1] == 0, sample, quick + QUICK_WEIGHT * (sample - quick)
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

    def by_throughput(self, broker_id: str, bundles: Sequence[str]) -> Ordered:
        """Those of a broker's bundles that have averages, by short-term throughput (bytes/s)."""
        return self._ordered(broker_id, bundles, "throughput", SHORT + 2)

    def by_rate(self, broker_id: str, bundles: Sequence[str]) -> Ordered:
        """Those of a broker's bundles that have averages, by short-term rate (messages/s)."""
        return self._ordered(broker_id, bundles, "rate", SHORT + 4)

    def quick(self, broker_id: str, bundles: Sequence[str]) -> tuple[Sequence[str], Array]:
        """Those of a broker's bundles that have averages, in order of name, and a quick average of
        the bytes/s of each: of the last few samples.
        """
        listed = self._list(broker_id, bundles)
        return listed.names, self._table[QUICK, listed.rows]

    def quick_totals(self, bundles: Mapping[str, Sequence[str]]) -> Array:
        """The sums of quick averages (bytes/s) of each broker's bundles, in the order given."""
        rows = [self._list(broker, names).rows for broker, names in bundles.items()]
        ends = np.cumsum([0, *map(len, rows)])
        sums = np.cumsum([0.0, *self._table[QUICK, np.concatenate(rows)]] if rows else [0.0])
        totals: Array = np.diff(sums[ends])
        return totals

    def quick_of(self, bundle: str) -> float:
        """A bundle's quick average in bytes/s; 0 for one without averages."""
        self._flush()
        row = self._row_of.get(bundle)
        return 0.0 if row is None else float(self._table[QUICK, row])

    def sums(self, broker_id: str, bundles: Sequence[str]) -> TimeAverageBrokerData:
        """Sums of the averages of a broker's bundles (Pulsar `TimeAverageBrokerData.reset`).

        The sums are exact, so that the order of the bundles does not matter.
        """
        listed = self._list(broker_id, bundles)
        unseen = default_bundle_data()

        def total(start: int, default: TimeAverageMessageData) -> list[float]:
            return [
                math.fsum([*self._table[start + 2 + at, listed.rows].tolist(), *missing])
                for at, missing in enumerate(
                    [value] * listed.missing for value in _columns(default)[2:]
                )
            ]

        values = total(SHORT, unseen.short_term_data) + total(LONG, unseen.long_term_data)
        return TimeAverageBrokerData(
            **dict(zip(TimeAverageBrokerData.__struct_fields__, values, strict=True))
        )

    def long_rates(self, broker_id: str, bundles: Sequence[str]) -> tuple[float, float]:
        """Sums of the long-term messages/s of a broker's bundles, in and out: as in `sums`."""
        listed = self._list(broker_id, bundles)
        rates_in, rates_out = self._table[LONG + 4 : LONG + 6, listed.rows].tolist()
        missing = [DEFAULT_RATE] * listed.missing
        return math.fsum(rates_in + missing), math.fsum(rates_out + missing)

    def _ordered(self, broker_id: str, bundles: Sequence[str], what: str, column: int) -> Ordered:
        listed = self._list(broker_id, bundles)
        kept = listed.orders.get(what)
        if kept is not None and (
            kept[0] == self._version
            or (kept[0] < self._version and not (self._changed[listed.rows] > kept[0]).any())
        ):
            return kept[1]
        loads = self._table[column, listed.rows] + self._table[column + 1, listed.rows]
        order = np.argsort(-loads, kind="stable")
        ordered = Ordered([listed.names[at] for at in order.tolist()], loads[order])
        listed.orders[what] = self._version, ordered
        return ordered

    def _list(self, broker_id: str, bundles: Sequence[str]) -> _Listed:
        """Where a broker's bundles are, in order of name; kept while nothing changes."""
        self._flush()
        known = self._listed.get(broker_id)
        if (
            known is not None
            and known.at[1] == self._forgotten
            and (not known.missing or known.at[0] == self._added)
            and (known.bundles is bundles or known.bundles == bundles)
        ):
            return known
        names = sorted(name for name in bundles if name in self._row_of)
        rows = np.fromiter(map(self._row_of.__getitem__, names), np.int64, len(names))
        known = _Listed(
            bundles, names, rows, len(bundles) - len(names), (self._added, self._forgotten)
        )
        self._listed[broker_id] = known
        return known


class BrokerSums(Mapping[str, TimeAverageBrokerData]):
    """brokerId → the sums of its bundles' averages; computed when they are first asked for after
    the broker's report.
    """

    def __init__(
        self, reports: Mapping[str, LocalBrokerData], averages: Mapping[str, BundleData]
    ) -> None:
        self._reports = reports
        self._averages = BundleAverages.of(averages)
        self._sums: dict[str, TimeAverageBrokerData] = {}
        self._rates: tuple[Mapping[str, int], Array] | None = None
        """brokerId → its row, and the rates: `[in or out, row]`."""
        self._stale: set[str] = set()
        """Brokers whose rates must be computed again."""

    def copy(self, reports: Mapping[str, LocalBrokerData], averages: BundleAverages) -> BrokerSums:
        """The same sums over copies of the reports and averages."""
        other = BrokerSums(reports, averages)
        other._sums, other._stale = dict(self._sums), set(self._stale)
        if self._rates is not None:
            other._rates = self._rates[0], self._rates[1].copy()
        return other

    def changed(self, broker_id: str) -> None:
        """A broker reported, or it is gone."""
        self._sums.pop(broker_id, None)
        if broker_id in self._reports:
            self._stale.add(broker_id)
        else:
            self._stale.discard(broker_id)

    def long_rates(self, columns: BrokerColumns) -> Array:
        """Long-term messages/s of each broker: `[in or out, row]`."""
        known, rates = self._rates or ({}, np.zeros((2, 0)))
        if known is not columns.row_of:
            kept = [broker for broker in columns.names if broker in known]
            before, rates = rates, np.zeros((2, len(columns.names)))
            rates[:, [columns.row_of[name] for name in kept]] = before[
                :, [known[name] for name in kept]
            ]
            self._stale |= columns.row_of.keys() - known.keys()
            self._rates = columns.row_of, rates
        for broker in self._stale & columns.row_of.keys():
            row = columns.row_of[broker]
            rates[:, row] = self._averages.long_rates(broker, _bundles(self._reports[broker]))
        self._stale.clear()
        return rates

    def __getitem__(self, broker_id: str) -> TimeAverageBrokerData:
        sums = self._sums.get(broker_id)
        if sums is None:
            bundles = _bundles(self._reports[broker_id])
            sums = self._sums[broker_id] = self._averages.sums(broker_id, bundles)
        return sums

    def __iter__(self) -> Iterator[str]:
        return iter(self._reports)

    def __len__(self) -> int:
        return len(self._reports)


def long_rates(sums: Mapping[str, TimeAverageBrokerData], columns: BrokerColumns) -> Array:
    """Long-term messages/s of each broker: `[in or out, row]`."""
    if isinstance(sums, BrokerSums):
        return sums.long_rates(columns)
    none = TimeAverageBrokerData()
    found = [sums.get(broker) or none for broker in columns.names]
    rates = [(each.long_term_msg_rate_in, each.long_term_msg_rate_out) for each in found]
    return np.array(rates, np.float64).reshape(-1, 2).T


def _bundles(report: LocalBrokerData) -> Sequence[str]:
    return report.bundles or list(report.last_stats)


def _samples(reports: Sequence[Mapping[str, NamespaceBundleStats]], count: int) -> Array:
    """The figures of each bundle of each report: `[figure, bundle]`."""
    samples, at = np.empty((5, count)), 0
    for report in reports:
        columns = samples[:, at : at + len(report)]
        at += len(report)
        if isinstance(report, BundleColumns):
            columns[:] = report.figures[: len(samples)]
            continue
        stats = report.values()
        columns[0] = [traffic.msg_throughput_in for traffic in stats]
        columns[1] = [traffic.msg_throughput_out for traffic in stats]
        columns[2] = [traffic.msg_rate_in for traffic in stats]
        columns[3] = [traffic.msg_rate_out for traffic in stats]
        columns[4] = [traffic.topics for traffic in stats]
    return samples


def _span(rows: Rows) -> slice | Rows:
    """Rows as a slice if each is the one after the last."""
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
