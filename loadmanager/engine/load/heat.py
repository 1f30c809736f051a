"""The hottest bundles over time: what a heat map shows. A bounded ring of samples."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from loadmanager.engine.load.reports import (
    LocalBrokerData,
    NamespaceBundleStats,
    TopBundlesLoadData,
)
from loadmanager.kit.model import Shape

BUNDLES_KEPT = 200
"""Each sample keeps so many bundles, the hottest ones."""
SAMPLES_KEPT = 120

Traffic = Mapping[str, LocalBrokerData | TopBundlesLoadData]
"""brokerId → its last report of bundles."""


class HeatSeries(Shape):
    """A bundle: bytes/s in each sample, null where it was not among the hottest or not measured
    yet; `owners` has the number of the first sample of each owner.
    """

    bundle: str
    owner: str | None
    rate: float | None
    throughput: list[int | None]
    owners: list[tuple[int, str]]
    exists: bool
    """False: it was split, merged or unloaded."""


class HeatShown(Shape):
    """The hottest bundles over time, in order of name; `kept`: each sample has so many."""

    interval_seconds: float
    times: list[int]
    total: int
    """Bundles that have an owner."""
    kept: int
    bundles: list[HeatSeries]


class _Row(NamedTuple):
    throughput: float
    """Bytes/s in and out."""
    bundle: str
    rate: float
    """Messages/s in and out."""
    broker: str


@dataclass(frozen=True, slots=True)
class _Hottest:
    """The hottest bundles of one report, the hottest first."""

    source: object
    rows: list[_Row]


@dataclass(frozen=True, slots=True)
class _Sample:
    at_ms: int
    rows: dict[str, _Row]
    unmeasured: frozenset[str]
    """Bundles whose zeros say nothing yet."""


class Heat:
    """Samples of the bundles with the most bytes/s. Each report is looked at once."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_KEPT)
        self._hottest: dict[str, _Hottest] = {}

    def sample(self, traffic: Traffic, now_ms: int, measured: Callable[[str, str], bool]) -> None:
        """Keep the hottest bundles of these reports as of now; `measured` says of a bundle and a
        broker whether zeros are what the broker has measured.
        """
        for broker in self._hottest.keys() - traffic.keys():
            del self._hottest[broker]
        for broker, report in traffic.items():
            before = self._hottest.get(broker)
            if before is None or before.source is not report:
                self._hottest[broker] = _hottest(broker, report)
        rows: dict[str, _Row] = {}
        parts = self._hottest.values()
        merged = heapq.merge(*(part.rows for part in parts), key=_coldness)
        for row in islice(merged, 2 * BUNDLES_KEPT):
            if len(rows) < BUNDLES_KEPT:
                # two brokers may report a bundle that moves
                rows.setdefault(row.bundle, row)
        unmeasured = frozenset(
            row.bundle
            for row in rows.values()
            if not (row.rate or row.throughput or measured(row.bundle, row.broker))
        )
        self._samples.append(_Sample(now_ms, rows, unmeasured))

    def shown(
        self, limit: int, exists: Callable[[str], bool], interval_s: float, *, total: int
    ) -> HeatShown:
        """The bundles with the most bytes over all samples, in order of name, each with a figure
        for each sample: bytes/s, null where it was not among the hottest or not measured yet.
        `total`: of how many bundles.
        """
        totals: dict[str, float] = {}
        for sample in self._samples:
            for bundle, row in sample.rows.items():
                totals[bundle] = totals.get(bundle, 0.0) + row.throughput
        chosen = heapq.nsmallest(limit, totals, key=lambda bundle: (-totals[bundle], bundle))
        return HeatShown(
            interval_seconds=interval_s,
            times=[sample.at_ms for sample in self._samples],
            total=total,
            kept=BUNDLES_KEPT,
            bundles=[self._series(bundle, exists=exists(bundle)) for bundle in sorted(chosen)],
        )

    def _series(self, bundle: str, *, exists: bool) -> HeatSeries:
        """A bundle's figures; `owners` has the number of the first sample of each owner."""
        figures: list[int | None] = []
        owners: list[tuple[int, str]] = []
        row: _Row | None = None
        measured = False
        for number, sample in enumerate(self._samples):
            row = sample.rows.get(bundle)
            measured = row is not None and bundle not in sample.unmeasured
            figures.append(round(row.throughput) if row is not None and measured else None)
            if row is not None and (not owners or owners[-1][1] != row.broker):
                owners.append((number, row.broker))
        return HeatSeries(
            bundle=bundle,
            owner=None if row is None else row.broker,
            rate=round(row.rate, 1) if row is not None and measured else None,
            throughput=figures,
            owners=owners,
            exists=exists,
        )


def _coldness(row: _Row) -> tuple[float, str]:
    return -row.throughput, row.bundle


def _hottest(broker: str, report: LocalBrokerData | TopBundlesLoadData) -> _Hottest:
    stats: Iterable[tuple[str, NamespaceBundleStats]]
    if isinstance(report, LocalBrokerData):
        stats = report.last_stats.items()
    else:
        stats = ((each.bundle_name, each.stats) for each in report.top_bundles_load_data)
    rows = (_Row(each.throughput, bundle, each.rate, broker) for bundle, each in stats)
    return _Hottest(report, heapq.nsmallest(BUNDLES_KEPT, rows, key=_coldness))
