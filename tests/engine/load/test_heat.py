"""The hottest bundles over time."""

from __future__ import annotations

import msgspec

from loadmanager.engine.load.heat import BUNDLES_KEPT, SAMPLES_KEPT, Heat
from loadmanager.engine.load.reports import (
    LocalBrokerData,
    NamespaceBundleStats,
    TopBundle,
    TopBundlesLoadData,
)


def measured(_bundle: str, _broker: str) -> bool:
    """Everything."""
    return True


def known(bundle: str) -> bool:
    """Everything but what is split."""
    return bundle != "a/b/p"


def report(**throughputs: float) -> LocalBrokerData:
    """A report of bundles of a/b with these bytes/s."""
    stats = {
        f"a/b/{name}": NamespaceBundleStats(msg_throughput_in=bytes_per_s, msg_rate_in=1)
        for name, bytes_per_s in throughputs.items()
    }
    return LocalBrokerData(last_stats=stats, num_bundles=len(stats))


def test_a_bundle_moves_and_another_one_is_split() -> None:
    """Each sample has the owner of its time; a bundle that is not there has no figure."""
    heat = Heat()
    heat.sample({"b1": report(x=10, p=50), "b2": report(y=5)}, 1000, measured)
    heat.sample({"b1": report(p1=20, p2=30), "b2": report(y=5, x=11)}, 2000, measured)
    assert msgspec.to_builtins(heat.shown(10, known, 2.0, total=4)) == {
        "intervalSeconds": 2.0,
        "times": [1000, 2000],
        "total": 4,
        "kept": BUNDLES_KEPT,
        "bundles": [
            _series("p", None, [50, None], [(0, "b1")]),
            _series("p1", "b1", [None, 20], [(1, "b1")]),
            _series("p2", "b1", [None, 30], [(1, "b1")]),
            _series("x", "b2", [10, 11], [(0, "b1"), (1, "b2")]),
            _series("y", "b2", [5, 5], [(0, "b2")]),
        ],
    }
    assert [series.bundle for series in heat.shown(2, known, 2.0, total=4).bundles] == [
        "a/b/p",
        "a/b/p2",
    ]


def _series(
    name: str, owner: str | None, figures: list[int | None], owners: list[tuple[int, str]]
) -> dict[str, object]:
    return {
        "bundle": f"a/b/{name}",
        "owner": owner,
        "rate": None if owner is None else 1,
        "throughput": figures,
        "owners": owners,
        "exists": name != "p",
    }


def test_figures_that_are_not_measured_yet_are_no_zeros() -> None:
    """A bundle has just moved: its new owner reports zeros, and says so."""
    heat, idle = Heat(), LocalBrokerData(last_stats={"a/b/x": NamespaceBundleStats()})
    heat.sample({"b1": report(x=10)}, 1, measured)
    heat.sample({"b2": idle}, 2, lambda bundle, broker: (bundle, broker) != ("a/b/x", "b2"))
    heat.sample({"b2": idle}, 3, measured)
    (series,) = heat.shown(5, known, 2.0, total=4).bundles
    assert (series.throughput, series.owners) == ([10, None, 0], [(0, "b1"), (1, "b2")])


def test_it_stays_small() -> None:
    """Of many bundles the hottest are kept, and of many samples the last."""
    heat, reports = Heat(), {}
    for broker in range(30):
        loads = {f"{broker:02}_{number:02}": broker * 100 + number for number in range(20)}
        reports[f"b{broker:02}"] = report(**loads)
    for turn in range(SAMPLES_KEPT + 5):
        heat.sample(reports, turn, measured)
    document = heat.shown(BUNDLES_KEPT, known, 2.0, total=4)
    assert document.times == [*range(5, SAMPLES_KEPT + 5)]
    # 20 bundles of each of the ten last brokers
    assert [series.owner for series in document.bundles] == [
        f"b{20 + number // 20}" for number in range(BUNDLES_KEPT)
    ]


def test_nothing_is_known_yet() -> None:
    """Before the first sample, and without any broker."""
    heat = Heat()
    assert heat.shown(5, known, 2.0, total=4).bundles == []
    heat.sample({}, 1, measured)
    assert msgspec.to_builtins(heat.shown(5, known, 2.0, total=4)) == {
        "intervalSeconds": 2.0,
        "times": [1],
        "total": 4,
        "kept": BUNDLES_KEPT,
        "bundles": [],
    }


def test_a_bundle_of_two_brokers_and_the_other_manager() -> None:
    """While a bundle moves, both may report it: the higher figure counts. The extensible manager
    publishes the busiest bundles only.
    """
    top = TopBundlesLoadData([TopBundle("a/b/z", NamespaceBundleStats(msg_throughput_out=7))])
    heat = Heat()
    heat.sample({"b1": report(x=1), "b2": report(x=9), "b3": top}, 1, measured)
    assert [
        (series.bundle, series.throughput) for series in heat.shown(5, known, 2.0, total=4).bundles
    ] == [
        ("a/b/x", [9]),
        ("a/b/z", [7]),
    ]


def test_an_unchanged_report_is_not_looked_at_again() -> None:
    """What a sample costs depends on how many brokers reported since the last one."""
    heat, looked = Heat(), list[str]()

    class Counting(dict[str, NamespaceBundleStats]):
        def items(self):  # type: ignore[no-untyped-def]
            looked.append("")
            return super().items()

    same = LocalBrokerData(last_stats=Counting(report(x=1).last_stats), num_bundles=1)
    for turn in range(3):
        heat.sample({"b1": same}, turn, measured)
    assert len(looked) == 1
