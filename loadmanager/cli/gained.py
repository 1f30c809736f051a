"""`loadmanager fleet gained`: what mode `act` would have gained while the daemon only watched."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from loadmanager.cli.terminal import show, table, track
from loadmanager.kit.errors import BadInputError, ConfigError
from loadmanager.kit.reason import joined
from loadmanager.lab.closed_loop import Costs
from loadmanager.lab.gained import GainedDay, gained
from loadmanager.steer.settings_file import ClusterSettings
from loadmanager.steer.weekly import NOTHING_TOLD, GainedSum

HEADERS = (
    "day",
    "spread was",
    "would be",
    "error",
    "hot min was",
    "would be",
    "moves",
    "pause s",
    "changed",
    "",
)
LEGEND = """Each recorded day, and the same day lived again with the daemon's moves, without its
first 20 minutes. Both are by the model of usage of a replay.
spread: standard deviation of the brokers' usage, in points; error: what the model's may be off; a
  difference within it tells nothing
hot min: minutes of brokers above 85 %
moves, pause s: what that would have cost, with the first 20 minutes: each day begins as it was
  recorded, so that one after a day of acting would have begun with fewer; 0.15 s are assumed for
  each client of a moved bundle, which is usual (goals count 1 s until a pause is measured, so that
  no limit is passed)
changed: bundles that changed their owner that day, by Pulsar or by people
The daemon's hourly budget, quiet hours and holds are not in it: it would have been slower."""


def report(cluster: ClusterSettings, data_dir: Path, days: int, *, as_json: bool) -> int:
    """Print the last recorded days; 4 if none of them tells anything. Raises `BadInputError`,
    `ConfigError`.
    """
    try:
        from loadmanager.lab import recorded_days
    except ImportError as error:
        raise ConfigError(
            f"reading a history needs fsspec: pip install 'loadmanager[report]' ({error})"
        ) from None
    folder = data_dir / "history"
    if not folder.is_dir():
        raise BadInputError(
            f"{folder} does not exist: say where the daemon's data are, as `loadmanager fleet "
            "--config FILE --data-dir PATH gained`"
        )
    source = recorded_days.history(str(folder))
    dates = source.dates(source.chosen(cluster.name))[-days:]
    strategies = dataclasses.replace(  # recorded usage has the weights in it
        cluster.strategies, cpu_weight=1.0, shedding_enabled=True
    )
    lived: list[GainedDay] = []
    for date in track(dates, "replaying"):
        try:
            recording = recorded_days.recorded_day(source, cluster.name, date)
        except BadInputError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        lived.append(gained(date, recording, strategies, Costs()))
    if as_json:
        document = {"sum": _sum(lived), "days": [_document(day) for day in lived]}
        print(msgspec.json.encode(document).decode())
    elif lived:
        rows = [_row(day) for day in lived]
        show(table(HEADERS, rows), LEGEND.splitlines(), [_sum(lived).text])
    else:
        show([_sum(lived).text])
    return 0 if any(day.silent is None for day in lived) else NOTHING_TOLD


def _row(day: GainedDay) -> list[str | float]:
    silent = day.silent
    return [
        day.date,
        round(day.was.spread, 1),
        round(day.would_be.spread, 1),
        round(day.error, 1),
        day.was.hot_minutes,
        day.would_be.hot_minutes,
        day.would_be.moves,
        round(day.would_be.pause_s or 0.0, 1),
        day.changed_owners,
        "" if silent is None else f"cannot tell: {joined(silent.code, silent.text)}",
    ]


def _sum(days: Sequence[GainedDay]) -> GainedSum:
    tell = [day for day in days if day.silent is None]
    if not tell:
        text = f"None of {len(days)} recorded days tells what act would have gained."
        if not days:
            text = "No recorded day is long enough to tell what act would have gained."
        return GainedSum(text=text)
    minutes = sum(day.minutes for day in tell)
    made = GainedSum(
        text="",
        days_told=len(tell),
        spread_gained=sum(day.spread_gained * day.minutes for day in tell) / minutes,
        error=sum(day.error * day.minutes for day in tell) / minutes,
        hot_minutes_gained=sum(day.hot_minutes_gained for day in tell),
        moves=sum(day.would_be.moves for day in tell),
    )
    made.text = (
        f"{len(tell)} of {len(days)} days tell: act would have gained {made.spread_gained:.1f} "
        f"points of spread (± {made.error:.1f}) and {made.hot_minutes_gained} hot minutes, with "
        f"{made.moves} moves."
    )
    return made


def _document(day: GainedDay) -> dict[str, Any]:
    silent = day.silent
    return {
        "date": day.date,
        "minutes": day.minutes,
        "was": asdict(day.was),
        "wouldBe": asdict(day.would_be),
        "spreadGained": day.spread_gained,
        "hotMinutesGained": day.hot_minutes_gained,
        "changedOwners": day.changed_owners,
        "explained": day.explained,
        "error": day.error,
        "cannotTell": None if silent is None else {"code": silent.code, "text": silent.text},
    }
