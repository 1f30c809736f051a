"""Whole clusters under seeded faults in virtual time: long runs, one seed again, or the mutants."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from simulation.mutations import MUTATIONS, Mutation, survived
from simulation.simulate import Outcome, Plan, run, shorten


def main(argv: list[str]) -> int:
    """Run; 1 when an invariant broke, or a mutant survived."""
    args = _arguments().parse_args(argv)
    if args.mutants:
        return _mutants(range(args.first, args.first + args.seeds), args.jobs)
    if args.seed is not None:
        return _one(args)
    return _many(args)


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
        "--faults-s", type=float, default=30.0, help="how long faults last, in virtual seconds (30)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at once (all cores)"
    )
    parser.add_argument(
        "--seed", type=int, help="run one seed, print its log, and shorten it if it fails"
    )
    parser.add_argument(
        "--only", help="with --seed: the events to keep, by number, separated by commas"
    )
    parser.add_argument(
        "--mutants",
        action="store_true",
        help="put known bugs back and tell how many seeds each survives",
    )
    return parser


def _plan(args: argparse.Namespace, seed: int) -> Plan:
    if args.hours:
        return Plan.quiet(seed, args.hours, brokers=args.brokers)
    return Plan(seed=seed, brokers=args.brokers, faults_s=args.faults_s)


def _one(args: argparse.Namespace) -> int:
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


def _many(args: argparse.Namespace) -> int:
    began_s, hours, steps, receipts, failed = time.monotonic(), 0.0, 0, 0, 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(_quiet, _plan(args, args.first + index)) for index in range(args.seeds)]
        for done, finished in enumerate(concurrent.futures.as_completed(runs), 1):
            outcome = finished.result()
            hours, steps, receipts = (
                hours + outcome.broker_hours,
                steps + outcome.steps,
                receipts + outcome.receipts,
            )
            if outcome.failure is not None:
                failed += 1
                print(f"{outcome.failure}\n  repeat it: {outcome.plan.line}", flush=True)
            if done % max(args.seeds // 20, 1) == 0:
                took_s = time.monotonic() - began_s
                print(
                    f"{done}/{args.seeds} seeds, {hours:,.0f} hours of broker, {took_s:.0f} s, "
                    f"{failed} failed",
                    flush=True,
                )
    took_s = time.monotonic() - began_s
    print(
        f"seeds {args.first} to {args.first + args.seeds - 1}: {failed} failed; {hours:,.1f} "
        f"hours of broker, {steps:,} turns of loops, "
        f"{receipts:,} receipts in {took_s:.1f} s with {args.jobs} processes"
    )
    return 1 if failed else 0


def _quiet(plan: Plan) -> Outcome:
    outcome = run(plan)
    return Outcome(
        plan,
        outcome.failure,
        outcome.digest,
        outcome.steps,
        outcome.receipts,
        outcome.broker_hours,
        (),
        (),
    )


def _mutants(seeds: range, jobs: int) -> int:
    """A table: mutant, seeds it survived before one found it."""

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
