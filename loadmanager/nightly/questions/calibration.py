"""How well does a replay of the day say what it was like?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from loadmanager.engine.history.replay_error import ReplayError
from loadmanager.nightly.day import NUMBER, TEXT, WHOLE, Columns, Day, Finding, Row
from loadmanager.nightly.hurt import NOBODY

NAME = "calibration"
ABOUT = (
    "How far off are replays? The day is replayed with the settings that were in force, or with "
    "those given or the defaults if none are recorded, and compared with what happened: by the "
    "sensors without their noise. Tournaments, what-if and bills use the same model."
)
COLUMNS: Columns = {
    "spread_was": (NUMBER, "standard deviation of the brokers' usage, in points, mean of the day"),
    "spread_replayed": (NUMBER, "the same in the replay"),
    "hot_minutes_was": (WHOLE, "minutes of brokers above 85 %"),
    "hot_minutes_replayed": (WHOLE, "the same in the replay"),
    "moves_was": (WHOLE, "bundles that moved"),
    "moves_replayed": (WHOLE, "the same in the replay"),
    "model_error": (NUMBER, "the mean error of a broker's usage in a minute, as a fraction"),
    "spread_off": (NUMBER, "how much more spread the day had, as a part of it"),
    "refused": (TEXT, "what is not to be believed of this day's replays"),
    "settings": (TEXT, "which settings were replayed"),
}
Replayed = Callable[[str], Row | None]
"""Date → the row of a day's replay; None: it cannot be replayed."""
METRICS: Mapping[str, tuple[str, str]] = {
    "spread_off": (
        "loadmanager_replay_spread_off",
        "How much more spread the last analysed day had than its replay, as a part",
    ),
    "model_error": (
        "loadmanager_replay_model_error",
        "The mean error of the model of a broker's usage on the last analysed day",
    ),
}


class Calibrated:
    """The question, with what replays a day."""

    NAME = NAME
    ABOUT = ABOUT
    COLUMNS = COLUMNS

    def __init__(self, replayed: Replayed) -> None:
        self._replayed = replayed

    def table(self, day: Day) -> list[Row]:
        """One row, or none where the day cannot be replayed."""
        row = self._replayed(day.date)
        return [] if row is None else [row]

    def findings(self, rows: Sequence[Any], day: Day) -> list[Finding]:
        """A remark if the figures of replays are not to be believed."""
        return [
            Finding(
                importance=12,
                question=NAME,
                title="Replays of this day are far from what happened",
                text=f"Replayed with {row.settings}, its spread comes to "
                f"{row.spread_replayed:.1f} points, and it was {row.spread_was:.1f}; usage by the "
                f"model is {100 * row.model_error:.1f} points off.",
                advice="Compare candidates of a tournament with each other, and believe no figure "
                "of this day by itself.",
                hurt=f"{NOBODY}: who plans by a replay of this day",
                numbers={"spreadOff": row.spread_off, "modelError": row.model_error},
                commands=["loadmanager replay HISTORY --date " + day.date],
            )
            for row in rows
            if "spread" in row.refused
        ]


def metrics(rows: Sequence[Mapping[str, Any]], cluster: str) -> str:
    """The day's errors for Prometheus, as node_exporter reads them from a text file."""
    label = cluster.translate({ord("\\"): "_", ord('"'): "_", ord("\n"): "_"})
    lines = []
    for name, (metric, about) in METRICS.items():
        lines += [f"# HELP {metric} {about}", f"# TYPE {metric} gauge"]
        lines += [f'{metric}{{cluster="{label}"}} {row[name]:.6f}' for row in rows]
    return "".join(f"{line}\n" for line in lines)


def error_of(row: Mapping[str, Any], date: str) -> ReplayError:
    """The day's errors, for the leader."""
    return ReplayError(
        date=date,
        spread_was=row["spread_was"],
        spread_replayed=row["spread_replayed"],
        model_error=row["model_error"],
        refused=tuple(each for each in row["refused"].split(", ") if each),
    )
