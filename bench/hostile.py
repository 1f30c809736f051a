"""Random clients: sessions and requests at a broker in this process, then three broker processes.

`python -m bench hostile --seconds 600 --seed 1`: a quarter of the time goes to lives of clients of
the binary protocol, a quarter to requests over all operations of the OpenAPI document, in rounds
with a seed each, and half of it to mutated frames and requests against three brokers with a
well-behaved neighbour. Exits with 1 for any problem: a 5xx other than 501 and 503 with a reason, an
error in a log, something that clients left behind, a broker that ended, growth of memory, file
descriptors or tasks, or a neighbour that was not served.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from hostile.operations import ask_at_random
from hostile.processes import Result, fuzz
from hostile.sessions import live_at_random

SESSIONS, REQUESTS = 300, 3_000
"""Of one round."""
NO_END = 10**12


def main(argv: list[str]) -> int:
    """Run, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m bench hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="TEXT",
        help="no routes that contain TEXT, at the three brokers",
    )
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a temporary one")
    args = parser.parse_args(argv)
    here = structlog.make_filtering_bound_logger(logging.WARNING)
    structlog.configure(wrapper_class=here)
    failed = _rounds("sessions", _lives, args.seed, args.seconds / 4)
    failed |= _rounds("operations", _requests, args.seed, args.seconds / 4)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = fuzz(
            folder,
            frame_count=NO_END,
            request_count=NO_END,
            seed=args.seed,
            without=args.without,
            seconds=args.seconds / 2,
        )
    _print(result)
    return int(failed or bool(result.problems))


async def _lives(seed: int, seconds: float) -> tuple[int, list[str]]:
    lived = await live_at_random(seed, SESSIONS, seconds)
    return lived.frames, lived.problems


async def _requests(seed: int, seconds: float) -> tuple[int, list[str]]:
    found = await ask_at_random(seed, REQUESTS, seconds, as_stranger=seed % 2 == 0)
    return found.asked.requests, found.problems


def _rounds(
    name: str,
    work: Callable[[int, float], Awaitable[tuple[int, list[str]]]],
    seed: int,
    seconds: float,
) -> bool:
    """Work with one seed after the other until the time is over; whether there was a problem."""
    until_s, done, first, failed = time.monotonic() + seconds, 0, seed, False
    while (left_s := until_s - time.monotonic()) > 0:
        with asyncio.Runner() as runner:
            sent, problems = runner.run(work(seed, left_s))
        done, failed = done + sent, failed or bool(problems)
        for problem in problems:
            print(f"{name}, seed {seed}: {problem}")
        seed += 1
    print(f"{name:16} {done} with seeds {first} to {seed - 1}")
    return failed


def _print(result: Result) -> None:
    sent, asked = result.frames, result.requests
    rate = sent.frames / max(result.took_s, 1e-9)
    print(f"seconds          {result.took_s:.1f}")
    print(f"frames           {sent.frames} ({rate:.0f}/s), {sent.made} of them different")
    ends = f"{sent.ended_early} ended early, {sent.refused} refused"
    print(f"connections      {sent.connections}, {ends}")
    print(f"answers by type  {dict(sent.answers.most_common())}")
    slowest = f"slowest {asked.slowest_s:.2f} s"
    print(f"requests         {asked.requests} over {asked.routes} routes, {slowest}")
    print(f"statuses         {dict(asked.statuses.most_common())}")
    print(
        f"neighbour        longest pause {result.pause_s:.2f} s; receipts p50"
        f" {result.latency_p50_s * 1000:.0f} ms, p99 {result.latency_p99_s * 1000:.0f} ms,"
        f" worst {result.latency_max_s * 1000:.0f} ms"
    )
    for index, (before, after) in enumerate(zip(result.before, result.after, strict=False)):
        print(f"broker {index}         {before} → {after}")
    print(f"problems         {len(result.problems)}")
    for problem in result.problems:
        print(f"  {problem}")
