"""Moves teach what traffic costs: each is an experiment at two brokers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lab.test_calibration import BALANCED, THRESHOLD, history

from loadmanager.engine.load.bundle_traffic import cost_class_of
from loadmanager.lab import from_moves
from loadmanager.lab.days import CPU_OF_A_CORE, DayOfLoad, DaySize, make_day
from loadmanager.lab.recorded import record

IDLE = 0.2


def steady_day(seed: int) -> DayOfLoad:
    """Traffic that is the same all day, but for noise, on brokers that use a fifth beside it and
    have unequal parts of it.
    """
    day = make_day(seed, DaySize(brokers=6, bundles=60, minutes=150, events=False))
    rng = np.random.default_rng(seed)
    sizes = rng.lognormal(0, 0.7, 60)
    cores = sum(day.cores[name] for name in day.brokers)
    each = 0.35 * cores * CPU_OF_A_CORE * sizes / sizes.sum() / day.cost.mean()
    carried = np.stack([each * rng.lognormal(0, 0.03, 60) for _ in range(150)])
    owners = [day.brokers[min(at % 9, 5)] for at in range(60)]
    return replace(
        day,
        beside=IDLE,
        cost=np.full(60, day.cost.mean()),
        carried=carried.astype(np.float32),
        owners=tuple(owners),
    )


def test_moves_tell_idle_cpu_from_traffic_that_never_changes() -> None:
    """Two slow machines have less traffic, as their shedder wants it, so that all brokers are used
    alike: comparing them says that half of the idle part is traffic.
    """
    day = steady_day(6)
    day = replace(day, slow={day.brokers[0]: 1.6, day.brokers[3]: 1.6})
    fit = record(history(day, BALANCED)).fit
    assert fit.beside == pytest.approx(IDLE, abs=0.05)
    assert fit.costs.mean == pytest.approx(float(day.cost[0]), rel=0.1)
    assert set(fit.slow) == set(day.slow)


def test_what_is_left_of_moves_corrects_the_costs_of_what_moved() -> None:
    """One class costs twice what was expected, another half; one that moved little stays."""
    rng = np.random.default_rng(1)
    of_classes = rng.choice([-0.05, 0.05], (60, 3)) * [1, 1, 0.001]
    usage = of_classes @ [2.0, 0.5, 3.0] + rng.normal(0, 0.01, 60)
    steps = from_moves.MoveSteps(
        np.arange(60), np.zeros(60, np.int64), usage, np.zeros(1, np.int64)
    )
    dear, cheap, still = from_moves.corrections(steps, of_classes.sum(axis=1), of_classes)
    assert dear == pytest.approx(2.0, abs=0.3)
    assert cheap == pytest.approx(0.5, abs=0.3)
    assert still == pytest.approx(1.0, abs=0.05)


def test_few_or_contradictory_moves_tell_nothing() -> None:
    """Nor a day without any."""
    minutes, rows = np.arange(40), np.zeros(40, np.int64)
    still = from_moves.move_steps(minutes, rows, rows, np.full((40, 1), 0.5))
    assert len(still) == 0
    assert from_moves.slope(still, np.ones((40, 1))) is None
    rng = np.random.default_rng(2)
    traffic = np.cumsum(rng.normal(0, 1, (200, 2)), axis=0) + 50
    steps = from_moves.MoveSteps(
        np.arange(20, 180, 10), np.zeros(16, np.int64), rng.normal(0, 1, 16), np.arange(2)
    )
    assert from_moves.slope(steps, traffic) is None


def test_dear_namespaces_are_told_apart_by_their_moves() -> None:
    """Although their traffic never changes."""
    day = steady_day(4)
    dear = np.array([cost_class_of(name) % 2 == 0 for name in day.bundles])
    assert 5 < dear.sum() < 55
    day = replace(day, cost=np.where(dear, 2.0, 0.7) * day.cost)
    fit = record(history(day, THRESHOLD)).fit
    costs = np.array([fit.costs.of(name, 1024) for name in day.bundles])
    assert costs[dear].mean() > 1.5 * costs[~dear].mean()
