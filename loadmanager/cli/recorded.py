"""Recorded days and tried settings, for the commands that replay them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadmanager.broker import settings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.settings import Settings, unknown_text
from loadmanager.lab import calibration, candidates
from loadmanager.lab.recorded import Recording
from loadmanager.leader.strategy_keys import strategies_of


@dataclass(frozen=True, slots=True)
class RecordedDay:
    """A recorded day, and the settings that were in force, or else those of --config."""

    recording: Recording
    in_force: StrategySettings
    used: str = calibration.IN_FORCE
    """What these settings are."""


def reader() -> Any:
    """What reads histories. Raises `ConfigError` without the extra that it needs."""
    try:
        from loadmanager.lab import recorded_days
    except ImportError as error:
        raise ConfigError(
            f"reading a history needs fsspec: pip install 'loadmanager[report]' ({error})"
        ) from None
    return recorded_days


def recorded(
    history: str, cluster: str | None, dates: Sequence[str], base: Settings
) -> dict[str, RecordedDay]:
    """Date → day of a history; says how well their usage is understood, and which settings their
    leaders had instead of `base`.
    """
    recorded_days = reader()
    source = recorded_days.history(history)
    name = source.chosen(cluster)
    made = {}
    for date in dates or source.dates(name):
        try:
            recording = recorded_days.recorded_day(source, name, date)
        except BadInputError as error:
            if dates:
                raise
            print(f"left out: {error}", file=sys.stderr)
            continue
        day = recording.day
        print(
            f"{date}: {day.minutes} minutes, {len(day.cores)} brokers, {len(day.bundles)} bundles; "
            f"{recording.fit.text}"
            f"{recording.left_out_text}",
            file=sys.stderr,
        )
        keys = recorded_days.settings_in_force(source, name, date)
        strategies = strategies_of(candidates.unweighted(base).with_overrides(keys or {}))
        made[date] = RecordedDay(recording, strategies, used_settings(keys, base))
    if not made:
        raise BadInputError(f"{history}: cluster {name} has no day that can be lived again")
    for text in recorded_days.other_settings(source, name, made, base):
        print(text, file=sys.stderr)
    return made


def used_settings(recorded_keys: Mapping[str, str] | None, base: Settings) -> str:
    """What the settings of a replay are: a day without records of cycles has none."""
    if recorded_keys is not None:
        return calibration.IN_FORCE
    sides = (candidates.unweighted(each) for each in (settings.KEYS.parse({}), base))
    default, given = map(strategies_of, sides)
    return calibration.NOT_RECORDED if default == given else calibration.GIVEN


def tried_settings(base: Settings, text: str, history: str | None) -> StrategySettings:
    """The settings that `--try` names. Raises `BadInputError`, `ConfigError`."""
    if history is not None:
        base = candidates.unweighted(base)
        candidates.check_candidate(text)
    settings.KEYS.parse_overrides(text.split(",")[1:])  # says what is wrong with a pair
    loaded = base.with_overrides(candidates.overrides(text))
    if loaded.unknown:
        raise BadInputError(f"unknown keys: {unknown_text(loaded.unknown)}")
    return strategies_of(loaded)
