"""Tomorrow's usage, foretold by the brokers' own hours and by the traffic of namespaces.

`python -m bench forecasts [--seed 1] [--only NAME]`: weeks of the clusters of
`bench/_other_days.py`, whose CPU goes by bytes and by messages. *Hours* continues what each broker
used, as the nightly report does; *traffic* continues what each namespace carried, as usage by the
model of the last day (idle part, costs, slow machines) with the bundles that brokers have at its
end, which the report does if it is made with `--replay`. *Off*: the mean error of an hour, in
points, by what truly was used, also where a sensor lies; *peak*: that of the busiest hour.
*Within*: the part of the hours that are no farther off than the back-test of the day before says.
Of all brokers together (*cluster*), usage is the mean.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from bench import _history as history
from bench._made_days import date_of
from bench._other_days import Day, OtherWorld, rests
from loadmanager.engine.history.forecast import DAY, Forecast
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.history.layout import day_start_ms
from loadmanager.kit.history.source import HistorySource
from loadmanager.kit.units import HOUR_MS
from loadmanager.lab.recorded_days import recorded_day
from loadmanager.lab.usage_of_traffic import usage_of_traffic
from loadmanager.nightly.analysed_days import AnalysedDays
from loadmanager.nightly.in_process import InProcess
from loadmanager.nightly.job import QUESTIONS, Job
from loadmanager.nightly.questions.forecasts import (
    TRAFFIC,
    USED,
    Hours,
    foretell,
)

DAYS, FORETOLD = 15, range(9, 15)
"""Days of each week, and those of them that are foretold from the days before."""
EVERY = 5
CHANGES = 8
"""The day on which something happens that stays so."""
HOURS = "hours"
METHODS = (HOURS, TRAFFIC)
Owners = dict[str, int]
Happens = Callable[[OtherWorld, int, Owners], Day]
"""World, day and the owners of all bundles, which it may change → how the day goes."""


def _ordinary(_world: OtherWorld, _day: int, owners: Owners) -> Day:
    placed = dict(owners)
    return Day(owner=lambda name, _minute, _usual: placed[name])


def _weekends(world: OtherWorld, day: int, owners: Owners) -> Day:
    return replace(_ordinary(world, day, owners), rests=rests(day))


def _moved(day: int, owners: Owners, moves: Mapping[str, tuple[int, int]]) -> Day:
    """`moves`: bundle → minute and broker, for good."""
    before = dict(owners)
    owners.update({name: to for name, (_, to) in moves.items()})

    def owner(name: str, minute: int, _usual: int) -> int:
        at, to = moves.get(name, (0, before[name]))
        return to if minute >= at else before[name]

    return Day(owner=owner)


def _moves(world: OtherWorld, day: int, owners: Owners) -> Day:
    """Six bundles move each day."""
    rng = random.Random(f"{world.seed} moves of {day}")
    names = rng.sample(sorted(owners), 6)
    moves = {name: (rng.randrange(1440), rng.randrange(world.count)) for name in names}
    return _moved(day, owners, moves)


def _growth(world: OtherWorld, day: int, owners: Owners) -> Day:
    """Three of the larger namespaces grow by 6 % a day, others do not."""
    grown = 1.06 ** (day - DAYS)
    return replace(
        _ordinary(world, day, owners),
        traffic=lambda space, _minute: 1.5 * grown if space in (1, 2, 4) else 1.0,
    )


def _added(world: OtherWorld, day: int, owners: Owners) -> Day:
    """A broker comes at noon, and has its part of the bundles an hour later."""
    new = world.count - 1
    if day < CHANGES:
        for number, name in enumerate(sorted(owners)):
            if owners[name] == new:
                owners[name] = number % new
        return replace(_ordinary(world, day, owners), away=lambda broker, _at: broker == new)
    if day > CHANGES:
        return _ordinary(world, day, owners)
    moves = dict.fromkeys(sorted(owners)[:: world.count], (780, new))
    how = _moved(day, owners, moves)
    return replace(how, away=lambda broker, at: broker == new and at < 720)


def _sticks(world: OtherWorld, day: int, owners: Owners) -> Day:
    how = _ordinary(world, day, owners)
    return replace(how, shows=lambda broker, _at, used: 0.31 if _lies(broker, day) else used)


def _halves(world: OtherWorld, day: int, owners: Owners) -> Day:
    how = _ordinary(world, day, owners)
    return replace(how, shows=lambda broker, _at, used: used / 2 if _lies(broker, day) else used)


def _lies(broker: int, day: int) -> bool:
    return broker == 4 and day >= CHANGES


def _slow(world: OtherWorld, day: int, owners: Owners) -> Day:
    how = _ordinary(world, day, owners)
    return replace(how, cost=lambda broker, _at: 1.8 if broker == 1 and day >= CHANGES else 1.0)


def _everything(world: OtherWorld, day: int, owners: Owners) -> Day:
    grown = _growth(world, day, owners)
    how = _moves(world, day, owners)
    return replace(how, traffic=grown.traffic, rests=rests(day))


@dataclass(frozen=True)
class Week:
    """A kind of week."""

    name: str
    happens: Happens
    idle: float = 0.0
    """What all brokers use more without traffic."""


WEEKS = (
    Week("nothing happens", _ordinary),
    Week("weekends", _weekends),
    Week("a fifth of idle CPU", _ordinary, 0.2),
    Week("six bundles move a day", _moves),
    Week("a broker is added", _added),
    Week("three namespaces grow by 6 % a day", _growth),
    Week("a sensor sticks", _sticks),
    Week("a sensor shows a half", _halves),
    Week("a broker at half its speed", _slow),
    Week("moves, growth, weekends, idle CPU", _everything, 0.15),
)


@dataclass
class Errors:
    """Of one method."""

    off: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)
    within: list[bool] = field(default_factory=list)

    def add(self, foretold: list[float], true: list[float], told: float | None) -> None:
        """A day of one broker; `told`: the error by the back-test, as a fraction of the mean."""
        differ = [abs(ours - came) for ours, came in zip(foretold, true, strict=True)]
        self.off += [100 * each for each in differ]
        self.peak.append(100 * abs(max(foretold) - max(true)))
        if told is not None:
            self.within += [each <= told * fmean(foretold) for each in differ]

    def text(self) -> str:
        """Off, peak and within."""
        within = f"{100 * fmean(self.within):.0f} %" if self.within else "-"
        return f"{fmean(self.off):.1f}, {fmean(self.peak):.1f}, {within}"


def main(argv: list[str]) -> int:
    """Print a line for each kind of week."""
    parser = argparse.ArgumentParser(prog="python -m bench forecasts", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="weeks with this in their name")
    args = parser.parse_args(argv)
    heads = [f"{what}: {each}" for what in USED for each in METHODS]
    print(f"| week (off, peak, within) | {' | '.join(heads)} |")
    print(f"|---|{'---|' * len(heads)}", flush=True)
    for week in (week for week in WEEKS if args.only in week.name):
        folder = Path(tempfile.mkdtemp(prefix="forecasts-"))
        try:
            errors = compared(week, args.seed, folder)
        finally:
            shutil.rmtree(folder)
        texts = (errors[what, each].text() for what in USED for each in METHODS)
        print(f"| {week.name} | {' | '.join(texts)} |", flush=True)
    return 0


def compared(week: Week, seed: int, folder: Path) -> dict[tuple[str, str], Errors]:
    """Of what (broker or cluster) and method → errors of the foretold days."""
    world = OtherWorld(folder / "history", seed, every=EVERY)
    world.idle = [idle + week.idle for idle in world.idle]
    owners = dict(world.usual)
    truth: dict[tuple[int, str], dict[int, list[float]]] = {}
    for day in range(DAYS):
        how = week.happens(world, day, owners)
        world.live(day, replace(how, shows=_noting(how, truth, world, day)))
    world.write()
    source = HistorySource((folder / "history").as_uri())
    days = AnalysedDays(str(folder / "analysis"), history.CLUSTER)
    job = Job(
        InProcess(), source, days, settings=StrategySettings(), questions=QUESTIONS, quiet=True
    )
    errors = {(what, each): Errors() for what in USED for each in METHODS}
    for day in range(DAYS):
        if day in FORETOLD:
            series = _series(days, day)
            model = usage_of_traffic(recorded_day(source, history.CLUSTER, date_of(day - 1)))
            came = {
                name: [fmean(hours[at]) for at in range(DAY)]
                for (of, name), hours in truth.items()
                if of == day
            }
            last = day_start_ms(date_of(day)) // HOUR_MS
            for method, by in ((HOURS, None), (TRAFFIC, model)):
                _compare(foretell(series, last, by), came, lambda kind: errors[kind, method])  # noqa: B023
        assert job.run(date_of(day)) is not None
    return errors


def _noting(
    how: Day, truth: dict[tuple[int, str], dict[int, list[float]]], world: OtherWorld, day: int
) -> Callable[[int, int, float], float]:
    """What sensors show, with a note of what is so."""

    def shows(broker: int, minute: int, used: float) -> float:
        hours = truth.setdefault((day, world.brokers[broker]), {})
        hours.setdefault(min(minute // 60, DAY - 1), []).append(min(used, 1.0))
        return how.shows(broker, minute, used)

    return shows


def _series(days: AnalysedDays, day: int) -> dict[tuple[str, str], Hours]:
    """Kind and name → its hours until a day."""
    series: dict[tuple[str, str], Hours] = {}
    for date in map(date_of, range(day)):
        for row in days.rows("hourly", date, None):
            hours = series.setdefault((row["kind"], row["name"]), {})
            hours[row["hour_ts"] // HOUR_MS] = row["value"]
    return series


def _compare(
    foretold: Mapping[tuple[str, str], tuple[int, Forecast]],
    came: Mapping[str, list[float]],
    errors: Callable[[str], Errors],
) -> None:
    """`came`: broker → the true usage of each hour."""
    sums = [sum(each[at] for each in came.values()) for at in range(DAY)]
    for (kind, name), (_, made) in foretold.items():
        if kind in USED:
            told = made.naive_error if made.used == "naive" else made.error
            over = len(came) if kind == "cluster" else 1
            true = sums if kind == "cluster" else came[name]
            errors(kind).add(
                [each / over for each in made.values], [each / over for each in true], told
            )
