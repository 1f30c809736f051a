"""What a day would have gained if the daemon had acted, that only watched.

The recorded day is lived again under the daemon's settings, with the model of its usage that a
replay has. Both sides are that model's: what was, with the bundles where they were, and what would
have been. A day does not tell if the model explains little of it, or if the gain is not above the
model's own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.reason import Reason
from loadmanager.lab import fitted
from loadmanager.lab.closed_loop import Costs, run
from loadmanager.lab.fitted import ERROR_LEAST, EXPLAINED_LEAST
from loadmanager.lab.measures import WARM_UP_MINUTES, Measures, Minute, measure
from loadmanager.lab.recorded import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class GainedDay:
    """A recorded day beside the same one with the daemon's moves. Spreads are points."""

    date: str
    minutes: int
    was: Measures
    """By the model."""
    would_be: Measures
    """With the moves of its first minutes, too, which are not measured but bring the gain."""
    changed_owners: int
    """Bundles that changed their owner that day: by Pulsar, people, or a daemon that acted."""
    explained: float
    """The part of the brokers' usage that the model explains."""
    error: float
    """Points of spread that the gain may be off: the model's mean error of a broker's usage, or how
    far its spread is off that of the sensors.
    """

    @property
    def spread_gained(self) -> float:
        """How much more even the brokers would have been."""
        return self.was.spread - self.would_be.spread

    @property
    def hot_minutes_gained(self) -> int:
        """Minutes of brokers above 85 % that would not have been."""
        return self.was.hot_minutes - self.would_be.hot_minutes

    @property
    def silent(self) -> Reason | None:
        """Why the day tells nothing; None: it does."""
        if self.explained < EXPLAINED_LEAST:
            return Reason("NotExplained", fitted.explained_text(self.explained))
        if abs(self.spread_gained) <= self.error:
            text = (
                f"{self.spread_gained:+.1f} points are within the model's error of {self.error:.1f}"
            )
            return Reason("WithinError", text)
        return None


def gained(date: str, recording: Recording, settings: StrategySettings, costs: Costs) -> GainedDay:
    """Live a recorded day again with the daemon's moves."""
    was, sensors = measure(recording.modelled), measure(recording.happened)
    return GainedDay(
        date=date,
        minutes=recording.day.minutes,
        was=was,
        would_be=_with_all_moves(run(recording.day, settings, costs)),
        changed_owners=sensors.moves,
        explained=recording.fit.explained,
        error=max(abs(was.spread - sensors.spread), 100 * recording.fit.error, ERROR_LEAST),
    )


def _with_all_moves(minutes: Sequence[Minute]) -> Measures:
    """The figures of a day, and what all of its moves cost."""
    measured, first = measure(minutes), minutes[:WARM_UP_MINUTES]
    pauses = [measured.pause_s, *(minute.pause_s for minute in first)]
    return replace(
        measured,
        moves=measured.moves + sum(minute.moves for minute in first),
        moved_bytes=measured.moved_bytes + sum(minute.moved_bytes_s for minute in first),
        again=measured.again + sum(minute.again for minute in first),
        pause_s=None if None in pauses else sum((each or 0.0 for each in pauses), 0.0),
    )
