"""Sizes in words."""

from __future__ import annotations

import pytest

from loadmanager.kit.units import GIB, MIB, free_text, gibibytes


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.0 MiB"), (3 * MIB, "3.0 MiB"), (52 * MIB, "0.1 GiB"), (1500 * GIB, "1,500.0 GiB")],
)
def test_a_small_size_is_not_0_gib(size: int, text: str) -> None:
    """It is in MiB then."""
    assert gibibytes(size) == text


def test_what_is_free_of_a_disk() -> None:
    """In one unit, unless so little is free that it would be nothing."""
    assert free_text(40 * GIB, 100 * GIB) == "40.0 of 100.0 GiB are free"
    assert free_text(MIB, 3 * MIB) == "1.0 of 3.0 MiB are free"
    assert free_text(MIB, 100 * GIB) == "1.0 MiB of 100.0 GiB are free"
