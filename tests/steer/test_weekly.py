"""What act would have gained is said once a week, whatever happens to the report."""

from __future__ import annotations

import sys

import msgspec
import pytest
from steer.test_notes import ANote

from loadmanager.kit.errors import OperationalError
from loadmanager.kit.system.aside import answer_of
from loadmanager.steer.weekly import DAY_MS, WEEK_MS, GainedReport, GainedSum, WeeklyGained

GAIN = GainedSum(text="3 of 7 days tell", days_told=3, spread_gained=4.5, error=1.2)
NOW_MS = 1_790_000_000_000


class Later:
    """A clock that is set."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        """See the port."""
        return self.ms

    def monotonic_s(self) -> float:
        """See the port."""
        return self.ms / 1000

    def monotonic_ns(self) -> int:
        """See the port."""
        return self.ms * 1_000_000


class Week:
    """A daemon's weekly report, hour by hour."""

    def __init__(self, note: ANote | None = None) -> None:
        self.clock, self.note = Later(), note or ANote()
        self.asked: list[int] = []
        self.notices: list[tuple[str, str]] = []
        self.answer: bytes | OperationalError = msgspec.json.encode(GainedReport(sum=GAIN))
        self.weekly = WeeklyGained(ask=self._ask, note=self.note, clock=self.clock, tell=self._tell)

    async def _ask(self) -> bytes:
        self.asked.append(self.clock.ms)
        if isinstance(self.answer, OperationalError):
            raise self.answer
        return self.answer

    def _tell(self, kind: str, text: str) -> None:
        self.notices.append((kind, text))

    async def hours(self, count: int) -> None:
        """So many looks, an hour apart."""
        for _ in range(count):
            await self.weekly.step()
            self.clock.ms += 3_600_000


async def test_it_is_said_once_a_week() -> None:
    """For the first time a week after the daemon began, also if it was restarted meanwhile."""
    week = Week()
    await week.hours(7 * 24)
    assert not week.asked
    assert not list(week.weekly.samples())
    again = Week(week.note)
    again.clock.ms = week.clock.ms
    await again.hours(7 * 24 + 1)
    assert again.asked == [NOW_MS + WEEK_MS, NOW_MS + 2 * WEEK_MS]
    assert again.notices == [("gained", GAIN.text)] * 2
    assert [sample.value for sample in again.weekly.samples()] == [4.5, 1.2, 0]


@pytest.mark.parametrize("answer", [OperationalError("exit status 1"), b"{", b"[]"])
async def test_one_that_fails_is_tried_again_the_next_day(
    answer: bytes | OperationalError,
) -> None:
    """And nothing is told meanwhile."""
    week = Week()
    await week.hours(1)
    week.clock.ms, week.answer = NOW_MS + WEEK_MS, answer
    await week.hours(25)
    assert week.asked == [NOW_MS + WEEK_MS, NOW_MS + WEEK_MS + DAY_MS]
    assert not week.notices


@pytest.mark.parametrize("noted", [b"nonsense", b'{"nextMs":9999999999999}'])
async def test_a_note_that_makes_no_sense_is_begun_anew(noted: bytes) -> None:
    """Such as one of a clock that was years ahead."""
    week = Week(ANote(noted))
    await week.hours(7 * 24 + 1)
    assert week.asked == [NOW_MS + WEEK_MS]


async def test_the_work_of_another_process_is_bounded() -> None:
    """It gives way to others, ends in time, and its failure says what it said last."""
    program = "import os, sys; print(os.nice(0)); sys.exit(4)"
    assert await answer_of([sys.executable, "-c", program], 60, (0, 4)) == b"19\n"
    with pytest.raises(OperationalError, match="exit status 1: what it was"):
        await answer_of([sys.executable, "-c", "exit('what it was')"], 60)
    with pytest.raises(OperationalError, match=r"did not end within 0\.2 s"):
        await answer_of([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)
    with pytest.raises(OperationalError, match="cannot be started"):
        await answer_of(["/no/such/program"], 60)
