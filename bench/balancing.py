"""Every shedder under noisy but stationary load: a skewed start, then an empty broker that joins;
from five brokers to ten, and to five again.

`python -m bench balancing [--seeds 3]`: cycles until the last move, moves, MiB/s of the moved
bundles, the most used broker above the mean (in points) at rest, and moves in twenty more cycles of
noise; then the same after a broker has joined, and the newcomer's load as a part of the mean. Where
it gets nothing, what the decisions say. Then the same for five brokers that join, and for five that
stop, whose bundles lookups place. Virtual: the leader's own cycle in a closed loop.
"""

from __future__ import annotations

import argparse
import statistics

from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.kit.units import MIB
from loadmanager.testing.steady_load import (
    BROKERS,
    BUNDLES,
    Phase,
    resized,
    skewed_then_joined,
)

HEADERS = ("cycles", "moves", "MiB/s", "gap", "still")


def strategies() -> list[StrategySettings]:
    """Each shedder with its defaults, and with the placement rule that it needs."""
    rules = {rule.follows: rule.name for rule in registry.PLACEMENTS.values() if rule.follows}
    default = StrategySettings().placement
    return [
        StrategySettings(shedder=name, placement=rules.get(name, default))
        for name in sorted(registry.SHEDDERS)
    ]


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench balancing", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="clusters for each shedder (3)")
    args = parser.parse_args(argv)
    print(f"{BROKERS} brokers, {BUNDLES} bundles, default settings, median of {args.seeds} seeds")
    print(f"{'':20}| {'skewed start':38}| an empty broker joins")
    head = "".join(f"{header:>7}" for header in HEADERS)
    print(f"{'shedder':20}|{head}    |{head}  share")
    for settings in strategies():
        outcomes = [skewed_then_joined(settings, seed) for seed in range(1, args.seeds + 1)]
        share = statistics.median(outcome.share for outcome in outcomes)
        skewed = _row([outcome.skewed for outcome in outcomes])
        joined = _row([outcome.joined for outcome in outcomes])
        print(f"{settings.shedder:20}|{skewed}    |{joined}{share:7.2f}")
        for skip in outcomes[-1].why:
            print(f"{'':20}  {skip.what}: {skip.reason}")
    print(f"\n{'':20}| {'from 5 brokers to 10':38}| and from 10 to 5")
    print(f"{'shedder':20}|{head}    |{head}")
    for settings in strategies():
        both = [resized(settings, seed) for seed in range(1, args.seeds + 1)]
        grown, shrunk = (_row([phases[at] for phases in both]) for at in (0, 1))
        print(f"{settings.shedder:20}|{grown}    |{shrunk}", flush=True)
    return 0


def _row(phases: list[Phase]) -> str:
    figures = (
        [item.cycles for item in phases],
        [item.moves for item in phases],
        [item.bytes_s / MIB for item in phases],
        [item.gap for item in phases],
        [item.still_moves for item in phases],
    )
    return "".join(f"{statistics.median(values):7.0f}" for values in figures)
