"""What is recorded of brokers that were away: silences, restarts, standstills, and whom leaders saw
leave.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf

from loadmanager.engine.history.outages import (
    GAP_INTERVALS,
    GAP_MS_MIN,
    RESTART_MS_MIN,
    Evidence,
    RecordedDeparture,
    Silence,
    last_sign,
    silences,
)
from loadmanager.engine.ownership.states import LifeCause
from loadmanager.nightly.day import Day, Row
from loadmanager.nightly.trusted import by_broker

LEFT_IN_ORDER = ("stopped", "drained")
"""How leaders saw a broker leave that stopped in order."""


def in_order(left: Row) -> bool:
    """Whether a broker left in order, or stopped so by its own record."""
    return left["event"] == "stops" or left["how"] in LEFT_IN_ORDER


def left_ms(left: Row) -> int:
    """When the session of a broker that left was over, by the clock of whoever recorded that."""
    at_ms: int | None = left["left_at"]
    return int(left["ts"]) if at_ms is None else at_ms


@dataclass
class AbsenceRecords:
    """What a day's records say of brokers that were away, each by its own clock."""

    day: Day

    @cached_property
    def _steps(self) -> dict[str, list[Row]]:
        return by_broker(self.day.facts.brokers)

    @cached_property
    def intervals(self) -> dict[str, int]:
        """Broker → the longest of its intervals, in ms."""
        return {
            broker: max(step["interval_ms"] // step["samples"] for step in steps)
            for broker, steps in self._steps.items()
        }

    @cached_property
    def _starts(self) -> dict[str, list[int]]:
        """Broker → when it recorded that it started, in order."""
        starts: dict[str, list[int]] = {}
        for change in self.day.facts.members:
            if change["event"] == "starts":
                starts.setdefault(change["of"], []).append(change["ts"])
        return starts

    @cached_property
    def _own(self) -> dict[str, list[int]]:
        """Broker → when it recorded a load, a step of a bundle or a decision, or that it started,
        stopped or had no answer of the metadata store. Without the loss of a bundle, which a broker
        that was paused finds out later.
        """
        signs = {broker: list(starts) for broker, starts in self._starts.items()}
        for change in self.day.facts.members:
            if change["event"] in ("stops", "unanswered"):
                signs.setdefault(change["of"], []).append(change["ts"])
        for step in self.day.facts.steps:
            if step.cause != LifeCause.LOSS.value:
                signs.setdefault(step.broker, []).append(step.ts)
        for term in self.day.facts.terms:
            signs.setdefault(term["broker"], []).append(term["last_ts"])
        for broker, steps in self._steps.items():
            times = [step[name] for step in steps for name in ("first_ts", "last_ts")]
            signs.setdefault(broker, []).extend(times)
        return {broker: sorted(times) for broker, times in signs.items()}

    @cached_property
    def _left(self) -> list[RecordedDeparture]:
        """As leaders saw it, or as a broker that stopped recorded itself."""
        left = [it for it in self.day.facts.members if it["event"] in ("left", "stops")]
        return [self._departure(it) for it in left]

    def _departure(self, left: Row) -> RecordedDeparture:
        broker, lost = left["of"], not in_order(left)
        ahead = self.day.corrections.get(broker, 0.0)
        ahead -= self.day.corrections.get(left["broker"], 0.0)
        at_ms = round(left_ms(left) + ahead)
        sign_ms = at_ms
        if lost and left["unheard_ms"] is not None:
            sign_ms = min(at_ms, round(left["ts"] - left["unheard_ms"] + ahead))
        alive = _next(self._own.get(broker, ()), at_ms)
        start = _next(self._starts.get(broker, ()), sign_ms)
        restarted = start is not None and (alive is None or start <= alive)
        return RecordedDeparture(
            broker, lost, sign_ms, at_ms, start if restarted else alive, restarted
        )

    @cached_property
    def _signs(self) -> dict[str, list[int]]:
        """Broker → when it gave a sign, with the last proof of a session that was lost."""
        signs = {broker: list(times) for broker, times in self._own.items()}
        for left in self._left:
            if left.lost and left.sign_ms < left.at_ms:
                signs.setdefault(left.broker, []).append(left.sign_ms)
        return {broker: sorted(times) for broker, times in signs.items()}

    @cached_property
    def silences(self) -> list[Silence]:
        """The spans in which brokers recorded nothing, each of one process."""
        spans = {
            broker: [
                (step["first_ts"], step["last_ts"], step["interval_ms"] // step["samples"])
                for step in steps
            ]
            for broker, steps in self._steps.items()
        }
        times = [ts for steps in spans.values() for step in steps for ts in step[:2]]
        if not times:
            return []
        first_ms, last_ms = min(times), max(times)
        return [
            part
            for silence in silences(spans, first_ms, last_ms)
            for part in self._of_processes(silence, last_ms)
        ]

    def _of_processes(self, silence: Silence, end_ms: int) -> Iterator[Silence]:
        """A silence until the next process began; and those of processes that began in it, and had
        gone before their first load.
        """
        if silence.last_ms is None:
            yield silence
            return
        broker, interval_ms = silence.broker, self.intervals[silence.broker]
        starts, signs = self._starts.get(broker, ()), self._signs.get(broker, ())
        back_ms = inf if silence.back_ms is None else silence.back_ms
        place = bisect_right(starts, silence.last_ms)
        began_ms, last_ms = starts[place - 1] if place else None, silence.last_ms
        for start in starts[place : bisect_right(starts, back_ms)]:
            sign_ms = last_sign(signs, last_ms, min(last_ms + interval_ms, start))
            yield Silence(broker, round(sign_ms), start, began_ms)
            began_ms = last_ms = start
        until_ms = min(last_ms + interval_ms, self._began.get((broker, back_ms), back_ms))
        sign_ms = last_sign(signs, last_ms, until_ms)
        if last_ms == silence.last_ms or self._went(broker, last_ms, silence.back_ms, end_ms):
            yield Silence(broker, round(sign_ms), silence.back_ms, began_ms)

    def _went(self, broker: str, start_ms: int, back_ms: int | None, end_ms: int) -> bool:
        """Whether a process that started went before its first load."""
        interval_ms = self.intervals[broker]
        if back_ms is None:
            return end_ms - start_ms > max(GAP_MS_MIN, GAP_INTERVALS * interval_ms)
        return self._began.get((broker, back_ms), back_ms) - start_ms > interval_ms

    @cached_property
    def _began(self) -> Mapping[tuple[str, float], int]:
        """Broker, the time of a load → the beginning of its interval."""
        return {
            (step["broker"], step["first_ts"]): step["begun"]
            for step in self.day.facts.brokers
            if step["begun"] is not None
        }

    @cached_property
    def stood(self) -> list[Silence]:
        """When brokers stood still, as they recorded it."""
        return [
            Silence(it["of"], it["ts"] - it["took_ms"], it["ts"])
            for it in self.day.facts.members
            if it["event"] == "stood" and it["took_ms"]
        ]

    @cached_property
    def evidence(self) -> Evidence:
        """All but the silences."""
        return Evidence(
            restarted=self._restarts(),
            stalled=[
                Silence(step["broker"], step["longest"]["begun"], step["longest"]["ts"])
                for step in self.day.facts.brokers
            ],
            stood=self.stood,
            signs=self._signs,
            left=self._left,
        )

    def _restarts(self) -> list[Silence]:
        """When a broker was not there, however briefly: the first sample of a process stands for
        the time since its start only. With the ends of processes in silences, and of those that
        recorded no load after the next start.
        """
        restarts = [it for it in self.silences if it.back_ms in self._starts.get(it.broker, ())]
        for broker, steps in self._steps.items():
            pauses = [(pause["ts"], pause["begun"]) for step in steps for pause in step["pauses"]]
            pauses += [(step["last_ts"], after["begun"]) for step, after in pairwise(steps)]
            restarts += [
                self._restart(broker, last_ms, back_ms)
                for last_ms, back_ms in sorted(pauses)
                if back_ms - last_ms > RESTART_MS_MIN
            ]
            starts = self._starts.get(broker, ())
            later = starts[bisect_right(starts, steps[-1]["last_ts"]) :]
            ends = pairwise([steps[-1]["last_ts"], *later])
            restarts += [self._restart(broker, last_ms, start) for last_ms, start in ends]
        return sorted(set(restarts), key=lambda it: (it.last_ms or 0, it.broker, it.back_ms or 0))

    def _restart(self, broker: str, last_ms: int, back_ms: int) -> Silence:
        """From the last sign of a process until the broker's start, if it recorded one before its
        first load.
        """
        start = _next(self._starts.get(broker, ()), last_ms)
        if start is not None and start <= back_ms + self.intervals[broker]:
            back_ms = start
        sign_ms = last_sign(self._signs.get(broker, ()), last_ms, back_ms)
        return Silence(broker, round(sign_ms), back_ms)


def _next(times: Sequence[int], after_ms: float) -> int | None:
    """The first of these, in order, after a time."""
    place = bisect_right(times, after_ms)
    return times[place] if place < len(times) else None
