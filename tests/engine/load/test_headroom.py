"""How much more brokers can carry, checked against putting the work on them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadmanager.engine.load.headroom import CARRIED_MIN, at_least, headroom, measurable_from

LIMIT = 0.85
BROKER = st.tuples(
    st.floats(0, 0.5), st.floats(0.01, 10), st.floats(0, 1), st.booleans()
)  # beside, usage for a unit of work, work, closed


@example([(0.0, 1.0, 5e-324, False)])
@given(st.lists(BROKER, min_size=1, max_size=12))
def test_so_much_and_no_more_has_room(brokers: list[tuple[float, float, float, bool]]) -> None:
    """Each open broker filled up to the limit carries the present work so many times."""
    beside, each, work, closed = (np.array(column) for column in zip(*brokers, strict=True))
    found = headroom(LIMIT, beside, each, work, closed=closed)
    if work.sum() < CARRIED_MIN:
        assert found is None
        return
    assert found is not None
    fits = [(LIMIT - b) / e for b, e, _, shut in brokers if not shut]
    assert found.times * work.sum() == pytest.approx(sum(fits))
    assert found.times_without_one * work.sum() == pytest.approx(sum(sorted(fits)[:-1]), abs=1e-6)
    used = beside + each * work
    least, without_one = at_least(LIMIT, used, closed)
    assert least * used.sum() == pytest.approx(LIMIT * len(fits))
    assert without_one * used.sum() == pytest.approx(LIMIT * max(len(fits) - 1, 0), abs=1e-6)
    if used.sum() <= LIMIT * len(fits) and len({*each}) == 1:
        assert least <= found.times * (1 + 1e-9)


def test_what_is_used_beside_traffic_is_not_spread() -> None:
    """Two brokers at 60 %, of which 40 are idle: one alone would be at 80 %, not at 120."""
    idle, each, work = np.full(2, 0.4), np.ones(2), np.full(2, 0.2)
    room = headroom(LIMIT, idle, each, work)
    assert room is not None
    assert room.times == pytest.approx(0.9 / 0.4)
    assert room.times_without_one == pytest.approx(0.45 / 0.4)
    assert room.carried_usage == pytest.approx(0.2)


def test_it_is_measurable_when_traffic_stands_out() -> None:
    """Of the noise of sensors, or of the errors of the model."""
    assert measurable_from([]) == measurable_from([0.01, 0.02]) == 0.05
    assert measurable_from([0.02, 0.06]) == pytest.approx(0.08)


def test_brokers_to_which_work_adds_nothing_do_not_count() -> None:
    """A broker without a speed of its network card has no room by it, and no load."""
    room = headroom(LIMIT, np.zeros(2), np.array([0.0, 1.0]), np.array([5.0, 0.425]))
    assert room is not None
    assert (room.times, room.times_without_one) == (2.0, 0.0)
