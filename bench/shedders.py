"""Our shedder against Pulsar's five at their best grid settings, on days unseen while tuning.

`python -m bench shedders [--shape equal] [--days 50] [--tune 4] [--ours CANDIDATE …]`: for each of
the five, every combination of the grid (`lab/candidates.py`) with Pulsar's placement rules,
each with and without an even spread of namespaces, on tuning days; its best setting and ours then
meet on other days, of 4 hours with a dying broker, a newcomer and a rolling restart. Means over the
days; ratios of ours to each of the five, with 95 % intervals (bootstrap over days). `--lend` lends
the five our placement rule, too. With `--by-messages` CPU goes by messages, whose size differs by
tenant, instead of by bytes at a cost that differs by tenant. `--keep FILE` keeps the tuning and the
days of the five for the next run, so that a run that was stopped goes on where it was; ours is
measured anew. Delete the file when the five, their placements or the days have changed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from loadmanager.broker import settings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab import candidates
from loadmanager.lab.closed_loop import run
from loadmanager.lab.days import DayOfLoad, DaySize, Pattern, make_day
from loadmanager.lab.measures import Measures, measure
from loadmanager.lab.results import ObjectiveWeights, cost

SHAPES = {
    "equal": DaySize(brokers=20, bundles=800),
    "unequal": DaySize(brokers=20, bundles=800, unequal=True),
    "small": DaySize(brokers=12, bundles=240),
    "large": DaySize(brokers=60, bundles=3000),
}
UNEVENLY = ",loadBalancerDistributeBundlesEvenlyEnabled=false"
OURS = f"BalancedShedder+BalancedPlacement{UNEVENLY}"
CALMER = f"{OURS},loadManagerBalancedDifferencePercent=50"
FIVE = [name for name in candidates.searched() if name != "BalancedShedder"]
TUNING_SEED, HELD_OUT_SEED = 1, 10_001
FIGURES = ("spread", "gap", "hot_minutes", "moves", "pause_s", "again", "settle_minutes")
HEADERS = ("spread", "gap", "hot min", "moves", "pause s", "again", "settle", "cost")


def main(argv: list[str]) -> int:
    """Tune, then compare."""
    parser = argparse.ArgumentParser(prog="python -m bench shedders", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="equal")
    parser.add_argument("--days", type=int, default=50)
    parser.add_argument("--tune", type=int, default=4, help="days to tune on (4)")
    parser.add_argument("--ours", nargs="+", default=[OURS, CALMER])
    parser.add_argument("--lend", action="store_true", help="try BalancedPlacement with them, too")
    parser.add_argument("--by-messages", action="store_true", help="CPU goes by messages")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args(argv)
    days = partial(_day, SHAPES[args.shape], by_messages=args.by_messages)
    kept = _Kept(args.keep)
    for shedder in FIVE:
        if shedder not in kept.best:
            kept.best[shedder] = _best(shedder, days, args.tune, lend=args.lend)
            kept.write()
    seeds = range(HELD_OUT_SEED, HELD_OUT_SEED + args.days)
    results = {text: [_measured(text, days(seed)) for seed in seeds] for text in args.ours}
    five = [kept.best[shedder] for shedder in FIVE]
    for text in five:
        known = kept.days.setdefault(text, {})
        for seed in map(str, seeds):
            if seed not in known:
                known[seed] = asdict(_measured(text, days(int(seed))))
                kept.write()
        results[text] = [Measures(**known[str(seed)]) for seed in seeds]
    shape = SHAPES[args.shape]
    print(
        f"{args.shape}: {shape.brokers} brokers, {shape.bundles} bundles, {args.days} days of 4 h"
    )
    print("".join(f"{header:>9}" for header in HEADERS))
    for text, days in results.items():
        figures = [fmean(getattr(day, name) for day in days) for name in FIGURES]
        figures.append(fmean(cost(day, ObjectiveWeights()) for day in days))
        print("".join(f"{value:9.2f}" for value in figures), f" {text}", flush=True)
    costs = {text: fmean(cost(day, ObjectiveWeights()) for day in results[text]) for text in five}
    for ours, rival in product(args.ours, sorted(five, key=costs.__getitem__)):
        print(f"\n{ours}\nas a multiple of {rival}, 95 % intervals:")
        for name in FIGURES:
            print(f"  {name:15} {_ratio(results[ours], results[rival], name)}")
    return 0


class _Kept:
    """The best setting of each of the five, and the figures of their days: text → seed → figures.
    In a file, if there is one.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        kept = json.loads(path.read_text()) if path and path.exists() else {}
        self.best: dict[str, str] = kept.get("best", {})
        self.days: dict[str, dict[str, dict[str, Any]]] = kept.get("days", {})

    def write(self) -> None:
        """Keep what is known now."""
        if self._path:
            self._path.write_text(json.dumps({"best": self.best, "days": self.days}))


def _day(shape: DaySize, seed: int, *, by_messages: bool) -> DayOfLoad:
    day = make_day(seed, shape)
    if not by_messages:
        return day
    assert isinstance(day.carried, Pattern)
    base, of_a_byte = day.carried.base, 1 / day.message_bytes
    return replace(day, cost=of_a_byte * (base * day.cost).sum() / (base * of_a_byte).sum())


def _best(shedder: str, days: Callable[[int], DayOfLoad], count: int, *, lend: bool) -> str:
    seeds = range(TUNING_SEED, TUNING_SEED + count)
    costs = {
        text: fmean(cost(_measured(text, days(seed)), ObjectiveWeights()) for seed in seeds)
        for each in candidates.grid([shedder])
        if lend or "+BalancedPlacement" not in each
        for text in (each, each + UNEVENLY)
    }
    return min(costs, key=lambda text: (costs[text], text))


def _measured(text: str, day: DayOfLoad) -> Measures:
    loaded = settings.KEYS.load().with_overrides(candidates.overrides(text))
    return measure(run(day, loaded.leaf(StrategySettings)))


def _ratio(ours: Sequence[Measures], theirs: Sequence[Measures], name: str) -> str:
    """The ratio of the means over the days, with its interval and the number of days on which ours
    is not worse.
    """
    pair = np.array([[getattr(day, name) for day in days] for days in (ours, theirs)], np.float64)
    rng = np.random.default_rng(1)
    drawn = pair[:, rng.integers(0, pair.shape[1], (2_000, pair.shape[1]))].mean(axis=2)
    mean = pair[0].mean() / max(pair[1].mean(), 1e-9)
    low, high = np.percentile(drawn[0] / np.maximum(drawn[1], 1e-9), (2.5, 97.5))
    no_worse = int((pair[0] <= pair[1]).sum())
    return f"{mean:6.2f}  ({low:.2f} to {high:.2f}); no worse on {no_worse} of {pair.shape[1]} days"
