"""Says once a week what mode `act` would have gained, while the daemon only watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from loadmanager.kit.clock import Clock
from loadmanager.kit.errors import OperationalError
from loadmanager.kit.logger import get_logger
from loadmanager.kit.model import Shape
from loadmanager.kit.system.aside import answer_of
from loadmanager.kit.telemetry import Sample, gauge
from loadmanager.steer.notices import GAINED
from loadmanager.steer.ports.note import Note

LOOK_S, LIMIT_S = 3600.0, 3600.0
DAYS = 7
NOTHING_TOLD = 4
"""The exit status of a report whose days tell nothing."""
WEEK_MS, DAY_MS = 7 * 86_400_000, 86_400_000

SPREAD = gauge(
    "loadmanager_fleet_gained_spread_points",
    "Points of spread that mode act would have gained, by the last weekly report",
)
ERROR = gauge(
    "loadmanager_fleet_gained_error_points", "What the points of spread gained may be off"
)
HOT = gauge(
    "loadmanager_fleet_gained_hot_minutes",
    "Minutes of brokers above 85 % that mode act would have saved, by the last weekly report",
)

log = get_logger("weekly")


async def ask(command: Sequence[str], cluster: str) -> bytes:
    """The report of a process of its own that this command begins. Raises `OperationalError`."""
    asked = [*command, "gained", "--cluster", cluster, "--days", str(DAYS), "--json"]
    return await answer_of(asked, LIMIT_S, (0, NOTHING_TOLD))


class GainedSum(Shape):
    """What a week's days tell together."""

    text: str
    """For people."""
    days_told: int = 0
    spread_gained: float = 0.0
    """Points."""
    error: float = 0.0
    """Points that it may be off."""
    hot_minutes_gained: int = 0
    moves: int = 0
    """What it would have taken."""


class GainedReport(Shape):
    """The part of the answer of `loadmanager fleet gained --json` that is told."""

    sum: GainedSum


class _Noted(Shape):
    """What a file keeps over restarts."""

    next_ms: int
    """When the next report is due, in ms since the epoch."""
    last: GainedSum | None = None


@dataclass(slots=True, kw_only=True)
class WeeklyGained:
    """One cluster's weekly report. The first one comes a week after the daemon began."""

    ask: Callable[[], Awaitable[bytes]]
    """Makes the report: JSON. Raises `OperationalError`."""
    note: Note
    clock: Clock
    tell: Callable[[str, str], None] | None = None
    _noted: _Noted | None = field(default=None, init=False)
    _why: str = field(default="", init=False)
    """Why there was no report the last time, so that the log says it once."""

    async def step(self) -> None:
        """Report if a week has passed. After a failure it is tried again the next day."""
        now_ms = self.clock.now_ms()
        noted = self._noted or await self._read()
        if noted is None or noted.next_ms - now_ms > WEEK_MS:  # a clock that was ahead
            await self._write(_Noted(next_ms=now_ms + WEEK_MS))
            return
        self._noted = noted
        if now_ms < noted.next_ms:
            return
        try:
            gain = msgspec.json.decode(await self.ask(), type=GainedReport).sum
        except (OperationalError, msgspec.DecodeError) as error:
            if str(error) != self._why:
                log.warning("no weekly report of what act would have gained", why=str(error))
            self._why = str(error)
            await self._write(_Noted(next_ms=now_ms + DAY_MS, last=noted.last))
            return
        log.info("what act would have gained in the last week", report=gain.text)
        if self.tell is not None:
            self.tell(GAINED, gain.text)
        await self._write(_Noted(next_ms=now_ms + WEEK_MS, last=gain))

    async def _read(self) -> _Noted | None:
        noted = await self.note.read()
        try:
            return None if noted is None else msgspec.json.decode(noted, type=_Noted)
        except msgspec.DecodeError:
            log.warning("the note of the weekly report makes no sense", note=self.note.name)
            return None

    async def _write(self, noted: _Noted) -> None:
        self._noted = noted
        await self.note.write(msgspec.json.encode(noted))

    def samples(self) -> Iterator[Sample]:
        """The last report; nothing before the first one, or if no day told anything."""
        gain = None if self._noted is None else self._noted.last
        if gain is not None and gain.days_told:
            yield SPREAD.sample(gain.spread_gained)
            yield ERROR.sample(gain.error)
            yield HOT.sample(gain.hot_minutes_gained)
