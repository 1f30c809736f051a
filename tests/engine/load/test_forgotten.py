"""Bundles that nobody reports any more are forgotten, whole, and in the same order everywhere."""

from __future__ import annotations

from clusters.hash_seeds import outputs_of
from clusters.views import a_report

from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.kit.units import MINUTE_MS


def stats_of(names: list[str], message_bytes: float) -> dict[str, NamespaceBundleStats]:
    """A thousand messages/s of each, of this size."""
    return {
        name: NamespaceBundleStats(msg_throughput_in=1000 * message_bytes, msg_rate_in=1000)
        for name in names
    }


def test_what_is_forgotten_counts_no_more() -> None:
    """Neither does a copy that was made before change."""
    averages = BundleAverages()
    averages.observe("a", stats_of(["t/n/0", "t/n/1"], 100) | stats_of(["t/n/2"], 5_000))
    copy = averages.copy()
    averages.forget("t/n/2")
    assert averages.in_rows().mean_message == 100
    assert copy.in_rows().mean_message > 1_000
    averages.observe("a", stats_of(["t/n/3"], 100))
    assert averages.in_rows().mean_message == 100


def rows_after_a_change() -> list[tuple[str, int]]:
    """Where bundles are in the averages that came after others were forgotten."""
    view, names = ClusterView(), [f"t/n/{at}" for at in range(40)]
    for minute in range(40):
        some = names[:10] if minute > 1 else names
        new = [f"t/m/{at}" for at in range(30)] if minute > 30 else []
        report = a_report(stats_of([*some, *new], 100), last_update=minute * MINUTE_MS)
        view.observe("b0:8080", report, minute * MINUTE_MS)
        view.bundle_data.in_rows()
        view.forget_old(minute * MINUTE_MS)
    return sorted(view.bundle_data.in_rows().row_of.items())


def test_the_order_does_not_depend_on_hashes() -> None:
    """New bundles get the rows of those that were forgotten, and sums go by rows."""
    program = "from engine.load.test_forgotten import *; print(rows_after_a_change())"
    assert len(outputs_of(program)) == 1
    assert len(rows_after_a_change()) == 40
