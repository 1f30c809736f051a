"""Alerts of deploy/alerts.yml, fired and resolved on a live cluster, each by its cause.

`python -m bench alerts [--keep FOLDER] [--allow ALERT=WHY …] [ALERT …]` starts three brokers and
their ZooKeeper, a daemon beside a fake Pulsar, and a Prometheus with the rules in which a minute is
a second. It brings about the cause of each alert, waits until it fires, removes the cause, and
waits until it resolves. Then it looks which alerts fire on a new cluster that is well, and while
its brokers are restarted one after the other, under the rules as they are. It needs Prometheus
(Debian: prometheus), and a disk of which more than a tenth is free; a full disk needs root, a wrong
clock libfaketime (Debian: faketime). An alert whose cause cannot be brought about here is not
shown, and counts as one that failed, unless `--allow` names it and says why. Exits with 1 if an
alert did not fire or resolve, was not shown, or paged without a cause, with 2 if it cannot begin.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from deploy.alarms.causes import CAUSES
from deploy.alarms.quicker import FACTOR, RULES
from deploy.alarms.running import Result, all_causes, quiet

CALM_S = 70.0
"""Longer than the `for` of the quickest pages."""
CALM = "calm"
FREE = 0.105
"""More than the tenth below which LoadmanagerDiskNearlyFull pages, for it takes minutes to test."""


def main(argv: list[str]) -> int:
    """Print the table, one line per alert."""
    parser = argparse.ArgumentParser(prog="python -m bench alerts", description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder for logs; default: a temporary one")
    parser.add_argument(
        "--allow",
        action="append",
        type=_allowed,
        default=[],
        metavar="ALERT=WHY",
        help="an alert that need not be shown here, and why; repeatable",
    )
    choices = [*RULES, CALM, []]
    parser.add_argument("alerts", nargs="*", choices=choices, metavar="ALERT", help="default: all")
    args = parser.parse_args(argv)
    if reason := _why_not(args.keep.parent if args.keep else Path(tempfile.gettempdir())):
        print(reason)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which stops what was started
    names = set(args.alerts or choices[:-1])
    print(f"A minute of a rule is {60 / FACTOR:g} s. fires: seconds since the cause was there;")
    print("resolves: since it was removed, and brokers that it had ended were back.\n")
    print(f"{'alert':32} {'fires':>6} {'resolves':>9}  cause", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        chosen = [cause for cause in CAUSES if names & set(cause.alerts)]
        good = report(all_causes(chosen, folder), dict(args.allow))
        if CALM in names:
            good &= _calm(folder / CALM)
    return int(not good)


def _why_not(folder: Path) -> str:
    """Why nothing can be said of alerts here; empty: it can."""
    if shutil.which("prometheus") is None:
        return "Prometheus is not installed"
    disk = shutil.disk_usage(folder)
    if disk.free < FREE * disk.total:
        share = f"{disk.free / disk.total:.1%} of the disk of {folder} are free"
        return f"{share}: there LoadmanagerDiskNearlyFull is right to page. Free some ({FREE:.1%})."
    return ""


def _allowed(text: str) -> tuple[str, str]:
    alert, _, why = text.partition("=")
    if alert not in RULES or not why.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: ALERT=WHY is expected, of deploy/alerts.yml")
    return alert, why


def report(results: Iterable[Result], allowed: Mapping[str, str]) -> bool:
    """Print a line for each alert, and how many were shown; True if all were, or need not be:
    `allowed` says of which that holds, and why.
    """
    shown, failed, left_out = 0, list[str](), list[str]()
    for result in results:
        for name in result.cause.alerts:
            figures = [
                f"{times[name]:.0f}" if name in times else "NEVER"
                for times in (result.fired_s, result.resolved_s)
            ]
            if result.unable:
                figures = ["-", "-"]
            print(f"{name:32} {figures[0]:>6} {figures[1]:>9}  {result.cause.name}", flush=True)
            if result.good:
                shown += 1
            elif result.unable and name in allowed:
                left_out.append(f"{name} ({result.unable}; allowed: {allowed[name]})")
            else:
                failed.append(f"{name} ({result.unable or 'failed'})")
        for line in (result.unable, result.problem):
            if line:
                print(f"{'':50} {line}", flush=True)
        if result.also:
            print(f"{'':50} also: {', '.join(sorted(result.also))}", flush=True)
    print(f"\n{shown} alerts fired and resolved, {len(failed) + len(left_out)} were not shown")
    for line in failed + left_out:
        print(f"  not shown: {line}", flush=True)
    return not failed


def _calm(folder: Path) -> bool:
    folder.mkdir(parents=True)
    pages, tickets, pending = quiet(folder, seconds=CALM_S)
    print("\nA cluster that is well, and a rolling restart, by the rules as they are:")
    for what, names in (("paged", pages), ("about to page", pending), ("tickets", tickets)):
        print(f"  {what}: {', '.join(sorted(names)) or 'none'}", flush=True)
    return not pages and not pending
