"""`loadmanager replay`: what days would have been like under other strategies and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import msgspec
import numpy as np

from loadmanager import settings
from loadmanager.cli.options import Command, config
from loadmanager.cli.terminal import show, table, track
from loadmanager.core.errors import BadInputError
from loadmanager.core.strategies import registry
from loadmanager.core.strategies.settings import StrategySettings
from loadmanager.simulator.closed_loop import run
from loadmanager.simulator.days import Shape, make_day
from loadmanager.simulator.measures import Measures, Minute, measure

EXAMPLES = """examples:
  loadmanager replay --try ThresholdShedder --try BalancedShedder+BalancedPlacement
  loadmanager replay --days 5 --seed 7 --brokers 50 --bundles 3000 --unequal \\
    --try AvgShedder+AvgShedder --try AvgShedder+AvgShedder,maxUnloadPercentage=0.3
  loadmanager replay --config broker.conf --json > days.json

--try takes SHEDDER[+PLACEMENT][,KEY=VALUE…]; what it leaves out is that of --config and --set.
Without --try, the strategies of the configuration are tried alone.
The days are synthetic. A minute of a day costs about 5 ms with 20 brokers and 800 bundles.
"""
HEADERS = (
    "tried",
    "spread",
    "gap",
    "hot min",
    "moves",
    "MB/s moved",
    "again",
    "pause s",
    "settle min",
)
LEGEND = """Means over the days.
spread, gap: standard deviation of the brokers' usage, and how far the most used one is above the
  mean, in points
hot min: minutes of brokers above 85 %
again: bundles that were moved twice within an hour
pause s: seconds that clients were without an owner because of moves
settle min: after an event, until the spread is usual again"""
BARS = "▁▂▃▄▅▆▇█"
PLOT_WIDTH = 60


@click.command(cls=Command, epilog=EXAMPLES)
@config()
@click.option("--try", "tried", multiple=True, metavar="STRATEGY", help="may be repeated")
@click.option("--days", default=1, type=click.IntRange(1, 1000), help="how many, one for each seed")
@click.option("--seed", default=1, help="of the first day; the same seed makes the same day")
@click.option("--hours", default=4.0, type=click.FloatRange(0.5, 240), help="of each day")
@click.option("--brokers", default=20, type=click.IntRange(2, 5000))
@click.option("--bundles", default=800, type=click.IntRange(1, 1_000_000))
@click.option("--unequal", is_flag=True, help="brokers of half, single and double size")
@click.option("--calm", is_flag=True, help="no broker dies, joins or restarts")
@click.option("--lies", is_flag=True, help="for an hour, a CPU sensor shows 40 points too much")
@click.option("--json", "as_json", is_flag=True, help="every figure of every day, for programs")
def command(
    config: Path | None,
    overrides: dict[str, str],
    *,
    tried: Sequence[str],
    days: int,
    seed: int,
    hours: float,
    as_json: bool,
    **shape: Any,
) -> int:
    """Try strategies on the same days, and compare them.

    The leader's own cycle decides every minute, on virtual time. A bundle's load follows it; a move
    costs its clients a pause, and its new owner the work of their connecting again.
    """
    base = settings.load(config, overrides)
    plans = {text: _settings(base, text) for text in tried} or {"configured": _settings(base, "")}
    calm = shape.pop("calm")
    wanted = Shape(minutes=round(hours * 60), events=not calm, **shape)
    results: dict[str, list[tuple[Measures, list[Minute]]]] = {text: [] for text in plans}
    work = [(text, number) for number in range(seed, seed + days) for text in plans]
    for text, number in track(work, "replaying"):
        minutes = run(make_day(number, wanted), plans[text])
        results[text].append((measure(minutes), minutes))
    if as_json:
        print(msgspec.json.encode([_document(*result) for result in results.items()]).decode())
    else:
        rows = [_row(text, [measures for measures, _ in days]) for text, days in results.items()]
        plots = [f"{_plot(days[0][1])}  {text}" for text, days in results.items()]
        show(table(HEADERS, rows), LEGEND, "\n".join(["spread over the first day:", *plots]))
    return 0


def _settings(base: settings.Settings, text: str) -> StrategySettings:
    """The settings that `--try` names. Raises `BadInputError`, `ConfigError`."""
    names, *pairs = text.split(",")
    shedder, _, placement = names.partition("+")
    overrides = settings.parse_overrides(pairs)
    if shedder:
        overrides["loadBalancerLoadSheddingStrategy"] = shedder
    if placement:
        overrides["loadBalancerLoadPlacementStrategy"] = placement
    loaded = base.with_overrides(overrides)
    if loaded.unknown:
        raise BadInputError(f"unknown keys: {settings.unknown_text(loaded.unknown)}")
    strategies = loaded.leaf(StrategySettings)
    registry.check(strategies.shedder, strategies.placement)
    return strategies


def _row(text: str, days: Sequence[Measures]) -> list[str | float]:
    means = {name: fmean(asdict(day)[name] for day in days) for name in asdict(days[0])}
    means["moved_bytes"] /= 1e6
    return [text, *(round(value, 2) for value in means.values())]


def _plot(minutes: Sequence[Minute]) -> str:
    """The spread over the day as a line of bars; the highest bar is 25 points."""
    spreads = np.array([minute.usage.std() * 100 for minute in minutes])
    parts = np.array_split(spreads, min(PLOT_WIDTH, len(spreads)))
    heights = [min(int(part.mean() / 25 * len(BARS)), len(BARS) - 1) for part in parts]
    return "".join(BARS[height] for height in heights)


def _document(text: str, days: Sequence[tuple[Measures, Sequence[Minute]]]) -> dict[str, Any]:
    return {
        "tried": text,
        "days": [
            {
                **asdict(measures),
                "spreadByMinute": [float(minute.usage.std() * 100) for minute in minutes],
                "movesByMinute": [minute.moves for minute in minutes],
                "events": [
                    {"minute": event.minute, "kind": event.kind.value, "broker": event.broker}
                    for minute in minutes
                    for event in minute.events
                ],
            }
            for measures, minutes in days
        ],
    }
