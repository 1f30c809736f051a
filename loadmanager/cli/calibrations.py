"""How the commands that replay recorded days tell how well they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from loadmanager.cli.recorded import reader, used_settings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.settings import Settings
from loadmanager.lab import candidates
from loadmanager.lab.calibration import Calibration, calibration
from loadmanager.lab.closed_loop import run
from loadmanager.lab.measures import measure
from loadmanager.leader.strategy_keys import strategies_of


def replays_of(
    history: str, cluster: str | None, base: Settings
) -> Callable[[str], dict[str, Any] | None]:
    """Replays a date with the settings that were in force, or these, and says for the nightly
    report how far off that is; None: the day cannot be replayed. Raises `ConfigError`.
    """
    recorded_days = reader()
    source = recorded_days.history(history)
    name = source.chosen(cluster)

    def replay(date: str) -> dict[str, Any] | None:
        try:
            recording = recorded_days.recorded_day(source, name, date)
        except BadInputError:
            return None
        keys = recorded_days.settings_in_force(source, name, date)
        strategies = strategies_of(candidates.unweighted(base).with_overrides(keys or {}))
        replayed = measure(run(recording.day, strategies))
        of_day = calibration(recording, replayed, used_settings(keys, base))
        figures = {
            f"{figure}_{side}": getattr(measures, figure)
            for side, measures in (("was", of_day.happened), ("replayed", of_day.replayed))
            for figure in ("spread", "hot_minutes", "moves")
        }
        return {
            **figures,
            "model_error": of_day.error,
            "spread_off": of_day.off,
            "refused": ", ".join(of_day.refused),
            "settings": of_day.used,
        }

    return replay


def calibration_document(date: str, of_day: Calibration) -> dict[str, Any]:
    """A day beside its replay, for programs."""
    return {
        "calibration": date,
        "settings": of_day.used,
        "happened": {**asdict(of_day.happened), "pause_s": None},  # loads do not tell it
        "replayed": asdict(of_day.replayed),
        "modelError": of_day.error,
        "off": of_day.off,
        "farOff": of_day.far_off,
        "refused": of_day.refused,
    }
