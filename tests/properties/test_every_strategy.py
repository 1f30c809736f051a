"""The contract that ships for strategies of third parties, on every one of ours and on the package
of the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.testing.steady_load import NEWCOMER, skewed_then_joined
from loadmanager.testing.strategy_contract import PlacementContract, ShedderContract

sys.path.insert(0, str(Path(__file__).parents[1] / "packages" / "busiest"))

SHEDDERS, PLACEMENTS = sorted(registry.SHEDDERS), sorted(registry.PLACEMENTS)


NEWCOMERS_SHARE = 0.4
LEAVES_EMPTY = "OverloadShedder"
"""By its rule it moves nothing below its threshold, whatever is empty."""


def made(base: type[Any], strategy: str, beside: list[str], **fields: float) -> type[Any]:
    """The tests of one strategy."""
    promises = {"strategy": strategy, "beside": beside, **fields}
    return type(f"Test{strategy.rpartition(':')[2]}", (base,), promises)


for name in SHEDDERS:
    share = 0.0 if name == LEAVES_EMPTY else NEWCOMERS_SHARE
    contract = made(ShedderContract, name, SHEDDERS, newcomers_share=share)
    globals()[f"{contract.__name__}Sheds"] = contract
for name in PLACEMENTS:
    contract = made(PlacementContract, name, PLACEMENTS)
    globals()[f"{contract.__name__}Places"] = contract
del contract

TestBusiest = made(ShedderContract, "busiest:SHEDDER", [], newcomers_share=NEWCOMERS_SHARE)
TestFewestBundles = made(PlacementContract, "busiest:PLACEMENT", [])


def test_a_shedder_that_leaves_a_newcomer_empty_says_why() -> None:
    """In its decisions."""
    outcome = skewed_then_joined(StrategySettings(shedder=LEAVES_EMPTY))
    (skip,) = outcome.why
    assert (skip.what, outcome.share) == (NEWCOMER, 0)
    assert f"{LEAVES_EMPTY} moves nothing: NotOverloaded" in skip.reason
