"""Hours of the week in which moves may be made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from loadmanager.engine.plans.goals import TIME_MAX_MS
from loadmanager.kit.errors import BadInputError
from loadmanager.leader.windows import Window, any_open, next_open_ms, open_hours


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
        ("Thu 22:00-06:00 except 2026-12-24", "2026-12-24T23:00+00:00", False),
        ("Thu 22:00-06:00 except 2026-12-24", "2026-12-25T05:00+00:00", False),  # Thursday's night
        ("22:00-06:00 except 2026-12-25", "2026-12-25T05:00+00:00", True),
        ("22:00-06:00 UTC except 2026-12-25", "2026-12-25T23:00+00:00", False),
        ("08:00-09:00 except 2026-12-24..2027-01-01 2027-01-06", "2027-01-01T08:30Z", False),
        ("08:00-09:00 except 2026-12-24..2027-01-01 2027-01-06", "2027-01-02T08:30Z", True),
        ("08:00-09:00 except 2026-12-24..2027-01-01 2027-01-06", "2027-01-06T08:30Z", False),
        ("00:00-00:00 Asia/Tokyo except 2026-12-31", "2026-12-30T15:00Z", False),  # there it is
        ("00:00-00:00 Asia/Tokyo except 2026-12-31", "2026-12-31T15:00Z", True),
    ],
)
def test_windows_open_and_close(window: str, moment: str, *, is_open: bool) -> None:
    """By the clock of their zone; hours past midnight belong to the day before."""
    now_ms = round(datetime.fromisoformat(moment).timestamp() * 1000)
    assert Window.parse(window).is_open(now_ms) is is_open
    assert any_open((window,), now_ms) is is_open


@pytest.mark.parametrize("window", ["Sat,Sun 00:00-24:00", "24:00-06:00 Europe/Berlin"])
def test_a_day_ends_at_midnight(window: str) -> None:
    """Who writes 24:00 is told what means that."""
    with pytest.raises(BadInputError, match="00:00 ends a day, and 00:00-00:00 is a whole one"):
        Window.parse(window)


@pytest.mark.parametrize(
    ("windows", "moment", "opens"),
    [
        ((), "2026-11-29T16:00:01+00:00", "2026-11-29T16:00:01+00:00"),
        (("Wed 22:00-23:00",), "2026-11-29T16:00+00:00", "2026-12-02T22:00+00:00"),
        (("Wed 22:00-23:00", "Tue 08:00-09:00"), "2026-11-29T16:00+00:00", "2026-12-01T08:00Z"),
        (("Sun 15:00-17:00",), "2026-11-29T16:00:01+00:00", "2026-11-29T16:00:01+00:00"),
        (("Sun 15:00-16:00",), "2026-11-29T16:00+00:00", "2026-12-06T15:00+00:00"),
        (("Sat 22:00-06:00",), "2026-11-29T05:59+00:00", "2026-11-29T05:59+00:00"),
        (("Mon 00:30-01:00 Pacific/Auckland",), "2026-11-29T16:00Z", "2026-12-06T11:30Z"),
        (
            ("Thu 22:00-23:00 except 2026-12-24 2026-12-31",),
            "2026-12-18T00:00Z",
            "2027-01-07T22:00Z",
        ),
        (("00:00-00:00 except 2026-12-01..2027-03-10",), "2026-12-01T00:00Z", "2027-03-11T00:00Z"),
    ],
)
def test_when_the_next_window_opens(windows: tuple[str, ...], moment: str, opens: str) -> None:
    """At once, if one is open."""
    from_ms, opens_ms = (
        round(datetime.fromisoformat(each).timestamp() * 1000) for each in (moment, opens)
    )
    assert next_open_ms(windows, from_ms) == opens_ms


def test_no_window_opens_after_the_last_day() -> None:
    """Time ends with the year 9999."""
    with pytest.raises(BadInputError, match="that far"):
        next_open_ms(("Wed 22:00-23:00",), TIME_MAX_MS)


def hours_of(window: str, day: str) -> list[str]:
    """When it opens and closes within the days around a change of clocks, by minutes (UTC)."""
    parsed, was_open, changes = Window.parse(window), False, []
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1)
    for minute in range(3 * 24 * 60):
        at = begin + timedelta(minutes=minute)
        is_open = parsed.is_open(round(at.timestamp() * 1000))
        if is_open != was_open:
            changes.append(f"{at:%d %H:%M}")
        was_open = is_open
    return changes


SPRING, AUTUMN = "2027-03-28", "2027-10-31"
"""Sundays: at 01:00 UTC the clocks of Berlin show 03:00 after 02:00, or 02:00 after 03:00."""


@pytest.mark.parametrize(
    ("window", "day", "hours"),
    [
        ("Sun 02:10-02:50 Europe/Berlin", SPRING, ["28 01:00", "28 01:40"]),  # left out
        ("Sun 02:30-03:10 Europe/Berlin", SPRING, ["28 01:00", "28 01:10"]),
        ("Sun 02:30-06:00 Europe/Berlin", SPRING, ["28 01:00", "28 04:00"]),
        ("Sat 22:00-02:30 Europe/Berlin", SPRING, ["27 21:00", "28 01:00"]),
        ("Sat 22:00-06:00 Europe/Berlin", SPRING, ["27 21:00", "28 04:00"]),
        ("Sun 02:30-02:30 Europe/Berlin", SPRING, ["28 01:00", "29 00:30"]),
        ("Sun 02:10-02:50 Europe/Berlin", AUTUMN, ["31 00:10", "31 00:50"]),  # once, not twice
        ("Sun 02:30-03:30 Europe/Berlin", AUTUMN, ["31 00:30", "31 02:30"]),
        ("Sat 22:00-02:30 Europe/Berlin", AUTUMN, ["30 20:00", "31 00:30"]),
        ("Sat 22:00-06:00 Europe/Berlin", AUTUMN, ["30 20:00", "31 05:00"]),
        ("Sat 02:30-02:30 Europe/Berlin", AUTUMN, ["30 00:30", "31 00:30"]),
        # 00:00 is left out, and the hour before midnight comes twice
        ("Sun 00:10-00:40 America/Santiago", "2026-09-06", ["06 04:00", "06 04:30"]),
        ("Sat 23:10-00:20 America/Santiago", "2026-04-05", ["05 02:10", "05 04:20"]),
        # at 00:01 the clock showed 23:01 of the day before
        ("Sun 00:00-01:00 America/St_Johns", "2010-11-07", ["07 02:30", "07 04:30"]),
    ],
)
def test_a_change_of_clocks_opens_a_window_once(window: str, day: str, hours: list[str]) -> None:
    """It ends by the clock; it is as long as ever if all of it is left out."""
    assert hours_of(window, day) == hours


def test_open_hours_follow_each_other() -> None:
    """Within two times; windows that overlap are one after the other, too."""
    friday = round(datetime.fromisoformat("2026-11-27T12:00Z").timestamp() * 1000)
    minute = 60_000
    hours = open_hours(("11:00-13:00", "12:30-14:00"), friday, friday + 24 * 60 * minute)
    spans = [((opens - friday) // minute, (closes - friday) // minute) for opens, closes in hours]
    assert spans == [(0, 60), (60, 120), (23 * 60, 24 * 60)]
    assert list(open_hours((), friday, friday + 5)) == [(friday, friday + 5)]
    assert list(open_hours(("11:00-11:30",), friday, friday + 5)) == []
    assert Window.parse("11:00-11:30").closes_ms(friday) == friday


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
        "08:00-09:00 except",
        "08:00-09:00 except UTC",
        "08:00-09:00 except 2026-12-32",
        "08:00-09:00 except 2026-12-24..",
        "08:00-09:00 except ..2026-12-24",
        "08:00-09:00 except 2026-12-24..2026-12-23",
        "08:00-09:00 except 0001-01-01..9999-12-31",
        "08:00-09:00 except 2026-01-01..2026-04-01 2026-05-01..2026-06-01",
    ],
)
def test_what_is_no_window_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(BadInputError, match="such as `Mon-Fri 22:00-06:00 Europe/Berlin`"):
        Window.parse(text)
