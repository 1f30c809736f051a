"""The brokers of a simulated cluster: which bundles each has, and the reports that it makes.

All bundles are in columns; a report holds a broker's part of them, so that a minute of many bundles
costs some array operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np

from loadmanager.engine.load.bundle_columns import FIGURES, BundleColumns
from loadmanager.engine.load.columns import Array, Rows
from loadmanager.engine.load.manager import Manager
from loadmanager.engine.load.reports import LocalBrokerData, ResourceUsage
from loadmanager.lab.days import CPU_OF_A_CORE, NIC_KBIT_S

NOBODY = -1


class Fleet:
    """Brokers and bundles by number; brokers are numbered in order of name."""

    def __init__(self, cores: Mapping[str, float], bundles: Sequence[str], owner: Rows) -> None:
        self.names = sorted(cores)
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.limits = [cores[name] * CPU_OF_A_CORE for name in self.names]
        """CPU, in percent of one core."""
        self.owner = owner
        """Bundle → its broker, or `NOBODY`; changed by `move` only."""
        self._bundles = bundles
        self._of: list[Rows] = [np.flatnonzero(owner == row) for row in range(len(self.names))]
        self._reports: list[LocalBrokerData | None] = [None] * len(self.names)
        """Broker → a report with its bundles and without figures, once one is needed."""
        self._changed: set[int] = set()

    def move(self, bundles: Iterable[int], to: int) -> None:
        """Bundles have this owner now, or none."""
        at = np.fromiter(bundles, np.int64)
        self._changed.update(self.owner[at].tolist(), [to])
        self.owner[at] = to

    def of(self, amounts: Array) -> Array:
        """The sum of some amount of each bundle, for each broker."""
        owned = self.owner != NOBODY
        sums = np.bincount(self.owner[owned], amounts[owned], len(self.names))
        return sums.astype(np.float64)

    def in_order(self) -> tuple[Rows, list[int]]:
        """The bundles, those of the first broker first, and where those of each broker begin."""
        for row in self._changed - {NOBODY}:
            self._of[row], self._reports[row] = np.flatnonzero(self.owner == row), None
        self._changed.clear()
        return np.concatenate(self._of), np.cumsum([0, *map(len, self._of)]).tolist()

    def report(self, broker: int) -> LocalBrokerData:
        """A report without figures; its bundles are in the order of `in_order`."""
        report = self._reports[broker]
        if report is None:
            name, bundles = self.names[broker], [self._bundles[at] for at in self._of[broker]]
            report = self._reports[broker] = LocalBrokerData(
                web_service_url=f"http://{name}",
                pulsar_service_url=f"pulsar://{name}",
                broker_id=name,
                load_manager_class_name=Manager.MODULAR.value,
                bundles=bundles,
                num_bundles=len(bundles),
                num_topics=len(bundles),
                last_stats=BundleColumns(
                    {bundle: row for row, bundle in enumerate(bundles)},
                    np.zeros((FIGURES, len(bundles))),
                ),
            )
        return copy(report)


class MinuteReports:
    """Makes the reports of one minute."""

    def __init__(self, fleet: Fleet, carried: Array, message_bytes: Array, clients: Rows) -> None:
        self._fleet = fleet
        order, self._starts = fleet.in_order()
        self._figures = np.empty((FIGURES, len(order)))
        self._figures[0:2] = carried[order] / 2
        self._figures[2:4] = (carried[order] / message_bytes[order]) / 2
        self._figures[4] = 1
        self._figures[5] = clients[order]
        self._figures[6] = 0
        self._bytes_s = fleet.of(carried).tolist()
        self._messages = fleet.of(carried / message_bytes).tolist()

    def of(self, broker: int, cpu: ResourceUsage, now_ms: int) -> LocalBrokerData:
        report = self._fleet.report(broker)
        stats = report.last_stats
        assert isinstance(stats, BundleColumns)
        start, end = self._starts[broker : broker + 2]
        report.last_stats = BundleColumns(stats.rows, self._figures[:, start:end])
        bytes_s, messages = self._bytes_s[broker], self._messages[broker]
        kbit_s = bytes_s / 2 * 8 / 1000
        report.cpu, report.last_update = cpu, now_ms
        report.bandwidth_in = report.bandwidth_out = ResourceUsage(usage=kbit_s, limit=NIC_KBIT_S)
        report.msg_throughput_in = report.msg_throughput_out = bytes_s / 2
        report.msg_rate_in = report.msg_rate_out = messages / 2
        return report
