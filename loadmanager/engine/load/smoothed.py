"""An exponential average for each broker, which strategies remember."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load.columns import Array, BrokerColumns


class Smoothed(Mapping[str, float]):
    """brokerId → exponential average. Never changed."""

    __slots__ = ("in_order", "row_of")

    def __init__(self, row_of: Mapping[str, int], values: Array) -> None:
        self.row_of = row_of
        """brokerId → its place in `in_order`."""
        self.in_order = values

    def __getitem__(self, broker: str) -> float:
        return float(self.in_order[self.row_of[broker]])

    def __iter__(self) -> Iterator[str]:
        return iter(self.row_of)

    def __len__(self) -> int:
        return len(self.row_of)


def smoothed(
    before: Mapping[str, float],
    columns: BrokerColumns,
    samples: Array,
    history_weight: float,
    afresh: NDArray[np.bool_] | None = None,
) -> Smoothed:
    """The averages after a sample of every broker; `usage.exponential_average` for arrays.

    An average begins with its sample where it is unknown, and where `afresh` says so.
    """
    values = ordered(before, columns)
    unknown = np.isnan(values) if afresh is None else np.isnan(values) | afresh
    after = values * history_weight
    after += (1 - history_weight) * samples
    np.copyto(after, samples, where=unknown)
    return Smoothed(columns.row_of, after)


def ordered(averages: Mapping[str, float], columns: BrokerColumns) -> Array:
    """The averages in the order of the brokers' columns; NaN where one is unknown."""
    if isinstance(averages, Smoothed) and averages.row_of is columns.row_of:
        return averages.in_order
    return np.array([averages.get(name, np.nan) for name in columns.names], np.float64)


def of_brokers(averages: Mapping[str, float], brokers: Collection[str]) -> Mapping[str, float]:
    if averages.keys() <= set(brokers):
        return averages
    return {broker: average for broker, average in averages.items() if broker in brokers}
