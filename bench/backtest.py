"""Recommendations, back-tested: do they serve better on days that came after?

`python -m bench backtest [--clusters 10] [--days 7] [--later 4] [--candidates 8]`: each cluster has
bundles of its own, days with other noise and other events, and settings in force that are drawn by
chance, as the candidates are. A tournament over its first days recommends something or nothing; on
its later days, which the tournament did not see, the recommendation meets the settings in force.
Days have 2 hours, 8 brokers and 200 bundles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from loadmanager.broker import settings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab import candidates
from loadmanager.lab.closed_loop import run
from loadmanager.lab.days import DayOfLoad, DaySize, make_day
from loadmanager.lab.measures import Measures, measure
from loadmanager.lab.results import ObjectiveWeights, cost, standings

SHAPE = DaySize(brokers=8, bundles=200, minutes=120)


def main(argv: list[str]) -> int:
    """Print a line for each cluster, and on how many later days the recommended settings won."""
    parser = argparse.ArgumentParser(prog="python -m bench backtest", description=__doc__)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--later", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=8)
    args = parser.parse_args(argv)
    won: list[bool] = []
    recommended = served = 0
    for cluster in range(args.clusters):
        began_s = time.process_time()
        days = _days(cluster, args.days + args.later)
        tried = candidates.drawn(args.candidates + 1, cluster)
        live = tried.pop(cluster % len(tried))  # they begin with the same shedder
        results = {
            text: {f"{at:02}": _measures(text, day) for at, day in enumerate(days[: args.days])}
            for text in (live, *tried)
        }
        verdict = standings(results, live).verdict
        if verdict is None or not verdict.recommended:
            said = "nothing recommended: " + (verdict.reason if verdict else "too few days")
        else:
            before, after = (_costs(text, days[args.days :]) for text in (live, verdict.winner))
            better = [new < old for new, old in zip(after, before, strict=True)]
            won += better
            recommended += 1
            served += fmean(after) < fmean(before)
            said = (
                f"{verdict.winner.split(',')[0]} for {live.split(',')[0]}: promised "
                f"{verdict.gain:.0%}, later {1 - fmean(after) / fmean(before):.0%}; better on "
                f"{sum(better)} of {len(better)} days"
            )
        took_s = time.process_time() - began_s
        print(f"cluster {cluster:3} {took_s:6.1f} s of CPU  {said}", flush=True)
    print(
        f"recommended for {recommended} of {args.clusters} clusters; later better for {served} of "
        f"these, and better on {sum(won)} of {len(won)} later days"
    )
    return 0


def _days(cluster: int, count: int) -> list[DayOfLoad]:
    """Days of one cluster: the same bundles, other noise, other events."""
    first = make_day(1_000 * cluster, SHAPE)
    seeds = range(1_000 * cluster, 1_000 * cluster + count)
    return [replace(first, seed=seed, events=make_day(seed, SHAPE).events) for seed in seeds]


def _measures(text: str, day: DayOfLoad) -> Measures:
    loaded = settings.KEYS.load().with_overrides(candidates.overrides(text))
    return measure(run(day, loaded.leaf(StrategySettings)))


def _costs(text: str, days: Sequence[DayOfLoad]) -> list[float]:
    return [cost(_measures(text, day), ObjectiveWeights()) for day in days]
