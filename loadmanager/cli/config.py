"""`loadmanager config`: check a broker.conf without starting a broker, or print a new one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from loadmanager import settings
from loadmanager.cli.options import add_command, add_set
from loadmanager.core.errors import ConfigError
from loadmanager.wiring.plugins import register_plugins

EXAMPLES = """examples:
  loadmanager config check /etc/pulsar/broker.conf
  loadmanager config check broker.conf --set loadBalancerSheddingIntervalMinutes=0.5 --json
  loadmanager config template > broker.conf
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's arguments."""
    parser = add_command(
        subparsers, "config", "check a broker.conf, or print one with every default", EXAMPLES
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = add_command(
        actions,
        "check",
        "print which keys are set, unknown, out of range or contradictory; exit status 2 if "
        "a broker would refuse the file",
    )
    check.add_argument("file", type=Path, metavar="FILE")
    add_set(check)
    check.add_argument("--json", action="store_true", help="print JSON")
    add_command(
        actions, "template", "print a broker.conf: every key with a comment and its default"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check a file or print the template."""
    if args.action == "template":
        sys.stdout.write(settings.template())
        return 0
    try:
        register_plugins()
        loaded, problems = settings.examine(args.file, settings.parse_overrides(args.set))
        texts = [problem.text for problem in problems]
    except ConfigError as error:
        loaded, texts = settings.load(), [str(error)]
    if args.json:
        unknown = {key.name: key.nearest for key in loaded.unknown}
        given = dict(sorted(loaded.given.items()))
        print(
            json.dumps(
                {"ok": not texts, "problems": texts, "set": given, "unknown": unknown}, indent=2
            )
        )
    else:
        _print_problems(args.file, texts)
        if not texts:
            _print_changes(args.file, loaded)
        _print_unknown(loaded.unknown, sys.stderr if texts else sys.stdout)
    return 2 if texts else 0


def _print_problems(file: Path, problems: list[str]) -> None:
    if problems:
        print(f"{file}: cannot be used", file=sys.stderr)
        for problem in problems:
            print(f"  {problem}", file=sys.stderr)


def _print_changes(file: Path, loaded: settings.Settings) -> None:
    defaults, values = settings.load().runtime(), loaded.runtime()
    changed = [name for name in sorted(loaded.given) if values[name] != defaults[name]]
    print(
        f"{file}: can be used; {len(loaded.given)} keys set, {len(changed)} of them differ "
        "from the default"
    )
    for name in changed:
        print(f"  {name} = {loaded.given[name]}   (default {defaults[name] or 'empty'})")


def _print_unknown(unknown: Sequence[settings.Unknown], file: TextIO) -> None:
    if unknown:
        names = ", ".join(key.name for key in unknown)
        print(f"unknown and ignored: {len(unknown)} keys: {names}", file=file)
    for key in unknown:
        if key.nearest:
            print(f"  {key.name}: did you mean {key.nearest}?", file=file)
