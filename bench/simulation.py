"""Whole clusters under random faults in virtual time, or the storage on a mean disk: many seeds,
one seed, or the mutants.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from simulation import storage
from simulation.mutations import MUTATIONS, Mutation, survived
from simulation.operators import WEIGHTS
from simulation.simulate import MANAGERS, Outcome, Plan, run, shorten
from simulation.world import SimulationError


def main(argv: list[str]) -> int:
    """Run; returns 1 when an invariant broke, or a mutant survived."""
    args = _arguments().parse_args(argv)
    if args.mutants:
        return _mutants(range(args.first, args.first + args.seeds), args.jobs)
    if args.storage:
        first = args.first if args.seed is None else args.seed
        return _storage(range(first, first + (args.seeds if args.seed is None else 1)), args.jobs)
    if args.seed is not None:
        return _run_one(args)
    return _run_many(args)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds (500)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument(
        "--hours",
        type=float,
        help="long runs of a quiet cluster, each of so many hours of virtual time",
    )
    parser.add_argument("--brokers", type=int, default=3, help="brokers of a cluster (3)")
    parser.add_argument(
        "--faults-s", type=float, default=25.0, help="how long faults last, in virtual seconds (25)"
    )
    parser.add_argument(
        "--manager",
        choices=MANAGERS,
        default=MANAGERS[0],
        help="the load manager; changing: brokers that start in the second half run the extensible "
        "one (modular)",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at once (all cores)"
    )
    parser.add_argument(
        "--kinds", default="", help="the kinds of faults, separated by commas (all of them)"
    )
    parser.add_argument(
        "--seed", type=int, help="run one seed, print its log, and shorten it if it fails"
    )
    parser.add_argument(
        "--only", help="with --seed: the events to keep, by number, separated by commas"
    )
    parser.add_argument(
        "--storage",
        action="store_true",
        help="the storage alone, on a disk that fails, lies and loses power",
    )
    parser.add_argument(
        "--mutants",
        action="store_true",
        help="put known bugs back, and print how many seeds each survives",
    )
    return parser


def _plan(args: argparse.Namespace, seed: int) -> Plan:
    if args.hours:
        return Plan.quiet(seed, args.hours, brokers=args.brokers)
    kinds = tuple(filter(None, args.kinds.split(",")))
    if unknown := set(kinds) - WEIGHTS.keys():
        raise SystemExit(f"no such faults: {', '.join(unknown)}; there are {', '.join(WEIGHTS)}")
    return Plan(
        seed=seed,
        brokers=args.brokers,
        faults_s=args.faults_s,
        manager=args.manager,
        kinds=kinds,
    )


def _run_one(args: argparse.Namespace) -> int:
    plan = _plan(args, args.seed)
    if args.only is not None:
        plan = replace(plan, only=tuple(map(int, args.only.split(","))))
    outcome = run(plan)
    print("\n".join(outcome.log))
    if outcome.failure is None:
        print(f"seed {args.seed}: every invariant held")
        return 0
    print(f"seed {args.seed}: {outcome.failure}\nshortening …", flush=True)
    if args.only is None:
        print(shorten(plan).line)
    return 1


def _run_many(args: argparse.Namespace) -> int:
    began_s, hours, steps, receipts, failed = time.monotonic(), 0.0, 0, 0, 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        seeds = range(args.first, args.first + args.seeds)
        runs = [pool.submit(_without_log, _plan(args, seed)) for seed in seeds]
        for done, finished in enumerate(concurrent.futures.as_completed(runs), 1):
            outcome = finished.result()
            hours += outcome.broker_hours
            steps += outcome.steps
            receipts += outcome.receipts
            if outcome.failure is not None:
                failed += 1
                print(f"{outcome.failure}\n  repeat it: {outcome.plan.line}", flush=True)
            if done % max(args.seeds // 20, 1) == 0:
                took_s = time.monotonic() - began_s
                print(
                    f"{done}/{args.seeds} seeds, {hours:,.0f} broker hours, {took_s:.0f} s, "
                    f"{failed} failed",
                    flush=True,
                )
    took_s = time.monotonic() - began_s
    print(
        f"seeds {args.first} to {args.first + args.seeds - 1}: {failed} failed; "
        f"{hours:,.1f} broker hours, {steps:,} turns of loops, {receipts:,} receipts "
        f"in {took_s:.1f} s with {args.jobs} processes"
    )
    return 1 if failed else 0


def _without_log(plan: Plan) -> Outcome:
    return replace(run(plan), log=(), events=())


def _storage(seeds: range, jobs: int) -> int:
    """Print what happened in all runs, and each failure."""
    began_s, counts, failed = time.monotonic(), Counter[str](), 0
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        runs = [pool.submit(storage.run, seed) for seed in seeds]
        for finished in concurrent.futures.as_completed(runs):
            try:
                counts += finished.result()
            except SimulationError as error:
                failed += 1
                print(error, flush=True)
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    took_s = time.monotonic() - began_s
    print(f"seeds {seeds[0]} to {seeds[-1]}: {failed} failed; {told} in {took_s:.0f} s")
    return 1 if failed else 0


def _mutants(seeds: range, jobs: int) -> int:
    """Print a table: mutant, seeds that it survived before one found it."""

    def hunt(mutation: Mutation) -> tuple[str, int | None]:
        return mutation.name, survived(mutation, seeds, timeout_s=3600.0)

    alive = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, count in pool.map(hunt, MUTATIONS):
            alive += count is None
            print(f"{'survived all' if count is None else count:>12}  {name}", flush=True)
    print(
        f"{len(MUTATIONS) - alive} of {len(MUTATIONS)} mutants were found within {len(seeds)} seeds"
    )
    return 1 if alive else 0
