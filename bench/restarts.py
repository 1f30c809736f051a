"""Restarts under stock clients with stored topics, as Pulsar tests its load managers.

`python -m bench restarts [--publishers 200] [--rate 1000] [--set KEY=VALUE …]`: three brokers, a
producer for each topic, in one process. First all brokers are restarted at once: for how long was
each publisher without a receipt? Then one after the other: how long did messages wait for their
receipt, from when they were due? `--set loadManagerClassName=…` chooses the load manager;
`--pulsar modular` or `extensible` restarts the brokers of a real Pulsar instead, whose one bookie
does not wait for its disk. Exits with 1 when a message with a receipt was lost or came out of
order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.processes import Fleet
from steer.real import MANAGERS
from system.campaign import Campaign

from bench._pulsar import a_pulsar

QUIET_S = 10.0


def main(argv: list[str]) -> int:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m bench restarts", description=__doc__)
    parser.add_argument("--publishers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--session", type=float, default=4.0, help="session timeout in seconds")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--pulsar", choices=MANAGERS, help="a real Pulsar with this load manager")
    args = parser.parse_args(argv)
    print("The clients tell of lost connections on the standard error.", flush=True)
    with tempfile.TemporaryDirectory(dir=".") as temporary:
        folder, more = Path(temporary).resolve(), dict(pair.split("=", 1) for pair in args.set)
        with (
            a_pulsar(folder, args.pulsar, more)
            if args.pulsar
            else Fleet(
                folder,
                session_s=args.session,
                settings={"loadManagerStorageDirectory": str(folder / "topics"), **more},
            ) as fleet,
            Campaign(fleet, topics=args.publishers, rate=args.rate) as campaign,
        ):
            marks = [time.monotonic()]
            for step in (lambda: None, campaign.restart_all, campaign.restart_each):
                time.sleep(QUIET_S)
                step()
                time.sleep(QUIET_S)
                marks.append(time.monotonic())
            outcome = campaign.finish()
    print(
        f"{outcome.acknowledged} messages acknowledged, {outcome.rate:.0f} /s; lost "
        f"{len(outcome.lost)}, out of order {len(outcome.disorder)}, without a receipt at the end "
        f"{outcome.unanswered}, stored twice {outcome.stored_twice}"
    )
    quiet, _, rolling = zip(marks, marks[1:], strict=False)
    _print("publishers without a receipt, all brokers restarted, s", campaign.recovered_s(), 1.0)
    _print("latency before, ms", campaign.latencies_s(*quiet), 1e3)
    _print("latency in a rolling restart, ms", campaign.latencies_s(*rolling), 1e3)
    return int(bool(outcome.lost or outcome.disorder))


def _print(what: str, seconds: Sequence[float], scale: float) -> None:
    ordered = sorted(seconds)
    parts = {"p50": 0.5, "p99": 0.99, "p99.99": 0.9999}
    figures = {name: scale * ordered[int(len(ordered) * part)] for name, part in parts.items()}
    told = ", ".join(f"{name} {figure:.1f}" for name, figure in figures.items())
    print(f"{what}: {told}, max {scale * ordered[-1]:.1f} ({len(ordered)})")
