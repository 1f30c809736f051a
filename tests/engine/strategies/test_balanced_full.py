"""BalancedShedder where a sensor shows that a broker is full, and the model says that it is not."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from clusters.views import a_report, without_policies

from loadmanager.engine.load.cluster_view import ClusterView
from loadmanager.engine.load.learned import Learned
from loadmanager.engine.load.reports import LocalBrokerData, NamespaceBundleStats
from loadmanager.engine.load.usage_fit import fit
from loadmanager.engine.strategies import cycle
from loadmanager.engine.strategies.memories import Memories
from loadmanager.engine.strategies.plan import Unload
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.engine.strategies.shedding import surplus
from loadmanager.engine.strategies.shedding.balanced import SHEDDER, BalancedMemory
from loadmanager.engine.strategies.shedding.by_sensors import SHOWN_MORE, BySensors
from loadmanager.engine.strategies.shedding.objective import OVERLOAD
from loadmanager.engine.strategies.shedding.surplus import Relief
from loadmanager.kit.model import encoded
from loadmanager.kit.units import HOUR_MS, MINUTE_MS

SETTINGS = StrategySettings(shedder="BalancedShedder")
FULL = "b0:8080"


class Cluster:
    """Six brokers with 12 bundles of four namespaces each. Those of the first one have a tenth of
    the traffic of others; `each`: the part of a broker's CPU that one of them uses, `beside`: what
    their broker uses beside traffic.
    """

    def __init__(self, each: float, beside: float = 0.0) -> None:
        self.each, self.beside = each, beside
        self.owner = {
            f"t/n{at % 4}/0x{number:04x}{at:04x}_0x{number:04x}{at + 1:04x}": f"b{number}:8080"
            for number in range(6)
            for at in range(12)
        }
        self.first = dict(self.owner)
        self.shown: dict[str, float] = {}
        """Broker → what its sensor showed last."""
        self.busier: dict[str, float] = {}
        """Broker → how many times others its first bundles have and use."""
        self.messages: dict[str, float] = {}
        """Bundle → messages/s, if they are not one for each 1,000 bytes."""
        self.memories = Memories()
        self._view, self._now_ms, self._rng = ClusterView(), 0, random.Random(1)

    def minute(self) -> list[Unload]:
        """All report, and moves are made."""
        self._now_ms += MINUTE_MS
        for broker in sorted(set(self.first.values())):
            self._view.observe(broker, self._report(broker), self._now_ms)
        snapshot = without_policies(self._view, SETTINGS, self._now_ms)
        plan, self.memories = cycle.shed(snapshot, SETTINGS, self.memories)
        for move in plan.unloads:
            assert move.destination is not None
            self.owner[move.bundle] = move.destination
            self._view.placed(move.bundle, move.destination, self._now_ms)
            self._view.moved(move.bundle, move.source, self._now_ms)
        return list(plan.unloads)

    def _report(self, broker: str) -> LocalBrokerData:
        stats, used = {}, self.beside if broker == FULL else 0.0
        for bundle, owner in self.owner.items():
            if owner == broker:
                small = self.first[bundle] == FULL
                times = self.busier.get(self.first[bundle], 1.0)
                bytes_s = (1e5 if small else 1e6) * times * self._rng.uniform(0.97, 1.03)
                used += times * (self.each if small else 0.45 / 12)
                stats[bundle] = NamespaceBundleStats(
                    msg_throughput_in=bytes_s,
                    msg_rate_in=self.messages.get(bundle, bytes_s / 1000),
                    consumer_count=2,
                )
        used += self._rng.uniform(-0.01, 0.01)
        self.shown[broker] = min(used, 1.0)
        report = a_report(stats, cpu=100 * self.shown[broker], last_update=self._now_ms)
        report.msg_throughput_in = sum(each.msg_throughput_in for each in stats.values())
        return report

    @property
    def reliefs(self) -> dict[str, Relief]:
        memory: BalancedMemory = self.memories.of(SHEDDER)
        return dict(memory.relief)


@pytest.mark.parametrize(("each", "beside"), [(0.075, 0.0), (0.09, 0.0), (0.003, 0.85)])
def test_a_full_broker_takes_nothing(each: float, beside: float) -> None:
    """From the first report on, when the model knows only that it has little traffic."""
    cluster = Cluster(each, beside)
    for _ in range(40):
        moves = cluster.minute()
        if cluster.shown[FULL] > OVERLOAD:
            assert not [move for move in moves if move.destination == FULL]


def test_what_is_full_refuses() -> None:
    """Whatever the model says: from the sensors alone, of those that count."""
    view = ClusterView()
    for number, cpu in enumerate((97, 90, 84, 30, 99)):
        stats = {f"t/n{number}/0x0_0x1": NamespaceBundleStats(msg_throughput_in=1e6)}
        view.observe(f"b{number}:8080", a_report(stats, cpu=cpu), 1)
    snapshot = without_policies(view, SETTINGS)
    model = fit(snapshot.columns, snapshot.averages, SETTINGS.weights, Learned())
    trusted = np.array([True, True, True, True, False])
    guard = BySensors(replace(model, trusted=trusted), np.full(5, OVERLOAD), downhill=False)
    sources, all_that_are = np.zeros(5, np.int64), np.arange(5)
    assert guard.refused(sources, all_that_are).tolist() == [True, True, False, False, False]
    guard = BySensors(replace(model, trusted=trusted), np.full(5, OVERLOAD), downhill=True)
    assert guard.refused(sources + 3, all_that_are).tolist() == [True] * 3 + [False] * 2
    assert guard.refused(sources + 4, all_that_are).tolist() == [True, True, False, False, False]


def test_a_full_broker_relieves_no_fuller_one() -> None:
    """There are others."""
    cluster, moves = Cluster(0.075), []
    cluster.busier["b1:8080"] = 2.4
    for _ in range(10):
        takers = [move.destination for move in cluster.minute() if move.source == "b1:8080"]
        assert cluster.shown[FULL] <= OVERLOAD or FULL not in takers
        moves += takers
    assert moves


def test_one_that_shows_more_than_the_source_takes_nothing() -> None:
    """Also if it is far from full. One that shows less is filled."""
    busier = Cluster(0.06)
    for _ in range(20):
        for move in busier.minute():
            if move.destination == FULL:
                assert busier.shown[FULL] <= busier.shown[move.source] + SHOWN_MORE
    idle = Cluster(0.01)
    assert [move for _ in range(10) for move in idle.minute() if move.destination == FULL]


def test_few_bundles_leave_a_full_broker_if_that_does_not_help() -> None:
    """Those with most messages, in a few cycles: something else runs there."""
    cluster = Cluster(0.003, beside=1.2)
    many = [bundle for bundle, owner in cluster.owner.items() if owner == FULL][:6]
    cluster.messages = dict.fromkeys(many, 110.0)
    leave = [[move.bundle for move in cluster.minute() if move.source == FULL] for _ in range(120)]
    first = next(bundles for bundles in leave if bundles)
    assert set(first) <= set(many)
    assert cluster.reliefs[FULL].cycles == surplus.CYCLES
    assert not [bundle for bundles in leave[60:] for bundle in bundles]
    assert sum(map(len, leave)) <= 8


@pytest.mark.parametrize("each", [0.08, 0.1])
def test_more_leave_if_that_helps(each: float) -> None:
    """Until the broker is full no more; and none of the others is."""
    cluster = Cluster(each)
    for _ in range(60):
        cluster.minute()
    assert max(cluster.shown.values()) < 0.85


def test_a_sensor_that_jumps_gives_nothing_away() -> None:
    """Bundles leave only a broker that was full in each cycle of five minutes."""
    full, reliefs = {FULL: 0.99}, dict[str, Relief]()
    for minute in range(1, 100):
        reliefs = surplus.after(reliefs, full if minute % 5 else {}, (), minute * MINUTE_MS)
        assert not [it for it in reliefs.values() if surplus.leaves(it, 0.99)]
    reliefs = surplus.after(reliefs, {}, (), 100 * MINUTE_MS)
    for minute in range(101, 106):
        reliefs = surplus.after(reliefs, full, (), minute * MINUTE_MS)
        assert not surplus.leaves(reliefs[FULL], 0.99)
    reliefs = surplus.after(reliefs, full, (), 106 * MINUTE_MS)
    assert surplus.leaves(reliefs[FULL], 0.99)


def test_relief_is_forgotten() -> None:
    """An hour after the broker was full; until then it counts."""
    full, began_ms = {FULL: 0.99}, MINUTE_MS
    reliefs = surplus.after({}, full, {FULL}, began_ms)
    assert reliefs == {FULL: Relief(0.99, 1, began_ms, began_ms)}
    for minute in range(2, surplus.CYCLES + 1):
        assert surplus.leaves(reliefs[FULL], 0.99)
        reliefs = surplus.after(reliefs, full, {FULL}, minute * MINUTE_MS)
    assert not surplus.leaves(reliefs[FULL], 0.99)
    assert surplus.leaves(reliefs[FULL], 0.99 - surplus.FALL)
    last_ms = surplus.CYCLES * MINUTE_MS
    assert surplus.after(reliefs, {}, (), last_ms + HOUR_MS - 1) == reliefs
    assert surplus.after(reliefs, {}, {FULL}, last_ms + HOUR_MS) == {}


def test_relief_is_remembered() -> None:
    """By the next leader; what a version before stored has none."""
    memory = BalancedMemory(relief={FULL: Relief(0.99, 2, 4, 5)})
    document = encoded(memory)
    assert msgspec.json.decode(document, type=BalancedMemory) == memory
    older = msgspec.json.decode(document)
    del older["relief"]
    assert msgspec.convert(older, BalancedMemory) == BalancedMemory()
