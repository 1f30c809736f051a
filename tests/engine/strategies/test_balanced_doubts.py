"""BalancedShedder where figures mislead: cheap traffic, full brokers, noise, a report that lies."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from clusters.views import a_report, without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.reports import NamespaceBundleStats, ResourceUsage
from loadmanager.engine.load.snapshot import ClusterSnapshot
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Plan
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory
from loadmanager.engine.strategies.shedding.modelled import APART, FullBrokers, ModelledBrokers
from loadmanager.kit.units import MINUTE_MS

SETTINGS = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")
BROKERS, EACH, SPACES = 6, 12, 6
CHEAP = 0
"""The namespace whose bytes cost next to nothing, where a test says so."""

Times = Callable[[int, int], float]
"""(minute, namespace) → how many times its usual traffic it has."""


class Cluster:
    """Brokers with bundles of equal traffic, which report what they serve each minute.

    `cost`: the part of a broker's CPU that a bundle uses; `card`: the same of its network card.
    """

    def __init__(self, times: Times, *, cost: float = 0.04, noise: float = 0.01) -> None:
        self.times, self.cost, self.noise, self.card = times, cost, noise, 0.0
        self.cheap = False
        self.owner = {
            f"t/n{at % SPACES}/0x{number:04x}{at:04x}_0x{number:04x}{at + 1:04x}": number
            for number in range(BROKERS)
            for at in range(EACH)
        }
        self.dear: dict[str, float] = {}
        """Bundle → how many times the CPU it costs."""
        self.lies: dict[str, float] = {}
        """Bundle → what a report claims of it, as a multiple, in this minute only."""
        self.wanted: dict[int, float] = {}
        """Broker → the part of its CPU that is asked for."""
        self.view, self.memories, self.minute = ClusterView(), Memories(), 0
        self._random = random.Random(3)

    def next(self) -> Plan:
        """All report, and moves are made."""
        snapshot, now_ms = self.reported(), self.minute * MINUTE_MS
        plan, self.memories = cycle.shed(snapshot, SETTINGS, self.memories)
        for move in plan.unloads:
            assert move.destination is not None
            self.owner[move.bundle] = int(move.destination[1])
            self.view.placed(move.bundle, move.destination, now_ms)
            self.view.moved(move.bundle, move.source, now_ms)
        self.lies = {}
        return plan

    def reported(self) -> ClusterSnapshot:
        """A minute later, when all have reported."""
        self.minute += 1
        for number in range(BROKERS):
            self._report(number, self.minute * MINUTE_MS)
        return without_policies(self.view, SETTINGS, self.minute * MINUTE_MS)

    def modelled(self, *, in_a_cycle: bool) -> ModelledBrokers:
        """After the next reports, without moves."""
        memory: BalancedMemory = self.memories.of(SHEDDER)
        snapshot = self.reported()
        model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, memory.model)
        full = FullBrokers((), {}) if in_a_cycle else None
        return ModelledBrokers(snapshot, model, 0.16, leaving={}, far=(), full=full)

    def moves(self, minutes: int) -> int:
        """How many are made in so many minutes."""
        return sum(len(self.next().unloads) for _ in range(minutes))

    def _report(self, number: int, now_ms: int) -> None:
        bundles = [bundle for bundle, owner in self.owner.items() if owner == number]
        times = {bundle: self.times(self.minute, int(bundle[3])) for bundle in bundles}
        work = {
            bundle: self.cost
            * self.dear.get(bundle, 1.0)
            * (0.01 if self.cheap and bundle[3] == str(CHEAP) else 1.0)
            * times[bundle]
            for bundle in bundles
        }
        wanted = self.wanted[number] = sum(work.values())
        served = 1 / max(wanted, 1.0)
        stats = {
            bundle: NamespaceBundleStats(
                msg_throughput_in=1e6
                * served
                * times[bundle]
                * self._random.uniform(0.97, 1.03)
                * self.lies.get(bundle, 1.0),
                msg_rate_in=1000.0,
                consumer_count=2,
            )
            for bundle in bundles
        }
        shown = min(max(min(wanted, 1.0) + self._random.gauss(0, self.noise), 0.01), 1.0)
        report = a_report(stats, cpu=100 * shown, last_update=now_ms)
        report.msg_throughput_in = sum(each.msg_throughput_in for each in stats.values())
        if self.card:
            used = self.card * sum(times.values())
            report.bandwidth_in = ResourceUsage(usage=1e6 * used, limit=1e6)
        self.view.observe(f"b{number}:8080", report, now_ms)


def codes(plan: Plan) -> set[str]:
    return {skip.code for skip in plan.skipped}


def test_traffic_that_costs_next_to_nothing() -> None:
    """A tenant sends three times the bytes of all others together, again and again, in messages so
    large that no CPU shows it: nothing moves for it, and no sensor is accused.
    """
    cluster = Cluster(lambda minute, space: bursts(minute) if space == CHEAP else 1.0)
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
    cluster = Cluster(lambda minute, space: 4.0 if minute > 20 and space == CHEAP else 1.0)
    plans = [cluster.next() for _ in range(40)]
    assert "TrafficDip" not in set().union(*map(codes, plans))


def test_a_broker_that_stays_full_is_asked_for_more() -> None:
    """It shows 100 % and reports what it serves, so that nothing shows how much is missing."""
    cluster = Cluster(lambda _minute, _space: 1.0, cost=0.055)
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
    assert Cluster(lambda _minute, _space: 1.0, cost=0.05, noise=0.12).moves(180) <= 12


@pytest.mark.parametrize("times", [10.0, 1e3, 1e9])
def test_one_wrong_report_is_over_soon(times: float) -> None:
    """What is usual follows in bounded steps."""
    cluster = Cluster(lambda _minute, _space: 1.0)
    cluster.moves(30)
    cluster.lies = {next(iter(cluster.owner)): times}
    cluster.next()
    waits = ["TrafficDip" in codes(cluster.next()) for _ in range(15)]
    assert not any(waits[8:])


def test_cards_and_processors_alike() -> None:
    """Where the bundles of some brokers use the CPU more and those of others the cards, moves would
    always fit something better, and make no broker more even.
    """
    cluster = Cluster(comes_and_goes, cost=0.045, noise=0.02)
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
    cluster = Cluster(lambda _minute, _space: 1.0)
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
    cluster = Cluster(lambda minute, _space: 6.0 if minute > 30 else 1.0, cost=0.01)
    cluster.moves(30)
    brokers = cluster.modelled(in_a_cycle=in_a_cycle)
    _, bytes_s, work = brokers.traffic_of("b0:8080")
    brokers.usage[1:] = 0.1
    _, refused = brokers.burden([0] * len(bytes_s), [1] * len(bytes_s), work)
    assert refused.all() == in_a_cycle
