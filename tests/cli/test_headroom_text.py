"""Headroom is said with the error of the model that it goes by."""

from __future__ import annotations

import pytest

from loadmanager.cli.admin.status import headroom_text
from loadmanager.leader.documents.cluster import HeadroomShown


def test_traffic_that_uses_next_to_nothing_tells_nothing() -> None:
    """In place of a figure that varies from minute to minute."""
    room = HeadroomShown(
        resource="cpu", below_percent=85, times=31.4, times_without_one=20.9,
        carried_percent=1.23, measurable_from_percent=5.0,
    )  # fmt: skip
    assert headroom_text(room, [0.01]) == (
        "headroom is not measurable below 5%: the traffic uses 1.2% of CPU on the mean"
    )
    room.carried_percent = 5.0
    assert headroom_text(room, []).startswith("spread evenly, CPU is below 85%")


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
    """How many cycles it is the median of, and since when."""
    room = HeadroomShown(
        resource="cpu", below_percent=80, times=2.0, times_without_one=1.5, looks=5, since=0
    )
    basis = "(the median of 5 cycles since 00:00:00Z; the model of usage is 1.0 points off on the"
    assert f"{basis} mean)" in headroom_text(room, [0.01])
    room.looks = 1
    assert headroom_text(room, []).endswith("lost")
