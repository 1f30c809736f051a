"""The sums of the averages of each broker's bundles.

As in Pulsar, a broker's sums are made when it reports, from the bundles of that report: a bundle
that another broker reports, too, counts with the average that it had then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.columns import Array, BrokerColumns
from loadmanager.engine.load.reports import BundleData, LocalBrokerData, TimeAverageBrokerData


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
        self._totals: Array | None = None
        """The sums of the rates in and out."""
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

    def _long_rates(self, columns: BrokerColumns) -> Array:
        """Long-term messages/s of each broker: `[in or out, row]`."""
        row_of, rates = self._rates or ({}, np.zeros((2, 0)))
        if row_of is not columns.row_of:
            staying = [broker for broker in columns.names if broker in row_of]
            before, rates = rates, np.zeros((2, len(columns.names)))
            rates[:, [columns.row_of[name] for name in staying]] = before[
                :, [row_of[name] for name in staying]
            ]
            self._stale |= columns.row_of.keys() - row_of.keys()
            self._rates, self._totals = (columns.row_of, rates), None
        for broker in self._stale and self._stale & columns.row_of.keys():
            row = columns.row_of[broker]
            rates[:, row] = self._averages.long_rates(broker, self._reports[broker].last_stats)
        if self._stale:
            self._stale.clear()
            self._totals = None
        return rates

    def long_totals(self, columns: BrokerColumns) -> Array:
        """See the function of this name."""
        rates_in, rates_out = self._long_rates(columns)
        if self._totals is None:
            self._totals = rates_in + rates_out
        return self._totals

    def __getitem__(self, broker_id: str) -> TimeAverageBrokerData:
        sums = self._sums.get(broker_id)
        if sums is None:
            bundles = self._reports[broker_id].last_stats
            sums = self._sums[broker_id] = self._averages.sums(broker_id, bundles)
        return sums

    def __iter__(self) -> Iterator[str]:
        return iter(self._reports)

    def __len__(self) -> int:
        return len(self._reports)


def long_totals(sums: Mapping[str, TimeAverageBrokerData], columns: BrokerColumns) -> Array:
    """Long-term messages/s of each broker, in and out together: `[row]`. Not to be changed."""
    if isinstance(sums, BrokerSums):
        return sums.long_totals(columns)
    none = TimeAverageBrokerData()
    of_brokers = [sums.get(broker) or none for broker in columns.names]
    totals = [each.long_term_msg_rate_in + each.long_term_msg_rate_out for each in of_brokers]
    return np.array(totals, np.float64)
