"""`loadmanager tournament`: which settings would have served the recorded days better?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import msgspec

from loadmanager.broker import settings
from loadmanager.cli.calibrations import calibration_document
from loadmanager.cli.options import FILE, URL, Command, Finite, SvgPath, config, tell_left_out
from loadmanager.cli.recorded import used_settings
from loadmanager.cli.terminal import show, table
from loadmanager.kit.errors import BadInputError, ConfigError, OperationalError
from loadmanager.kit.settings import Settings
from loadmanager.lab import candidates
from loadmanager.lab.calibration import Calibration, believed, times
from loadmanager.lab.closed_loop import run
from loadmanager.lab.fitted import EXPLAINED_LEAST, Fit
from loadmanager.lab.measures import Measures, measure
from loadmanager.lab.picture import pareto
from loadmanager.lab.results import ObjectiveWeights, Ranked, Results, Standings, cost, standings
from loadmanager.leader.strategy_keys import strategies_of

EXAMPLES = """examples:
  loadmanager tournament data/history --config broker.conf
  loadmanager tournament data/history --random 60 --calm 0.5 --pareto days.svg
  loadmanager tournament s3://bucket/history --master spark://head:7077 --output /shared/tournament

The objective is balance x spread (points) + headroom x time of brokers above 85 % (percent)
+ calm x moves per broker and hour; lower is better. A recommendation was chosen on the first half
of the days and judged on the other half: it gains at least 5 % there, and chance alone would make
such a gain in less than one of twenty cases.
Otherwise nothing is recommended. Results are kept below --output: a second run pays only for what
is new. Spark's workers must see that folder.
"""
SHOWN = 15
NO_RECOMMENDATION = 4
LEGEND = """Means over the days.
cost: the objective, in points of spread; from, to: between these with 95 %, by days drawn again
spread: standard deviation of the brokers' usage, in points; hot min: minutes of brokers above 85 %
moves: on a day; efficient: nobody beats it in spread, hot minutes and moves together
x 0.50: half of what the replay of the settings in force comes to; that is far from what happened,
  so that the figure itself is not told"""
IN_FORCE = "the settings in force"


@click.command(cls=Command, epilog=EXAMPLES)
@click.argument("history", type=URL)
@click.option("--date", "dates", multiple=True, metavar="YYYY-MM-DD", help="default: all but today")
@click.option("--cluster", help="which cluster, when the history has several")
@config("broker.conf with the settings in force")
@click.option(
    "--random", "drawn", default=30, type=click.IntRange(0, 10_000), help="drawn by chance"
)
@click.option("--no-grid", is_flag=True, help="do not try every combination of the grid")
@click.option("--try", "tried", multiple=True, metavar="STRATEGY", help="also this, as in replay")
@click.option(
    "--seed", default=1, type=click.IntRange(0), help="of the candidates that are drawn by chance"
)
@click.option("--balance", default=1.0, type=Finite(0), help="weight of spread")
@click.option("--headroom", default=1.0, type=Finite(0), help="weight of overload")
@click.option("--calm", default=0.2, type=Finite(0), help="weight of moves")
@click.option("--output", type=FILE, default=Path("data/tournament"), help="where results are kept")
@click.option("--master", help="Spark master (default local[*])")
@click.option("--no-spark", is_flag=True, help="run everything in this process")
@click.option(
    "--pareto", "picture", type=SvgPath(), metavar="FILE", help="draw spread by moves as SVG"
)
@click.option("--json", "as_json", is_flag=True, help="everything, for programs")
def command(
    history: str,
    config: Path | None,
    overrides: dict[str, str],
    *,
    dates: Sequence[str],
    cluster: str | None,
    output: Path,
    master: str | None,
    no_spark: bool,
    picture: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Try many settings on recorded days, rank them, and recommend what is clearly better.

    Exit status: 0 a recommendation, 4 none.
    """
    tell_left_out()
    base = settings.KEYS.load(config, overrides)
    tournament, recorded = _prepared(history, cluster, dates, output, base)
    parts = {name: options.pop(name) for name in ("balance", "headroom", "calm")}
    weights = ObjectiveWeights(**parts)
    if not any(asdict(weights).values()):
        raise BadInputError("--balance, --headroom, --calm: one of them is more than 0")
    tried = _candidates(**options)
    left, _ = tournament.tasks(tried)
    days, all_tasks = len(tournament.dates), len(tried) * len(tournament.dates)
    cpu_s = sum(task.seconds for task in left)
    _say(
        f"candidates: {len(tried)}, days: {days}; "
        f"{len(left)} of {all_tasks} results are not known; about {cpu_s:.0f} s of CPU"
    )
    began_s = time.monotonic()
    with _session(master, needed=bool(left) and not no_spark) as spark:
        results = tournament.play(tried, spark, _progress)
    _say(f"done in {time.monotonic() - began_s:.0f} s")
    for candidate, why in tournament.failed.items():
        _say(f"left out: {candidate}: {why}")
    compared = {
        date: Calibration(
            lived, replayed or results[candidates.LIVE][date], fit.error, used, fit.explained
        )
        for date, (lived, replayed, fit, used) in recorded.items()
    }
    little = [date for date, each in compared.items() if each.says_little]
    outcome = standings(results, candidates.LIVE, weights, not_judged=little)
    refused = any(each.refused for each in compared.values())
    if picture is not None:
        _draw(picture, outcome, results, figures=not refused)
    diff = _diff(tournament, outcome, config)
    in_force = fmean(cost(each.replayed, weights) for each in compared.values())
    if as_json:
        documents = [calibration_document(date, each) for date, each in compared.items()]
        ranked = _ranking(outcome, in_force, refused=refused)
        answer = {**asdict(outcome), **ranked, "calibrations": documents, "diff": diff}
        print(msgspec.json.encode(answer).decode())
    else:
        _show(outcome, results, diff, compared, in_force if refused else None)
    return 0 if diff else NO_RECOMMENDATION


def _prepared(
    history: str, cluster: str | None, dates: Sequence[str], output: Path, base: Settings
) -> tuple[Any, dict[str, tuple[Measures, Measures | None, Fit, str]]]:
    """The tournament, and each day as it was, its replay where other settings than these were in
    force, its model, and which settings were replayed.
    """
    try:
        from loadmanager.lab import recorded_days
        from loadmanager.lab.tournament import Tournament
    except ImportError as error:
        raise ConfigError(
            f"a tournament needs PySpark and fsspec: pip install 'loadmanager[analysis]' ({error})"
        ) from None
    source = recorded_days.history(history)
    name = source.chosen(cluster)
    tournament = Tournament(output, base)
    today = datetime.now(UTC).date().isoformat()
    recorded = {}
    for date in dates or source.dates(name):
        if not dates and date == today:
            _say(f"left out: {date} has not ended")
            continue
        try:
            recording = recorded_days.recorded_day(source, name, date)
        except BadInputError as error:
            if dates:
                raise
            _say(f"left out: {error}")
            continue
        tournament.add(date, recording.day)
        keys = recorded_days.settings_in_force(source, name, date)
        unweighted = candidates.unweighted(base)
        in_force = strategies_of(unweighted.with_overrides(keys or {}))
        replayed = None
        if in_force != strategies_of(unweighted):
            replayed = measure(run(recording.day, in_force))
        used = used_settings(keys, base)
        recorded[date] = recording.lived, replayed, recording.fit, used
        _say(
            f"{date}: {recording.day.minutes} minutes, {len(recording.day.bundles)} bundles; "
            f"{recording.fit.text}"
            f"{recording.left_out_text}"
        )
    if not tournament.dates:
        raise BadInputError(f"{history}: cluster {name} has no day that can be lived again")
    for text in recorded_days.other_settings(source, name, tournament.dates, base):
        _say(text)
    return tournament, recorded


def _candidates(*, drawn: int, no_grid: bool, tried: Sequence[str], seed: int) -> list[str]:
    made = [candidates.LIVE, *tried, *([] if no_grid else candidates.grid())]
    return list(dict.fromkeys([*made, *candidates.drawn(drawn, seed)]))


@contextmanager
def _session(master: str | None, *, needed: bool) -> Iterator[Any]:
    if not needed:
        yield None
        return
    from loadmanager.lab.tournament import spark_session

    with spark_session(master) as spark:
        yield spark


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _progress(done: int, tasks: int) -> None:
    if done == tasks or done % max(tasks // 20, 1) == 0:
        _say(f"{done} of {tasks}")


def _diff(tournament: Any, outcome: Standings, config: Path | None) -> list[str]:
    """The changes to broker.conf as a diff, of an empty one if none is named; empty if nothing is
    recommended.
    """
    from loadmanager.lab.tournament import conf_diff

    verdict = outcome.verdict
    if verdict is None or not verdict.recommended:
        return []
    name, text = "broker.conf", ""
    if config is not None:
        name, text = str(config), config.read_text(encoding="utf-8", errors="replace")
    return conf_diff(tournament.keys(outcome.live), tournament.keys(verdict.winner), name, text)


def _ranking(outcome: Standings, in_force: float, *, refused: bool) -> dict[str, Any]:
    """The ranking for programs: each cost also as a multiple of what the replays of the settings in
    force come to. If these are far from what happened, the costs themselves are null.
    """
    ranking = []
    for ranked in outcome.ranking:
        row = asdict(ranked)
        for name in ("cost", "low", "high"):
            value = row[name]
            row[f"{name}_over_in_force"] = value / in_force if in_force > 0 else None
            row[name] = None if refused else value
        ranking.append(row)
    return {
        "ranking": ranking,
        "regret": None if refused else outcome.regret,
        "regret_over_best": _regret_part(outcome),
        "figures_refused": refused,
    }


def _regret_part(outcome: Standings) -> float | None:
    """How much more than the best candidate's the settings in force cost, as a part of that."""
    best = outcome.ranking[0].cost
    return outcome.regret / best if best > 0 else None


def _regret(outcome: Standings, *, refused: bool) -> str:
    head = "The settings in force cost"
    part = _regret_part(outcome)
    if not refused:
        return f"{head} {outcome.regret:.2f} points more than the best candidate."
    if part is None:
        return f"{head} {'more than' if outcome.regret else 'as much as'} the best candidate."
    return f"{head} {part:.0%} more than the best candidate."


def _costs(ranked: Ranked, in_force: float | None) -> list[str | float]:
    """A candidate's cost, with its interval. `in_force`: if that is refused, what the replays of
    the settings in force cost.
    """
    figures = [ranked.cost, ranked.low, ranked.high]
    if in_force is None:
        return [round(each, 2) for each in figures]
    return [times(each, in_force) for each in figures]


def _show(
    outcome: Standings,
    results: Results,
    diff: Sequence[str],
    compared: Mapping[str, Calibration],
    in_force: float | None,
) -> None:
    """For people. `in_force`: what the replays of the settings in force cost, if it is refused."""
    headers = (
        "place",
        "candidate",
        "cost",
        "from",
        "to",
        "spread",
        "hot min",
        "moves",
        "efficient",
    )
    rows: list[list[str | int | float | None]] = []
    for place, ranked in enumerate(outcome.ranking, start=1):
        if place > SHOWN and ranked.candidate != outcome.live:
            continue
        name = ranked.candidate or f"({IN_FORCE})"
        rows.append(
            [
                place,
                name,
                *_costs(ranked, in_force),
                *_believed(results[ranked.candidate], compared),
                "yes" if ranked.efficient else "",
            ]
        )
    verdict = outcome.verdict
    lines = [_regret(outcome, refused=in_force is not None)]
    if outcome.not_judged:
        lines.append(
            f"Not judged: {', '.join(outcome.not_judged)}; the model explains less than "
            f"{EXPLAINED_LEAST:.0%} of the brokers' usage there."
        )
    if verdict is None:
        enough = " of which the model explains enough" if outcome.not_judged else ""
        lines.append(f"Nothing is recommended: that needs three days at least{enough}.")
    else:
        lines.append(
            f"Back-test: best on {verdict.chosen_on[0]} to {verdict.chosen_on[-1]}: "
            f"{verdict.winner or IN_FORCE}; on {verdict.judged_on[0]} to "
            f"{verdict.judged_on[-1]} its gain is {verdict.gain:.1%} ({verdict.low:.1%} to "
            f"{verdict.high:.1%})."
        )
        head = "Recommended" if verdict.recommended else "Nothing is recommended"
        lines.append(f"{head}: {verdict.reason}.")
    compared_texts = [f"{date}: {each.text()}" for date, each in compared.items()]
    show(
        table(headers, rows),
        LEGEND.splitlines(),
        compared_texts,
        lines,
        *([list(diff)] if diff else []),
    )


def _believed(
    days: Mapping[str, Any], compared: Mapping[str, Calibration]
) -> list[str | float | None]:
    names = "spread", "hot_minutes", "moves"
    shown = believed(dict(zip(names, _figures(days), strict=True)), compared)
    return [shown[name] for name in names]


def _figures(days: Mapping[str, Any]) -> list[float]:
    names = "spread", "hot_minutes", "moves"
    return [round(fmean(getattr(day, name) for day in days.values()), 2) for name in names]


def _draw(path: Path, outcome: Standings, results: Results, *, figures: bool) -> None:
    points = {}
    for ranked in outcome.ranking:
        spread, _, moves = _figures(results[ranked.candidate])
        points[ranked.candidate or IN_FORCE] = moves, spread, ranked.efficient
    try:
        # a picture to show to others: who may read it is up to the umask of whoever asks for it
        path.write_text(pareto(points, IN_FORCE, figures=figures), encoding="utf-8")
    except OSError as error:
        raise OperationalError(f"--pareto {path}: {error.strerror}") from None
