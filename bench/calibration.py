"""Replays beside what happened, and a tournament's promise beside what came on later days.

`python -m bench calibration [--days 10] [--hours 8] [--promise 5] [--candidates 8] [--seed 1]
[--only NAME]`:
days of three kinds of cluster, which live in a world with other physics than those of a replay
(`bench/_other_world.py`). Each day's settings in force are replayed from what it recorded, and
compared with what truly happened. Then a tournament on the first `--promise` days recommends
settings; the later days are lived with these and with those in force, and the gain is compared with
the promise.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from bench._other_world import KINDS, OtherWorld, WorldKind
from loadmanager.broker import settings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab import candidates
from loadmanager.lab.calibration import Calibration, calibration
from loadmanager.lab.closed_loop import run
from loadmanager.lab.measures import Measures, measure
from loadmanager.lab.recorded import Recording, record
from loadmanager.lab.results import ObjectiveWeights, cost, standings

HEADS = ("spread", "hot minutes", "moves")


def main(argv: list[str]) -> int:
    """Print a line for each day, and for each kind of cluster its errors and its promise."""
    parser = argparse.ArgumentParser(prog="python -m bench calibration", description=__doc__)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--hours", type=float, default=8)
    parser.add_argument("--promise", type=int, default=5, help="days of the tournament; 0: none")
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="kinds with this in their name")
    args = parser.parse_args(argv)
    for kind in (kind for kind in KINDS if args.only in kind.name):
        lived = _calibrated(kind, args.seed, args.days, round(60 * args.hours))
        _summary(kind, lived)
        if args.promise:
            _promise(lived[: args.promise], lived[args.promise :], args.candidates)
    return 0


@dataclass(frozen=True)
class ComparedDay:
    """A day: what it recorded, what truly happened, and its replay."""

    world: OtherWorld
    number: int
    recording: Recording
    truth: Measures
    calibration: Calibration


def _calibrated(kind: WorldKind, seed: int, days: int, minutes: int) -> list[ComparedDay]:
    world = OtherWorld(kind, seed)
    print(f"{kind.name}: {kind.brokers} brokers, {len(world.names)} bundles, {minutes} minutes")
    print("  day   usage off   spread was, replayed   hot minutes   moves   not believed")
    compared = []
    for number in range(days):
        lived = world.day(number, kind.settings, minutes)
        recording = record(lived.loads)
        replayed = calibration(recording, measure(run(recording.day, kind.settings)))
        compared.append(ComparedDay(world, number, recording, lived.truth, replayed))
        was, came = lived.truth, replayed.replayed
        print(
            f"  {number:3}   {100 * recording.fit.error:4.1f}        "
            f"{was.spread:5.2f} {came.spread:5.2f}            "
            f"{was.hot_minutes:4} {came.hot_minutes:4}     {was.moves:3} {came.moves:3}   "
            f"{', '.join(replayed.refused) or '-'}",
            flush=True,
        )
    return compared


def _summary(kind: WorldKind, days: Sequence[ComparedDay]) -> None:
    """Means of the true errors, and whether days that are off were refused."""
    names = ("spread", "hot_minutes", "moves")
    for head, name in zip(HEADS, names, strict=True):
        was = [float(getattr(day.truth, name)) for day in days]
        came = [float(getattr(day.calibration.replayed, name)) for day in days]
        off = fmean(abs(one - other) for one, other in zip(was, came, strict=True))
        bias = fmean(came) / fmean(was) - 1 if any(was) else 0.0
        refused = sum(name in day.calibration.refused for day in days)
        print(
            f"  {head}: {fmean(was):.2f} a day, off by {off:.2f} in the mean, the replays' sum "
            f"{bias:+.0%}; refused on {refused} of {len(days)} days"
        )
    usage = 100 * fmean(day.recording.fit.error for day in days)
    explained = fmean(day.recording.fit.explained for day in days)
    print(f"  usage in a minute off by {usage:.1f} points; the model explains {explained:.0%}")


def _strategies(kind: WorldKind, text: str) -> StrategySettings:
    if text == candidates.LIVE:
        return kind.settings
    loaded = settings.KEYS.load().with_overrides(candidates.overrides(text))
    return loaded.leaf(StrategySettings)


def _promise(first: Sequence[ComparedDay], later: Sequence[ComparedDay], count: int) -> None:
    """A tournament on the first days, and what its winner does on the later ones, which are lived
    in the world, not replayed.
    """
    kind = first[0].world.kind
    own = "BalancedShedder+BalancedPlacement"
    tried = [candidates.LIVE, own, *candidates.drawn(count, 1)]
    results = {
        text: {
            f"{day.number:03}": measure(run(day.recording.day, _strategies(kind, text)))
            for day in first
        }
        for text in dict.fromkeys(tried)
    }
    outcome = standings(results, candidates.LIVE)
    best = min(outcome.ranking, key=lambda ranked: ranked.cost).candidate
    verdict = outcome.verdict
    said = "recommended" if verdict is not None and verdict.recommended else "not recommended"
    live = next(ranked.cost for ranked in outcome.ranking if ranked.candidate == candidates.LIVE)
    promised = 1 - min(ranked.cost for ranked in outcome.ranking) / live if live else 0.0
    before = [cost(day.truth, ObjectiveWeights()) for day in later]
    after = [
        cost(
            day.world.day(day.number, _strategies(kind, best), day.recording.day.minutes).truth,
            ObjectiveWeights(),
        )
        for day in later
    ]
    gains = 1 - np.array(after) / np.array(before)
    print(
        f"  tournament on {len(first)} days, {len(results)} candidates: {best or 'in force'}, "
        f"{said}; promised {promised:.0%}, on {len(later)} later days it gained "
        f"{1 - sum(after) / sum(before):.0%} ({gains.min():.0%} to {gains.max():.0%}), and was "
        f"better on {int((gains > 0).sum())}",
        flush=True,
    )
