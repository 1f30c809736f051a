"""Traffic of a broker's bundles in columns, for those who make many reports: the simulator."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping, Sequence
from itertools import chain
from operator import attrgetter

import numpy as np

from loadmanager.engine.load.columns import Array
from loadmanager.engine.load.reports import NamespaceBundleStats

IN, OUT, RATE_IN, RATE_OUT, TOPICS, CONSUMERS, PRODUCERS = range(7)
FIGURES = 7
"""Bytes/s in and out, messages/s in and out, topics, consumers, producers."""
_figures = attrgetter(
    "msg_throughput_in",
    "msg_throughput_out",
    "msg_rate_in",
    "msg_rate_out",
    "topics",
    "consumer_count",
    "producer_count",
    "cache_size",
)
_counts = attrgetter("consumer_count", "producer_count", "topics")


def figures_of(
    stats: Mapping[str, NamespaceBundleStats], bundles: Sequence[str]
) -> tuple[Array, Array]:
    """The figures of these bundles, `[figure, bundle]`, and their cache sizes; 0 for a bundle
    without statistics.
    """
    if isinstance(stats, BundleColumns) and list(stats.rows) == bundles:
        return stats.figures, np.zeros(len(bundles))
    if isinstance(stats, BundleColumns) and stats.rows.keys() >= set(bundles):
        rows = [stats.rows[bundle] for bundle in bundles]
        return stats.figures[:, rows], np.zeros(len(rows))
    none = NamespaceBundleStats()
    values = [_figures(stats.get(bundle) or none) for bundle in bundles]
    columns = np.array(values, np.float64).reshape(-1, FIGURES + 1).T
    return columns[:FIGURES], columns[FIGURES]


def clients_and_topics(
    stats: Mapping[str, NamespaceBundleStats], bundles: Sequence[str]
) -> tuple[Array, Array]:
    """Clients (producers and consumers) and topics of each bundle; 0 without statistics."""
    if isinstance(stats, BundleColumns):
        figures, _ = figures_of(stats, bundles)
        clients: Array = figures[CONSUMERS] + figures[PRODUCERS]
        topics: Array = figures[TOPICS]
        return clients, topics
    none = NamespaceBundleStats()
    counts = map(_counts, [stats.get(bundle) or none for bundle in bundles])
    columns = np.fromiter(chain.from_iterable(counts), np.float64, 3 * len(bundles)).reshape(-1, 3)
    return columns[:, 0] + columns[:, 1], columns[:, 2]


class BundleColumns(Mapping[str, NamespaceBundleStats]):
    """Bundle → its traffic; a `NamespaceBundleStats` is made when it is asked for.

    `rows`: bundle → its row, from 0 on, in this order. `figures`: `[figure, row]`.
    """

    __slots__ = ("figures", "rows")

    def __init__(self, rows: dict[str, int], figures: Array) -> None:
        self.rows = rows
        self.figures = figures

    def __getitem__(self, bundle: str) -> NamespaceBundleStats:
        values = self.figures[:, self.rows[bundle]].tolist()
        return NamespaceBundleStats(
            msg_throughput_in=values[IN],
            msg_throughput_out=values[OUT],
            msg_rate_in=values[RATE_IN],
            msg_rate_out=values[RATE_OUT],
            topics=int(values[TOPICS]),
            consumer_count=int(values[CONSUMERS]),
            producer_count=int(values[PRODUCERS]),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, bundle: object) -> bool:
        return bundle in self.rows

    def keys(self) -> KeysView[str]:
        """The bundles; a set operation with these is one in C."""
        return self.rows.keys()
