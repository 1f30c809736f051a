"""Headroom is said with the error of the model that it goes by."""

from __future__ import annotations

import pytest

from loadmanager.cli.admin.status import headroom_text
from loadmanager.leader.documents.cluster import HeadroomShown


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
