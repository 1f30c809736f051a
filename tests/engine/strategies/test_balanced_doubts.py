"""BalancedShedder where figures mislead: cheap traffic, full brokers, noise, a report that lies."""

from __future__ import annotations

import numpy as np
import pytest
from clusters.serving_cluster import BROKERS, CHEAP, ServingCluster, codes

from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory
from loadmanager.engine.strategies.shedding.modelled import APART


def test_traffic_that_costs_next_to_nothing() -> None:
    """A tenant sends three times the bytes of all others together, again and again, in messages so
    large that no CPU shows it: nothing moves for it, and no sensor is accused.
    """
    cluster = ServingCluster(lambda minute, space: bursts(minute) if space == CHEAP else 1.0)
    cluster.cheap = True
    plans = [cluster.next() for _ in range(120)]
    assert sum(len(plan.unloads) for plan in plans) <= 4
    assert "SensorMistrusted" not in set().union(*map(codes, plans))
    said = [skip.text for plan in plans for skip in plan.skipped if skip.code == "TrafficDip"]
    assert any("sensors do not follow" in text for text in said)


def bursts(minute: int) -> float:
    return 15.0 if minute > 20 and minute % 30 < 10 else 0.1


def test_traffic_that_sensors_follow_is_no_reason_to_wait() -> None:
    """One namespace grows by half, and is what it seems."""
    cluster = ServingCluster(lambda minute, space: 4.0 if minute > 20 and space == CHEAP else 1.0)
    plans = [cluster.next() for _ in range(40)]
    assert "TrafficDip" not in set().union(*map(codes, plans))


def test_a_broker_that_stays_full_is_asked_for_more() -> None:
    """It shows 100 % and reports what it serves, so that nothing shows how much is missing."""
    cluster = ServingCluster(lambda _minute, _space: 1.0, cost=0.055)
    cluster.moves(20)
    for bundle in [bundle for bundle, owner in cluster.owner.items() if owner == 0]:
        cluster.dear[bundle] = 1.7
    cluster.moves(25)
    assert cluster.wanted[0] < 1.0
    assert max(cluster.wanted.values()) < 1.0
    memory: BalancedMemory = cluster.memories.of(SHEDDER)
    assert memory.full == {}


def test_noise_of_sensors_moves_nothing() -> None:
    """It comes out of the reports that the sensors jump, and they teach less."""
    assert ServingCluster(lambda _minute, _space: 1.0, cost=0.05, noise=0.12).moves(180) <= 12


@pytest.mark.parametrize("times", [10.0, 1e3, 1e9])
def test_one_wrong_report_is_over_soon(times: float) -> None:
    """What is usual follows in bounded steps."""
    cluster = ServingCluster(lambda _minute, _space: 1.0)
    cluster.moves(30)
    cluster.lies = {next(iter(cluster.owner)): times}
    cluster.next()
    waits = ["TrafficDip" in codes(cluster.next()) for _ in range(15)]
    assert not any(waits[8:])


def test_cards_and_processors_alike() -> None:
    """Where the bundles of some brokers use the CPU more and those of others the cards, moves would
    always fit something better, and make no broker more even.
    """
    cluster = ServingCluster(comes_and_goes, cost=0.045, noise=0.02)
    cluster.card = 0.05
    values = np.random.default_rng(5).lognormal(0, 0.6, len(cluster.owner))
    cluster.dear = dict(zip(cluster.owner, values.tolist(), strict=True))
    cluster.moves(60)
    assert cluster.moves(120) <= 40


def comes_and_goes(minute: int, space: int) -> float:
    return (0.3, 0.6, 1.0, 1.4, 1.8, 0.9)[space] * (1 + 0.1 * ((minute * 7 + space * 3) % 5 - 2))


def test_what_is_nearly_even_is_dear() -> None:
    """Moves between brokers that differ by less than half of what is worth a move, unless one is
    far off; plans towards a goal go on.
    """
    cluster = ServingCluster(lambda _minute, _space: 1.0)
    cluster.moves(20)
    for in_a_cycle, dear in ((True, 10.0), (False, 1.0)):
        brokers = cluster.modelled(in_a_cycle=in_a_cycle)
        near = 0.6 - 0.9 * APART * 0.16 * brokers.mean
        brokers.usage = np.array([0.6, near, 0.5, 0.5, 0.5, 0.5])
        assert brokers.price_times([0], [1]).tolist() == [dear]
        assert brokers.price_times([0], [2]).tolist() == [1.0]
        brokers.far = np.arange(BROKERS) == 1
        assert brokers.price_times([0], [1])[0] < 1.0


@pytest.mark.parametrize("in_a_cycle", [True, False])
def test_a_broker_whose_traffic_rises_waits(in_a_cycle: bool) -> None:
    """What is known of its bundles lags behind a burst, so that they look too small."""
    cluster = ServingCluster(lambda minute, _space: 6.0 if minute > 30 else 1.0, cost=0.01)
    cluster.moves(30)
    brokers = cluster.modelled(in_a_cycle=in_a_cycle)
    _, bytes_s, work = brokers.traffic_of("b0:8080")
    brokers.usage[1:] = 0.1
    _, refused = brokers.burden([0] * len(bytes_s), [1] * len(bytes_s), work)
    assert refused.all() == in_a_cycle
