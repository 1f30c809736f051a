"""Mutated frames and HTTP requests against three live brokers with a well-behaved neighbour.

`python -m bench fuzz --frames 2000000 --requests 20000 --seed 1`. Exits with 1 for any problem: a
5xx other than 501 and 503 with a reason, a traceback in a log, a broker that ended, growth of
memory, file descriptors or tasks, or a neighbour that was not served.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzz.run import Result, fuzz


def main(argv: list[str]) -> int:
    """Run, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="TEXT",
        help="no routes that contain TEXT",
    )
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a temporary one")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = fuzz(
            folder,
            frame_count=args.frames,
            request_count=args.requests,
            seed=args.seed,
            without=args.without,
        )
    _print(result)
    return int(bool(result.problems))


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
