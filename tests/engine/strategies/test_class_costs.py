"""What traffic costs in each class of namespaces is learned from how busy brokers are."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from loadmanager.engine.load import class_costs
from loadmanager.engine.load.bundle_traffic import COST_CLASSES, Traffic, cost_class_of
from loadmanager.engine.load.class_costs import BundleCosts
from loadmanager.engine.load.columns import Array
from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab.closed_loop import ClosedLoop
from loadmanager.lab.days import DaySize, Pattern, make_day
from loadmanager.lab.measures import measure


def traffic(rng: np.random.Generator, brokers: int, each: int, classes: int) -> Traffic:
    """Bundles of some classes on brokers, as many on each."""
    count = brokers * each
    return Traffic(
        rng.lognormal(10, 1, count),
        rng.integers(0, classes, count),
        np.full(brokers, each, np.int64),
    )


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_found(seed: int) -> None:
    """With noise in the sensors, what is left unexplained is a small part of what was."""
    rng = np.random.default_rng(seed)
    here = traffic(rng, brokers=10, each=40, classes=8)
    true = np.ones(COST_CLASSES)
    true[:8] = rng.lognormal(0, 1, 8)
    plain = here.totals(here.bytes_s)
    mean = (plain * class_costs.dearness(BundleCosts(true), here)).sum() / plain.sum()
    used = plain * class_costs.dearness(BundleCosts(true), here)
    costs = np.ones(COST_CLASSES)
    for _ in range(100):
        noisy = used * rng.normal(1, 0.04, len(used))
        costs = class_costs.learn(BundleCosts(costs), here, noisy, mean * plain)

    def unexplained(costs: Array) -> float:
        return float(
            np.abs(mean * plain * class_costs.dearness(BundleCosts(costs), here) / used - 1).mean()
        )

    assert unexplained(costs) < unexplained(np.ones(COST_CLASSES)) / 2.5
    assert np.array_equal(costs[8:], np.ones(COST_CLASSES - 8))


def test_a_lying_sensor_teaches_little() -> None:
    """One broker of twenty that claims ten times its usage counts as twice as busy."""
    here = traffic(np.random.default_rng(1), brokers=20, each=40, classes=8)
    plain = here.totals(here.bytes_s)
    used = plain.copy()
    used[0] *= 10
    costs = class_costs.learn(BundleCosts(np.ones(COST_CLASSES)), here, used, plain)
    assert costs.max() < 2**class_costs.LEARNED
    assert np.median(costs[:8]) < 1.05


def test_brokers_of_which_nothing_is_expected_do_not_count() -> None:
    """Neither what they use nor what they carry teaches anything."""
    here = traffic(np.random.default_rng(1), brokers=2, each=10, classes=4)
    expected = here.totals(here.bytes_s)
    expected[1] = 0.0
    first = Traffic(here.bytes_s[:10], here.cost_classes[:10], here.counts[:1])
    both = class_costs.learn(
        BundleCosts(np.ones(COST_CLASSES)), here, 1.5 * here.totals(here.bytes_s), expected
    )
    alone = class_costs.learn(
        BundleCosts(np.ones(COST_CLASSES)), first, 1.5 * expected[:1], expected[:1]
    )
    assert np.array_equal(both, alone)


def test_what_was_learned_fades() -> None:
    """Where nothing is surprising any more, and where no traffic is."""
    costs = np.full(COST_CLASSES, 2.0)
    here = traffic(np.random.default_rng(1), brokers=2, each=10, classes=4)
    plain = here.totals(here.bytes_s)
    faded = class_costs.learn(BundleCosts(costs), here, 2 * plain, plain)
    assert (faded < 2).all()
    assert (faded > 1.98).all()


def test_what_a_liar_taught_can_be_forgotten() -> None:
    """As much of a class's cheapness as it carries of the class; dear classes stay dear."""
    here = Traffic(np.array([3.0, 1.0, 1.0, 1.0]), np.array([0, 1, 0, 2]), np.array([2, 2]))
    costs = np.ones(COST_CLASSES)
    costs[:3] = 0.5, 0.25, 3.0
    after = class_costs.without(BundleCosts(costs), here, np.array([True, False]))
    assert after[:3] == pytest.approx([0.5 ** (1 / 4), 1.0, 3.0])
    after = class_costs.without(BundleCosts(costs), here, np.array([False, True]))
    assert after[:3] == pytest.approx([0.5 ** (3 / 4), 0.25, 3.0])


def test_the_memory_is_small_and_may_be_damaged() -> None:
    """Only what differs from the mean is kept; impossible classes and costs are passed over."""
    rng = random.Random(1)
    costs = np.ones(COST_CLASSES)
    costs[[3, 99]] = 0.5, 1 + rng.random()
    kept = class_costs.told_apart(costs)
    assert kept.keys() == {3, 99}
    assert np.allclose(class_costs.in_columns(kept), costs, atol=1e-5)
    damaged = {**kept, -1: 2.0, COST_CLASSES: 2.0, 4: -1.0, 5: 1e300}
    assert np.array_equal(class_costs.in_columns(damaged), class_costs.in_columns(kept))


def test_a_namespace_is_in_one_class() -> None:
    """Whatever the bundle."""
    classes = {cost_class_of(f"t/n/0x{at:08x}_0x{at + 1:08x}") for at in range(100)}
    assert len(classes) == 1
    assert classes != {cost_class_of("t/m/0x00000000_0x00000001")}


def test_dear_namespaces_are_told_in_a_closed_loop() -> None:
    """CPU goes by messages, whose size differs: the shedder learns which tenants are dear."""
    day = make_day(3, DaySize(brokers=10, bundles=400))
    assert isinstance(day.carried, Pattern)
    base = day.carried.base
    cost = (base * day.cost).sum() * (1 / day.message_bytes) / (base / day.message_bytes).sum()
    settings = StrategySettings(
        shedder="BalancedShedder",
        placement="BalancedPlacement",
        distribute_evenly=False,
    )
    loop = ClosedLoop(replace(day, cost=cost), settings)
    minutes = [loop.minute(minute) for minute in range(day.minutes)]
    memory = loop.memories.of(registry.SHEDDERS["BalancedShedder"])
    learned = class_costs.in_columns(memory.model.costs)
    classes = [cost_class_of(bundle) for bundle in day.bundles]
    assert np.corrcoef(np.log(learned[classes]), np.log(cost))[0, 1] > 0.7
    assert measure(minutes).spread < 10
