"""Replay: how long a day of a large cluster takes under each shedder.

`python -m bench replay [--brokers 100] [--bundles 10000] [--cycles 1440] [--only NAME]`: CPU
seconds of one core for all cycles of a day in which every bundle is busy, milliseconds a cycle, and
the part of it that is the leader's own cycle; the rest makes traffic and reports, and feeds them to
the view. The days have a dying broker, a newcomer and a rolling restart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from loadmanager.engine.strategies import registry
from loadmanager.engine.strategies.settings import StrategySettings
from loadmanager.lab import closed_loop
from loadmanager.lab.days import DaySize, make_day
from loadmanager.lab.measures import measure


def main(argv: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench replay", description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--bundles", type=int, default=10_000)
    parser.add_argument("--cycles", type=int, default=1_440)
    parser.add_argument("--only", action="append", help="this shedder; may be repeated")
    args = parser.parse_args(argv)
    shape = DaySize(brokers=args.brokers, bundles=args.bundles, minutes=args.cycles)
    print(f"{args.brokers} brokers, {args.bundles:,} bundles, {args.cycles:,} cycles; one core")
    print(f"{'shedder':20}{'CPU s':>8}{'ms/cycle':>10}{'deciding':>10}{'moves':>8}{'spread':>8}")
    for strategy in strategies():
        if args.only and strategy.shedder not in args.only:
            continue
        day = make_day(1, shape)
        began_s = time.process_time()
        loop = closed_loop.ClosedLoop(day, strategy)
        deciding = _Stopwatch(loop.decide)
        loop.decide = deciding  # type: ignore[method-assign, assignment]
        measures = measure([loop.minute(minute) for minute in range(args.cycles)])
        took_s = time.process_time() - began_s
        print(
            f"{strategy.shedder:20}{took_s:8.1f}{took_s / args.cycles * 1000:10.1f}"
            f"{deciding.seconds / took_s:10.0%}{measures.moves:8}{measures.spread:8.1f}",
            flush=True,
        )
    return 0


def strategies() -> list[StrategySettings]:
    """Each shedder, with the placement rule that it needs; BalancedShedder with its own."""
    rules = {rule.follows: rule.name for rule in registry.PLACEMENTS.values() if rule.follows}
    rules["BalancedShedder"] = "BalancedPlacement"
    default = StrategySettings().placement
    return [
        StrategySettings(shedder=name, placement=rules.get(name, default))
        for name in sorted(registry.SHEDDERS)
    ]


class _Stopwatch:
    """Calls a function, and measures the CPU time of all calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        began_s = time.process_time()
        try:
            return self._function(*args)
        finally:
            self.seconds += time.process_time() - began_s
