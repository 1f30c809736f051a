"""What a changed day comes to, and how many brokers are enough for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError
from loadmanager.lab.calibration import Calibration
from loadmanager.lab.closed_loop import run
from loadmanager.lab.day_rules import DayRules
from loadmanager.lab.days import DayEvent, DayOfLoad, DaySize, Kind, make_day
from loadmanager.lab.measures import WARM_UP_MINUTES
from loadmanager.lab.what_if import WhatIf, WhatIfOutcome, fewest, nobody_knows, outcome

SHAPE = DaySize(brokers=4, bundles=60, minutes=60, events=False)
MADE = make_day(3, SHAPE)
DAY = replace(MADE, carried=np.full((60, 60), 2e6, np.float32), cost=np.full(60, 1600 / 120e6))
"""Always the same traffic, which needs two brokers of the four."""
FIRST = DAY.brokers[0]
SETTINGS = StrategySettings(shedder="BalancedShedder", placement="BalancedPlacement")


def played(day: DayOfLoad) -> WhatIfOutcome:
    return outcome(run(day, SETTINGS))


def test_work_goes_to_the_brokers_that_are_left() -> None:
    """Three brokers do what four did."""
    was, changed = played(DAY), played(WhatIf(without=(FIRST,)).of(DAY))
    assert (was.brokers, changed.brokers) == (4, 3)
    assert changed.mean == pytest.approx(was.mean * 4 / 3, rel=0.05)
    assert changed.measures.hot_minutes >= was.measures.hot_minutes


def test_a_zone_is_lost_with_its_brokers() -> None:
    """As if each of them was named; a broker that is also named is lost once."""
    east = sorted(DAY.cores)[:2]
    day = replace(DAY, rules=(DayRules(minute=0, failure_domains={"east": east}),))
    change = WhatIf(zones=("east",), without=(east[0],))
    assert change.lost(day) == tuple(east)
    assert change.of(day).events == WhatIf(without=tuple(east)).of(day).events
    with pytest.raises(BadInputError, match="no failure domain west on this day; there are east"):
        WhatIf(zones=("west",)).of(day)


def test_more_brokers_share_the_work() -> None:
    """Moves fill them, as they fill any newcomer."""
    was, changed = played(DAY), played(WhatIf(added=4).of(DAY))
    assert changed.brokers == 8
    assert changed.mean < 0.65 * was.mean
    assert changed.measures.moves > was.measures.moves


def test_traffic_is_multiplied_for_those_who_were_named() -> None:
    """Also twice: a tenant's share of what everybody has more."""
    tenant = DAY.bundles[0].partition("/")[0]
    changed = WhatIf(times=2, tenants={tenant: 3}).of(DAY)
    before, after = (
        sum(minute.carried for minute in run(day, SETTINGS)[WARM_UP_MINUTES:])
        for day in (DAY, changed)
    )
    alone = WhatIf(tenants={tenant: 0}).of(DAY)
    others = sum(minute.carried for minute in run(alone, SETTINGS)[WARM_UP_MINUTES:])
    assert after == pytest.approx(2 * others + 6 * (before - others))
    assert before > others > 0


def test_a_lost_broker_does_not_come_back() -> None:
    """What the day has planned for it after that is no event."""
    returns = (DayEvent(30, Kind.DIES, FIRST), DayEvent(35, Kind.JOINS, FIRST))
    day = replace(DAY, events=returns)
    assert played(day).brokers == 4
    assert played(WhatIf(without=(FIRST,)).of(day)).brokers == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (WhatIf(without=("nobody:8080",)), "no loads of broker nobody:8080"),
        (WhatIf(tenants={"nobody": 2}), "no tenant nobody"),
        (WhatIf(without=tuple(DAY.cores)), "no broker is left"),
    ],
)
def test_what_the_day_does_not_have(change: WhatIf, words: str) -> None:
    """Is refused with what it has."""
    with pytest.raises(BadInputError, match=words):
        change.of(DAY)


def test_the_fewest_that_are_enough() -> None:
    """One fewer is not; twice the traffic needs more."""
    found = fewest(DAY, WhatIf(), played)
    assert found is not None
    count, best = found
    assert best.enough
    assert best.brokers == count
    lost = tuple(sorted(DAY.brokers)[count - 1 :])
    assert not played(WhatIf(without=lost).of(DAY, 0)).enough
    double = fewest(DAY, WhatIf(times=2), played)
    assert double is not None
    assert (count, double[0]) == (3, 5)


def test_no_number_is_enough_for_a_bundle_that_is_too_much() -> None:
    """One bundle can be on one broker only."""
    few = make_day(3, DaySize(brokers=2, bundles=1, minutes=60, events=False))
    one = replace(few, carried=np.full((60, 1), 1e9, np.float32))
    assert fewest(one, WhatIf(), played) is None


def test_when_nobody_knows_whether_brokers_are_enough() -> None:
    """The spread is far off, the most used broker, or the model."""
    was = played(DAY)

    def unknown(highest: float = 0.0, spread: float = 0.0, error: float = 0.0) -> bool:
        measures = replace(was.measures, spread=was.measures.spread + spread)
        calibration = Calibration(was.measures, measures, error)
        replayed = replace(was, highest=was.highest + highest, measures=measures)
        return nobody_knows(calibration, was, replayed)

    assert not unknown()
    assert not unknown(highest=-9, error=0.09)
    assert unknown(highest=-11)
    assert unknown(highest=11)
    assert unknown(error=0.11)
    assert unknown(spread=was.measures.spread + 3.1)
    assert not unknown(spread=2.9)
