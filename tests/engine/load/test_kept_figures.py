"""The figures that the view keeps between events equal those that a snapshot would compute anew."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmanager.engine.load.averages import BundleAverages
from loadmanager.engine.load.broker_sums import BrokerSums, long_totals
from loadmanager.engine.load.cluster_view import UNREPORTED_MS_MAX, ClusterView
from loadmanager.engine.load.pending import Pending
from loadmanager.engine.load.reports import (
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    ResourceUsage,
    TimeAverageBrokerData,
    TimeAverageMessageData,
    default_bundle_data,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage import Weights, max_weighted_usage
from loadmanager.engine.strategies import cycle, registry
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.threshold import ThresholdSettings

NOW_MS = 1_700_000_000_000
BROKERS = ("b1", "b2", "b3", "b4")
BUNDLES = tuple(f"t/n{space}/0x{at:08x}_0x{at + 1:08x}" for space in (1, 2) for at in range(4))
SETTINGS = StrategySettings(
    shedder="ThresholdShedder", own={ThresholdSettings: ThresholdSettings(min_throughput_mib=0)}
)
NUMBERS = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))
STATS = st.builds(
    NamespaceBundleStats,
    msg_rate_in=NUMBERS,
    msg_rate_out=NUMBERS,
    msg_throughput_in=NUMBERS,
    msg_throughput_out=NUMBERS,
    topics=st.integers(0, 9),
)


@st.composite
def reports(draw: st.DrawFn) -> LocalBrokerData:
    """A report whose `bundles` may differ from those with statistics."""
    stats = draw(st.dictionaries(st.sampled_from(BUNDLES), STATS, max_size=5))
    bundles = list(stats)
    if draw(st.booleans()):
        bundles = draw(st.lists(st.sampled_from(BUNDLES), unique=True, max_size=5))
    usage = draw(st.floats(0, 100))
    rate, throughput = draw(NUMBERS), draw(NUMBERS)
    return LocalBrokerData(
        cpu=ResourceUsage(usage=usage, limit=draw(st.sampled_from((0, 100)))),
        bundles=bundles,
        last_stats=stats,
        msg_rate_in=rate,
        msg_throughput_in=throughput,
        num_topics=draw(st.integers(0, 9)),
        persistent_topics_enabled=draw(st.integers(0, 9)) > 0,
        load_manager_class_name=draw(st.sampled_from((None, "x.ModularLoadManagerImpl", "Other"))),
    )


EVENTS = st.one_of(
    st.tuples(st.just("observe"), st.sampled_from(BROKERS), reports()),
    st.tuples(st.just("gone"), st.sampled_from(BROKERS), st.none()),
    st.tuples(st.just("placed"), st.sampled_from(BUNDLES), st.sampled_from(BROKERS)),
    st.tuples(st.just("not placed"), st.sampled_from(BUNDLES), st.none()),
    st.tuples(st.just("moved"), st.sampled_from(BUNDLES), st.sampled_from(BROKERS)),
)


def sampled(data: TimeAverageMessageData, stats: NamespaceBundleStats) -> TimeAverageMessageData:
    """Pulsar `TimeAverageMessageData.update`, as it stands there."""
    n = min(data.num_samples + 1, data.max_samples)
    return TimeAverageMessageData(
        max_samples=data.max_samples,
        num_samples=n,
        **{
            name: ((n - 1) * getattr(data, name) + getattr(stats, name)) / n
            for name in ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
        },
    )


class Model:
    """The same events, without anything kept."""

    def __init__(self) -> None:
        self.reports: dict[str, LocalBrokerData] = {}
        self.averages: dict[str, BundleData] = {}
        self.sums: dict[str, TimeAverageBrokerData] = {}
        """Those at a broker's last report."""

    def apply(self, kind: str, name: str, value: Any) -> None:
        """One event."""
        if kind == "observe":
            self.reports[name] = value
            for bundle, stats in value.last_stats.items():
                data = self.averages.get(bundle) or default_bundle_data()
                self.averages[bundle] = BundleData(
                    short_term_data=sampled(data.short_term_data, stats),
                    long_term_data=sampled(data.long_term_data, stats),
                    topics=stats.topics,
                )
            self.sums[name] = BrokerSums(self.reports, self.averages)[name]
        elif kind == "gone":
            self.reports.pop(name, None)
            self.sums.pop(name, None)


def apply(view: ClusterView, kind: str, name: str, value: Any) -> None:
    """One event."""
    if kind == "observe":
        view.observe(name, value, NOW_MS)
    elif kind == "gone":
        view.gone(name, NOW_MS)
    elif kind == "placed":
        view.placed(name, value, NOW_MS)
    elif kind == "not placed":
        view.not_placed(name)
    else:
        view.moved(name, value, NOW_MS)


def taken(view: ClusterView, *, passing: bool) -> ClusterSnapshot:
    """A snapshot of the view."""
    return view.snapshot(
        NOW_MS,
        SETTINGS,
        isolation_policies={},
        anti_affinity_groups={"t/n1": "g", "t/n2": "g"},
        failure_domains={},
        passing=passing,
    )


def anew(snapshot: ClusterSnapshot, model: Model) -> ClusterSnapshot:
    """The same cluster as plain data, from which everything is computed."""
    pending = {
        broker: {bundle: model.averages.get(bundle) or default_bundle_data() for bundle in bundles}
        for broker, bundles in snapshot.pending.items()
    }
    plain = dict(model.averages)
    return ClusterSnapshot(
        now_ms=NOW_MS,
        reports=dict(model.reports),
        bundle_data=plain,
        time_averages=dict(model.sums),
        pending=pending,
        to_place={bundle: plain[bundle] for bundle in snapshot.to_place},
        recently_unloaded_ms=dict(snapshot.recently_unloaded_ms),
        anti_affinity_groups={"t/n1": "g", "t/n2": "g"},
    )


def figures(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Everything that a snapshot derives, as plain data."""
    columns = snapshot.columns
    return {
        "brokers": list(snapshot.brokers),
        "usage": columns.usage(Weights()).tolist(),
        "throughput": columns.throughputs.tolist(),
        "idle": columns.idle.tolist(),
        "traits": dict(columns.traits),
        "under way": snapshot.under_way.sums(columns).tolist(),
        "served": [
            snapshot.served.counts(space, columns).tolist() for space in ("t/n1", "t/n2", "t/n3")
        ],
        "order": {broker: list(snapshot.by_throughput(broker)) for broker in snapshot.brokers},
        "by rate": {broker: list(snapshot.by_rate(broker)) for broker in snapshot.brokers},
        "long rates": long_totals(snapshot.time_averages, columns).tolist(),
        "sums": {name: msgspec.to_builtins(sums) for name, sums in snapshot.time_averages.items()},
        "averages": {name: snapshot.bundle_data[name] for name in snapshot.bundle_data},
        "to place": list(snapshot.to_place.items()),
    }


@settings(max_examples=40)
@given(st.lists(EVENTS, max_size=20), st.randoms(use_true_random=False))
def test_kept_figures_are_those_of_the_events(events: list[Any], rng: random.Random) -> None:
    """After every event, for the snapshot of a cycle and for that of a placement; and both place
    and shed as plain data does.
    """
    view, model = ClusterView(), Model()
    for event in events:
        apply(view, *event)
        model.apply(*event)
        passing = rng.random() < 0.5
        snapshot = taken(view, passing=passing)
        plain = anew(snapshot, model)
        assert figures(snapshot) == figures(plain)
        bundle, seed = rng.choice(BUNDLES), rng.random()
        for name in sorted(registry.PLACEMENTS):
            settings = StrategySettings(placement=name, shedder="AvgShedder")
            ours, theirs = (
                cycle.place(each, [bundle], settings, Memories(), random.Random(seed))[0]
                for each in (snapshot, plain)
            )
            assert ours == theirs
        assert (
            cycle.shed(snapshot, SETTINGS, Memories())[0]
            == cycle.shed(plain, SETTINGS, Memories())[0]
        )
        assert figures(taken(view, passing=True)) == figures(plain), "asking changes nothing"


@settings(max_examples=40)
@given(
    st.lists(EVENTS, max_size=12),
    st.dictionaries(st.sampled_from(BUNDLES), st.sampled_from(BROKERS), max_size=3),
    st.sets(st.sampled_from(BROKERS)),
)
def test_figures_without_some_brokers(
    events: list[Any], owners: dict[str, str], left_out: set[str]
) -> None:
    """Are those of a cluster that never had them; the whole keeps its own."""
    view, model = ClusterView(), Model()
    for event in events:
        apply(view, *event)
        model.apply(*event)
    for passing in (True, False):
        whole = taken(view, passing=passing).having(owners=owners)
        before = figures(whole)
        part = whole.without(dict.fromkeys(left_out, "StaleReport"))
        reports = {name: each for name, each in model.reports.items() if name not in left_out}
        assert figures(part) == figures(replace(anew(whole, model), reports=reports, owners=owners))
        part.planning().add_placement(BUNDLES[0], BROKERS[0])
        assert figures(whole) == before


@settings(max_examples=60)
@given(st.lists(EVENTS, max_size=20))
def test_figures_do_not_depend_on_who_asked_before(events: list[Any]) -> None:
    """Nobody asks the one view before the end; the other is asked after every event."""
    view, asked = ClusterView(), ClusterView()
    for event in events:
        apply(view, *event)
        apply(asked, *event)
        figures(taken(asked, passing=True))
    assert figures(taken(view, passing=True)) == figures(taken(asked, passing=True))


@settings(max_examples=40)
@given(st.lists(EVENTS, max_size=12), st.lists(EVENTS, max_size=12))
def test_a_snapshot_stays_as_it_was(before: list[Any], after: list[Any]) -> None:
    """Whatever it was asked before, and whatever is asked of the view later."""
    view = ClusterView()
    for event in before:
        apply(view, *event)
    snapshot, same = taken(view, passing=False), taken(view, passing=False)
    kept = figures(snapshot)
    for event in after:
        apply(view, *event)
        figures(taken(view, passing=True))
    assert figures(snapshot) == kept
    assert figures(same) == kept


def test_sums_are_those_of_a_brokers_own_report() -> None:
    """A bundle that two brokers report counts at each with the average that it had at the report;
    restored averages count at once.
    """
    view, bundle = ClusterView(), BUNDLES[0]

    def rates() -> dict[str, float]:
        sums = view.time_averages
        return {broker: sums[broker].short_term_msg_rate_in for broker in sums}

    def report(rate: float) -> LocalBrokerData:
        return LocalBrokerData(last_stats={bundle: NamespaceBundleStats(msg_rate_in=rate)})

    view.observe("b1", report(10), NOW_MS)
    view.observe("b2", report(20), NOW_MS)
    assert rates() == {"b1": 10, "b2": 15}
    view.observe("b1", report(30), NOW_MS)
    assert rates() == {"b1": 20, "b2": 15}
    view.restore({bundle: default_bundle_data()}, NOW_MS)
    view.observe("b2", report(1), NOW_MS)
    assert rates() == {"b1": 50, "b2": 1}
    view.observe("b1", LocalBrokerData(), NOW_MS)
    assert rates() == {"b1": 0, "b2": 1}


@pytest.mark.parametrize("asked", [False, True])
def test_a_bundle_that_comes_back_late_starts_again(asked: bool) -> None:
    """Also if nobody asked while its averages were forgotten."""
    view, bundle = ClusterView(), BUNDLES[0]
    stats = {bundle: NamespaceBundleStats(msg_rate_in=10)}
    view.observe("b1", LocalBrokerData(last_stats=stats), NOW_MS)
    view.observe("b1", LocalBrokerData(), NOW_MS)
    later = NOW_MS + UNREPORTED_MS_MAX
    if asked:
        view.forget_old(later)
    view.observe("b1", LocalBrokerData(last_stats=stats), later)
    assert view.bundle_data[bundle].short_term_data.num_samples == 1


@settings(max_examples=40)
@given(st.lists(reports(), min_size=1, max_size=4))
def test_usage_is_the_same_for_one_and_for_all(some: list[LocalBrokerData]) -> None:
    """To the last bit: the strategies compare it with thresholds."""
    named = {f"b{number}": report for number, report in enumerate(some)}
    weights = Weights(cpu=0.7, direct_memory=0.3)
    usage = ClusterSnapshot(now_ms=0, reports=named).columns.usage(weights)
    assert usage.tolist() == [max_weighted_usage(report, weights) for report in some]


def test_a_table_grows_and_reuses_rows() -> None:
    """Beyond the rows that it begins with; a forgotten bundle leaves its row to another."""
    averages = BundleAverages()
    stats = {f"t/n/{number}": NamespaceBundleStats(topics=number) for number in range(1000)}
    averages.observe("b1", stats)
    assert [averages[name].topics for name in stats] == list(range(1000))
    averages.observe("b1", {})
    averages.forget("t/n/7")
    assert "t/n/7" not in averages
    averages.observe("b2", {"t/n/new": NamespaceBundleStats(topics=1)})
    assert averages["t/n/new"].topics == 1
    assert averages["t/n/8"].topics == 8
    assert averages["t/n/new"].long_term_data.num_samples == 1


def test_samples_are_counted_as_java_does() -> None:
    """Up to the maximum; a maximum of 0 leaves the last sample."""
    averages = BundleAverages(
        {
            "a": BundleData(short_term_data=TimeAverageMessageData(max_samples=2, num_samples=2)),
            "b": BundleData(short_term_data=TimeAverageMessageData(max_samples=0)),
        }
    )
    for _ in range(2):
        averages.observe("x", {name: NamespaceBundleStats(msg_rate_in=8) for name in "ab"})
    assert averages["a"].short_term_data.num_samples == 2
    assert averages["a"].short_term_data.msg_rate_in == 6
    assert averages["b"].short_term_data.msg_rate_in == 8
    assert np.isfinite(averages["b"].short_term_data.rate)


def test_a_report_may_name_a_bundle_twice() -> None:
    """Also one that is on its way to the broker."""
    view, bundle = ClusterView(), BUNDLES[0]
    view.placed(bundle, "b1", NOW_MS)
    view.observe("b1", LocalBrokerData(bundles=[bundle, bundle]), NOW_MS)
    assert view.under_way(bundle, NOW_MS) is None
    snapshot = taken(view, passing=True)
    assert snapshot.served.counts("t/n1", snapshot.columns).tolist() == [1]


def test_placements_count_at_owners_and_at_brokers_that_are_there() -> None:
    """A bundle with an owner counts there; one that leaves a broker that is gone, only once."""
    owned, lost = BUNDLES[:2]
    snapshot = ClusterSnapshot(
        now_ms=NOW_MS,
        reports={"b1": LocalBrokerData(), "b2": LocalBrokerData()},
        owners={owned: "b2"},
        pending=Pending({"gone": {lost: default_bundle_data()}}),
    )
    assert snapshot.served.bundles(["t/n1"]) == {"b2": 1}
    for bundle in (owned, lost):
        snapshot.add_placement(bundle, "b1")
    assert snapshot.served.bundles(["t/n1"]) == {"b1": 1, "b2": 1}
