"""Times and durations on the command line: without a zone in UTC, as those that are shown."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, time, timedelta
from string import ascii_lowercase
from typing import Any

import click

from loadmanager.cli.options import Decorator
from loadmanager.kit.text import MOMENT_MS_MAX

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EXPECTED = (
    "a time such as 03:12, 2h ago, yesterday 03:12, 2026-11-20 or 2026-11-20T14:00+01:00 is "
    "expected (without a zone: UTC)"
)
_WORDS = {"s": ("sec", "second"), "m": ("min", "minute"), "h": ("hour",), "d": ("day",)}
_UNITS = {unit: unit for unit in UNITS_S} | {
    word + end: unit for unit, words in _WORDS.items() for word in words for end in ("", "s")
}
AHEAD_S = 60
"""The clock here may be so far behind that of brokers."""
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})?")


class Duration(click.ParamType[float]):
    """A number of seconds, written `90s`, `30m`, `2h` or `1d`."""

    name = "DURATION"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, str) and (seconds := _seconds(value)) is not None:
            return seconds
        return self.fail(f"{value}: a duration such as 90s, 30m, 2h or 1d is expected", param, ctx)


def _seconds(text: str) -> float | None:
    number = text.rstrip(ascii_lowercase)
    if (unit := _UNITS.get(text[len(number) :])) is not None:
        with contextlib.suppress(ValueError):
            if 0 < (seconds := float(number) * UNITS_S[unit]) < float("inf"):
                return seconds
    return None


class Moment(click.ParamType[int]):
    """A time in milliseconds since the epoch, written as `parse_moment` reads it; `past`: none of
    the future.
    """

    name = "TIME"

    def __init__(self, *, past: bool = False) -> None:
        self._past = past

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds since the epoch."""
        if isinstance(value, int):
            return value
        now = datetime.now(UTC)
        moment = parse_moment(value, now)
        if moment is None:
            self.fail(f"{value}: {EXPECTED}", param, ctx)
        if said := said_of_yesterday(value, moment, now):
            click.echo(said, err=True)
        if self._past and moment > datetime.now(UTC) + timedelta(seconds=AHEAD_S):
            self.fail(f"{value} is in the future: nothing is recorded of it yet", param, ctx)
        if moment.timestamp() < 0:
            self.fail(f"{value} is before 1970: nothing is recorded of it", param, ctx)
        return round(moment.timestamp() * 1000)


def said_of_yesterday(text: str, moment: datetime, now: datetime) -> str:
    """That a time of the day is still to come, so that yesterday's is meant; empty: it is not."""
    if not _CLOCK.fullmatch(text.strip()) or moment.date() == now.astimezone(moment.tzinfo).date():
        return ""
    return f"{text} is still to come today: {clock(moment.timestamp() * 1000)} is taken"


def parse_moment(text: str, now: datetime) -> datetime | None:
    """The time that a text names, None if it names none: `now`, `90s` or `2h ago` before now,
    `03:12` (the last such time), `yesterday`, `yesterday 03:12`, `2026-11-20` and other ISO times.
    Without a zone it is in that of `now`.
    """
    words = " ".join(text.split())
    seconds = _seconds(words.removesuffix(" ago").replace(" ", ""))
    if seconds is not None:
        with contextlib.suppress(OverflowError):
            return now - timedelta(seconds=seconds)
        return None
    if words == "now":
        return now
    for day, back in (("today", 0), ("yesterday", 1)):
        if words == day or words.startswith(f"{day} "):
            date = now.date() - timedelta(days=back)
            return _at(words.removeprefix(day).strip() or "00:00", date.isoformat(), now)
    if _CLOCK.fullmatch(words):
        moment = _at(words, now.date().isoformat(), now)
        return moment if moment is None or moment <= now else moment - timedelta(days=1)
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(words)
        return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
    return None


def _at(clock_text: str, day: str, now: datetime) -> datetime | None:
    """A time of a day."""
    if not _CLOCK.fullmatch(clock_text):
        return None
    with contextlib.suppress(ValueError):
        at = time.fromisoformat(clock_text.rjust(len(clock_text) + (clock_text[1] == ":"), "0"))
        return datetime.combine(datetime.fromisoformat(day), at, tzinfo=at.tzinfo or now.tzinfo)
    return None


def _moment(at_ms: float) -> datetime:
    return datetime.fromtimestamp(min(max(at_ms, 0), MOMENT_MS_MAX) / 1000, UTC)


def clock(at_ms: float) -> str:
    """A time (ms since the epoch) for people; one out of bounds is the bound."""
    return f"{_moment(at_ms):%Y-%m-%d %H:%M:%SZ}"


def time_of_day(at_ms: float) -> str:
    """The same, without the date."""
    return f"{_moment(at_ms):%H:%M:%SZ}"


PARTS_BELOW = 10
"""So many hours or minutes are told without minutes or seconds."""


def span(ms: float) -> str:
    """How long something took, for people."""
    seconds = max(0.0, ms) / 1000
    if seconds >= 172_800:
        return f"{seconds / 86_400:.0f} days"
    for least, unit, name, part, part_name in (
        (5_400, 3_600, "h", 60, "min"),
        (90, 60, "min", 1, "s"),
    ):
        if seconds >= least:
            whole, rest = divmod(round(seconds / part), unit // part)
            if whole < PARTS_BELOW and rest:
                return f"{whole} {name} {rest} {part_name}"
            return f"{seconds / unit:.0f} {name}"
    if seconds < 1:
        return f"{ms:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def span_between(least_ms: float, most_ms: float) -> str:
    """How long something took at least and at most, in one unit; one figure if both read alike."""
    least, most = span(least_ms), span(most_ms)
    if least == most:
        return least
    unit = least.partition(" ")[2]
    if " " in unit or most.startswith(f"{most.partition(' ')[0]} {unit} "):
        return f"{least} to {most}"
    if unit == most.partition(" ")[2]:
        return f"{least} to {most}"
    unit_s = {"min": 60, "h": 3600}.get(unit, 1)
    unit = "s" if unit_s == 1 else unit
    figures = [max(0.0, ms) / 1000 / unit_s for ms in (least_ms, most_ms)]
    shown = [f"{each:.1f}" if each < 9.95 and unit_s == 1 else f"{each:.0f}" for each in figures]
    return " to ".join(f"{each} {unit}" for each in shown)


at_option: Decorator = click.option(
    "--at",
    type=Moment(past=True),
    help="as it was then: 03:12, 2h ago, yesterday 03:12, 2026-11-20T14:00Z",
)
since_option: Decorator = click.option(
    "--since", type=Moment(), help="not before then: 03:12, 2h, yesterday 03:12, 2026-11-20T14:00Z"
)
until_option: Decorator = click.option("--until", type=Moment(), help="not after then")


def until_of(at: int | None, until: int | None) -> int | None:
    """The end of the time of which the last ones are shown. Raises `click.UsageError`."""
    if at is not None and until is not None:
        raise click.UsageError("--at and --until say the same here: give one of them")
    return until if at is None else at
