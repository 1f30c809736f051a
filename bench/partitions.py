"""Partitions of a real ensemble of three ZooKeeper servers, and three brokers with stored topics.

`python -m bench partitions [--session 4] [--lasts 10] [NAME …]`: for how long is a topic without a
receipt, and which entries have receipts of two brokers (none must)? Needs root and iproute2; see
tests/system/ensemble.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from system.ensemble import CUTS, EnsembleFleet, NoRightsError, cut
from system.faults import observed


def main(argv: list[str]) -> int:
    """Print a line for each partition; returns 1 if something had two owners."""
    parser = argparse.ArgumentParser(prog="python -m bench partitions", description=__doc__)
    parser.add_argument("--session", type=float, default=4.0, help="session timeout in seconds")
    parser.add_argument("--lasts", type=float, default=10.0, help="seconds of each partition")
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a temporary one")
    parser.add_argument("names", nargs="*", choices=[*CUTS, []], metavar="NAME")
    args = parser.parse_args(argv)
    print(f"{'partition':18} {'lasted':>8} {'pause':>8}  twice  brokers that stopped", flush=True)
    twice = 0
    for name in args.names or CUTS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (args.keep or Path(temporary)) / name
            folder.mkdir(parents=True)
            try:
                with (
                    EnsembleFleet(folder, session_s=args.session) as fleet,
                    observed(fleet) as seen,
                ):
                    row = cut(name, fleet, seen, args.lasts)
            except NoRightsError as reason:
                print(f"not run: {reason}")
                return 2
        twice += len(row.twice)
        print(
            f"{name:18} {row.lasted_s:8.1f} {row.pause_s:8.1f} {len(row.twice):6} {row.stopped:6}",
            flush=True,
        )
        for line in row.twice[:3]:
            print(f"{'':18} {line}", flush=True)
    return int(twice > 0)
