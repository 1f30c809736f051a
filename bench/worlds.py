"""Every strategy in every world: clusters of many shapes, sensors that lie, clients that go away.

`python -m bench worlds [--days 4] [--world NAME …] [--try CANDIDATE …] [--tuned N]`: the worlds of
`loadmanager/lab/worlds.py`, under ours and Pulsar's five at their defaults, means over days. With
`--tuned`, the five also as the best of N settings that a tournament draws, on another day of each
world: the least work undone, then the fewest hot minutes, then the least spread.
*spread* in points; *hot* broker-minutes above 85 %, *hot p99* those of the broker that has more
than 99 % of all; *undone* minutes of work of one broker that was not done; *moved* traffic as a
part of all; *pause* client-seconds; *settled* minutes until the broker that came, or had
everything, is within 5 % of the mean, or from the last restart or death until the brokers are as
even as before the first. At the end, for each figure: the first strategy's, and the least that any
other one has.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from statistics import fmean

from loadmanager.broker import settings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab import candidates
from loadmanager.lab.closed_loop import run
from loadmanager.lab.worlds import WORLDS, Trial, TrialFigures, figures

OURS = "BalancedShedder+BalancedPlacement,loadBalancerDistributeBundlesEvenlyEnabled=false"
FIVE = (
    "AvgShedder+AvgShedder",
    "OverloadShedder",
    "ThresholdShedder",
    "TransferShedder",
    "UniformLoadShedder",
)
SEED = 20_001
HEADERS = ("spread", "hot", "hot p99", "undone", "moves", "moved", "pause", "settled")
DIGITS = (2, 0, 0, 0, 0, 2, 0, 0)
COMPARED = [HEADERS.index(name) for name in ("spread", "hot p99", "undone", "settled")]
COSTS = [HEADERS.index(name) for name in ("moves", "moved", "pause")]
Figures = dict[str, list[float | None]]
"""Strategy → its means, in the order of `HEADERS`."""
TUNED_ON = 50_001
"""The seed of the day on which settings are tuned: none of those that are measured."""


def main(argv: list[str]) -> int:
    """Print a line for each strategy in each world."""
    parser = argparse.ArgumentParser(
        prog="python -m bench worlds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--world", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--try", dest="tried", nargs="+", default=[OURS, *FIVE])
    parser.add_argument("--tuned", type=int, default=0, metavar="N")
    args = parser.parse_args(argv)
    began_s = time.monotonic()
    print(f"{'':34}" + "".join(f"{header:>9}" for header in HEADERS))
    worlds: dict[str, Figures] = {}
    for name in args.world:
        print(f"{name}: {WORLDS[name].about}", flush=True)
        rows = worlds[name] = {}
        for text in args.tried:
            days = [of_day(WORLDS[name], text, args.seed + day) for day in range(args.days)]
            rows[_short(text)] = _means(days)
            print(f"  {_short(text):32}" + _line(rows[_short(text)]), flush=True)
        for text in FIVE if args.tuned else ():
            best = tuned(WORLDS[name], text, args.tuned)
            days = [of_day(WORLDS[name], best, args.seed + day) for day in range(args.days)]
            label = f"{_short(text)} tuned"
            rows[label] = _means(days)
            print(f"  {label:32}" + _line(rows[label]) + f"  {best}", flush=True)
    print(*beside_the_best(worlds), f"{time.monotonic() - began_s:.0f} s", sep="\n")
    return 0


def beside_the_best(worlds: Mapping[str, Figures]) -> Iterator[str]:
    """For each world: the first strategy's figures, and the least that any other one has."""
    for columns in (COMPARED, COSTS):
        yield f"{'':14}" + "".join(f"{HEADERS[column]:>18}" for column in columns)
        for name, rows in worlds.items():
            first, *others = rows.values()
            texts = []
            for column in columns:
                digits, ours = DIGITS[column], first[column]
                known = [other[column] for other in others if other[column] is not None]
                least = min(known, default=None)
                pair = ["-" if each is None else f"{each:.{digits}f}" for each in (ours, least)]
                texts.append(f"{pair[0]:>9} {pair[1]:>8}")
            yield f"{name:14}" + "".join(texts)


def of_day(world: Trial, text: str, seed: int) -> TrialFigures:
    """The figures of a strategy in one day of a world."""
    loaded = settings.KEYS.load().with_overrides(candidates.overrides(text))
    day = world.day(seed)
    return figures(world, day, run(day, loaded.leaf(StrategySettings)))


def tuned(world: Trial, text: str, count: int) -> str:
    """The best of some settings of a strategy, on a day that is not measured."""
    drawn = candidates.drawn(count, TUNED_ON, [text.partition("+")[0]])

    def harm(candidate: str) -> tuple[float, float, float]:
        came = of_day(world, candidate, TUNED_ON)
        return came.undone, came.hot_minutes, came.spread

    return min([text, *drawn], key=harm)


def _means(days: Sequence[TrialFigures]) -> list[float | None]:
    means: list[float | None] = []
    for column in zip(*map(astuple, days), strict=True):
        known = [value for value in column if value is not None]
        means.append(fmean(known) if known else None)
    return means


def _line(means: Sequence[float | None]) -> str:
    texts = zip(means, DIGITS, strict=True)
    return "".join(f"{'':>9}" if mean is None else f"{mean:9.{digits}f}" for mean, digits in texts)


def _short(text: str) -> str:
    return text.partition(",")[0].partition("+")[0] + text.partition("Enabled=false")[2][:12]
