"""Placements that no report shows yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from loadmanager.engine.load.class_costs import BundleCosts
from loadmanager.engine.load.columns import Array, BrokerColumns
from loadmanager.engine.load.reports import BundleData

Sums = tuple[float, float, float, int]
"""Topics, long-term messages/s, short-term bytes/s, and bundles."""
NOTHING: Sums = (0, 0.0, 0.0, 0)


class Pending(Mapping[str, Mapping[str, BundleData]]):
    """brokerId → the bundles on their way there → their averages.

    Keeps what they add up to for each broker, so that a placement costs the same however many are
    under way.
    """

    def __init__(self, pending: Mapping[str, Mapping[str, BundleData]] | None = None) -> None:
        self._bundles: dict[str, dict[str, BundleData]] = {}
        self._broker_of: dict[str, str] = {}
        self._sums: dict[str, Sums] = {}
        self.topics_total: float = 0
        """The topics of all brokers together."""
        self._columns: tuple[Mapping[str, int], Array] | None = None
        """brokerId → its row, and the sums: `[sum, row]`; kept up to date."""
        self._work: tuple[Mapping[str, int], BundleCosts, Array] | None = None
        """brokerId → its row, what bundles cost, and what they come to there: `[row]`; the same."""
        for broker, bundles in (pending or {}).items():
            self._bundles[broker] = {}
            for bundle, data in bundles.items():
                self._insert(bundle, broker, data)

    @staticmethod
    def of(pending: Mapping[str, Mapping[str, BundleData]]) -> Pending:
        """These placements with their sums."""
        return pending if isinstance(pending, Pending) else Pending(pending)

    def copy(self) -> Pending:
        """The same placements; changes of one do not show in the other."""
        other = Pending()
        other._bundles = {broker: dict(bundles) for broker, bundles in self._bundles.items()}
        other._broker_of, other._sums = dict(self._broker_of), dict(self._sums)
        other.topics_total = self.topics_total
        return other

    def add(self, bundle: str, broker: str, data: BundleData) -> None:
        """A bundle is on its way to a broker, and no longer to another."""
        if bundle in self._broker_of:
            self.remove([bundle])
        self._insert(bundle, broker, data)

    def remove(self, bundles: Iterable[str]) -> None:
        """Bundles are on their way no longer."""
        for broker, gone in self._by_broker(bundles).items():
            left = self._bundles[broker]
            for bundle in gone:
                del left[bundle], self._broker_of[bundle]
            self._set(broker, _total(left))
            self._count_work(broker, left, anew=True)
            if not left:
                del self._bundles[broker], self._sums[broker]

    def update(self, expect: Callable[[str], BundleData], bundles: Iterable[str]) -> None:
        """The averages of these bundles are others by now, as `expect` says."""
        for broker, changed in self._by_broker(bundles).items():
            for bundle in changed:
                self._bundles[broker][bundle] = expect(bundle)
            self._set(broker, _total(self._bundles[broker]))
            self._count_work(broker, self._bundles[broker], anew=True)

    def _by_broker(self, bundles: Iterable[str]) -> dict[str, list[str]]:
        by_broker: dict[str, list[str]] = {}
        for bundle in bundles:
            broker = self._broker_of.get(bundle)
            if broker is not None:
                by_broker.setdefault(broker, []).append(bundle)
        return by_broker

    def _insert(self, bundle: str, broker: str, data: BundleData) -> None:
        self._broker_of[bundle] = broker
        self._bundles.setdefault(broker, {})[bundle] = data
        self._set(broker, _plus(self._sums.get(broker, NOTHING), data))
        self._count_work(broker, {bundle: data}, anew=False)

    def _set(self, broker: str, sums: Sums) -> None:
        self.topics_total += sums[0] - self._sums.get(broker, NOTHING)[0]
        self._sums[broker] = sums
        if self._columns is not None:
            rows, columns = self._columns
            row = rows.get(broker)
            if row is not None:
                columns[:, row] = sums

    def _count_work(self, broker: str, bundles: Mapping[str, BundleData], *, anew: bool) -> None:
        """Add what these bundles come to; `anew`: they are all that are on their way there."""
        if self._work is not None:
            rows, costs, work = self._work
            if (row := rows.get(broker)) is not None:
                work[row] = _work_of(bundles, costs) + (0.0 if anew else work[row])

    def broker_of(self, bundle: str) -> str | None:
        return self._broker_of.get(bundle)

    @property
    def bundles(self) -> Mapping[str, str]:
        """Bundle → the broker that it is on its way to."""
        return self._broker_of

    def topics(self, broker: str) -> float:
        """Topics of the bundles that are on their way to a broker."""
        return self._sums.get(broker, NOTHING)[0]

    def throughput(self, broker: str) -> float:
        """Short-term bytes/s of the bundles that are on their way to a broker."""
        return self._sums.get(broker, NOTHING)[2]

    def sums(self, columns: BrokerColumns) -> Array:
        """Topics, long-term messages/s, short-term bytes/s and bundles on their way to each broker:
        `[sum, row]`.
        """
        if self._columns is None or self._columns[0] is not columns.row_of:
            sums = [self._sums.get(broker, NOTHING) for broker in columns.names]
            array = np.array(sums, np.float64).reshape(-1, len(NOTHING)).T.copy()
            self._columns = columns.row_of, array
        return self._columns[1]

    def work(self, columns: BrokerColumns, costs: BundleCosts) -> Array:
        """What the CPU of each broker counts of the bundles that are on their way to it, in bytes/s
        of mean cost: `[row]`.
        """
        work = self._work
        if work is None or work[0] is not columns.row_of or work[1] is not costs:
            each = [_work_of(self._bundles.get(broker, {}), costs) for broker in columns.names]
            work = self._work = columns.row_of, costs, np.array(each, np.float64)
        return work[2]

    def __getitem__(self, broker: str) -> Mapping[str, BundleData]:
        return self._bundles[broker]

    def __iter__(self) -> Iterator[str]:
        return iter(self._bundles)

    def __len__(self) -> int:
        return len(self._bundles)

    def __contains__(self, broker: object) -> bool:
        return broker in self._bundles


def _plus(sums: Sums, data: BundleData) -> Sums:
    topics, rate, throughput, bundles = sums
    return (
        topics + data.topics,
        rate + data.long_term_data.rate,
        throughput + data.short_term_data.throughput,
        bundles + 1,
    )


def _work_of(bundles: Mapping[str, BundleData], costs: BundleCosts) -> float:
    return sum(
        data.short_term_data.throughput * costs.of_bundle(bundle)
        for bundle, data in bundles.items()
    )


def _total(bundles: Mapping[str, BundleData]) -> Sums:
    sums = NOTHING
    for data in bundles.values():
        sums = _plus(sums, data)
    return sums
