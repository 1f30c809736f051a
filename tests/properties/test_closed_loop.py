"""Every shedder in a closed loop: it comes to rest and stays there; an empty broker gets its share
within a bounded number of cycles, or the decisions say why not.
"""

from __future__ import annotations

import pytest
from properties.steady import NEWCOMER, run, strategies

from loadmanager.engine.strategies.settings import StrategySettings

NEVER = {"OverloadShedder"}
"""By its rule it moves nothing below its threshold, whatever is empty."""


@pytest.mark.parametrize("settings", strategies(), ids=lambda settings: settings.shedder)
def test_rest_and_newcomers(settings: StrategySettings) -> None:
    """With its default settings."""
    outcome = run(settings, seed=1)
    for phase in (outcome.skewed, outcome.joined):
        assert phase.cycles <= 120
        assert phase.still_moves <= 2
    assert outcome.skewed.gap < 40
    if settings.shedder in NEVER:
        (skip,) = outcome.why
        assert (skip.what, outcome.share) == (NEWCOMER, 0)
        assert f"{settings.shedder} moves nothing: NotOverloaded" in skip.reason
    else:
        assert outcome.share >= 0.4
        assert outcome.why == ()
