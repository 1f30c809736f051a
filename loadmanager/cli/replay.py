"""`loadmanager replay`: what days would have been like under other strategies and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import msgspec
import numpy as np
from click.core import ParameterSource

from loadmanager.broker import settings
from loadmanager.cli.calibrations import calibration_document
from loadmanager.cli.options import URL, Command, Finite, SvgPath, config, tell_left_out
from loadmanager.cli.recorded import reader, recorded, tried_settings
from loadmanager.cli.terminal import show, table, track
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.errors import BadInputError
from loadmanager.kit.text import printable
from loadmanager.lab.calibration import Calibration, believed, calibration
from loadmanager.lab.closed_loop import Costs, run
from loadmanager.lab.days import DayOfLoad, DaySize, make_day
from loadmanager.lab.exact import exactness, lines
from loadmanager.lab.measures import WARM_UP_MINUTES, Measures, Minute, measure, ratio, settling
from loadmanager.lab.picture import picture

EXAMPLES = """examples:
  loadmanager replay --try ThresholdShedder --try BalancedShedder+BalancedPlacement
  loadmanager replay --days 5 --seed 7 --brokers 50 --bundles 3000 --unequal \\
    --try AvgShedder+AvgShedder --try AvgShedder+AvgShedder,maxUnloadPercentage=0.3
  loadmanager replay data/history --date 2026-11-20 --plot day.svg \\
    --try "" --try BalancedShedder+BalancedPlacement
  loadmanager replay data/history --date 2026-11-20 --exact
  loadmanager replay --config broker.conf --json > days.json

--try takes SHEDDER[+PLACEMENT][,KEY=VALUE…]; what it leaves out is that of --config and --set.
Without --try, the strategies of the configuration are tried alone; --try "" is the same.
Without HISTORY the days are synthetic. A minute costs about 2 ms with 20 brokers and 800 bundles,
about 15 ms with 100 brokers and 10,000 bundles.
"""
HEADERS = (
    "tried",
    "spread",
    "gap",
    "max/mean",
    "hot min",
    "moves",
    "MB/s moved",
    "again",
    "pause s",
    "settle min",
)
LEGEND = f"""Means over the days, each without its first {WARM_UP_MINUTES} minutes.
spread, gap: standard deviation of the brokers' usage, and how far the most used one is above the
  mean, in points; max/mean: the most used one as a multiple of the mean
hot min: minutes of brokers above 85 %
MB/s moved: traffic of the moved bundles, megabytes/s, the sum over all moves
again: bundles that were moved twice within an hour
pause s: seconds that clients were without an owner because of moves
settle min: after an event, until the spread is usual again; - without an event
(as it was): what was recorded, by the sensors; how long clients waited by the leaders' records of
  moves, - where these do not tell
x 0.50: half of what the replay of the settings in force comes to; that is far from what happened,
  so that the figure itself is not told"""
NO_CYCLES = 4
OF_HISTORY = ("dates", "cluster", "exact")
OF_SYNTHETIC = ("days", "seed", "hours", "brokers", "bundles", "unequal", "calm", "lies")
OF_TRIALS = ("config", "overrides", "tried", "pause_s", "surge", "plot")
AS_IT_WAS = "(as it was)"
"""The row of what was recorded."""
CONFIGURED = "configured"
"""What the candidate without a text is called."""
BARS = "▁▂▃▄▅▆▇█"
PLOT_WIDTH = 60


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("history", type=URL, required=False)
@click.option("--date", "dates", multiple=True, metavar="YYYY-MM-DD", help="of HISTORY: this day")
@click.option("--cluster", help="of HISTORY: which cluster, when there are several")
@config()
@click.option("--try", "tried", multiple=True, metavar="STRATEGY", help="may be repeated")
@click.option("--days", default=1, type=click.IntRange(1, 1000), help="how many, one for each seed")
@click.option(
    "--seed",
    default=1,
    type=click.IntRange(0),
    help="of the first day; the same seed makes the same day",
)
@click.option("--hours", default=4.0, type=Finite(0.5, 240), help="of each day")
@click.option("--brokers", default=20, type=click.IntRange(2, 5000))
@click.option("--bundles", default=800, type=click.IntRange(1, 1_000_000))
@click.option("--unequal", is_flag=True, help="brokers of half, single and double size")
@click.option("--calm", is_flag=True, help="no broker dies, joins or restarts")
@click.option("--lies", is_flag=True, help="for an hour, a CPU sensor shows 40 points too much")
@click.option(
    "--pause",
    "pause_s",
    default=Costs().pause_s,
    type=Finite(0),
    metavar="S",
    help="a move leaves a bundle's clients without an owner for so long",
)
@click.option(
    "--surge",
    default=Costs().surge,
    type=Finite(0),
    metavar="PART",
    help="a bundle's new owner does this part of its work once more, for a minute",
)
@click.option(
    "--exact",
    is_flag=True,
    help="decide the recorded cycles of HISTORY again, as they were, and compare",
)
@click.option("--plot", type=SvgPath(), metavar="FILE", help="draw the first day as SVG")
@click.option("--json", "as_json", is_flag=True, help="every figure of every day, for programs")
def command(
    config: Path | None,
    overrides: dict[str, str],
    *,
    history: str | None,
    dates: Sequence[str],
    cluster: str | None,
    tried: Sequence[str],
    pause_s: float,
    surge: float,
    exact: bool,
    plot: Path | None,
    as_json: bool,
    **synthetic: Any,
) -> int:
    """Try strategies on the same days, and compare them.

    The days are synthetic, or those that were recorded in HISTORY, a folder or any fsspec URL. The
    leader's own cycle decides every minute, on virtual time. A bundle's load follows it; a move
    costs its clients a pause, and its new owner the work of their connecting again.
    """
    _check_options(history, exact=exact)
    if exact:
        return _exactly(history, cluster, dates, as_json=as_json)
    base = settings.KEYS.load(config, overrides)
    tell_left_out()
    texts = {text or CONFIGURED: text for text in tried or [""]}
    plans = {name: tried_settings(base, text, history) for name, text in texts.items()}
    costs = Costs(pause_s=pause_s, surge=surge)
    recordings = {} if history is None else recorded(history, cluster, dates, base)
    days = {date: each.recording.day for date, each in recordings.items()}
    days = days or _synthetic(**synthetic)
    results: dict[str, list[tuple[Measures, Sequence[Minute]]]] = {name: [] for name in plans}
    for name, day in track([(name, day) for day in days.values() for name in plans], "replaying"):
        minutes = run(day, plans[name], costs)
        results[name].append((measure(minutes), minutes))
    if recordings:
        happened = [each.recording.happened for each in recordings.values()]
        results = {AS_IT_WAS: [(measure(day), day) for day in happened], **results}
    calibrations = {
        date: calibration(
            each.recording, measure(run(each.recording.day, each.in_force, costs)), each.used
        )
        for date, each in track(list(recordings.items()), "calibrating")
    }
    if plot is not None:
        _draw(plot, picture({name: each[0][1] for name, each in results.items()}))
    if as_json:
        documents = [_document(name, days, result) for name, result in results.items()]
        documents += [calibration_document(date, each) for date, each in calibrations.items()]
        print(msgspec.json.encode(documents).decode())
    else:
        rows = [
            _row(
                text,
                [measures for measures, _ in each],
                {} if text == AS_IT_WAS else calibrations,
            )
            for text, each in results.items()
        ]
        plots = [f"{_plot(each[0][1])}  {text}" for text, each in results.items()]
        compared = [f"{date}: {each.text()}" for date, each in calibrations.items()]
        spreads = ["spread over the first day:", *plots]
        show(table(HEADERS, rows), LEGEND.splitlines(), *([compared] if compared else []), spreads)
    return 0


def _draw(path: Path, text: str) -> None:
    try:
        # a picture to show to others: who may read it is up to the umask of whoever asks for it
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"--plot {path}: {error.strerror}") from None


def _check_options(history: str | None, *, exact: bool) -> None:
    """Raise `BadInputError` for an option that would have no effect."""
    context = click.get_current_context()
    given = [
        option
        for option in context.command.params
        if context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
    ]
    for option in given:
        if history is None and option.name in OF_HISTORY:
            raise BadInputError(f"{option.opts[0]}: a HISTORY is expected")
        if history is not None and option.name in OF_SYNTHETIC:
            raise BadInputError(f"{option.opts[0]} is for synthetic days, without a HISTORY")
        if exact and option.name in OF_TRIALS:
            raise BadInputError(f"{option.opts[0]} has no effect on --exact: leave one of them out")


def _synthetic(
    *, days: int, seed: int, hours: float, calm: bool, brokers: int, bundles: int, **kind: bool
) -> dict[str, DayOfLoad]:
    """Seed → day."""
    minutes = round(hours * 60)
    shape = DaySize(brokers=brokers, bundles=bundles, minutes=minutes, events=not calm, **kind)
    return {str(number): make_day(number, shape) for number in range(seed, seed + days)}


def _exactly(
    history: str | None, cluster: str | None, dates: Sequence[str], *, as_json: bool
) -> int:
    """Decide recorded cycles again; 1 if a live move did not come out again, 4 without cycles."""
    if history is None:
        raise BadInputError("--exact: a HISTORY is expected")
    recorded_days = reader()
    source = recorded_days.history(history)
    name = source.chosen(cluster)

    def of_keys(keys: Mapping[str, str]) -> StrategySettings:
        return settings.KEYS.parse(keys).leaf(StrategySettings)

    outcomes = {
        date: exactness(recorded_days.recorded_cycles(source, name, date), of_keys)
        for date in dates or source.dates(name)
    }
    if as_json:
        documents = {date: {**asdict(each), "share": each.share} for date, each in outcomes.items()}
        print(msgspec.json.encode(documents).decode())
    else:
        for date, outcome in outcomes.items():
            print("\n".join([f"{date}:", *map(printable, lines(outcome))]))
    if not any(each.cycles for each in outcomes.values()):
        return NO_CYCLES
    return 0 if all(each.reproduced == each.moves for each in outcomes.values()) else 1


def _row(
    text: str, days: Sequence[Measures], calibrations: Mapping[str, Calibration]
) -> list[str | float | None]:
    each_day = [asdict(day) for day in days]
    figures = {name: _mean([day[name] for day in each_day]) for name in each_day[0]}
    del figures["broker_minutes"]
    shown = believed(figures, calibrations)
    moved = shown["moved_bytes"]
    shown["moved_bytes"] = moved / 1e6 if isinstance(moved, float | int) else moved
    return [text, *(round(each, 2) if isinstance(each, float) else each for each in shown.values())]


def _mean(figures: Sequence[float | None]) -> float | None:
    """Of the days that have it."""
    there = [figure for figure in figures if figure is not None]
    return fmean(there) if there else None


def _plot(minutes: Sequence[Minute]) -> str:
    """The spread over the day as a line of bars; the highest bar is 25 points."""
    spreads = np.array([minute.spread for minute in minutes])
    parts = np.array_split(spreads, min(PLOT_WIDTH, len(spreads)))
    heights = [min(int(part.mean() / 25 * len(BARS)), len(BARS) - 1) for part in parts]
    return "".join(BARS[height] for height in heights)


def _document(
    text: str, days: Iterable[str], results: Sequence[tuple[Measures, Sequence[Minute]]]
) -> dict[str, Any]:
    return {
        "tried": text,
        "days": [
            {
                "day": day,
                **asdict(measures),
                "spreadByMinute": [minute.spread for minute in minutes],
                "maxToMeanByMinute": [ratio(minute.usage) for minute in minutes],
                "movesByMinute": [minute.moves for minute in minutes],
                "events": [
                    {
                        "minute": event.minute,
                        "kind": event.kind.value,
                        "broker": event.broker,
                        "settledAfterMinutes": settled.get(at),
                    }
                    for settled in [settling(minutes)]
                    for at, minute in enumerate(minutes)
                    for event in minute.events
                ],
            }
            for day, (measures, minutes) in zip(days, results, strict=True)
        ],
    }
