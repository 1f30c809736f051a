"""Hours of the week in which moves may be made."""

from __future__ import annotations

from datetime import datetime

import pytest

from loadmanager.kit.errors import BadInputError
from loadmanager.leader.windows import Window, any_open


@pytest.mark.parametrize(
    ("window", "moment", "is_open"),
    [
        ("08:00-20:00", "2026-11-25T08:00+00:00", True),
        ("08:00-20:00", "2026-11-25T20:00+00:00", False),
        ("Sat,Sun 08:00-20:00", "2026-11-28T12:00+00:00", True),
        ("Sat,Sun 08:00-20:00", "2026-11-27T12:00+00:00", False),
        ("Mon-Fri 22:00-06:00", "2026-11-27T23:00+00:00", True),
        ("Mon-Fri 22:00-06:00", "2026-11-28T05:59+00:00", True),  # Friday's night
        ("Mon-Fri 22:00-06:00", "2026-11-28T06:00+00:00", False),
        ("Mon-Fri 22:00-06:00", "2026-11-28T23:00+00:00", False),
        ("Mon-Fri 22:00-06:00", "2026-11-30T05:00+00:00", False),  # Sunday's night
        ("friday-monday 00:00-00:00", "2026-11-29T13:00+00:00", True),
        ("friday-monday 00:00-00:00", "2026-11-25T13:00+00:00", False),
        ("22:00-23:00 Europe/Berlin", "2026-11-27T21:30+00:00", True),  # winter: UTC+1
        ("22:00-23:00 Europe/Berlin", "2026-07-01T20:30+00:00", True),  # summer: UTC+2
        ("22:00-23:00 Europe/Berlin", "2026-07-01T21:30+00:00", False),
    ],
)
def test_windows_open_and_close(window: str, moment: str, *, is_open: bool) -> None:
    """By the clock of their zone; hours past midnight belong to the day before."""
    now_ms = round(datetime.fromisoformat(moment).timestamp() * 1000)
    assert Window.parse(window).is_open(now_ms) is is_open
    assert any_open((window,), now_ms) is is_open


def test_without_windows_every_hour_is_open() -> None:
    """And with several, that of each."""
    assert any_open((), 0)
    assert any_open(("12:00-13:00", "00:00-01:00"), 0)
    assert not any_open(("12:00-13:00", "14:00-15:00"), 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mon",
        "8:00-9:00",
        "25:00-26:00",
        "noday 08:00-09:00",
        "Monkey 08:00-09:00",
        "Fri-Mon-Tue 08:00-09:00",
        "Mon,,Tue 08:00-09:00",
        "- 08:00-09:00",
        "٢٢:٠٠-٢٣:٠٠",
        "08:00-09:00 Mars/Olympus",
        "08:00-09:00 ../../etc/passwd",
        "08:00-09:00 " + "x" * 5000,
    ],
)
def test_what_is_no_window_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(BadInputError, match="such as `Mon-Fri 22:00-06:00 Europe/Berlin`"):
        Window.parse(text)
