"""BalancedShedder where its model is wrong as a whole, or a report says what cannot be."""

from __future__ import annotations

import random

import numpy as np
import pytest
from clusters.serving_cluster import BROKERS, CHEAP, SETTINGS, ServingCluster, codes
from clusters.views import a_report, a_view, without_policies

from loadmanager.engine.load.cpu_sensors import LESS_REPORTS, LIMIT_REPORTS
from loadmanager.engine.load.learned import NOTHING_LEARNED
from loadmanager.engine.load.reports import NamespaceBundleStats
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories


def pile_up(cluster: ServingCluster, count: int) -> None:
    """So many bundles of each other broker go to the first one."""
    for number in range(1, BROKERS):
        own = [bundle for bundle, owner in cluster.owner.items() if owner == number]
        for bundle in own[:count]:
            cluster.owner[bundle] = 0


@pytest.mark.parametrize("idle", [1e-2, 1e-4, 1e-6])
def test_a_cluster_that_was_idle_goes_live(idle: float) -> None:
    """What bytes cost was learned from hardly any, and is far too much."""
    cluster = ServingCluster(lambda minute, _space: idle if minute <= 30 else 1.0, cost=0.03)
    pile_up(cluster, 2)
    cluster.moves(30)
    pile_up(cluster, 2)
    cluster.moves(60)
    assert max(cluster.wanted.values()) < 0.5
    assert min(cluster.wanted.values()) > 0.2


def test_cheap_traffic_that_stays() -> None:
    """Once it is usual, all sensors contradict the model together: it is the model that learns."""
    cluster = ServingCluster(
        lambda minute, space: 1.0 if space != CHEAP else 60.0 if minute > 30 else 0.1, cost=0.055
    )
    cluster.cheap = True
    for bundle, owner in cluster.owner.items():
        if bundle[3] == str(CHEAP):
            cluster.owner[bundle] = owner % 3
    plans = [cluster.next() for _ in range(120)]
    assert "SensorMistrusted" not in set().union(*map(codes, plans))
    assert max(cluster.wanted.values()) < 0.8
    assert min(cluster.wanted.values()) > 0.35


@pytest.mark.parametrize("times", [0.01, 4.0, 64.0, 1e9])
def test_a_limit_that_one_report_says(times: float) -> None:
    """It does not count; what it says is told. Where it stays, it counts later."""
    cluster = ServingCluster(lambda _minute, _space: 1.0)
    cluster.moves(30)
    cluster.limits[2] = times
    plan = cluster.next()
    assert not plan.unloads
    (said,) = [skip for skip in plan.skipped if skip.code == "LimitMistrusted"]
    assert said.what == "b2:8080"
    assert f"has {times:g} CPUs, and said 1 before" in said.text
    del cluster.limits[2]
    plans = [cluster.next() for _ in range(10)]
    assert not any(plan.unloads for plan in plans)
    assert "LimitMistrusted" not in set().union(*map(codes, plans))


@pytest.mark.parametrize(("times", "reports"), [(2.0, LIMIT_REPORTS), (0.6, LESS_REPORTS)])
def test_a_limit_that_stays_counts_after_some_reports(times: float, reports: int) -> None:
    """As that of a machine which got larger, or, sooner, smaller."""
    cluster = ServingCluster(lambda _minute, _space: 1.0)
    cluster.moves(30)
    cluster.limits[2] = times
    plans = [cluster.next() for _ in range(reports + 3)]
    said = [
        [skip.text for skip in plan.skipped if skip.code == "LimitMistrusted"] for plan in plans
    ]
    assert [len(each) for each in said] == [1] * (reports - 1) + [0] * 4
    assert f"until {reports} reports in a row" in said[0][0]


@pytest.mark.parametrize("top", [0.9, 0.96, 1.0])
def test_a_full_broker_whose_sensor_ends_below_the_top(top: float) -> None:
    """It stands still because the broker is full."""
    cluster = ServingCluster(lambda _minute, _space: 1.0)
    cluster.top = top
    cluster.moves(30)
    for bundle in [bundle for bundle, owner in cluster.owner.items() if owner == 0]:
        cluster.dear[bundle] = 3.5
    plans = [cluster.next() for _ in range(60)]
    assert "SensorMistrusted" not in set().union(*map(codes, plans))
    assert max(cluster.wanted.values()) < 1.0


@pytest.mark.parametrize("times", [3.0, 8.0, 12.0])
def test_clients_catch_up_where_bundles_come(times: float) -> None:
    """What was sent there is not sent on, and neither is what else is there."""
    cluster = ServingCluster(lambda _minute, _space: 1.0)
    cluster.catch_up = times
    pile_up(cluster, 4)
    assert cluster.moves(180) <= 60


@pytest.mark.parametrize("times", [10.0, 50.0])
def test_a_counter_that_is_wrong_now_and_then(times: float) -> None:
    """One report has many times the traffic of a bundle; the next one has it right."""
    cluster = ServingCluster(lambda _minute, _space: 1.0)
    moves, rng = 0, random.Random(1)
    for _ in range(180):
        cluster.lies = {bundle: times for bundle in cluster.owner if rng.random() < 0.005}
        moves += len(cluster.next().unloads)
    assert moves <= 60


@pytest.mark.parametrize("seed", range(6))
def test_sensors_that_show_means_since_their_machines_started(seed: int) -> None:
    """Neither the one that shows little is filled, nor is the model believed to be wrong."""
    cluster, rng = ServingCluster(lambda _minute, _space: 1.0, cost=0.05), random.Random(seed)
    cluster.boot = [rng.uniform(0.2, 0.95) for _ in range(BROKERS)]
    worst = 0.0
    for _ in range(240):
        cluster.next()
        worst = max(worst, *cluster.wanted.values())
    assert worst < 1.1


def test_nobody_reports() -> None:
    """Nothing is known, and nothing fails."""
    snapshot = without_policies(a_view({}), SETTINGS)
    model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, NOTHING_LEARNED)
    assert model.used.shape == (0,)


@pytest.mark.parametrize("bytes_s", [-1.0, -1e-3, -1e18, 5e-324])
def test_figures_that_no_broker_has(bytes_s: float) -> None:
    """A Pulsar's reports are taken as they are."""
    memories = Memories()
    reports = {
        f"b{number}:8080": a_report(
            {
                f"t/n/0x0000000{number}_0x0000000{number + 1}": NamespaceBundleStats(
                    msg_throughput_in=bytes_s * (number == 0), msg_rate_in=1e18
                )
            },
            cpu=3.0 + 2.0 * (number > 0),
        )
        for number in range(3)
    }
    view = a_view(reports)
    for minute in range(1, 12):
        for broker, report in reports.items():
            report.last_update = minute
            view.observe(broker, report, minute)
        snapshot = without_policies(view, SETTINGS, minute)
        plan, memories = cycle.shed(snapshot, SETTINGS, memories)
        assert "nan" not in " ".join(skip.text for skip in plan.skipped)
    model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, NOTHING_LEARNED)
    assert np.isfinite(model.used).all()
