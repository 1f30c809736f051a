"""A sensor that does not follow the bundles that come to its broker is told by that."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from loadmanager.engine.load.follows import CHANGE, REPORTS, Changes, reports_still


def changes(
    rose: float,
    came: float,
    *,
    clients: float = 0.0,
    deviation: float = 0.0,
    below: float = 0.2,
    step: float = 0.0,
    room: float = 1.0,
) -> Changes:
    """Those of one broker."""
    return Changes(
        rose=np.array([rose]),
        came=np.array([came]),
        clients=np.array([clients]),
        deviation=np.array([deviation]),
        below=np.array([below]),
        step=np.array([step]),
        room=np.array([room]),
    )


def after(
    reports: Iterator[Changes] | list[Changes], before: int = 0, *, doubted: bool = False
) -> int:
    """Reports in a row that did not follow, after these."""
    still = np.array([float(before)])
    for each in reports:
        still = reports_still(still, each, np.array([doubted]))
    return int(still[0])


def test_a_sensor_that_stands_still_is_told_after_some_reports() -> None:
    """Whatever its noise, as long as it is small beside what came."""
    rng = random.Random(1)
    still = [changes(rng.uniform(-0.02, 0.02), 0.1) for _ in range(REPORTS)]
    assert after(still[:-1]) == REPORTS - 1
    assert after(still) == REPORTS
    assert after([*still, *still]) == REPORTS


def test_one_that_follows_is_not_told() -> None:
    """Nor one of which little is expected, or that shows more than is expected."""
    for each in (changes(0.08, 0.1), changes(0.0, 0.9 * CHANGE), changes(0.5, 0.1)):
        assert after([each] * 50) == 0


def test_a_late_sensor_is_not_told() -> None:
    """It shows what came some reports later."""
    rising = [changes(0.1 * (minute >= 5), 0.1) for minute in range(50)]
    assert after(rising[:5]) == 5
    assert after(rising) == 0


def test_what_the_clients_changed_is_no_accusation() -> None:
    """They went away while bundles came; or their bytes became cheap, and the sensor rose by what
    came alone.
    """
    left, cheaper = changes(-0.05, 0.1, clients=-0.15), changes(0.1, 0.1, clients=0.3)
    assert after([left] * 50) == 0
    assert after([cheaper] * 50) == 0
    assert after([changes(-0.05, 0.1, clients=0.0)] * 50) == REPORTS


def test_few_bundles_say_little() -> None:
    """One bundle may cost a fraction of what others do; ten of the same size do not."""
    one, ten = (changes(0.02, 0.1, deviation=0.6 * 0.1 / count**0.5) for count in (1, 10))
    assert after([one] * 50) == 0
    assert after([ten] * 50) == REPORTS


def test_a_doubted_sensor_has_to_follow_to_count_again() -> None:
    """Nothing is forgiven because nothing changes; whatever changes its traffic will do."""
    calm, jitter = changes(0.0, 0.0), changes(0.03, 0.0, clients=0.1)
    assert after([calm] * 500, REPORTS, doubted=True) == REPORTS
    assert after([jitter] * 500, REPORTS, doubted=True) == REPORTS
    for followed in (changes(0.08, 0.1), changes(-0.1, 0.0, clients=-0.12)):
        assert after([followed] * REPORTS, REPORTS, doubted=True) == 0


def test_a_doubted_sensor_that_agrees_with_the_model_counts_again() -> None:
    """Whatever it showed before, and whatever changes; one that shows too little does not."""
    for each in (changes(0.0, 0.0, below=0.05), changes(0.2, 0.0, clients=-0.1, below=-0.1)):
        assert after([each] * REPORTS, REPORTS, doubted=True) == 0
    assert after([changes(0.0, 0.0, below=0.08)] * 500, REPORTS, doubted=True) == REPORTS


def test_a_sensor_that_shows_few_values() -> None:
    """It may stand still while what came is less than a step of it."""
    assert after([changes(0.0, 0.15, step=0.1)] * 20) == 0
    assert after([changes(0.0, 0.2, step=0.1)] * 20) == REPORTS


def test_a_sensor_cannot_rise_above_a_full_broker() -> None:
    """One near the top shows what it can of what came, and does not have to show more."""
    for room in (0.03, 0.0):
        assert after([changes(0.02, 0.2, room=room)] * 50) == 0
        assert after([changes(0.0, 0.2, room=room)] * 50, 3, doubted=True) == 3
    assert after([changes(0.04, 0.2, room=0.1)] * 50) == 0
    assert after([changes(0.0, 0.2, room=0.1)] * 50) == REPORTS


def test_brokers_are_judged_each_by_itself() -> None:
    """`[broker]`."""
    two = Changes(
        rose=np.array([0.0, 0.1]),
        came=np.array([0.1, 0.1]),
        clients=np.zeros(2),
        deviation=np.zeros(2),
        below=np.zeros(2),
        step=np.zeros(2),
        room=np.ones(2),
    )
    assert reports_still(np.array([3.0, 3.0]), two, np.zeros(2, np.bool_)).tolist() == [4, 2]
