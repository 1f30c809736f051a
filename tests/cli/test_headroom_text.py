"""Headroom is said with the error of the model that it goes by."""

from __future__ import annotations

import pytest
from leader.documents import a_cluster_shown

from loadmanager.cli.admin.status import headroom_text
from loadmanager.cli.admin.what_if import by_reports
from loadmanager.lab.what_if import WhatIf
from loadmanager.leader.documents.cluster import HeadroomShown


def test_traffic_that_uses_next_to_nothing_tells_the_least() -> None:
    """In place of a figure that varies from minute to minute."""
    room = HeadroomShown(
        resource="cpu", below_percent=85, times=31.4, times_without_one=20.9,
        carried_percent=1.23, measurable_from_percent=5.0, at_least=4.25, at_least_without_one=2.83,
    )  # fmt: skip
    assert headroom_text(room, [0.01]) == (
        "if the load were even, no broker would be above 85% up to at least 4.2 times the traffic, "
        "2.8 times it if the broker with most room is lost (the traffic uses 1.2% of CPU on the "
        "mean, which is too little to tell how much more than that)"
    )
    room.carried_percent = 5.0
    assert headroom_text(room, []).startswith(
        "if the load were even, CPU would be below 85% up to 31.4 times"
    )


@pytest.mark.parametrize(("cordoned", "said"), [(1, "1 cordoned broker counts"), (2, "s count")])
def test_headroom_says_which_brokers_have_none(cordoned: int, said: str) -> None:
    """Below 1, a broker cannot be lost."""
    room = HeadroomShown(
        resource="cpu", below_percent=85, times=1.5, times_without_one=0.7, cordoned=cordoned
    )
    text = headroom_text(room, [])
    assert "the traffic, only 0.7 times it if the broker with most room is lost (" in text
    assert f"{said} as full" in text


def test_no_other_broker_may_have_room() -> None:
    """As where the others are cordoned: no multiple of the traffic is said then."""
    room = HeadroomShown(
        resource="cpu", below_percent=85, times=6.4, times_without_one=0.0, cordoned=1
    )
    text = headroom_text(room, [])
    assert "6.4 times the traffic, and no other broker has room if the broker with most" in text


@pytest.mark.parametrize(
    ("errors", "said"),
    [([], "lost"), ([0.01, 0.03], "lost (the model of usage is 2.0 points off on the mean)")],
)
@pytest.mark.parametrize("without_one", [0.9, 1.5])
def test_headroom_says_how_far_off_the_model_is(
    errors: list[float], said: str, without_one: float
) -> None:
    """Whether one broker may be lost or not."""
    room = HeadroomShown(resource="cpu", below_percent=80, times=2.0, times_without_one=without_one)
    assert headroom_text(room, errors).endswith(said)


def test_headroom_says_its_basis() -> None:
    """Of when it is: the load may be another one now."""
    room = HeadroomShown(
        resource="cpu", below_percent=80, times=2.0, times_without_one=1.5, looks=5, since=0
    )
    room.last = 240_000
    cycles = "by the median of 5 cycles from 00:00:00Z to 00:04:00Z, if the load were even, CPU "
    assert headroom_text(room, [0.01]).startswith(cycles)
    room.looks = 1
    assert headroom_text(room, []).startswith("by the cycle at 00:00:00Z, if the load were even")


@pytest.mark.parametrize(
    ("times", "carried", "said"),
    [
        (
            2,
            10.0,
            "traffic × 2 fits: by the cycle at 00:00:00Z, if the load were even, CPU would be be",
        ),
        (4, 10.0, "traffic × 4 fits while no broker is lost: by the cycle at 00:00:00Z, "),
        (6, 10.0, "traffic × 6 is too much for these brokers: by the cycle at 00:00:00Z, "),
        (
            2,
            1.0,
            "traffic × 2 fits while no broker is lost: by the cycle at 00:00:00Z, if the load were",
        ),
        (
            6,
            1.0,
            "traffic × 6 may be too much: by the cycle at 00:00:00Z, if the load were even, no",
        ),
    ],
)
def test_whether_more_traffic_fits_by_the_last_reports(
    times: float, carried: float, said: str
) -> None:
    """Also where a replay has no figures: by what is sure, if traffic uses next to nothing."""
    cluster = a_cluster_shown([])
    cluster.headroom = HeadroomShown(
        resource="cpu", below_percent=85, times=5.0, times_without_one=3.0,
        carried_percent=carried, measurable_from_percent=5.0, at_least=2.5,
        at_least_without_one=1.5, since=0,
    )  # fmt: skip
    (line,) = by_reports(cluster, WhatIf(times=times))
    assert line.startswith(said)
    (line,) = by_reports(cluster, WhatIf(times=times, added=1))
    assert line.startswith("by the cycle at 00:00:00Z, ")
    assert by_reports(cluster, WhatIf(added=1)) == []
    assert by_reports(None, WhatIf(times=times)) == []
