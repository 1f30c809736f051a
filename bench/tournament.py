"""The tournament's tasks on Spark: how long they take, and how much of that is Spark's own.

`python -m bench tournament [--candidates 30] [--days 7] [--brokers 100] [--bundles 10000] [--hours
24] [--cores 2]`: made-up days, candidates drawn by chance, `local[cores]`. Java's CPU is Spark's
own; that of its Python processes is the tasks'. The second time all results are there already.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from loadmanager.broker import settings
from loadmanager.lab import candidates
from loadmanager.lab.days import DaySize, make_day, traffic
from loadmanager.lab.tournament import Tournament, spark_session


def main(argv: list[str]) -> int:
    """Play, and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m bench tournament", description=__doc__)
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--bundles", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args(argv)
    shape = DaySize(brokers=args.brokers, bundles=args.bundles, minutes=int(args.hours * 60))
    tried = candidates.drawn(args.candidates, 1)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        tournament = Tournament(Path(folder), settings.KEYS.load())
        for number in range(args.days):
            day = make_day(number + 1, shape)
            carried = traffic(day)
            minutes = [carried.minute(minute) for minute in range(day.minutes)]
            recorded = replace(day, carried=np.array(minutes, np.float32))
            tournament.add(f"2026-11-{number + 1:02}", recorded)
        print(
            f"{len(tried)} candidates, {args.days} days of {args.hours:g} h, {args.brokers} x "
            f"{args.bundles}, local[{args.cores}]",
            flush=True,
        )
        began_s = time.monotonic()
        with spark_session(f"local[{args.cores}]") as spark:
            tournament.play(tried, spark, _tell)
            java_s, python_s = _spent()
        took_s = time.monotonic() - began_s
        print(
            f"{took_s:.0f} s; CPU of the tasks {python_s:.0f} s, of Java {java_s:.0f} s "
            f"({java_s / (java_s + python_s):.1%}); "
            f"the tasks filled {python_s / (took_s * args.cores):.0%} of the cores"
        )
        began_s = time.monotonic()
        tournament.play(tried, None)
        print(f"the same again: {time.monotonic() - began_s:.1f} s")
    return 0


def _tell(done: int, tasks: int) -> None:
    if done % 10 == 0 or done == tasks:
        print(f"  {done} of {tasks}", flush=True)


def _spent() -> tuple[float, float]:
    """CPU seconds of Java, and of the Python processes below it."""
    java = python = 0.0
    for process in psutil.Process().children(recursive=True):
        times = process.cpu_times()
        own, ended = times.user + times.system, times.children_user + times.children_system
        if "java" in process.name():
            java, python = java + own, python + ended
        else:
            python += own + ended
    return java, python
