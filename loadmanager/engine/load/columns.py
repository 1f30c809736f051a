"""The brokers' reports in columns: one array operation for all brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.reports import LIMIT_MIN, LocalBrokerData
from loadmanager.engine.load.usage import Weights

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Scalar = TypeVar("Scalar", np.float64, np.int64)
_figures = attrgetter(
    "cpu.usage",
    "cpu.limit",
    "direct_memory.usage",
    "direct_memory.limit",
    "bandwidth_in.usage",
    "bandwidth_in.limit",
    "bandwidth_out.usage",
    "bandwidth_out.limit",
    "rate",
    "throughput",
    "num_topics",
    "last_update",
    "msg_rate_in",
    "msg_rate_out",
    "msg_throughput_in",
    "msg_throughput_out",
)
USAGES, RATE, THROUGHPUT, TOPICS, UPDATED, RATE_IN, RATE_OUT, WAYS = 8, 8, 9, 10, 11, 12, 13, 14
BUNDLES = WAYS + 2
FIGURES = BUNDLES + 1


class BrokerColumns:
    """The modular manager's reports: a row for each broker, in order of name, and a column for each
    figure. Arrays of several columns are indexed `[column, row]`.
    """

    def __init__(self, reports: Mapping[str, LocalBrokerData]) -> None:
        self.reports = reports
        self.names = sorted(reports)
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.everyone = BrokerRows(self.names, np.arange(len(self.names)), self.row_of)
        """All brokers."""
        self._figures = _read([reports[name] for name in self.names])
        self._usage: dict[Weights, Array] = {}
        self._overloaded: dict[tuple[Weights, float], Rows] = {}
        self.derived: dict[Weights, Any] = {}
        """What others made of these figures; forgotten when they change."""
        self._topics_max: float | None = None
        self._throughput: float | None = None
        self._idle: NDArray[np.bool_] | None = None
        self._all_idle: bool | None = None
        self._versions: tuple[NDArray[np.int64], list[str]] | None = None
        self._empty = {name for name in self.names if not reports[name].bundles}
        self._traits = {name: _traits(reports[name]) for name in self.names}
        self.traits = Counter(self._traits.values())
        """How many brokers have each load manager class, and whether they serve persistent topics:
        `(class, persistent)`.
        """

    def copy(self, reports: Mapping[str, LocalBrokerData]) -> BrokerColumns:
        """The same columns, of a copy of the reports."""
        other = object.__new__(BrokerColumns)
        other.__dict__.update(self.__dict__)
        other.reports = reports
        other._figures, other._usage = self._figures.copy(), dict(self._usage)
        other._overloaded, other.derived = dict(self._overloaded), dict(self.derived)
        other._empty = set(self._empty)
        other._traits, other.traits = dict(self._traits), self.traits.copy()
        return other

    def changed(self, brokers: Sequence[str]) -> None:
        """These brokers have new reports."""
        rows = [self.row_of[broker] for broker in brokers]
        self._figures[:, rows] = _read([self.reports[broker] for broker in brokers])
        self._usage.clear()
        self._overloaded.clear()
        self.derived.clear()
        self._idle = self._all_idle = self._topics_max = self._throughput = None
        self._versions = None
        for broker in brokers:
            if self.reports[broker].bundles:
                self._empty.discard(broker)
            else:
                self._empty.add(broker)
            before, after = self._traits[broker], _traits(self.reports[broker])
            if before != after:
                self.traits -= Counter([before])  # drops those that no broker has
                self.traits[after] += 1
                self._traits[broker] = after

    def all_of(self, brokers: Sequence[str]) -> BrokerRows:
        """These brokers with their rows."""
        if isinstance(brokers, BrokerRows):
            return brokers
        rows = np.fromiter(map(self.row_of.__getitem__, brokers), np.int64, len(brokers))
        return BrokerRows(self.names, rows, self.row_of)

    @property
    def versions(self) -> tuple[NDArray[np.int64], list[str]]:
        """The index of each broker's version, `[row]`, and the versions that it points into. A
        broker that reports no version has "".
        """
        if self._versions is None:
            texts = [self.reports[name].broker_version_string or "" for name in self.names]
            index = {text: at for at, text in enumerate(dict.fromkeys(texts))}
            self._versions = np.array([index[text] for text in texts], np.int64), list(index)
        return self._versions

    @property
    def persistent(self) -> NDArray[np.bool_]:
        """True for brokers that serve persistent topics."""
        return np.array([persistent for _, persistent in self._traits.values()], np.bool_)

    @property
    def rates(self) -> Array:
        """Messages/s in and out."""
        return self._column(RATE)

    @property
    def throughputs(self) -> Array:
        """Bytes/s in and out."""
        return self._column(THROUGHPUT)

    @property
    def ways(self) -> Array:
        """Bytes/s in, and bytes/s out: `[in and out, row]`."""
        ways: Array = self._figures[WAYS : WAYS + 2]
        return ways

    def throughput_of(self, brokers: BrokerRows) -> float:
        """Bytes/s of these brokers together; of all of them it is added up once."""
        if self._throughput is None:
            self._throughput = plain_sum(self.throughputs)
        if self._throughput == 0 or len(brokers) == len(self.names):
            return self._throughput
        return plain_sum(brokers.of(self.throughputs))

    @property
    def topics(self) -> Array:
        return self._column(TOPICS)

    @property
    def bundles(self) -> Array:
        """The number of bundles of each."""
        return self._column(BUNDLES)

    @property
    def topics_max(self) -> float:
        if self._topics_max is None:
            self._topics_max = float(self.topics.max(initial=0))
        return self._topics_max

    @property
    def updated_ms(self) -> Array:
        """The times of the reports in ms since the epoch; 0: not known."""
        return self._column(UPDATED)

    def _column(self, figure: int) -> Array:
        column: Array = self._figures[figure]
        return column

    @property
    def idle(self) -> NDArray[np.bool_]:
        """True for brokers that have no bundle, or no messages."""
        if self._idle is None:
            self._idle = (self._figures[RATE_IN] == 0) & (self._figures[RATE_OUT] == 0)
            self._idle[[self.row_of[broker] for broker in self._empty]] = True
        return self._idle

    @property
    def all_idle(self) -> bool:
        """True if no broker has both a bundle and messages: a cluster that starts."""
        if self._all_idle is None:
            self._all_idle = bool(self.idle.all())
        return self._all_idle

    def usage(self, weights: Weights) -> Array:
        """The most used resource after weighting, as a fraction (`usage.max_weighted_usage`)."""
        usage = self._usage.get(weights)
        if usage is None:
            usage = self._usage[weights] = self.usages(weights).max(axis=0, initial=-np.inf)
        return usage

    def overloaded(self, weights: Weights, percent: float) -> Rows:
        """The rows of the brokers whose `usage` is above so many percent."""
        rows = self._overloaded.get((weights, percent))
        if rows is None:
            rows = np.flatnonzero(self.usage(weights) > percent / 100)
            self._overloaded[weights, percent] = rows
        return rows

    def usages(self, weights: Weights) -> Array:
        """CPU, direct memory, bandwidth in and out after weighting, as fractions:
        `[resource, row]`. A resource without a limit counts as unused.
        """
        used, limit = self._figures[0:USAGES:2], self._figures[1:USAGES:2]
        with np.errstate(all="ignore"):
            percents = used.astype(np.float32) / limit.astype(np.float32) * np.float32(100)
        percents = np.where(limit > LIMIT_MIN, percents, 0.0).astype(np.float64)
        weight = (weights.cpu, weights.direct_memory, weights.bandwidth_in)
        fractions: Array = percents * np.array([*weight, weights.bandwidth_out])[:, None] / 100
        return fractions

    @property
    def limits(self) -> Array:
        """The limits of what `usages` has, in its unit; 0 for a resource without one:
        `[resource, row]`.
        """
        limits = self._figures[1:USAGES:2]
        return np.where(limits > LIMIT_MIN, limits, 0.0)


class BrokerRows(Sequence[str]):
    """Some brokers in order of name: their names, and their rows in columns."""

    __slots__ = ("_names", "_row_of", "_within", "rows")

    def __init__(
        self, names: Sequence[str], rows: Rows, row_of: Mapping[str, int] | None = None
    ) -> None:
        self._names = names
        self._row_of = row_of
        self._within: NDArray[np.bool_] | None = None
        self.rows = rows

    @staticmethod
    def listed(names: Sequence[str]) -> BrokerRows:
        """All of these names."""
        return BrokerRows(names, np.arange(len(names)))

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> BrokerRows: ...
    def __getitem__(self, at: int | slice) -> str | BrokerRows:
        if isinstance(at, slice):
            return self._of_rows(self.rows[at])
        name: str = self._names[self.rows[at]]
        return name

    def __iter__(self) -> Iterator[str]:
        return map(self._names.__getitem__, self.rows.tolist())

    def __contains__(self, broker: object) -> bool:
        if self._row_of is None:
            self._row_of = {name: row for row, name in enumerate(self._names)}
        row = self._row_of.get(cast(str, broker))
        if row is None:
            return False
        if self._within is None:
            self._within = np.zeros(len(self._names), np.bool_)
            self._within[self.rows] = True
        return bool(self._within[row])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def of(self, column: NDArray[Scalar]) -> NDArray[Scalar]:
        """The values of these brokers in a column over all brokers."""
        return column if len(self.rows) == len(column) else column[self.rows]

    def without(self, row: int | None) -> BrokerRows:
        """These brokers but for one."""
        return self if row is None else self.where(self.rows != row)

    def where(self, which: NDArray[np.bool_]) -> BrokerRows:
        """The brokers for which `which`, one value for each, is true."""
        chosen = which.nonzero()[0]
        return self._of_rows(chosen if len(self.rows) == len(self._names) else self.rows[chosen])

    def _of_rows(self, rows: Rows) -> BrokerRows:
        return BrokerRows(self._names, rows, self._row_of)


def some(values: Array | NDArray[np.bool_]) -> bool:
    """True if any of these values, none of which is negative, is not 0: faster than `any`."""
    return bool(len(values) and values[values.argmax()])


def plain_sum(values: Array) -> float:
    """The sum in order, rounded after each addition, as Java and Python 3.11 compute it."""
    return float(np.add.accumulate(values)[-1]) if len(values) else 0.0


def _traits(report: LocalBrokerData) -> tuple[str | None, bool]:
    return report.load_manager_class_name, report.persistent_topics_enabled


def _read(reports: Sequence[LocalBrokerData]) -> Array:
    rows = [(*_figures(report), len(report.bundles)) for report in reports]
    return np.array(rows, np.float64).reshape(-1, FIGURES).T.copy()
