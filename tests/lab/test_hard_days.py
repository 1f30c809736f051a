"""BalancedShedder in worlds that a seed makes as hard as can be: its moves add no overload."""

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
LITTLE = 0.5
"""Minutes of work of one broker: a wrong guess costs something until it is seen."""


@pytest.mark.parametrize("seed", [*range(2_000, 2_006), 5_125, 5_131])
def test_moves_add_no_overload(seed: int) -> None:
    """No more work is undone than without moves. A broker that is overloaded for five minutes, and
    would not be without them, has an overload that another one would have.
    """
    day = hard_day(seed, brokers_max=10)
    ours, still = (run(day, settings) for settings in (OURS, STILL))
    assert undone(day, ours) <= undone(day, still) + LITTLE
    for overload in overloads(day, ours, still):
        if overload.mean <= FULL:
            assert overload.undone <= overload.undone_without + LITTLE, overload
