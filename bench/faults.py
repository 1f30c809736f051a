"""Faults of three real brokers: how long topics are unserved, and which bundles have two owners.

`python -m bench faults [--session 4] [FAULT …]`; without names it does all faults. The observer is
outside the cluster: see tests/system/observer.py. Exits with 1 when a bundle had two owners or a
fault left a problem. Figures beyond the aim are marked with `!`, because this machine may be busy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from clusters.processes import Fleet
from system.faults import FAULTS, Outcome, Unable, observed, run

HEAD = f"{'fault':20} {'lasted':>8} {'pause':>8} {'after':>8} {'aim':>8}    twice  lost"


def main(argv: list[str]) -> int:
    """Print the table, one line per fault."""
    parser = argparse.ArgumentParser(prog="python -m bench faults", description=__doc__)
    parser.add_argument("--session", type=float, default=4.0, help="session timeout in seconds")
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a temporary one")
    names, every = [*FAULTS, []], " ".join(FAULTS)
    parser.add_argument("faults", nargs="*", choices=names, metavar="FAULT", help=every)
    args = parser.parse_args(argv)
    print("In seconds. pause: longest time without a receipt of one topic; after: from the fault's")
    print("end until every topic had a receipt; the aim is for the figure with *; twice: bundles")
    print("with two owners; lost: messages with a receipt afterwards that no consumer got.\n")
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        return _run_all(args.faults or list(FAULTS), args.keep or Path(temporary), args.session)


def _run_all(names: list[str], folder: Path, session_s: float) -> int:
    failed = False
    left = list(names)
    while left:
        # After a fault that broke the cluster, a new cluster serves for the other faults.
        place = folder / f"from-{left[0]}"
        place.mkdir(parents=True)
        failed |= _run_until_broken(left, place, session_s)
    return int(failed)


def _run_until_broken(left: list[str], folder: Path, session_s: float) -> bool:
    """Do the faults in `left` until one breaks the cluster for good; returns whether any failed."""
    failed = False
    with Fleet(folder, session_s=session_s) as fleet, observed(fleet) as observer:
        while left:
            name = left.pop(0)
            try:
                outcome = run(name, fleet, observer)
            except Unable as reason:
                print(f"{name:20} not run: {reason}", flush=True)
            except (AssertionError, OSError) as error:
                print(f"{name:20} FAILED: {error}", flush=True)
                for what, count in fleet.tracebacks().most_common(3):
                    print(f"{'':20} {count} × traceback: {what}", flush=True)
                return True
            else:
                _print(outcome)
                failed |= bool(outcome.twice_owned or outcome.problems or outcome.undelivered)
    return failed


def _print(row: Outcome) -> None:
    pause, after = f"{row.pause_s:.1f}", f"{row.served_again_s:.1f}"
    by_pause, by_end = (" ", "*") if row.from_end else ("*", " ")
    late = "!" if row.measured_s > row.aim_s else " "
    print(
        f"{row.fault:20} {row.lasted_s:8.1f} {pause:>7}{by_pause} {after:>7}{by_end}"
        f" {row.aim_s:8.1f} {late} {len(row.twice_owned):6} {row.undelivered:5}",
        flush=True,
    )
    for line in [*row.twice_owned, *row.problems, *row.notes]:
        print(f"{'':20} {line}", flush=True)
