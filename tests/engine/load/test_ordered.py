"""The largest bundles that carry a goal together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadmanager.engine.load.averages import Ordered

LOADS = st.floats(-1e9, 1e12, allow_nan=False)


@given(st.lists(LOADS, max_size=30), LOADS)
def test_bundles_are_taken_until_the_goal_is_reached(loads: list[float], goal: float) -> None:
    """As one after the other would be added, with the same rounding."""
    expected, moved = [], 0.0
    for bundle, load in enumerate(loads):
        expected.append(str(bundle))
        moved += load
        if moved >= goal:
            break
    names = [str(bundle) for bundle in range(len(loads))]
    ordered = Ordered(names, np.arange(len(loads)), np.array(loads), plain=True)
    assert ordered.reaching(goal) == expected
    assert ordered.reaching(goal) == expected, "the second time, from what was kept"
    assert [ordered[at] for at in range(len(loads))] == [name for name, _ in ordered] == names
    assert ordered.reaching(goal) == expected, "after all names were asked for"
