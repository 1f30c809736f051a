"""Judges the CPU sensors of brokers by their traffic: which contradict it, jump, stand still, or do
not follow the bundles that come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from loadmanager.engine.load import follows
from loadmanager.engine.load.columns import Array, BrokerColumns
from loadmanager.engine.load.learned import (
    CAME,
    CAME_BYTES,
    CAME_SQUARES,
    DOUBT,
    ERROR,
    FELL,
    JUMPS,
    LIMIT,
    OFFSET,
    REPORTS,
    RESIZED,
    ROSE,
    SAME,
    SHOWN,
    SINCE,
    STEP,
    STILL,
    SURPRISE,
    UPDATED,
    USUAL,
    USUAL_BYTES,
)
from loadmanager.engine.load.usage_model import CPU, Doubt

FULL = 0.98
"""A sensor that shows more than this shows at least so much."""
TOP = 0.9
"""One that stands still above this may be that of a full broker: some machines end there."""
ACQUAINTED = 8
"""A broker is known after so many reports; before, its sensor surprises and contradicts nobody."""
CONTRADICTS, CONTRADICTS_MAX, CONTRADICTS_ERRORS, CONTRADICTS_PART = 0.1, 0.2, 2.5, 0.65
"""A sensor contradicts if it shows less than the model by so many of its errors, within these
bounds, and less than this part of it.
"""
ACCUSES_MAX = 0.1
"""A model whose median error is above this accuses no sensor."""
DOUBTS_MAX, MISTRUSTED, TRUSTED_AGAIN = 4, 10, 20
"""Contradictions in a row until a sensor is mistrusted; from then on `DOUBT` counts down from
`TRUSTED_AGAIN` to `MISTRUSTED` with each report that fits.
"""
STUCK_REPORTS, STUCK_CHANGE = 4, 0.03
SAME_TO = 1e-6
COARSE, STEP_GROWS = 0.04, 1.2
"""A sensor that has changed again and again, and by more than this each time, shows few values, as
one in steps of 5 %: it may stand still until what is used has changed by more than a step. Each
greater change lets the least one be forgotten by this factor.
"""
LIMIT_CHANGE, LIMIT_REPORTS, LESS_REPORTS = 1.25, 5, 2
"""A limit that has changed by so many times counts once as many reports in a row have it; one that
is less sooner, since its broker may be overloaded, and a wrong one only moves bundles away.
"""
JUMPS_GAIN, JUMPS_MAX = 0.1, 0.15
"""A sensor that jumps by more than this from report to report, whatever its traffic does, is
mistrusted: a standard deviation.
"""
ROSE_FADES, FELL_FADES = 1 / 240, 1 / 15
"""How much is forgotten with each report of another process that began, and of one that ended: what
was learned meanwhile of a broker's bundles is learned anew in that time.
"""


class CpuSensors:
    """The sensors of all brokers in one cycle: `[broker]`."""

    def __init__(
        self,
        columns: BrokerColumns,
        used: Array,
        weight: float,
        state: Array,
        first: NDArray[np.bool_],
    ) -> None:
        """`used`: what they show, as a part of what they say they have, times the `weight` of the
        CPU; `state`:
        what is remembered of each broker, as `learned` says, `[figure, broker]`: judging changes
        it; `first`: of whom nothing was known before this report.
        """
        self.state, self.first = state, first
        self.timed = columns.updated_ms > 0
        """Whose report says when it was made."""
        self.new = (columns.updated_ms != state[UPDATED]) | ~self.timed
        """Who has reported since the last cycle."""
        self._said = said = columns.limits[CPU]
        self.sensed: NDArray[np.bool_] = said > 0
        """Who has a sensor, by its own word."""
        self.limits = self._limits(said)
        """How much CPU each has; 0 where nobody ever said it."""
        self.used = np.divide(used * said, self.limits, out=used.copy(), where=self.sensed)
        """What they show, as a part of that, times the weight."""
        self.shown = np.clip(self.used, 0.0, 2 * weight)
        self.full = FULL * weight
        """What a broker shows at least that is full."""
        self.counts = bool(used.any())
        """Whether the CPU counts at all."""
        self.doubted = self._mistrusted
        """Whose sensor was mistrusted before these reports."""
        jumps = state[JUMPS][self.sensed & self.acquainted]
        self.noise = float(np.median(jumps)) ** 0.5 if len(jumps) else 0.0
        """Their usual noise before these reports: a standard deviation."""

    def _limits(self, said: Array) -> Array:
        """What they say, or said before: one that says something else has to repeat it."""
        before = self.state[LIMIT]
        differs = self.sensed & (before > 0)
        differs &= (said > LIMIT_CHANGE * before) | (LIMIT_CHANGE * said < before)
        reports = self.state[RESIZED] + self.new
        differs &= reports < np.where(said < before, LESS_REPORTS, LIMIT_REPORTS)
        self.state[RESIZED] = np.where(differs, reports, 0.0)
        keeps = ~self.sensed | differs
        return np.where(keeps, before, said)

    @property
    def _mistrusted(self) -> NDArray[np.bool_]:
        mistrusted: NDArray[np.bool_] = self.state[DOUBT] >= MISTRUSTED
        return mistrusted

    @property
    def trusted(self) -> NDArray[np.bool_]:
        """Whose figures count, after what was judged so far: nobody's, where half of them do not
        follow their traffic, as if all showed what they used on average since they were started.
        """
        still = self._stands_still
        if (count := int(still.sum())) >= 2 and 2 * count >= int(self.sensed.sum()):
            return np.zeros_like(still)
        return self.sensed & ~self._mistrusted

    @property
    def _stands_still(self) -> NDArray[np.bool_]:
        """Whose sensors are mistrusted as they did not follow what came. No error of the model in
        what traffic costs explains that.
        """
        still: NDArray[np.bool_] = self.sensed & self._mistrusted & (self.state[STILL] > 0)
        return still

    @property
    def is_full(self) -> NDArray[np.bool_]:
        """Who shows no more than that it is full."""
        full: NDArray[np.bool_] = self.shown >= self.full
        return full

    @property
    def acquainted(self) -> NDArray[np.bool_]:
        """Who has reported often enough."""
        often: NDArray[np.bool_] = self.state[REPORTS] >= ACQUAINTED
        return often

    @property
    def step(self) -> Array:
        """What a change has to exceed to be seen by a sensor: 0 for one that shows any value."""
        return np.where(self.state[STEP] > COARSE, self.state[STEP], 0.0)

    @property
    def liars(self) -> NDArray[np.bool_]:
        """Whose sensors are not believed from now on."""
        return self._mistrusted & ~self.doubted

    def follow(self, changes: follows.Changes, by_traffic: Array, bytes_s: Array) -> None:
        """Judge who follows the bundles that came or left. `by_traffic`: the usage that the last
        change of a broker's traffic makes likely.
        """
        still = follows.reports_still(self.state[STILL], changes, self.doubted)
        judged = self.new & self.sensed & self.counts & ~self.is_full
        self.state[STILL] = np.where(judged, still, self.state[STILL])
        begins = follows.changes_shown(changes) | self._jumped(by_traffic)
        self.begin_sums(judged & ~self.doubted & begins, bytes_s)

    def _jumped(self, by_traffic: Array) -> NDArray[np.bool_]:
        """Whose sensors have just shown another process that begins or ends: much more or less at
        once, where traffic has changed by so little.
        """
        state = self.state
        changed = self.shown - state[SHOWN]
        jump = np.maximum(np.abs(changed) - np.abs(by_traffic), 0.0)
        jump[~self.new | self.first | (jump < follows.CHANGE_SHOWN)] = 0.0
        fell = np.where(changed < 0, np.minimum(jump, state[ROSE]), 0.0)
        state[FELL] += fell - FELL_FADES * state[FELL] * self.new
        state[ROSE] += np.where(changed > 0, jump, -fell) - ROSE_FADES * state[ROSE] * self.new
        jumped: NDArray[np.bool_] = jump > 0
        return jumped

    def begin_sums(self, rows: NDArray[np.bool_], bytes_s: Array) -> None:
        """Add up anew from now on what comes to these brokers: `[broker]`."""
        state = self.state
        state[[CAME, CAME_BYTES, CAME_SQUARES]] *= ~rows
        for usual, now in ((USUAL, self.shown), (USUAL_BYTES, bytes_s)):
            state[usual] = np.where(rows, now, state[usual])

    def jump(self, surprise: Array, settled: Array) -> None:
        """Count how far they jump from report to report, beside what traffic explains. `surprise`:
        what they show more than the model.
        """
        state = self.state
        change = np.minimum(abs(surprise - state[SURPRISE]), abs(self.shown - state[SHOWN]))
        change = np.where(state[REPORTS] > 0, change, 0.0)
        jumps = JUMPS_GAIN * settled * (change * change / 2 - state[JUMPS])
        tells = self.sensed & self.new & self.counts
        state[JUMPS] += np.where(tells, jumps, 0.0)
        state[SURPRISE] = np.where(tells, surprise, state[SURPRISE])

    def contradict(self, expected: Array, excused: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which jump, or show far less than the model makes likely; more, anything may use.

        `expected`: the usage by idle part and traffic alone; `excused`: who may show less, as
        bundles of great cost have just left, or the model is wrong.
        """
        state, doubted = self.state, self._mistrusted
        less = np.where(doubted, 0.0, np.minimum(state[OFFSET], 0.0))
        usual = expected + less  # what it used more may have ended, as a process does
        usual -= state[FELL]  # as one has, whatever was learned of bundles meanwhile
        errors = np.clip(CONTRADICTS_ERRORS * state[ERROR], CONTRADICTS, CONTRADICTS_MAX)
        low: NDArray[np.bool_] = usual - self.shown > errors
        low &= (self.shown < CONTRADICTS_PART * usual) & (doubted | self.acquainted)
        low &= ~self.is_full & ~excused
        low |= state[JUMPS] > JUMPS_MAX**2
        if self.sensed.any() and float(np.median(state[ERROR][self.sensed])) > ACCUSES_MAX:
            low[:] = False
        return low if self._few(low | doubted) else np.zeros_like(low)

    def _few(self, wrong: NDArray[np.bool_]) -> bool:
        """Whether this is one sensor, or at most two thirds of those that are not full. If more
        contradict the model, it is the model that is wrong: they count again.
        """
        still = self._stands_still
        could = self.sensed & ~self.is_full
        count = int((wrong & could & ~still).sum())
        if count < 2 or 3 * count <= 2 * int(could.sum()):
            return True
        self.state[[DOUBT, STILL]] *= still | (self.state[SAME] >= STUCK_REPORTS)
        return False

    def doubt(
        self, cost: float, traffic: Array, settled: Array, contradict: NDArray[np.bool_]
    ) -> None:
        """Trust less who contradicts or stands still, and more who fits."""
        state, doubted = self.state, self._mistrusted
        change = np.abs(self.shown - state[SHOWN])
        most = np.where(state[STEP] > 0, STEP_GROWS * state[STEP], COARSE)
        changes = self.new & ~self.first & (change >= SAME_TO)
        state[STEP] = np.where(changes, np.minimum(most, change), state[STEP])
        same = self.new & ~self.first & (change < SAME_TO) & self.timed
        same &= self.shown < TOP / FULL * self.full
        state[SINCE] = np.where(same & (state[SAME] > 0) | ~self.new, state[SINCE], traffic)
        state[SAME] = np.where(same, np.minimum(state[SAME] + 1, 100), state[SAME] * ~self.new)
        changed, step = cost * np.abs(traffic - state[SINCE]), self.step
        stuck = state[SAME] >= STUCK_REPORTS
        stuck &= (doubted & (step == 0)) | (changed > np.maximum(STUCK_CHANGE, step))
        stuck |= (state[STILL] >= follows.REPORTS) | (doubted & (state[STILL] > 0))
        contradicts = (contradict & (settled > 0.5)) | stuck
        more = np.where(contradicts, state[DOUBT] + 1, np.maximum(state[DOUBT] - 1, 0))
        more = np.where(stuck | (~doubted & (more >= DOUBTS_MAX)), TRUSTED_AGAIN, more)
        less = np.where(contradicts, TRUSTED_AGAIN, state[DOUBT] - 1)
        less = np.where(less <= MISTRUSTED, 0.0, less)
        judged = self.new & self.sensed & self.counts & ((settled > 0.5) | stuck)
        state[DOUBT] = np.where(judged, np.where(doubted, less, more), state[DOUBT])

    def doubts(self, names: Sequence[str], says: Array, error: Array) -> Iterator[Doubt]:
        """What to tell of each broker whose sensor does not count. `says`: what the model makes
        likely, with its `error`.
        """
        for row in np.flatnonzero(self.state[RESIZED] > 0).tolist():
            now, before = (f"{limit[row] / 100:g}" for limit in (self._said, self.limits))
            text = f"it says that it has {now} CPUs, and said {before} before, which counts"
            count = LESS_REPORTS if self._said[row] < self.limits[row] else LIMIT_REPORTS
            text += f" until {count} reports in a row say something else"
            yield Doubt(names[row], "LimitMistrusted", text)
        for row in np.flatnonzero(~self.trusted).tolist():
            model = f"its traffic makes {says[row]:.0%} ± {error[row]:.0%} likely, which counts"
            if not self.sensed[row]:
                text = f"it has no CPU sensor to be trusted; {model}"
                yield Doubt(names[row], "NoSensor", text)
                continue
            if not self._mistrusted[row]:
                text = f"its CPU sensor shows {self.shown[row]:.0%}, but the sensors of "
                text += f"{int(self._stands_still.sum())} brokers do not follow their traffic, so "
                yield Doubt(names[row], "SensorMistrusted", f"{text}that none counts; {model}")
                continue
            less = self.shown[row] < says[row] - error[row]
            text = self._now(row, model, less=less)
            if not text:
                likely = f"{says[row]:.0%} ± {error[row]:.0%} is likely, which counts"
                text = self._before(row, likely)
            yield Doubt(names[row], "SensorMistrusted", text)

    def _now(self, row: int, model: str, *, less: bool) -> str:
        """What is said of a mistrusted sensor whose present figures raise doubts; empty if they do
        not.
        """
        shows = f"its CPU sensor shows {self.shown[row]:.0%}"
        left = int(self.state[DOUBT, row] - MISTRUSTED)
        if left < TRUSTED_AGAIN - MISTRUSTED:
            fits = f"{shows}, which fits its traffic again; it counts after {left} more such"
            return f"{fits} reports; {model}"
        if self.state[JUMPS, row] > JUMPS_MAX**2:
            points = 100 * float(self.state[JUMPS, row]) ** 0.5
            jumps = f"jumps by {points:.0f} points from report to report"
            return f"{shows}, and {jumps} whatever its traffic does; {model}"
        if self.state[STILL, row] > 0:
            return f"{shows}, and did not rise as bundles came; {model}"
        return f"{shows}, but {model}" if less else ""

    def _before(self, row: int, likely: str) -> str:
        """What is said of one whose earlier figures did."""
        if self.state[SAME, row] >= STUCK_REPORTS:
            shows = f"its CPU sensor stands still at {self.shown[row]:.0%}"
            return f"{shows}, whatever its traffic does; now {likely} until it changes"
        count = TRUSTED_AGAIN - MISTRUSTED
        return (
            "its CPU sensor contradicted its traffic in earlier reports; now it shows "
            f"{self.shown[row]:.0%}, and {likely} until {count} more reports fit"
        )
