"""Statistics in columns are the statistics."""

from __future__ import annotations

import numpy as np
import pytest

from loadmanager.engine.load.bundle_columns import (
    FIGURES,
    BundleColumns,
    clients_and_topics,
    figures_of,
)
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats

NAMES = ["t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000", "t/n/0x80000000_0xffffffff"]


@pytest.fixture
def columns() -> BundleColumns:
    """Three bundles with different figures."""
    figures = np.arange(1.0, 1 + FIGURES * len(NAMES)).reshape(FIGURES, len(NAMES))
    return BundleColumns({name: row for row, name in enumerate(NAMES)}, figures)


def test_they_read_as_a_mapping(columns: BundleColumns) -> None:
    """Each bundle's statistics are made from its column."""
    assert list(columns) == NAMES
    assert len(columns) == 3
    assert "t/n/none" not in columns
    assert columns[NAMES[1]] == NamespaceBundleStats(
        msg_throughput_in=2,
        msg_throughput_out=5,
        msg_rate_in=8,
        msg_rate_out=11,
        topics=14,
        consumer_count=17,
        producer_count=20,
    )


def test_a_view_learns_the_same_from_them(columns: BundleColumns) -> None:
    """The averages after a report do not depend on how its statistics are kept."""
    views = ClusterView(), ClusterView()
    for view, stats in zip(views, (columns, dict(columns)), strict=True):
        report = LocalBrokerData(last_stats=stats, bundles=NAMES)
        for minute in range(3):
            view.observe("b:1", report, minute * 60_000)
    assert dict(views[0].bundle_data) == dict(views[1].bundle_data)
    assert views[0].bundle_data.quick_of(NAMES[0]) == views[1].bundle_data.quick_of(NAMES[0])


def test_figures_of_some_bundles(columns: BundleColumns) -> None:
    """In the order of the question; unknown ones have nothing."""
    wanted = [NAMES[2], "t/n/none", NAMES[0]]
    for stats in (columns, dict(columns)):
        figures, _ = figures_of(stats, wanted)
        assert figures[:, 1].tolist() == [0] * FIGURES
        assert figures[0].tolist() == [3, 0, 1]
        clients, topics = clients_and_topics(stats, wanted)
        assert clients.tolist() == [18 + 21, 0, 16 + 19]
        assert topics.tolist() == [15, 0, 13]
