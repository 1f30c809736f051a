"""Moves, splits and faults under stock clients with stored topics: nothing may be lost or come out
of order; how long does each hold its topics up?

`python -m bench moves-under-load [--moves 200] [--splits 20] [--rate 5000] [--topics 64] [--set
KEY=VALUE …] [--no-faults]`. Three brokers, a real ZooKeeper, clients in two processes. `--set
loadManagerClassName=…` chooses the load manager. Exits with 1 when a message with a receipt was
lost or came out of order.
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
from system.campaign import Campaign, Outcome


def main(argv: list[str]) -> int:
    """Run the campaign and print what it showed."""
    parser = argparse.ArgumentParser(prog="python -m bench moves-under-load", description=__doc__)
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--rate", type=float, default=5000.0)
    parser.add_argument("--topics", type=int, default=64)
    parser.add_argument("--session", type=float, default=4.0, help="session timeout in seconds")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--between", type=float, default=2.0, help="seconds between two moves")
    parser.add_argument("--no-faults", action="store_true", help="moves and splits only")
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a temporary one")
    args = parser.parse_args(argv)
    print("The clients tell of lost connections on the standard error.", flush=True)
    with tempfile.TemporaryDirectory(dir=".") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"loadManagerStorageDirectory": str(folder.resolve() / "topics")}
        settings |= dict(pair.split("=", 1) for pair in args.set)
        with (
            Fleet(folder, bundles=8, session_s=args.session, settings=settings) as fleet,
            Campaign(fleet, topics=args.topics, rate=args.rate) as campaign,
        ):
            _events(campaign, args)
            outcome = campaign.finish()
            pauses, found = fleet.move_pauses_ms(), fleet.tracebacks()
    _print(outcome)
    waits = sorted(campaign.latencies_s())
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(
        f"Receipts came p50 {p50:.3f} s, p99 {p99:.3f} s after their messages were due. If that is "
        "seconds, the machine is too slow for the rate, and so are the pauses."
    )
    if pauses:
        print("The brokers' own figures, from the fence to the acquisition by the destination:")
        _row("transfer", pauses)
    for what, count in found.most_common(5):
        print(f"{count} × traceback: {what}")
    return int(bool(outcome.lost or outcome.disorder))


def _events(campaign: Campaign, args: argparse.Namespace) -> None:
    fleet = campaign.fleet
    time.sleep(3)
    for number in range(fleet.bundles):
        campaign.nothing(number)
        time.sleep(args.between)
    for number in range(args.moves):
        (campaign.transfer if number % 2 else campaign.unload)(number // 2)
        time.sleep(args.between)
    for _ in range(args.splits):
        campaign.split()
        time.sleep(args.between)
    if args.no_faults:
        return
    for step in (
        lambda: campaign.kill(fleet.owner_of(campaign.topics[0]), "kill -9 of the owner"),
        lambda: campaign.kill(fleet.leader(), "kill -9 of the leader"),
        lambda: campaign.pause(fleet.owner_of(campaign.topics[0])),
        campaign.restart_zookeeper,
    ):
        time.sleep(5)
        step()
    time.sleep(5)


def _print(outcome: Outcome) -> None:
    print(
        f"{outcome.acknowledged} messages acknowledged, {outcome.rate:.0f} /s; "
        f"lost {len(outcome.lost)}, out of order {len(outcome.disorder)}, without a receipt at the "
        f"end {outcome.unanswered}, stored twice {outcome.stored_twice}, delivered again "
        f"{outcome.delivered_again}"
    )
    for what, numbers in (("lost", outcome.lost), ("out of order", outcome.disorder)):
        if numbers:
            print(f"{what}: {', '.join(numbers[:10])}")
    print(f"\n{'event':24} {'times':>6} {'p50':>8} {'p99':>8} {'max':>8}  ms without a receipt")
    for kind, pauses in outcome.pauses_ms.items():
        _row(kind, pauses)


def _row(kind: str, pauses_ms: Sequence[float]) -> None:
    ordered = sorted(pauses_ms)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"{kind:24} {len(ordered):6} {p50:8.0f} {p99:8.0f} {ordered[-1]:8.0f}")
