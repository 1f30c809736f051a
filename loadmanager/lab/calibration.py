"""How well a replay says what a day was like: the settings that were in force are replayed, and the
outcome is compared with what happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean

from loadmanager.lab.fitted import explained_text, says_little
from loadmanager.lab.measures import Measures
from loadmanager.lab.recorded import Recording

IN_FORCE = "the settings that were in force"
NOT_RECORDED = "default settings (none are recorded)"
GIVEN = "the settings given (none are recorded)"
TRIED = "the settings tried"
FAR_OFF = 0.25
"""A replay whose spread differs by more is good for comparing candidates, and for nothing else."""
SPREAD_LEAST = 1.0
"""Points of spread below which a difference is one of this."""
COUNTS_OFF = 0.5
"""Hot minutes and moves that differ by a larger part of the larger figure are far off."""
MOVES_LEAST, HOT_LEAST = 5, 0.005
"""Smaller differences are none: of moves, and of hot minutes as a part of all minutes."""
FOLLOWS = {
    "spread": ("spread", "gap", "ratio"),
    "hot_minutes": ("hot_minutes",),
    "moves": ("moves", "moved_bytes", "again", "pause_s"),
}
"""Figure that is compared → those that are as good as it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A day as it was, beside its replay under the settings that were in force, if they are
    recorded.
    """

    happened: Measures
    replayed: Measures
    error: float
    """The mean error of the model of a broker's usage in a minute, as a fraction."""
    used: str = IN_FORCE
    """Which settings were replayed."""
    explained: float = 1.0
    """The part of the brokers' usage that the model explains."""

    @property
    def off(self) -> float:
        """How much more spread the day had than its replay, as a part of the day's."""
        was, came = self.happened.spread, self.replayed.spread
        return (was - came) / max(was, SPREAD_LEAST)

    @property
    def far_off(self) -> bool:
        """True if the spread of this day's replays is not to be believed."""
        return abs(self.off) > FAR_OFF

    @property
    def says_little(self) -> bool:
        """Whether the model explains too little of the day for a verdict."""
        return says_little(self.explained, self.error)

    @property
    def refused(self) -> tuple[str, ...]:
        """The figures of this day's replays that are not to be believed."""
        return tuple(self._refused())

    def _refused(self) -> Iterator[str]:
        was, came = self.happened, self.replayed
        if self.far_off:
            yield "spread"
        if _differ(was.hot_minutes, came.hot_minutes, HOT_LEAST * was.broker_minutes):
            yield "hot_minutes"
        if self.far_off or _differ(was.moves, came.moves, MOVES_LEAST):
            yield "moves"

    def text(self) -> str:
        """For people."""
        was, came = self.happened, self.replayed
        text = (
            f"replayed with {self.used}: spread {came.spread:.1f} (was {was.spread:.1f}), hot "
            f"minutes {came.hot_minutes} ({was.hot_minutes}), moves {came.moves} ({was.moves}); "
            f"usage by the model is {100 * self.error:.1f} points off"
        )
        if self.says_little:
            text += f". No verdict comes from this day: {explained_text(self.explained)}"
        if self.refused:
            names = " and ".join(name.replace("_", " ") for name in self.refused)
            return f"{text}. Compare candidates with each other: {names} are not to be believed"
        return text


def _differ(was: int, came: int, least: float) -> bool:
    return abs(was - came) > max(COUNTS_OFF * max(was, came), least)


def calibration(recording: Recording, replayed: Measures, used: str = IN_FORCE) -> Calibration:
    """A recorded day beside its replay with these settings."""
    fit = recording.fit
    return Calibration(recording.lived, replayed, fit.error, used, fit.explained)


def believed(
    figures: Mapping[str, float | None], calibrations: Mapping[str, Calibration]
) -> dict[str, float | str | None]:
    """Means over days, by name. Those that are not to be believed come as multiples of what the
    replays of the settings in force come to.
    """
    refused = {name for each in calibrations.values() for name in each.refused}
    follow = {name for figure in refused for name in FOLLOWS[figure]}
    shown: dict[str, float | str | None] = dict(figures)
    for name in follow & figures.keys():
        in_force = fmean(asdict(each.replayed)[name] for each in calibrations.values())
        shown[name] = times(figures[name] or 0.0, in_force)
    return shown


def times(value: float, in_force: float) -> str:
    """A figure that is not to be believed, as a multiple of what the replays of the settings in
    force come to.
    """
    same = "x 1" if not value else "more"
    return f"x {value / in_force:.2f}" if in_force > 0 else same
