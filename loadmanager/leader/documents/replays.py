"""How far off replays are, beside plans and headroom."""

from __future__ import annotations

from loadmanager.engine.history.replay_error import ReplayError
from loadmanager.kit.model import Shape


class ReplayShown(Shape):
    """How far the last replay of a recorded day was from what happened."""

    text: str
    """For people."""
    date: str | None = None
    """The day; null, as the figures: not measured yet."""
    spread_was: float | None = None
    """Standard deviation of the brokers' usage, in points."""
    spread_replayed: float | None = None
    model_error: float | None = None
    """The mean error of a broker's usage by the model, as a fraction."""
    refused: tuple[str, ...] = ()
    """What is not to be believed: of `spread`, `hot_minutes` and `moves`."""

    @classmethod
    def of(cls, error: ReplayError) -> ReplayShown:
        """What was measured."""
        return cls(
            text=error.text(),
            date=error.date,
            spread_was=error.spread_was,
            spread_replayed=error.spread_replayed,
            model_error=error.model_error,
            refused=error.refused,
        )


def not_measured() -> ReplayShown:
    """Nothing is known."""
    return ReplayShown(text="how far replays are from what happens is not measured yet")
