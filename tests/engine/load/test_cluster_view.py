"""The view of the cluster's load: what each event changes in the next snapshot."""

from __future__ import annotations

from clusters.views import without_policies

from loadmanager.engine.load.cluster_view import PENDING_MS_MAX, UNREPORTED_MS_MAX, ClusterView
from loadmanager.engine.load.reports import (
    BrokerLoadData,
    BundleData,
    LocalBrokerData,
    NamespaceBundleStats,
    TimeAverageMessageData,
    TopBundle,
    TopBundlesLoadData,
    decode_local_broker_data,
)
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.strategies.settings import StrategySettings

A, B = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
NOW_MS = 1_700_000_000_000


def a_report(**rates: float) -> LocalBrokerData:
    """A report of the bundles A and B with their messages/s."""
    names = {"a": A, "b": B}
    stats = {names[name]: NamespaceBundleStats(msg_rate_in=rate) for name, rate in rates.items()}
    return LocalBrokerData(bundles=list(stats), last_stats=stats)


def snapshot_of(
    view: ClusterView, now_ms: int = NOW_MS, *, domains: bool = False
) -> ClusterSnapshot:
    """The snapshot under default settings."""
    settings = StrategySettings(failure_domains=domains)
    return view.snapshot(
        now_ms,
        settings,
        isolation_policies={},
        anti_affinity_groups={},
        failure_domains={"left": ["b1"]},
    )


def pending(view: ClusterView, now_ms: int = NOW_MS) -> dict[str, set[str]]:
    """The placements under way."""
    return {broker: set(bundles) for broker, bundles in snapshot_of(view, now_ms).pending.items()}


def test_a_placement_counts_until_its_broker_reports_it() -> None:
    """A report of another broker, or without the bundle, does not end it."""
    view = ClusterView()
    view.placed(A, "b1", NOW_MS)
    view.observe("b2", a_report(a=1), NOW_MS)
    view.observe("b1", a_report(b=1), NOW_MS)
    assert pending(view) == {"b1": {A}}
    view.observe("b1", a_report(a=1, b=1), NOW_MS)
    assert pending(view) == {}


def test_bundles_count_as_reported_also_without_statistics() -> None:
    """A broker may own an idle bundle: `bundles` names it.

    A report without `bundles` shows those with statistics.
    """
    view = ClusterView()
    view.placed(A, "b1", NOW_MS)
    view.placed(B, "b1", NOW_MS)
    view.observe("b1", LocalBrokerData(bundles=[A]), NOW_MS)
    assert pending(view) == {"b1": {B}}
    view.observe("b1", LocalBrokerData(last_stats={B: NamespaceBundleStats()}), NOW_MS)
    assert pending(view) == {}


def test_a_placement_counts_for_a_minute() -> None:
    """A placement counts until then, and not a millisecond longer; repeating it changes nothing,
    another one renews it.
    """
    view = ClusterView()
    view.placed(A, "b1", NOW_MS)
    view.placed(A, "b1", NOW_MS + 30_000)
    assert view.under_way(A, NOW_MS + PENDING_MS_MAX - 1) == "b1"
    assert view.under_way(A, NOW_MS + PENDING_MS_MAX) is None
    assert pending(view, NOW_MS + PENDING_MS_MAX - 1) == {"b1": {A}}
    view.placed(A, "b1", NOW_MS + PENDING_MS_MAX)
    assert pending(view, NOW_MS + PENDING_MS_MAX) == {"b1": {A}}
    view.placed(A, "b2", NOW_MS + PENDING_MS_MAX)
    assert pending(view, NOW_MS + PENDING_MS_MAX) == {"b2": {A}}
    view.not_placed(A)
    assert pending(view, NOW_MS + PENDING_MS_MAX) == {}


def test_a_placement_counts_until_its_broker_reports_anything() -> None:
    """Brokers to which little happens report every fifteen minutes; what came counts meanwhile."""
    late_ms = NOW_MS + 10 * PENDING_MS_MAX

    def placed() -> ClusterView:
        view = ClusterView()
        view.observe("b1", a_report(a=7), NOW_MS - 1)
        view.placed(B, "b1", NOW_MS)
        assert pending(view, late_ms) == {"b1": {B}}
        assert view.under_way(B, late_ms) is None  # a lookup may choose anew
        return view

    view = placed()
    view.placed("t/o/0x00000000_0xffffffff", "b1", late_ms)
    view.observe("b2", LocalBrokerData(), late_ms)
    assert len(pending(view, late_ms)["b1"]) == 2
    view.observe("b1", a_report(a=7), late_ms + 1)
    assert pending(view, late_ms + 1) == {"b1": {"t/o/0x00000000_0xffffffff"}}  # which may yet come
    view, old = placed(), LocalBrokerData(bundles=[A], last_update=1)
    view.observe("b1", old, late_ms)
    view.placed(B, "b1", late_ms)
    view.observe("b1", old, late_ms + PENDING_MS_MAX)  # read once more
    assert pending(view, late_ms + PENDING_MS_MAX) == {"b1": {B}}
    view = placed()
    view.observe("b1", a_report(a=7, b=1), late_ms)
    assert pending(view, late_ms) == {}
    view = placed()
    view.placed(B, "b2", late_ms)
    assert pending(view, late_ms) == {"b2": {B}}
    view = placed()
    view.gone("b1", late_ms)
    assert pending(view, late_ms) == {}
    assert pending(placed(), NOW_MS + UNREPORTED_MS_MAX) == {}


def test_a_broker_that_goes_takes_along_what_was_on_its_way() -> None:
    """And its averages, but not those of its bundles, which another broker will own, and not the
    time at which it was unloaded: it may come back.
    """
    view = ClusterView()
    view.observe("b1", a_report(a=7), NOW_MS)
    view.placed(B, "b1", NOW_MS)
    view.moved(B, "b1", NOW_MS)
    view.gone("b1", NOW_MS)
    after = snapshot_of(view)
    assert (after.reports, after.time_averages, after.pending) == ({}, {}, {})
    assert after.bundle_data[A].short_term_data.rate == 7
    assert after.recently_unloaded_ms == {B: NOW_MS}
    assert after.recently_unloaded_brokers_ms == {"b1": NOW_MS}


def test_the_bundles_of_a_lost_broker_wait_to_be_placed() -> None:
    """They wait until they are placed or reported; bundles that another broker has or gets do not
    wait.
    """

    def waiting(view: ClusterView, now_ms: int = NOW_MS) -> list[str]:
        return list(snapshot_of(view, now_ms).to_place)

    view = ClusterView()
    view.observe("b1", a_report(a=1, b=2), NOW_MS)
    view.gone("b1", NOW_MS)
    assert waiting(view) == [A, B]
    assert snapshot_of(view).to_place[B].short_term_data.rate == 2
    view.placed(A, "b2", NOW_MS)
    assert waiting(view) == [B]
    view.gone("b2", NOW_MS)
    assert waiting(view) == [A, B], "it never arrived"
    view.observe("b3", a_report(a=1), NOW_MS)
    view.observe("b4", LocalBrokerData(bundles=[B]), NOW_MS)
    assert waiting(view) == []
    view.observe("b5", a_report(a=1, b=1), NOW_MS)
    view.placed(B, "b4", NOW_MS)
    view.gone("b5", NOW_MS)
    assert waiting(view) == [], "b3 has A, and B is on its way to b4"


def test_bundles_do_not_wait_for_ever() -> None:
    """A bundle that no lookup asks for is forgotten together with its averages."""
    view = ClusterView()
    view.observe("b1", a_report(a=1), NOW_MS)
    view.gone("b1", NOW_MS)
    assert list(snapshot_of(view, NOW_MS + UNREPORTED_MS_MAX - 1).to_place) == [A]
    assert list(snapshot_of(view, NOW_MS + UNREPORTED_MS_MAX).to_place) == []
    view.placed(B, "b2", NOW_MS)
    view.gone("b2", NOW_MS)
    assert view._orphans == {B}, "it was on its way to a broker that went"
    view.forget_old(NOW_MS + UNREPORTED_MS_MAX)
    assert view._orphans == set()


def test_moves_are_recent_for_the_grace_period() -> None:
    """Up to its last millisecond."""
    view = ClusterView()
    view.moved(A, "b1", NOW_MS)
    grace_ms = 30 * 60_000
    assert snapshot_of(view, NOW_MS + grace_ms).recently_unloaded_ms == {A: NOW_MS}
    assert snapshot_of(view, NOW_MS + grace_ms + 1).recently_unloaded_ms == {}


def test_averages_take_a_sample_a_report() -> None:
    """A report advances the averages of its bundles and the sum of its broker, and no others."""
    view = ClusterView()
    for rate in (2, 4):
        view.observe("b1", a_report(a=rate, b=rate), NOW_MS)
    view.observe("b2", a_report(), NOW_MS)
    taken = snapshot_of(view)
    assert taken.bundle_data[A].short_term_data.rate == 3
    assert taken.time_averages["b1"].short_term_msg_rate_in == 6


def test_bundles_that_nobody_reports_are_forgotten_later() -> None:
    """A bundle that moves from broker to broker keeps its averages; one that is split or deleted
    does not stay for ever.
    """
    view = ClusterView()
    view.observe("b1", a_report(a=1, b=2), NOW_MS)
    view.observe("b1", a_report(), NOW_MS)
    view.observe("b2", a_report(a=3), NOW_MS + 1)
    assert set(snapshot_of(view, NOW_MS + UNREPORTED_MS_MAX - 1).bundle_data) == {A, B}
    assert set(snapshot_of(view, NOW_MS + UNREPORTED_MS_MAX).bundle_data) == {A}


def test_the_new_owner_may_report_first() -> None:
    """A bundle that two brokers reported is still known when the old owner's reports have long been
    without it.
    """
    view = ClusterView()
    view.observe("b1", a_report(a=1), NOW_MS)
    view.observe("b2", a_report(a=1), NOW_MS)
    view.observe("b1", a_report(), NOW_MS)
    assert set(snapshot_of(view, NOW_MS + UNREPORTED_MS_MAX).bundle_data) == {A}


def test_restored_averages_are_kept_while_somebody_reports_their_bundles() -> None:
    """The broker's sums are computed from them."""
    view = ClusterView()
    view.observe("b1", a_report(a=1), NOW_MS)
    stored = BundleData(
        short_term_data=TimeAverageMessageData(max_samples=10, num_samples=1, msg_rate_in=8)
    )
    view.restore({A: stored, B: BundleData()}, NOW_MS)
    assert snapshot_of(view).time_averages["b1"].short_term_msg_rate_in == 8
    assert set(snapshot_of(view, NOW_MS + UNREPORTED_MS_MAX).bundle_data) == {A}


def test_times_end_in_any_order() -> None:
    """A clock that is set back neither ends placements early nor keeps them; moves may come in any
    order.
    """
    view, back_ms = ClusterView(), NOW_MS - 5_000
    view.placed(A, "b1", NOW_MS)
    view.placed(B, "b1", back_ms)
    assert pending(view, back_ms + PENDING_MS_MAX - 1) == {"b1": {A, B}}
    assert pending(view, back_ms + PENDING_MS_MAX) == {"b1": {A}}
    view.placed(B, "b2", NOW_MS + 1)
    assert pending(view, NOW_MS + PENDING_MS_MAX) == {"b2": {B}}
    assert pending(view, NOW_MS + PENDING_MS_MAX + 1) == {}
    view.know_moves({A: NOW_MS, B: NOW_MS - 60 * 60_000}, {})
    assert set(snapshot_of(view).recently_unloaded_ms) == {A}


def test_without_a_clock_nothing_is_under_way() -> None:
    """Averages are kept as long as reports."""
    view = ClusterView()
    view.observe("b1", a_report(a=1, b=1), 0)
    view.observe("b1", a_report(a=1), 0)
    view.placed(B, "b1", 0)
    view.forget_ageing()
    taken = snapshot_of(view, 0)
    assert (taken.pending, set(taken.bundle_data)) == ({}, {A})


def test_reports_of_the_extensible_manager() -> None:
    """The busiest bundles that a broker publishes are no longer on their way; a broker has the
    reports of one manager.
    """
    view = ClusterView()
    view.observe("b1", a_report(a=1), NOW_MS)
    view.observe("b1", BrokerLoadData(), NOW_MS)
    assert (set(view.reports), set(view.load_data)) == (set(), {"b1"})
    view.placed(A, "b1", NOW_MS)
    view.placed(B, "b1", NOW_MS)
    view.observe_top_bundles(
        {"b1": TopBundlesLoadData(top_bundles_load_data=[TopBundle(bundle_name=A)])}
    )
    assert pending(view) == {"b1": {B}}
    assert snapshot_of(view).extensible
    view.observe("b1", a_report(a=1), NOW_MS)
    assert not snapshot_of(view).extensible


def test_what_brokers_own_counts_though_they_do_not_publish_it() -> None:
    """As Pulsar counts for anti-affinity: the owners in the records, not the busiest bundles."""
    view = ClusterView(knows_owners=True)
    for broker in ("b1", "b2"):
        view.observe(broker, BrokerLoadData(), NOW_MS)
    view.observe_top_bundles({"b1": TopBundlesLoadData(), "b2": TopBundlesLoadData()})
    view.owned_by(A, "b1")
    view.owned_by(B, "b2")
    view.owned_by(B, "b1")
    namespace = A.rpartition("/")[0]
    passing = without_policies(view, StrategySettings(), NOW_MS, passing=True)
    for snapshot in (snapshot_of(view), passing, snapshot_of(view).planning()):
        assert snapshot.served.bundles([namespace]) == {"b1": 2}


def test_a_bundle_that_a_report_names_twice_counts_once() -> None:
    """Pulsar reads a set."""
    report = decode_local_broker_data(b'{"bundles": ["t/n/2", "t/n/1", "t/n/2"]}')
    assert report.bundles == ["t/n/2", "t/n/1"]


def test_failure_domains_count_when_the_settings_say_so() -> None:
    """failureDomainsEnabled."""
    view = ClusterView()
    assert snapshot_of(view).failure_domains == {}
    assert snapshot_of(view, domains=True).failure_domains == {"left": ["b1"]}


def test_a_snapshot_is_one_moment() -> None:
    """Later events do not change it."""
    view = ClusterView()
    view.observe("b1", a_report(a=1), NOW_MS)
    view.placed(B, "b1", NOW_MS)
    taken = snapshot_of(view)
    view.observe("b2", a_report(b=1), NOW_MS)
    view.gone("b1", NOW_MS)
    view.moved(A, "b1", NOW_MS)
    assert (
        set(taken.reports),
        set(taken.bundle_data),
        set(taken.pending),
        taken.recently_unloaded_ms,
    ) == ({"b1"}, {A}, {"b1"}, {})


def test_a_broker_that_comes_back_still_cools_down() -> None:
    """Its absence may last longer than moves of bundles count as recent; a day later it is new."""
    day_ms = 24 * 3600_000
    for absent_ms, known in ((3600_000, {"b1"}), (day_ms + 1, set[str]())):
        view = ClusterView()
        view.observe("b1", BrokerLoadData(), NOW_MS)
        view.moved(A, "b1", NOW_MS)
        view.gone("b1", NOW_MS)
        assert snapshot_of(view, NOW_MS + absent_ms).recently_unloaded_ms == {}
        view.observe("b1", BrokerLoadData(), NOW_MS + absent_ms)
        after = snapshot_of(view, NOW_MS + absent_ms)
        assert set(after.recently_unloaded_brokers_ms) == known
