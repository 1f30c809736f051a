"""Hours of the week in which moves may be made: `Mon-Fri 22:00-06:00 Europe/Berlin`, all days but
some: `Mon-Fri 22:00-06:00 except 2026-12-24..2027-01-01`.

Where the clock of a zone is changed, a time of a day is the first moment at which the clock shows
that time or a later one: the first of two, or, of times that are left out, the change itself. So a
window opens once a day, and is never left out: one that lies in the hour that is left out begins at
the change and takes as long as ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from loadmanager.kit.errors import BadInputError
from loadmanager.kit.text import printable

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAYS_AHEAD = 9
"""A window of one day of the week opens within so many, whatever the zone, but for exceptions."""
EXCEPTIONS_MAX = 100
"""Days that a window may leave out."""
MIDNIGHT = "24:00"
"""What some write for the end of a day."""
SHORT = 3
"""Letters that a day has at least."""
EXPECTED = (
    "a window such as `Mon-Fri 22:00-06:00 Europe/Berlin` or "
    "`Sat,Sun 08:00-20:00 except 2026-12-26` is expected"
)
ZONE_MAX = 64
_FORM = re.compile(
    r"(?:([A-Za-z,-]+) +)?([0-9]{2}:[0-9]{2})-([0-9]{2}:[0-9]{2})(?: +(?!except\b)(\S+))?"
    r"(?: +except +([0-9. -]+))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Window:
    """Hours that begin on some days of the week. Hours past midnight belong to the day before."""

    days: frozenset[int]
    """0: Monday."""
    begins: time
    ends: time
    """The same as `begins`: a whole day."""
    zone: tzinfo
    exceptions: frozenset[date] = frozenset()
    """Days on which no hours begin."""

    @classmethod
    def parse(cls, text: str) -> Window:
        """A window as people write it; without days: every day; without a zone: UTC; without
        exceptions: none.

        Raises `BadInputError`, also for a zone that this machine does not know.
        """
        form = _FORM.fullmatch(text.strip())
        if form is None:
            raise _odd(text)
        days, begins, ends, zone, exceptions = form.groups()
        if MIDNIGHT in (begins, ends):
            raise _odd(text, "00:00 ends a day, and 00:00-00:00 is a whole one")
        try:
            hours = time.fromisoformat(begins), time.fromisoformat(ends)
            without = _exceptions((exceptions or "").split())
            return cls(_days(days or "mon-sun"), *hours, _zone(zone or "UTC"), without)
        except ValueError as error:
            raise _odd(text, str(error)) from None

    def is_open(self, now_ms: int) -> bool:
        """Whether a time (ms since the epoch) is in it."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        today = now.astimezone(self.zone).date()
        days = (today + timedelta(days=more) for more in (-1, 0, 1))
        return any(self._is_open_of(day, now) for day in days if self._begins_on(day))

    def closes_ms(self, now_ms: int) -> int:
        """When the hours close that a time is in (ms since the epoch); that time: it is in none."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        today = now.astimezone(self.zone).date()
        days = (today + timedelta(days=more) for more in (-1, 0, 1))
        hours = (self._hours_of(day) for day in days if self._begins_on(day))
        ends = max((closes for opens, closes in hours if opens <= now < closes), default=None)
        return now_ms if ends is None else round(ends.timestamp() * 1000)

    def next_open_ms(self, from_ms: int) -> int:
        """The first time from this one on (ms since the epoch) that is in it."""
        now = datetime.fromtimestamp(from_ms / 1000, UTC)
        today = now.astimezone(self.zone).date()
        ahead = DAYS_AHEAD + len(DAYS) * len(self.exceptions)
        days = (today + timedelta(days=more) for more in range(-1, ahead))
        hours = (self._hours_of(day) for day in days if self._begins_on(day))
        opens = next(max(opens, now) for opens, closes in hours if closes > now)
        return from_ms if opens == now else round(opens.timestamp() * 1000)

    def _begins_on(self, day: date) -> bool:
        return day.weekday() in self.days and day not in self.exceptions

    def _is_open_of(self, day: date, now: datetime) -> bool:
        """Whether a time is in the hours that begin on a day."""
        opens, closes = self._hours_of(day)
        return opens <= now < closes

    def _hours_of(self, day: date) -> tuple[datetime, datetime]:
        """When the hours that begin on a day open and close."""
        begins = datetime.combine(day, self.begins)
        ends = datetime.combine(day, self.ends)
        if ends <= begins:
            ends += timedelta(days=1)
        opens, closes = _first(begins, self.zone), _first(ends, self.zone)
        if closes == opens:  # all of it is left out
            closes = opens + (ends - begins)
        return opens, closes


def any_open(windows: tuple[str, ...], now_ms: int) -> bool:
    """Whether moves may be made now. Raises `BadInputError`."""
    return not windows or any(Window.parse(text).is_open(now_ms) for text in windows)


def next_open_ms(windows: tuple[str, ...], from_ms: int) -> int:
    """The first time from this one on (ms since the epoch) at which moves may be made. Raises
    `BadInputError`, also for the last days of the year 9999.
    """
    try:
        return min((Window.parse(each).next_open_ms(from_ms) for each in windows), default=from_ms)
    except OverflowError:
        raise BadInputError("windows do not reach that far ahead") from None


def open_hours(windows: tuple[str, ...], from_ms: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """When moves may be made between two times: from when until when, one after the other. Raises
    `BadInputError`.
    """
    parsed, at_ms = [Window.parse(text) for text in windows], from_ms
    while at_ms < until_ms:
        opens_ms = next_open_ms(windows, at_ms)
        if opens_ms >= until_ms:
            return
        closes_ms = max((window.closes_ms(opens_ms) for window in parsed), default=until_ms)
        at_ms = min(closes_ms, until_ms)
        yield opens_ms, at_ms


def _first(shown: datetime, zone: tzinfo) -> datetime:
    """The first moment (UTC) at which the clock of a zone shows this or a later time."""
    moment = shown.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == shown:
        return moment
    before, change = shown.replace(tzinfo=zone, fold=1).astimezone(UTC), moment
    while change - before > timedelta(seconds=1):
        middle = before + (change - before) // 2
        if middle.astimezone(zone).replace(tzinfo=None) < shown:
            before = middle
        else:
            change = middle
    return change.replace(microsecond=0)


def _odd(text: str, why: str = "") -> BadInputError:
    shown = printable(text[:80]) or "nothing"
    return BadInputError(": ".join(part for part in (shown, why, EXPECTED) if part))


def _days(text: str) -> frozenset[int]:
    """Raises `ValueError`."""
    days: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = part.partition("-")
        begin = _day(first)
        end = _day(last) if dash else begin
        days |= {(begin + at) % 7 for at in range((end - begin) % 7 + 1)}
    return frozenset(days)


def _day(text: str) -> int:
    for at, day in enumerate(DAYS):
        if len(text) >= SHORT and day.startswith(text):
            return at
    raise ValueError(f"there is no day {text[:40] or 'without a name'}")


def _exceptions(texts: list[str]) -> frozenset[date]:
    """Raises `ValueError`."""
    days: set[date] = set()
    for text in texts:
        first, dots, last = text.partition("..")
        try:
            begin = date.fromisoformat(first)
            end = date.fromisoformat(last) if dots else begin
        except ValueError:
            raise ValueError(
                f"{printable(text[:40])} is no day such as 2026-12-24, and no days such as "
                "2026-12-24..2027-01-01"
            ) from None
        if end < begin:
            raise ValueError(f"{text} ends before it begins")
        if (end - begin).days + len(days) >= EXCEPTIONS_MAX:
            raise ValueError(f"at most {EXCEPTIONS_MAX} days are left out")
        days |= {begin + timedelta(days=more) for more in range((end - begin).days + 1)}
    return frozenset(days)


def _zone(name: str) -> tzinfo:
    """Raises `ValueError`."""
    if name.upper() in {"UTC", "Z"}:
        return UTC
    try:
        if len(name) <= ZONE_MAX:
            return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such file, a name that leaves the folder, no data
        pass
    raise ValueError(
        f"this machine knows no time zone {printable(name[:ZONE_MAX])}; UTC always works"
    )
