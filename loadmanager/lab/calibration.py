"""How well a replay says what a day was like: the settings that were in force are replayed, and the
outcome is compared with what happened.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadmanager.lab.measures import Measures

FAR_OFF = 0.25
"""A replay whose spread differs by more is good for comparing candidates, and for nothing else."""
SPREAD_LEAST = 1.0
"""Points of spread below which a difference is one of this."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A day as it was, beside its replay under the settings that were in force."""

    happened: Measures
    replayed: Measures
    error: float
    """The mean error of the model of a broker's usage in a minute, as a fraction."""

    @property
    def off(self) -> float:
        """How much more spread the day had than its replay, as a part of the day's."""
        was, came = self.happened.spread, self.replayed.spread
        return (was - came) / max(was, SPREAD_LEAST)

    @property
    def far_off(self) -> bool:
        """True if absolute figures of this day's replays are not to be believed."""
        return abs(self.off) > FAR_OFF

    def text(self) -> str:
        """For people."""
        was, came = self.happened, self.replayed
        text = (
            f"replayed with the settings that were in force: spread {came.spread:.1f} (was "
            f"{was.spread:.1f}), hot minutes {came.hot_minutes} ({was.hot_minutes}), moves "
            f"{came.moves} ({was.moves}); usage by the model is {100 * self.error:.1f} points off"
        )
        if self.far_off:
            return f"{text}. Compare candidates with each other: no figure here holds by itself"
        return text
