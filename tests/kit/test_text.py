"""Times for people."""

from __future__ import annotations

import pytest

from loadmanager.kit.text import MOMENT_MS_MAX, moment


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1970-01-01T00:00:00Z"),
        (951_782_400_999, "2000-02-29T00:00:00Z"),
        (MOMENT_MS_MAX, "9999-12-31T23:59:59Z"),
        (10**30, "9999-12-31T23:59:59Z"),
    ],
)
def test_a_moment_is_written_to_the_second(at_ms: int, text: str) -> None:
    assert moment(at_ms) == text
