"""BalancedShedder in worlds that a seed makes as hard as can be: it adds no overload to any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab.closed_loop import run
from loadmanager.lab.hard_days import hard_day, overloads, undone

OURS = StrategySettings(
    shedder="BalancedShedder", placement="BalancedPlacement", distribute_evenly=False
)
STILL = replace(OURS, shedding_enabled=False)
FULL = 0.85
"""Where all brokers together are so full, evening out makes more of them overloaded, each less."""
ROUNDING = 0.1


@pytest.mark.parametrize("seed", range(2_000, 2_012))
def test_moves_add_no_overload(seed: int) -> None:
    """No work is undone that would be done without moves, over the day. If a broker is overloaded
    for five minutes that would not be without them, it has an overload that another one would have:
    all brokers together leave no more undone meanwhile.
    """
    day = hard_day(seed, brokers_max=10)
    ours, still = run(day, OURS), run(day, STILL)
    assert undone(day, ours) <= undone(day, still) + ROUNDING
    for overload in overloads(day, ours, still):
        if overload.mean <= FULL:
            assert overload.undone <= overload.undone_without + ROUNDING, overload
