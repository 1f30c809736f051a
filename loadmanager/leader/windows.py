"""Hours of the week in which moves may be made: `Mon-Fri 22:00-06:00 Europe/Berlin`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, tzinfo
from zoneinfo import ZoneInfo

from loadmanager.kit.errors import BadInputError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EXPECTED = (
    "a window such as `Mon-Fri 22:00-06:00 Europe/Berlin` or `Sat,Sun 08:00-20:00` is expected"
)
ZONE_MAX = 64
_FORM = re.compile(r"(?:([A-Za-z,-]+) +)?(\d\d:\d\d)-(\d\d:\d\d)(?: +(\S+))?")


@dataclass(frozen=True, slots=True)
class Window:
    """Hours that begin on some days of the week. Hours past midnight belong to the day before."""

    days: frozenset[int]
    """0: Monday."""
    begins: time
    ends: time
    """The same as `begins`: a whole day."""
    zone: tzinfo

    @classmethod
    def parse(cls, text: str) -> Window:
        """A window as people write it; without days: every day; without a zone: UTC.

        Raises `BadInputError`, also for a zone that this machine does not know.
        """
        form = _FORM.fullmatch(text.strip())
        if form is None:
            raise BadInputError(f"{text[:80]}: {EXPECTED}")
        days, begins, ends, zone = form.groups()
        try:
            hours = time.fromisoformat(begins), time.fromisoformat(ends)
        except ValueError:
            raise BadInputError(f"{text[:80]}: {EXPECTED}") from None
        return cls(_days(days or "mon-sun", text), *hours, _zone(zone or "UTC"))

    def is_open(self, now_ms: int) -> bool:
        """Whether a time (ms since the epoch) is in it."""
        now = datetime.fromtimestamp(now_ms / 1000, self.zone)
        today, yesterday = now.weekday() in self.days, (now.weekday() - 1) % 7 in self.days
        at = now.time()
        if self.begins < self.ends:
            return today and self.begins <= at < self.ends
        return (today and at >= self.begins) or (yesterday and at < self.ends)


def any_open(windows: tuple[str, ...], now_ms: int) -> bool:
    """Whether moves may be made now. Raises `BadInputError`."""
    return not windows or any(Window.parse(text).is_open(now_ms) for text in windows)


def _days(text: str, window: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        try:
            begin, end = DAYS.index(first[:3]), DAYS.index((last or first)[:3])
        except ValueError:
            raise BadInputError(f"{window[:80]}: {EXPECTED}") from None
        days |= {(begin + at) % 7 for at in range((end - begin) % 7 + 1)}
    return frozenset(days)


def _zone(name: str) -> tzinfo:
    if name.upper() in {"UTC", "Z"}:
        return UTC
    try:
        if len(name) <= ZONE_MAX:
            return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such file, a name that leaves the folder, no data
        pass
    raise BadInputError(
        f"{name[:ZONE_MAX]}: this machine knows no such time zone; UTC always works"
    )
