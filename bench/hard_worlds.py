"""Every strategy in hard worlds that a seed makes: where do moves do harm?

`python -m bench hard-worlds [--worlds 100] [--first SEED] [--try CANDIDATE …] [--list]`: the worlds
of `loadmanager/lab/hard_days.py` under ours and Pulsar's five at their defaults, each beside the
same world without moves.
*undone* minutes of work of a usual broker that was not done, all worlds together (*still*: without
moves); *less* and *more* worlds in which it is less, or more, by half a minute than without moves;
*worst* the most that it is more; *overloads* of five minutes that would not be without moves, while
the mean of all was below 85 %; *empty* brokers that had less than a quarter of the others' traffic
in the last half an hour, of those that were there for half an hour more; *moves* in all worlds.
`--list` names the worlds with more work undone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.worlds import FIVE, OURS
from loadmanager.broker import settings
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab import candidates
from loadmanager.lab.closed_loop import run
from loadmanager.lab.days import DayOfLoad
from loadmanager.lab.hard_days import BROKERS_MAX, hard_day, overloads, undone
from loadmanager.lab.measures import Minute

HEADERS = ("undone", "less", "more", "worst", "overloads", "empty", "moves")
STILL = StrategySettings(
    shedder="BalancedShedder",
    placement="BalancedPlacement",
    distribute_evenly=False,
    shedding_enabled=False,
)
LITTLE = 0.5
FULL = 0.85
LAST, EMPTY, USED = 30, 0.25, 0.1


@dataclass(slots=True)
class Sums:
    """What one strategy came to, in all worlds."""

    undone: float = 0.0
    less: int = 0
    more: list[tuple[float, int]] = field(default_factory=list)
    """Minutes that are undone more than without moves, and the world's seed."""
    overloads: int = 0
    empty: int = 0
    moves: int = 0

    def add(self, day: DayOfLoad, minutes: Sequence[Minute], still: Sequence[Minute]) -> None:
        """Add a world."""
        came, without = undone(day, minutes), undone(day, still)
        self.undone += came
        self.less += came < without - LITTLE
        if came > without + LITTLE:
            self.more.append((came - without, day.seed))
        self.overloads += sum(each.mean <= FULL for each in overloads(day, minutes, still))
        self.empty += len(left_empty(day, minutes))
        self.moves += sum(minute.moves for minute in minutes)

    def line(self) -> str:
        """The figures in the order of `HEADERS`."""
        worst = max(self.more, default=(0.0, 0))[0]
        figures = (self.undone, self.less, len(self.more), worst, self.overloads, self.empty)
        return "".join(f"{figure:>10.0f}" for figure in (*figures, self.moves))


def left_empty(day: DayOfLoad, minutes: Sequence[Minute]) -> list[str]:
    """The brokers that were there, and had next to no traffic at the end."""
    last = minutes[-LAST:]
    stayed = set(minutes[-2 * LAST].live).intersection(*(minute.live for minute in last))
    by_traffic = {
        broker: np.mean([m.usage[m.live.index(broker)] for m in last]) - day.beside
        for broker in sorted(stayed)
    }
    mean = np.mean(list(by_traffic.values()))
    return [b for b, used in by_traffic.items() if mean >= USED and used < EMPTY * mean]


def main(argv: list[str]) -> int:
    """Print a line for each strategy."""
    parser = argparse.ArgumentParser(
        prog="python -m bench hard-worlds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--brokers-max", type=int, default=BROKERS_MAX)
    parser.add_argument("--try", dest="tried", nargs="+", default=[OURS, *FIVE])
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args(argv)
    began_s = time.monotonic()
    sums = {text: Sums() for text in args.tried}
    without = 0.0
    for seed in range(args.first, args.first + args.worlds):
        day = hard_day(seed, brokers_max=args.brokers_max)
        still = run(day, STILL)
        without += undone(day, still)
        for text, summed in sums.items():
            loaded = settings.KEYS.load().with_overrides(candidates.overrides(text))
            summed.add(day, run(day, loaded.leaf(StrategySettings)), still)
        print(f"\r{seed + 1 - args.first} of {args.worlds}", end="", file=sys.stderr)
    print(f"\n{args.worlds} worlds; {without:.0f} undone without moves")
    print(f"{'':20}" + "".join(f"{header:>10}" for header in HEADERS))
    for text, summed in sums.items():
        print(f"{text.partition(',')[0].partition('+')[0]:20}" + summed.line())
        for more, seed in sorted(summed.more, reverse=True) if args.list else ():
            print(f"    {more:6.1f} more in world {seed}")
    print(f"{time.monotonic() - began_s:.0f} s")
    return 0
